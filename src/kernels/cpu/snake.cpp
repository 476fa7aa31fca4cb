#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {
namespace {

constexpr std::int64_t kTaps = 12;

/// Doubles the length: y[m] = 2·Σ f[m+5-2i]·x[clamp(i)] (spec vae.md §4.3).
void upsample(const float* x, std::int64_t length, const float* filter, float* out) {
  const auto at = [&](std::int64_t i) { return x[std::clamp<std::int64_t>(i, 0, length - 1)]; };
  for (std::int64_t q = 0; q < length; ++q) {
    float even = 0.0F;
    float odd = 0.0F;
    for (std::int64_t j = 0; j < kTaps / 2; ++j) {
      even += filter[kTaps - 1 - 2 * j] * at(q - 3 + j);
      odd += filter[kTaps - 2 - 2 * j] * at(q - 2 + j);
    }
    out[2 * q] = 2.0F * even;
    out[2 * q + 1] = 2.0F * odd;
  }
}

/// Halves the length: y[q] = Σ f[k]·x[clamp(2q+k-5)].
void downsample(const float* x, std::int64_t length, const float* filter, float* out) {
  const std::int64_t last = 2 * length - 1;
  for (std::int64_t q = 0; q < length; ++q) {
    float sum = 0.0F;
    for (std::int64_t k = 0; k < kTaps; ++k) {
      sum += filter[k] * x[std::clamp<std::int64_t>(2 * q + k - 5, 0, last)];
    }
    out[q] = sum;
  }
}

}  // namespace

void antialiased_snake_beta(OpContext& ctx, TensorView out, ConstTensorView x,
                            ConstTensorView alpha, ConstTensorView beta, ConstTensorView up_filter,
                            ConstTensorView down_filter) {
  const std::int64_t channels = x.dim(1);
  const std::int64_t length = x.dim(2);
  if (length == 0) {
    return;
  }
  // One buffer a channel row: rows are independent, and the whole scratch is twice the input.
  Tensor scratch = empty_tensor(ctx.device, {x.dim(0) * channels, 2 * length});
  parallel_for(ctx, x.dim(0) * channels, [&](std::int64_t row) {
    const std::int64_t channel = row % channels;
    float* wide = scratch.f32().data() + row * 2 * length;
    const float frequency = std::exp(alpha.f32()[channel]);
    const float inverse_magnitude = 1.0F / (std::exp(beta.f32()[channel]) + 1e-9F);
    upsample(x.f32() + row * length, length, up_filter.f32(), wide);
    for (std::int64_t i = 0; i < 2 * length; ++i) {
      const float wave = std::sin(frequency * wide[i]);
      wide[i] += inverse_magnitude * wave * wave;
    }
    downsample(wide, length, down_filter.f32(), out.f32() + row * length);
  });
}

}  // namespace miniacc::ops::cpu
