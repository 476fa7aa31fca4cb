#include "checkpoint/output_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "checkpoint/text_file.h"
#include "io/dequantize.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSlabValues = std::int64_t{1} << 20;
constexpr std::size_t kShardBytes = std::size_t{5} << 30;
constexpr float kLargestF16 = 65504.0F;

std::size_t size_of(const OutputTensor& output) {
  return storage_bytes(output.spec.dtype, output.spec.shape.num_elements()).value_or(0);
}

/// f16 has no larger values, and block types have f16 scales.
bool is_limited(DType dtype) { return dtype == DType::kF16 || is_block_type(dtype); }

Status check_range(const OutputTensor& output, std::span<const float> values) {
  const bool fits = !is_limited(output.spec.dtype) ||
                    std::all_of(values.begin(), values.end(),
                                [](float value) { return std::fabs(value) <= kLargestF16; });
  return fits ? Status()
              : fail(ErrorCode::kInvalidInput,
                     fmt::format("{} has values beyond 65504, which {} cannot hold",
                                 output.spec.name, dtype_name(output.spec.dtype)));
}

Status check_cancelled(const WriteControl& control) {
  return control.cancel != nullptr && control.cancel->cancelled()
             ? fail(ErrorCode::kCancelled, control.tool + ": cancelled")
             : Status();
}

Status write_tensor(TensorWriter& writer, const OutputTensor& output, WriteControl& control) {
  MINIACC_RETURN_IF_ERROR(check_cancelled(control));
  if (!output.fill) {
    MINIACC_ASSIGN(const auto bytes, output.content());
    control.written += bytes.size();
    return writer.append(bytes);
  }
  const Shape& shape = output.spec.shape;
  const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  const std::int64_t columns = rows == 0 ? 0 : shape.num_elements() / rows;
  if (columns == 0) {
    return {};
  }
  const std::int64_t slab_rows = std::clamp<std::int64_t>(kSlabValues / columns, 1, rows);
  std::vector<float> values(static_cast<std::size_t>(slab_rows * columns));
  std::vector<std::byte> bytes;
  for (std::int64_t first = 0; first < rows; first += slab_rows) {
    MINIACC_RETURN_IF_ERROR(check_cancelled(control));
    const std::int64_t count = std::min(slab_rows, rows - first);
    const auto part = std::span(values).first(static_cast<std::size_t>(count * columns));
    MINIACC_RETURN_IF_ERROR(output.fill(first, count, part.data()));
    MINIACC_RETURN_IF_ERROR(check_range(output, part));
    bytes.resize(storage_bytes(output.spec.dtype, count * columns).value());
    quantize(output.spec.dtype, part, bytes);
    MINIACC_RETURN_IF_ERROR(writer.append(bytes));
    control.written += bytes.size();
    if (control.progress) {
      control.progress(control.written);
    }
  }
  return {};
}

}  // namespace

std::size_t output_bytes(const std::vector<OutputTensor>& outputs) {
  std::size_t total = 0;
  for (const OutputTensor& output : outputs) {
    total += size_of(output);
  }
  return total;
}

Status write_tensor_file(const fs::path& path, const std::vector<OutputTensor>& outputs,
                         const std::map<std::string, std::string>& metadata,
                         WriteControl& control) {
  std::error_code error;
  if (path.has_parent_path()) {
    fs::create_directories(path.parent_path(), error);
  }
  std::vector<TensorSpec> specs;
  specs.reserve(outputs.size());
  for (const OutputTensor& output : outputs) {
    specs.push_back(output.spec);
  }
  MINIACC_ASSIGN(const auto writer, path.extension() == ".gguf"
                                        ? create_gguf(path, specs, metadata)
                                        : create_safetensors(path, specs, metadata));
  for (const OutputTensor& output : outputs) {
    if (auto written = write_tensor(*writer, output, control); !written) {
      return fail(written.error().code,
                  written.error().code == ErrorCode::kInvalidInput
                      ? fmt::format("{}: {}", path.string(), written.error().message)
                      : std::move(written).error().message);
    }
  }
  if (control.progress) {
    control.progress(control.written);
  }
  return writer->finish();
}

Status write_shards(const fs::path& folder, const std::string& stem,
                    const std::vector<OutputTensor>& outputs, std::size_t min_shards,
                    WriteControl& control) {
  const std::size_t total = std::max<std::size_t>(1, output_bytes(outputs));
  const std::size_t num_shards = std::max(min_shards, (total + kShardBytes - 1) / kShardBytes);
  std::vector<std::vector<OutputTensor>> shards(num_shards);
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  const auto shard_name = [&](std::size_t shard) {
    return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, num_shards);
  };
  std::size_t done = 0;
  for (const OutputTensor& output : outputs) {
    const std::size_t shard = std::min(done * num_shards / total, num_shards - 1);
    weight_map[output.spec.name] = shard_name(shard);
    shards[shard].push_back(output);
    done += size_of(output);
  }
  for (std::size_t shard = 0; shard < num_shards; ++shard) {
    MINIACC_RETURN_IF_ERROR(
        write_tensor_file(folder / shard_name(shard), shards[shard], {{"format", "pt"}}, control));
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", output_bytes(outputs)}}},
                                        {"weight_map", weight_map}};
  return write_text_file(folder / (stem + ".safetensors.index.json"), index.dump(2) + '\n');
}

StagingFolder::StagingFolder(fs::path target) : target_(std::move(target)) {
  if (!target_.has_filename()) {
    target_ = target_.parent_path();  // "out/" is the folder out
  }
  path_ = target_;
  path_ += ".partial";
}

StagingFolder::~StagingFolder() {
  if (!done_) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
}

Status StagingFolder::create() {
  std::error_code error;
  const fs::path parent = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, error)) {
    return fail(ErrorCode::kNotFound, fmt::format("{}: there is no folder {} to make it in",
                                                  target_.string(), parent.string()));
  }
  fs::remove_all(path_, error);  // left over from a run that was killed
  fs::create_directory(path_, error);
  return error ? fail(ErrorCode::kIo, fmt::format("{}: cannot make this folder: {}", path_.string(),
                                                  error.message()))
               : Status();
}

Status StagingFolder::finish() {
  std::error_code error;
  fs::rename(path_, target_, error);
  if (error) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot rename {} to it: {}", target_.string(),
                                            path_.string(), error.message()));
  }
  done_ = true;
  return {};
}

}  // namespace miniacc
