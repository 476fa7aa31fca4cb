#include "model/common/vae_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "device/cpu_device.h"
#include "kernels/copy.h"

namespace miniacc::vae {
namespace {

// Far above any real dimension, low enough that products of three never overflow 64 bits.
constexpr std::int64_t kLargestDimension = std::int64_t{1} << 20;

Status compare_shapes(std::string_view name, const Shape& found, const Shape& wanted) {
  if (found == wanted) {
    return {};
  }
  return fail(ErrorCode::kInvalidInput,
              fmt::format("{} is {}, wanted {}", name, found.to_string(), wanted.to_string()));
}

Result<std::vector<float>> statistic(WeightSource& source, std::string_view name,
                                     std::int64_t channels, std::span<const float> released,
                                     Device& device) {
  std::vector<float> values;
  if (source.has(name)) {
    MINIACC_ASSIGN(const Tensor tensor, load_tensor(source, name, Shape({channels}), device));
    CpuDevice host;
    OpContext ctx{.device = device, .host = &host};
    const Placed placed = on_host(ctx, tensor.view());
    values.assign(placed.view.f32(), placed.view.f32() + channels);
  } else if (const auto configured = source.config(name)) {
    values.reserve(configured->size());
    for (const double value : *configured) {
      values.push_back(static_cast<float>(value));
    }
  } else {
    values.assign(released.begin(), released.end());
  }
  if (static_cast<std::int64_t>(values.size()) != channels) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{} has {} values, wanted {}, one a channel",
                                                      name, values.size(), channels));
  }
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{} holds a value that is not finite", name));
  }
  return values;
}

}  // namespace

Result<Tensor> load_tensor(WeightSource& source, std::string_view name, const Shape& wanted,
                           Device& device) {
  // The header is asked first, so that a tensor of absurd size is refused before it is read.
  MINIACC_RETURN_IF_ERROR(check_shape(source, name, wanted));
  MINIACC_ASSIGN(Tensor tensor, source.load(name, device));
  MINIACC_RETURN_IF_ERROR(compare_shapes(name, tensor.shape(), wanted));
  return tensor;
}

Result<OwnedWeightMatrix> load_matrix(WeightSource& source, std::string_view name,
                                      const Shape& wanted, Precision precision, Device& device) {
  MINIACC_RETURN_IF_ERROR(check_shape(source, name, wanted));
  MINIACC_ASSIGN(OwnedWeightMatrix matrix, source.load_matrix(name, precision, device));
  MINIACC_RETURN_IF_ERROR(compare_shapes(name, matrix.values.shape(), wanted));
  return matrix;
}

Status check_shape(const WeightSource& source, std::string_view name, const Shape& wanted) {
  MINIACC_ASSIGN(const Shape found, source.shape(name));
  return compare_shapes(name, found, wanted);
}

Result<Shape> shape_of_rank(const WeightSource& source, std::string_view name, int rank) {
  MINIACC_ASSIGN(const Shape shape, source.shape(name));
  if (shape.rank() != rank) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{} is {}, wanted {} dimensions", name, shape.to_string(), rank));
  }
  for (const std::int64_t size : shape.dims()) {
    if (size < 1 || size > kLargestDimension) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{} is {}, wanted dimensions from 1 to {}", name, shape.to_string(),
                              kLargestDimension));
    }
  }
  return shape;
}

Result<double> config_number(const WeightSource& source, std::string_view key, double fallback) {
  const auto values = source.config(key);
  if (!values) {
    return fallback;
  }
  if (values->size() != 1 || !std::isfinite(values->front())) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("configuration key {} holds {} values, wanted one finite number", key,
                            values->size()));
  }
  return values->front();
}

Result<std::int64_t> config_integer(const WeightSource& source, std::string_view key,
                                    std::int64_t fallback, std::int64_t minimum,
                                    std::int64_t maximum) {
  MINIACC_ASSIGN(const double value, config_number(source, key, static_cast<double>(fallback)));
  if (value != std::floor(value) || value < static_cast<double>(minimum) ||
      value > static_cast<double>(maximum)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("configuration key {} is {}, wanted a whole number from {} to {}", key,
                            value, minimum, maximum));
  }
  return static_cast<std::int64_t>(value);
}

Result<LatentStatistics> latent_statistics(WeightSource& source, std::int64_t channels,
                                           std::span<const float> released_mean,
                                           std::span<const float> released_std, Device& device) {
  LatentStatistics statistics;
  MINIACC_ASSIGN(statistics.mean,
                 statistic(source, "latents_mean", channels, released_mean, device));
  MINIACC_ASSIGN(statistics.std, statistic(source, "latents_std", channels, released_std, device));
  if (std::any_of(statistics.std.begin(), statistics.std.end(), [](float v) { return v <= 0; })) {
    return fail(ErrorCode::kInvalidInput, "latents_std holds a value that is not positive");
  }
  return statistics;
}

Status check_finite_latents(std::string_view what, ConstTensorView latents, int channel_axis) {
  const float* values = latents.f32();
  const std::int64_t channels = latents.dim(channel_axis);
  const std::int64_t inner = latents.stride(channel_axis);
  for (std::int64_t i = 0; i < latents.num_elements(); ++i) {
    if (!std::isfinite(values[i])) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{} of shape {} hold {} in channel {} at position {}, wanted finite "
                      "values",
                      what, latents.shape.to_string(), values[i], i / inner % channels, i % inner));
    }
  }
  return {};
}

}  // namespace miniacc::vae
