#include "checkpoint/synthetic_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "checkpoint/config.h"
#include "checkpoint/matrix_rows.h"
#include "checkpoint/synthetic_configs.h"
#include "checkpoint/synthetic_outputs.h"
#include "checkpoint/synthetic_tokenizer.h"

namespace miniacc {
namespace {

constexpr std::string_view kPrefix = "synthetic:";
constexpr std::int64_t kRotationGroup = 256;

constexpr std::pair<std::string_view, SyntheticSize> kSizes[] = {{"tiny", SyntheticSize::kTiny},
                                                                 {"small", SyntheticSize::kSmall},
                                                                 {"full", SyntheticSize::kFull}};
constexpr std::pair<std::string_view, Precision> kTypes[] = {
    {"f32", Precision::kF32}, {"bf16", Precision::kBF16}, {"int8", Precision::kInt8}};

template <typename Table, typename Value>
std::string_view name_in(const Table& table, Value value) {
  for (const auto& [name, known] : table) {
    if (known == value) {
      return name;
    }
  }
  return "?";
}

std::uint64_t mix(std::uint64_t x) {
  // splitmix64 (Steele, Lea & Flood 2014)
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Int8 values by byte: the quantiles of a normal distribution, the outermost ones ±127, found by
/// bisection of its distribution function.
std::array<std::int8_t, 256> normal_bytes() {
  std::array<double, 256> quantiles{};
  for (std::size_t i = 0; i < quantiles.size(); ++i) {
    const double wanted = (static_cast<double>(i) + 0.5) / 256.0;
    double low = -8.0;
    double high = 8.0;
    for (int step = 0; step < 60; ++step) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < wanted ? low : high) = middle;
    }
    quantiles[i] = low;
  }
  std::array<std::int8_t, 256> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::int8_t>(std::lround(127.0 * quantiles[i] / quantiles.back()));
  }
  return bytes;
}

/// Deviation of the values of normal_bytes(), in steps.
double deviation_of(const std::array<std::int8_t, 256>& bytes) {
  double squares = 0.0;
  for (const std::int8_t value : bytes) {
    squares += static_cast<double>(value) * static_cast<double>(value) / 256.0;
  }
  return std::sqrt(squares);
}

/// The matrices that published int8 files quantise (spec acceleration_full.md §3.1), and those of
/// the text encoder's layers.
bool is_int8(Component component, std::string_view name, const Shape& shape) {
  if (shape.rank() != 2 || shape[1] % kRotationGroup != 0 || !name.ends_with(".weight")) {
    return false;
  }
  if (component == Component::kTransformer) {
    return name.starts_with("blocks.") && name.find("adaln_proj") == std::string_view::npos;
  }
  return component == Component::kTextEncoder && name.starts_with("layers.");
}

class SyntheticWeights final : public ComponentWeights {
 public:
  SyntheticWeights(const SyntheticSpec& spec, Component component,
                   std::vector<ExpectedTensor> tensors, ConfigMap config)
      : spec_(spec), component_(component), config_(std::move(config)) {
    info_.component = component;
    info_.naming = Naming::kComfy;
    info_.path = synthetic_name(spec);
    info_.pruned = component == Component::kTransformer && spec.stored == Precision::kInt8;
    if (spec.stored == Precision::kInt8) {
      info_.quantization = "int8_tensorwise+convrot";
    }
    for (ExpectedTensor& tensor : tensors) {
      std::string name = tensor.name;
      tensors_.emplace(std::move(name), std::move(tensor));
    }
  }

  [[nodiscard]] const CheckpointInfo& info() const override { return info_; }
  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) {
      names.push_back(name);
    }
    return names;
  }
  [[nodiscard]] bool has(std::string_view name) const override { return tensors_.contains(name); }
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override {
    MINIACC_ASSIGN(const ExpectedTensor* tensor, find(name));
    return tensor->shape;
  }
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override {
    const auto found = config_.find(key);
    return found == config_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override {
    MINIACC_ASSIGN(const ExpectedTensor* tensor, find(name));
    MINIACC_ASSIGN(Tensor out, try_empty_tensor(device, tensor->shape, DType::kF32));
    const Values values = values_of(*tensor);
    values.fill(0, values.rows, out.f32().data());
    return out;
  }

  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override {
    MINIACC_ASSIGN(const ExpectedTensor* tensor, find(name));
    const Values values = values_of(*tensor);
    if (first < 0 || count < 0 || first > values.rows - count) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: {} has {} rows, wanted rows {} to {}", info_.path.string(), name,
                              values.rows, first, first + count));
    }
    Shape shape = tensor->shape;
    shape.set(0, count);
    MINIACC_ASSIGN(Tensor out, try_empty_tensor(device, shape, DType::kF32));
    values.fill(first, count, out.f32().data());
    return out;
  }

  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                      Device& device) override {
    MINIACC_ASSIGN(const ExpectedTensor* tensor, find(name));
    MINIACC_REQUIRE(tensor->shape.rank() >= 2, "load_matrix: tensor is no matrix");
    const std::int64_t rows = tensor->shape[0];
    OwnedWeightMatrix matrix;
    MINIACC_ASSIGN(matrix.values,
                   try_empty_tensor(device, {rows, tensor->shape.num_elements() / rows},
                                    matrix_dtype(precision)));
    if (precision == Precision::kInt8) {
      MINIACC_ASSIGN(matrix.row_scale, try_empty_tensor(device, {rows}, DType::kF32));
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
    MINIACC_ASSIGN(const ExpectedTensor* tensor, find(name));
    const Values drawn = values_of(*tensor);
    MINIACC_RETURN_IF_ERROR(
        check_matrix_memory(drawn.rows, drawn.columns, precision, values, row_scale));
    if (precision == Precision::kInt8 && spec_.stored == Precision::kInt8 &&
        is_int8(component_, name, tensor->shape)) {
      return draw_int8(*tensor, num_threads, values, row_scale);
    }
    const auto fill_slab = [&](std::int64_t first, std::int64_t count) -> Status {
      const TensorView rows = values.narrow(0, first, count);
      if (precision == Precision::kF32) {
        drawn.fill(first, count, rows.f32());
        return {};
      }
      MINIACC_ASSIGN(Tensor slab, try_empty_tensor(scratch, {count, drawn.columns}, DType::kF32));
      drawn.fill(first, count, slab.f32().data());
      convert_rows(scratch, rows, row_scale, first, std::as_const(slab).view());
      return {};
    };
    MINIACC_RETURN_IF_ERROR(for_row_slabs(drawn.rows, drawn.columns, num_threads, fill_slab));
    return MatrixExtras{};
  }

  [[nodiscard]] std::string identity() const override {
    return fmt::format("{}-{}-{}", synthetic_name(spec_), spec_.seed, component_name(component_));
  }

 private:
  [[nodiscard]] Result<const ExpectedTensor*> find(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{}: has no tensor {}", info_.path.string(), name));
    }
    return &found->second;
  }
  struct Values {
    std::int64_t rows;
    std::int64_t columns;
    std::function<void(std::int64_t first, std::int64_t count, float* out)> fill;
  };
  [[nodiscard]] Values values_of(const ExpectedTensor& tensor) const {
    const std::int64_t rows = tensor.shape.rank() == 0 ? 1 : tensor.shape[0];
    return {rows, tensor.shape.num_elements() / rows,
            synthetic_values(component_, tensor, spec_.seed)};
  }

  [[nodiscard]] Result<MatrixExtras> draw_int8(const ExpectedTensor& tensor, int num_threads,
                                               TensorView values, TensorView row_scale) const {
    static const std::array<std::int8_t, 256> bytes = normal_bytes();
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t columns = tensor.shape[1];
    // As wide as a matrix that keeps the size of its input.
    std::fill_n(
        row_scale.f32(), rows,
        static_cast<float>(1.0 / (std::sqrt(static_cast<double>(columns)) * deviation_of(bytes))));
    std::uint64_t key = mix(spec_.seed);
    for (const char c : tensor.name) {
      key = mix(key ^ static_cast<unsigned char>(c));
    }
    auto* out = values.as<std::int8_t>();
    // Eight values a mix; the group of 256 columns divides the row, so no rest is left.
    const auto fill_slab = [&](std::int64_t first, std::int64_t count) -> Status {
      for (std::int64_t i = first * columns; i < (first + count) * columns; i += 8) {
        std::uint64_t bits = mix(key + static_cast<std::uint64_t>(i));
        for (int k = 0; k < 8; ++k, bits >>= 8) {
          out[i + k] = bytes[bits & 0xFFU];
        }
      }
      return {};
    };
    MINIACC_RETURN_IF_ERROR(for_row_slabs(rows, columns, num_threads, fill_slab));
    return MatrixExtras{.rotation_group = kRotationGroup};
  }

  SyntheticSpec spec_;
  Component component_;
  CheckpointInfo info_;
  std::map<std::string, ExpectedTensor, std::less<>> tensors_;
  ConfigMap config_;
};

}  // namespace

Result<std::optional<SyntheticSpec>> parse_synthetic(std::string_view text) {
  if (!text.starts_with(kPrefix)) {
    return std::optional<SyntheticSpec>();
  }
  const std::string_view name = text.substr(kPrefix.size());
  for (const auto& [size_name, size] : kSizes) {
    for (const auto& [type_name, type] : kTypes) {
      if (name == fmt::format("{}-{}", size_name, type_name)) {
        return std::optional(SyntheticSpec{size, type});
      }
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no made-up model '{}'; synthetic:SIZE-TYPE has the sizes tiny, "
                          "small and full and the types f32, bf16 and int8",
                          text));
}

std::string synthetic_name(const SyntheticSpec& spec) {
  return fmt::format("{}{}-{}", kPrefix, name_in(kSizes, spec.size), name_in(kTypes, spec.stored));
}

Result<std::unique_ptr<ComponentWeights>> open_synthetic(const SyntheticSpec& spec,
                                                         Component component) {
  const SyntheticModel model = synthetic_model(spec.size, synthetic_tokenizer().vocab_size);
  std::vector<ExpectedTensor> tensors;
  switch (component) {
    case Component::kTransformer:
      tensors = transformer_tensors(spec.stored == Precision::kInt8 ? pruned(model.transformer)
                                                                    : model.transformer);
      break;
    case Component::kTextEncoder:
      tensors = text_encoder_tensors(model.text_encoder);
      break;
    case Component::kVideoVae:
      tensors = video_vae_tensors(model.video_vae);
      break;
    case Component::kAudioVae:
      tensors = audio_vae_tensors(model.audio_vae);
      break;
  }
  MINIACC_ASSIGN(ComponentConfig config,
                 read_component_config(component, synthetic_name(spec) + "/none",
                                       {{"config", single_file_config(model, component)}}));
  if (component == Component::kTextEncoder) {
    config.values["miniacc_text_layers"] = {static_cast<double>(model.text_encoder.num_layers)};
  }
  return std::unique_ptr<ComponentWeights>(std::make_unique<SyntheticWeights>(
      spec, component, std::move(tensors), std::move(config.values)));
}

}  // namespace miniacc
