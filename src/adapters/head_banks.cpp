#include "adapters/head_banks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "adapters/adapter_names.h"
#include "io/dequantize.h"

namespace miniacc {
namespace {

// What the published adapters have; files without metadata are theirs, renamed for ComfyUI.
constexpr std::int64_t kPublishedBlockSize = 4;
constexpr std::int64_t kMaxSteps = 1024;
/// Offsets are small against the head they belong to, neighbouring absolute heads are not
/// (spec adapters.md §6).
constexpr double kOffsetNormRatio = 0.5;

tl::unexpected<Error> refuse(const TensorFile& file, const std::string& what) {
  return fail(ErrorCode::kInvalidInput, fmt::format("{}: {}", file.path().string(), what));
}

Result<std::optional<std::int64_t>> metadata_count(const TensorFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    return std::optional<std::int64_t>();
  }
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxSteps) {
    return refuse(file, fmt::format("metadata '{}' is '{}', wanted a number from 1 to {}", key,
                                    text.substr(0, 64), kMaxSteps));
  }
  return std::optional(value);
}

/// Values [first, first + count) of a tensor as f32.
Result<std::vector<float>> read_values(const TensorFile& file, const TensorEntry& entry,
                                       std::int64_t first, std::int64_t count) {
  MINIACC_ASSIGN(const auto bytes, file.bytes(entry));
  const std::size_t width = block_bytes(entry.dtype);
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantize(entry.dtype,
             bytes.subspan(static_cast<std::size_t>(first) * width,
                           static_cast<std::size_t>(count) * width),
             count, values.data());
  return values;
}

double norm(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

}  // namespace

std::vector<double> interval_weights(double shift, std::int64_t num_steps, std::int64_t first,
                                     std::int64_t count) {
  MINIACC_REQUIRE(first >= 0 && count > 0 && first + count <= num_steps,
                  "interval_weights: intervals of the grid");
  const auto sigma = [&](std::int64_t n) {
    const double base = 1.0 - static_cast<double>(n) / static_cast<double>(num_steps);
    return shift * base / (1.0 + (shift - 1.0) * base);
  };
  const double total = sigma(first) - sigma(first + count);
  std::vector<double> weights;
  for (std::int64_t n = first; n < first + count; ++n) {
    weights.push_back((sigma(n) - sigma(n + 1)) / total);
  }
  return weights;
}

Status HeadBanks::find_bank(const TensorFile& file, const std::string& module, std::int64_t rows,
                            std::int64_t hidden_size, Bank& bank, std::int64_t& num_heads) {
  bank.rows = rows;
  for (const TensorEntry& entry : file.entries()) {
    const auto name = parse_adapter_name(entry.name);
    if (name && name->role == AdapterRole::kReplacement && name->module == module) {
      (entry.name.ends_with(".bias") ? bank.bias : bank.weight) = &entry;
    }
  }
  if (bank.weight == nullptr || bank.bias == nullptr) {
    return refuse(file, fmt::format("its head banks have no {} of {}",
                                    bank.weight == nullptr ? "weights" : "biases", module));
  }
  for (const TensorEntry* entry : {bank.weight, bank.bias}) {
    if (entry->dtype != DType::kF32 && entry->dtype != DType::kF16 &&
        entry->dtype != DType::kBF16 && entry->dtype != DType::kF64) {
      return refuse(file, fmt::format("{} is {}, wanted f32, f16, bf16 or f64", entry->name,
                                      dtype_name(entry->dtype)));
    }
  }
  const Shape& shape = bank.weight->shape;
  const bool stacked = shape.rank() == 2 && shape[0] % rows == 0;
  const std::int64_t heads = shape.rank() == 3 ? shape[0] : (stacked ? shape[0] / rows : 0);
  const Shape cube = {heads, rows, hidden_size};
  const Shape flat = {heads * rows, hidden_size};
  if (heads < 2 || (shape != cube && shape != flat)) {
    return refuse(file, fmt::format("{} is {}, wanted heads of [{}, {}]", bank.weight->name,
                                    shape.to_string(), rows, hidden_size));
  }
  const Shape square = {heads, rows};
  const Shape line = {heads * rows};
  if (bank.bias->shape != square && bank.bias->shape != line) {
    return refuse(file, fmt::format("{} is {}, wanted {}", bank.bias->name,
                                    bank.bias->shape.to_string(), square.to_string()));
  }
  if (num_heads != 0 && heads != num_heads) {
    return refuse(file,
                  fmt::format("{} has {} heads, wanted {}", bank.weight->name, heads, num_heads));
  }
  num_heads = heads;
  MINIACC_ASSIGN(const auto first, read_values(file, *bank.weight, 0, rows * hidden_size));
  MINIACC_ASSIGN(const auto second,
                 read_values(file, *bank.weight, rows * hidden_size, rows * hidden_size));
  bank.offsets = norm(second) < kOffsetNormRatio * norm(first);
  return {};
}

Result<HeadBanks> HeadBanks::read(const TensorFile& file, std::int64_t video_rows,
                                  std::int64_t audio_rows, std::int64_t hidden_size) {
  HeadBanks banks;
  banks.hidden_size_ = hidden_size;
  MINIACC_ASSIGN(const auto steps, metadata_count(file, "pdd_num_steps"));
  MINIACC_ASSIGN(const auto block, metadata_count(file, "pdd_block_size"));
  banks.num_steps_ = steps.value_or(0);
  MINIACC_RETURN_IF_ERROR(find_bank(file, "final_layer.video_out", video_rows, hidden_size,
                                    banks.video_, banks.num_steps_));
  MINIACC_RETURN_IF_ERROR(find_bank(file, "final_layer.audio_out", audio_rows, hidden_size,
                                    banks.audio_, banks.num_steps_));
  banks.block_size_ = block.value_or(kPublishedBlockSize);
  if (banks.num_steps_ % banks.block_size_ != 0) {
    return refuse(file, fmt::format("its {} heads are no whole blocks of {}", banks.num_steps_,
                                    banks.block_size_));
  }
  return banks;
}

Status HeadBanks::fuse_bank(const TensorFile& file, const Bank& bank,
                            const std::vector<double>& weights, std::int64_t first, Tensor& weight,
                            Tensor& bias, Device& device) const {
  MINIACC_ASSIGN(weight, try_empty_tensor(device, {bank.rows, hidden_size_}, DType::kF32));
  MINIACC_ASSIGN(bias, try_empty_tensor(device, {bank.rows}, DType::kF32));
  const auto accumulate = [&](const TensorEntry& entry, std::int64_t size, float* out) -> Status {
    std::vector<double> sum(static_cast<std::size_t>(size));
    const auto add = [&](std::int64_t head, double factor) -> Status {
      MINIACC_ASSIGN(const auto values, read_values(file, entry, head * size, size));
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum[i] += factor * static_cast<double>(values[i]);
      }
      return {};
    };
    if (bank.offsets) {
      MINIACC_RETURN_IF_ERROR(add(0, 1.0));  // every head holds it, and the weights sum to one
    }
    for (std::size_t j = 0; j < weights.size(); ++j) {
      const std::int64_t head = first + static_cast<std::int64_t>(j);
      if (!bank.offsets || head != 0) {
        MINIACC_RETURN_IF_ERROR(add(head, weights[j]));
      }
    }
    std::transform(sum.begin(), sum.end(), out,
                   [](double value) { return static_cast<float>(value); });
    return {};
  };
  MINIACC_RETURN_IF_ERROR(accumulate(*bank.weight, bank.rows * hidden_size_, weight.f32().data()));
  return accumulate(*bank.bias, bank.rows, bias.f32().data());
}

Result<FusedHeads> HeadBanks::fuse(const TensorFile& file, std::int64_t first, std::int64_t count,
                                   Device& device) const {
  FusedHeads heads;
  MINIACC_RETURN_IF_ERROR(fuse_bank(file, video_,
                                    interval_weights(kPddVideoShift, num_steps_, first, count),
                                    first, heads.video_weight, heads.video_bias, device));
  MINIACC_RETURN_IF_ERROR(fuse_bank(file, audio_,
                                    interval_weights(kPddAudioShift, num_steps_, first, count),
                                    first, heads.audio_weight, heads.audio_bias, device));
  return heads;
}

}  // namespace miniacc
