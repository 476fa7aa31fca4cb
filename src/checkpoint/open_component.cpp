#include "checkpoint/open_component.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>

#include "checkpoint/detect.h"
#include "checkpoint/matrix_rows.h"
#include "checkpoint/schema.h"
#include "device/cpu_device.h"
#include "io/sha256.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

/// 64-bit FNV-1a.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    }
    value_ = (value_ ^ 0xFFU) * 0x100000001B3ULL;  // separates fields
  }
  [[nodiscard]] std::string hex() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

class FileWeights final : public ComponentWeights {
 public:
  explicit FileWeights(std::unique_ptr<ComponentAnalysis> analysis)
      : analysis_(std::move(analysis)) {}

  [[nodiscard]] const CheckpointInfo& info() const override { return analysis_->info; }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    names.reserve(analysis_->plan.tensors.size());
    for (const auto& [name, tensor] : analysis_->plan.tensors) {
      names.push_back(name);
    }
    return names;
  }

  [[nodiscard]] bool has(std::string_view name) const override {
    return analysis_->plan.tensors.find(name) != analysis_->plan.tensors.end();
  }

  [[nodiscard]] Result<Shape> shape(std::string_view name) const override {
    MINIACC_ASSIGN(const CanonicalTensor* tensor, find(name));
    return tensor->shape;
  }

  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override {
    const auto found = analysis_->config.values.find(key);
    return found == analysis_->config.values.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override {
    MINIACC_ASSIGN(const CanonicalTensor* tensor, find(name));
    MINIACC_ASSIGN(Tensor out, try_empty_tensor(device, tensor->shape, DType::kF32));
    MINIACC_RETURN_IF_ERROR(
        read_rows(file(), *tensor, 0, tensor->rows(), device, out.f32().data()));
    return out;
  }

  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override {
    MINIACC_ASSIGN(const CanonicalTensor* tensor, find(name));
    if (first < 0 || count < 0 || first > tensor->rows() - count) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: {} has {} rows, wanted rows {} to {}", path(), name,
                              tensor->rows(), first, first + count));
    }
    Shape shape = tensor->shape;
    shape.set(0, count);
    MINIACC_ASSIGN(Tensor out, try_empty_tensor(device, shape, DType::kF32));
    MINIACC_RETURN_IF_ERROR(read_rows(file(), *tensor, first, count, device, out.f32().data()));
    return out;
  }

  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                      Device& device) override {
    MINIACC_ASSIGN(const CanonicalTensor* tensor, find(name));
    MINIACC_REQUIRE(tensor->shape.rank() >= 2, "load_matrix: tensor is no matrix");
    OwnedWeightMatrix matrix;
    MINIACC_ASSIGN(matrix.values, try_empty_tensor(device, {tensor->rows(), tensor->columns()},
                                                   matrix_dtype(precision)));
    if (precision == Precision::kInt8) {
      MINIACC_ASSIGN(matrix.row_scale, try_empty_tensor(device, {tensor->rows()}, DType::kF32));
    }
    MINIACC_ASSIGN(MatrixExtras extras,
                   read_matrix(name, precision, 1, device, matrix.values.view(),
                               matrix.row_scale.empty() ? TensorView() : matrix.row_scale.view()));
    matrix.rotation_group = extras.rotation_group;
    return matrix;
  }

  [[nodiscard]] Result<MatrixExtras> read_matrix(std::string_view name, Precision precision,
                                                 int num_threads, Device& scratch,
                                                 TensorView values, TensorView row_scale) override {
    MINIACC_ASSIGN(const CanonicalTensor* tensor, find(name));
    MINIACC_RETURN_IF_ERROR(
        check_matrix_memory(tensor->rows(), tensor->columns(), precision, values, row_scale));
    const bool as_stored = (precision == Precision::kBF16 && is_plain_bf16(*tensor)) ||
                           (precision == Precision::kInt8 && is_row_int8(*tensor));
    MatrixExtras extras;
    if (as_stored && precision == Precision::kInt8) {
      extras.rotation_group = tensor->parts.front().quantization.rotation_group;
      MINIACC_RETURN_IF_ERROR(copy_row_scales(file(), *tensor, row_scale.f32()));
    }
    const auto fill_slab = [&](std::int64_t first, std::int64_t count) -> Status {
      const TensorView rows = values.narrow(0, first, count);
      if (as_stored) {
        return copy_rows(file(), *tensor, first, count, static_cast<std::byte*>(rows.data));
      }
      if (precision == Precision::kF32) {
        return read_rows(file(), *tensor, first, count, scratch, rows.f32());
      }
      MINIACC_ASSIGN(Tensor slab,
                     try_empty_tensor(scratch, {count, tensor->columns()}, DType::kF32));
      MINIACC_RETURN_IF_ERROR(read_rows(file(), *tensor, first, count, scratch, slab.f32().data()));
      convert_rows(scratch, rows, row_scale, first, std::as_const(slab).view());
      return {};
    };
    MINIACC_RETURN_IF_ERROR(
        for_row_slabs(tensor->rows(), tensor->columns(), num_threads, fill_slab));
    return extras;
  }

  [[nodiscard]] std::string identity() const override {
    Hash hash;
    hash.add(component_name(analysis_->info.component));
    for (const TensorEntry& entry : file().entries()) {
      hash.add(entry.name);
      hash.add(dtype_name(entry.dtype));
      hash.add(entry.shape.to_string());
      hash.add(std::to_string(entry.size_bytes));
    }
    std::call_once(samples_once_, [&] { samples_ = sample_content(); });
    return hash.hex() + samples_;
  }

  [[nodiscard]] std::string stamp() const override {
    std::string text;
    for (const MappedFile& mapped : file().files()) {
      std::error_code error;
      const auto written = fs::last_write_time(mapped.path(), error);
      text += fmt::format("{}@{} ", mapped.bytes().size(),
                          error ? 0 : written.time_since_epoch().count());
    }
    return text;
  }

 private:
  /// 16 hex digits of a hash over a page of every tensor, from its middle: files of equal headers
  /// differ there, and reading them whole would take minutes.
  [[nodiscard]] std::string sample_content() const {
    constexpr std::size_t kSampleBytes = 4096;
    constexpr std::size_t kDigits = 16;
    Sha256 hash;
    for (const TensorEntry& entry : file().entries()) {
      const auto bytes = file().bytes(entry);
      if (!bytes) {
        hash.add(std::as_bytes(std::span(entry.name)));  // shrunk meanwhile: reading it will tell
        continue;
      }
      const std::size_t size = std::min(kSampleBytes, bytes->size());
      const std::size_t begin = (bytes->size() - size) / 2 / kSampleBytes * kSampleBytes;
      hash.add(bytes->subspan(begin, size));
    }
    return hash.hex().substr(0, kDigits);
  }

  [[nodiscard]] const TensorFile& file() const { return analysis_->file; }
  [[nodiscard]] std::string path() const { return file().path().string(); }

  [[nodiscard]] Result<const CanonicalTensor*> find(std::string_view name) const {
    const std::vector<std::string>& problems = analysis_->plan.encoder_problems;
    if (!problems.empty() && is_encoder_tensor(analysis_->info.component, name)) {
      std::string text = problems.front();
      if (problems.size() > 1) {
        text += fmt::format(" (and {} more problems of the encoder)", problems.size() - 1);
      }
      return fail(ErrorCode::kInvalidInput,
                  text + ": this file decodes, but cannot encode what is given as an input");
    }
    const auto found = analysis_->plan.tensors.find(name);
    if (found == analysis_->plan.tensors.end()) {
      return fail(ErrorCode::kNotFound, fmt::format("{}: has no tensor {}", path(), name));
    }
    return &found->second;
  }

  std::unique_ptr<ComponentAnalysis> analysis_;
  mutable std::once_flag samples_once_;
  mutable std::string samples_;
};

Status check_component(const fs::path& path, Component found, Component wanted) {
  return found == wanted ? Status()
                         : fail(ErrorCode::kInvalidInput,
                                fmt::format("{}: given as {} but this file is {}", path.string(),
                                            component_option(wanted), component_phrase(found)));
}

/// Latent statistics that a single file carries as tensors.
Status take_latent_statistics(ComponentAnalysis& analysis) {
  const Component component = analysis.info.component;
  if (component != Component::kVideoVae && component != Component::kAudioVae) {
    return {};
  }
  for (const char* key : {"latents_mean", "latents_std"}) {
    const TensorEntry* entry = analysis.file.find(analysis.info.prefix + key);
    if (entry != nullptr) {
      CanonicalTensor tensor{
          key, {entry->shape.num_elements()}, RowLayout::kAsStored, 0, {StoredTensor{entry, {}}}};
      std::vector<float> values(static_cast<std::size_t>(tensor.rows()));
      CpuDevice scratch;
      MINIACC_RETURN_IF_ERROR(
          read_rows(analysis.file, tensor, 0, tensor.rows(), scratch, values.data()));
      analysis.config.values[key] = {values.begin(), values.end()};
    }
    const auto found = analysis.config.values.find(key);
    const std::int64_t channels = analysis.plan.dimensions["latent_channels"];
    if (found != analysis.config.values.end() &&
        static_cast<std::int64_t>(found->second.size()) != channels) {
      analysis.plan.problems.push_back(fmt::format("{}: {} has {} values, wanted {}",
                                                   analysis.file.path().string(), key,
                                                   found->second.size(), channels));
    }
  }
  return {};
}

}  // namespace

Result<fs::path> component_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return fail(ErrorCode::kNotFound, path.string() + ": no such file or folder");
  }
  if (!fs::is_directory(path, ignored)) {
    return path;
  }
  for (const char* name :
       {"model.safetensors.index.json", "diffusion_pytorch_model.safetensors.index.json",
        "model.safetensors", "diffusion_pytorch_model.safetensors", "source/model.safetensors",
        "source/model.safetensors.index.json"}) {
    if (fs::is_regular_file(path / name, ignored)) {
      return path / name;
    }
  }
  std::vector<fs::path> found;
  for (const auto& item : fs::directory_iterator(path, ignored)) {
    const fs::path ending = item.path().extension();
    if (item.is_regular_file(ignored) && (ending == ".safetensors" || ending == ".gguf")) {
      found.push_back(item.path());
    }
  }
  if (found.size() == 1) {
    return found.front();
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("{}: holds {} .safetensors and .gguf files and no "
                          "model.safetensors.index.json, wanted one component",
                          path.string(), found.size()));
}

Result<std::map<std::string, Shape, std::less<>>> read_component_shapes(const fs::path& path,
                                                                        Component wanted) {
  MINIACC_ASSIGN(const fs::path file_path, component_file(path));
  MINIACC_ASSIGN(const TensorFile file, TensorFile::open(file_path));
  MINIACC_ASSIGN(const Recognised recognised, recognise(file));
  MINIACC_RETURN_IF_ERROR(check_component(file_path, recognised.component, wanted));
  MINIACC_ASSIGN(const QuantizationRecords quantization, read_quantization(file));
  MINIACC_ASSIGN(const Plan plan, make_plan(file, recognised, quantization, {}, false));
  std::map<std::string, Shape, std::less<>> shapes;
  for (const auto& [name, tensor] : plan.tensors) {
    shapes[name] = tensor.shape;
  }
  return shapes;
}

Result<std::unique_ptr<ComponentAnalysis>> analyse_component(const fs::path& path) {
  MINIACC_ASSIGN(const fs::path file_path, component_file(path));
  MINIACC_ASSIGN(TensorFile file, TensorFile::open(file_path));
  auto analysis =
      std::make_unique<ComponentAnalysis>(ComponentAnalysis{std::move(file), {}, {}, {}, {}});
  MINIACC_ASSIGN(const Recognised recognised, recognise(analysis->file));
  CheckpointInfo& info = analysis->info;
  info.component = recognised.component;
  info.naming = recognised.naming;
  info.container = analysis->file.format();
  info.path = file_path;
  info.prefix = recognised.prefix;
  MINIACC_ASSIGN(analysis->quantization, read_quantization(analysis->file));
  info.quantization = analysis->quantization.summary;
  for (const TensorEntry& entry : analysis->file.entries()) {
    if (info.block_type.empty() && is_block_type(entry.dtype)) {
      info.block_type = dtype_name(entry.dtype);
    }
  }
  MINIACC_ASSIGN(analysis->config,
                 read_component_config(info.component, file_path, analysis->file.metadata()));
  if (info.component == Component::kTransformer) {
    info.pruned = analysis->file.find(info.prefix + "adaln_t_table") != nullptr;
    if (info.naming == Naming::kOfficial) {
      MINIACC_ASSIGN(info.interleaved_qkv,
                     has_interleaved_qkv(analysis->file, recognised, analysis->quantization,
                                         analysis->config));
      info.naming = info.interleaved_qkv ? Naming::kOfficial : Naming::kComfy;
    }
  } else if (info.component == Component::kVideoVae) {
    info.interleaved_qkv = info.naming == Naming::kOfficial;
  }
  MINIACC_ASSIGN(analysis->plan, make_plan(analysis->file, recognised, analysis->quantization,
                                           analysis->config, info.interleaved_qkv));
  info.dimensions = analysis->plan.dimensions;
  if (info.component == Component::kTextEncoder) {
    analysis->config.values["miniacc_text_layers"] = {
        static_cast<double>(info.dimensions["num_layers_used"])};
  }
  MINIACC_RETURN_IF_ERROR(take_latent_statistics(*analysis));
  return analysis;
}

Result<std::unique_ptr<ComponentWeights>> open_component(const fs::path& path,
                                                         std::optional<Component> wanted) {
  MINIACC_ASSIGN(auto analysis, analyse_component(path));
  const Component found = analysis->info.component;
  if (wanted) {
    MINIACC_RETURN_IF_ERROR(check_component(analysis->file.path(), found, *wanted));
  }
  MINIACC_RETURN_IF_ERROR(check_plan(analysis->file, found, analysis->plan));
  return std::unique_ptr<ComponentWeights>(std::make_unique<FileWeights>(std::move(analysis)));
}

}  // namespace miniacc
