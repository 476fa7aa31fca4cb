#include "runtime/latents_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "io/dequantize.h"
#include "io/tensor_file.h"
#include "io/tensor_writer.h"

namespace miniacc {
namespace {

constexpr const char* kVideoName = "video_latents";
constexpr const char* kAudioName = "audio_latents";

Result<Tensor> load_one(const TensorFile& file, const char* name, int rank, Device& device) {
  const TensorEntry* entry = file.find(name);
  if (entry == nullptr || entry->dtype != DType::kF32 || entry->shape.rank() != rank) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{} is no latents file of miniacc: it has no f32 tensor {} with {} "
                            "dimensions",
                            file.path().string(), name, rank));
  }
  MINIACC_ASSIGN(const auto bytes, file.bytes(*entry));
  MINIACC_ASSIGN(Tensor tensor, try_empty_tensor(device, entry->shape, DType::kF32));
  dequantize(entry->dtype, bytes, entry->shape.num_elements(), tensor.f32().data());
  const auto values = tensor.f32();
  if (!std::all_of(values.begin(), values.end(),
                   [](float value) { return std::isfinite(value); })) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} holds values that are not finite", file.path().string(), name));
  }
  return tensor;
}

}  // namespace

Status save_latents(const std::filesystem::path& path, const ClipLatents& latents,
                    const std::string& request_json) {
  MINIACC_ASSIGN(auto writer, create_safetensors(path,
                                                 {{kAudioName, DType::kF32, latents.audio.shape()},
                                                  {kVideoName, DType::kF32, latents.video.shape()}},
                                                 {{"miniacc", request_json}}));
  MINIACC_RETURN_IF_ERROR(writer->append(std::as_bytes(latents.audio.f32())));
  MINIACC_RETURN_IF_ERROR(writer->append(std::as_bytes(latents.video.f32())));
  return writer->finish();
}

Status check_latents_target(const std::filesystem::path& path, const std::filesystem::path& output,
                            bool overwrite) {
  std::error_code ignored;
  if (path.lexically_normal() == output.lexically_normal() ||
      std::filesystem::equivalent(path, output, ignored)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--save-latents and --output both name {}", path.string()));
  }
  if (std::filesystem::exists(path, ignored) && !overwrite) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: exists already; --save-latents replaces it only with --overwrite",
                            path.string()));
  }
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  if (!std::filesystem::is_directory(parent, ignored)) {
    return fail(ErrorCode::kNotFound, fmt::format("{}: cannot write there, it has no folder {}",
                                                  path.string(), parent.string()));
  }
  // Never finished, so nothing is left of it.
  MINIACC_ASSIGN(const auto writer, create_safetensors(path, {{kVideoName, DType::kF32, {1}}}, {}));
  return {};
}

Result<GenerateRequest> load_latents_request(const std::filesystem::path& path) {
  MINIACC_ASSIGN(const TensorFile file, TensorFile::open(path));
  const auto found = file.metadata().find("miniacc");
  if (found == file.metadata().end()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{} is no latents file of miniacc: it does not say what made it",
                            path.string()));
  }
  return request_from_json(found->second);
}

Result<ClipLatents> load_latents(const std::filesystem::path& path, Device& device) {
  MINIACC_ASSIGN(const TensorFile file, TensorFile::open(path));
  ClipLatents latents;
  MINIACC_ASSIGN(latents.video, load_one(file, kVideoName, 4, device));
  MINIACC_ASSIGN(latents.audio, load_one(file, kAudioName, 3, device));
  return latents;
}

}  // namespace miniacc
