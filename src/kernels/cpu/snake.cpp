#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {

constexpr std::int64_t kTaps = 12;
constexpr std::int64_t kEdge = 8;       // replicated samples on both sides; the filters reach 6
constexpr std::int64_t kSamples = 512;  // samples a piece makes: its buffers stay in L1

/// The doubled signal split by parity: even[q] = y[2q], odd[q] = y[2q+1], for q < count, from
/// padded[q] = x[q - 3] (spec vae.md §4.3: y[m] = 2·Σ f[m+5-2i]·x[clamp(i)]), with SnakeBeta
/// applied to each value.
struct Upsampled {
  float* even;
  float* odd;
};

template <int kLanes>
MINIACC_ISA_BODY void upsample_snake_body(Upsampled wide, const float* padded, std::int64_t count,
                                          const float* filter, float frequency,
                                          float inverse_magnitude) {
  float* even = wide.even;
  float* odd = wide.odd;
#pragma omp simd
  for (std::int64_t q = 0; q < count; ++q) {
    float a = 0.0F;
    float b = 0.0F;
    for (std::int64_t j = 0; j < kTaps / 2; ++j) {
      a += filter[kTaps - 1 - 2 * j] * padded[q + j];
      b += filter[kTaps - 2 - 2 * j] * padded[q + 1 + j];
    }
    a *= 2.0F;
    b *= 2.0F;
    even[q] = a + inverse_magnitude * vector_sin_squared(frequency * a);
    odd[q] = b + inverse_magnitude * vector_sin_squared(frequency * b);
  }
}

/// out[q] = Σ f[k]·y[2q+k-5]: odd taps read y[2(q + (k-5)/2)], even taps the odd samples. even and
/// odd start three samples before q = 0.
template <int kLanes>
MINIACC_ISA_BODY void downsample_body(float* out, Upsampled wide, std::int64_t count,
                                      const float* filter) {
  const float* even = wide.even;
  const float* odd = wide.odd;
#pragma omp simd
  for (std::int64_t q = 0; q < count; ++q) {
    float sum = 0.0F;
    for (std::int64_t j = 0; j < kTaps / 2; ++j) {
      sum += filter[2 * j] * odd[q + j];           // y[2q + 2j - 5] = odd[q + j - 3]
      sum += filter[2 * j + 1] * even[q + 1 + j];  // y[2q + 2j - 4] = even[q + j - 2]
    }
    out[q] = sum;
  }
}

MINIACC_ISA_VARIANTS(void, upsample_snake,
                     (Upsampled wide, const float* padded, std::int64_t count, const float* filter,
                      float frequency, float inverse_magnitude),
                     (wide, padded, count, filter, frequency, inverse_magnitude))
MINIACC_ISA_VARIANTS(void, downsample,
                     (float* out, Upsampled wide, std::int64_t count, const float* filter),
                     (out, wide, count, filter))

/// The same as upsample_snake with the library's sine, for arguments that the fast one cannot
/// reduce exactly, infinities and NaN among them.
void upsample_snake_exact(Upsampled wide, const float* padded, std::int64_t count,
                          const float* filter, float frequency, float inverse_magnitude) {
  upsample_snake(wide, padded, count, filter, 0.0F, 0.0F);
  for (float* values : {wide.even, wide.odd}) {
    for (std::int64_t q = 0; q < count; ++q) {
      const float sine = std::sin(frequency * values[q]);
      values[q] += inverse_magnitude * sine * sine;
    }
  }
}

template <int kLanes>
MINIACC_ISA_BODY void snake_row_body(float* out, const float* x, std::int64_t count,
                                     float frequency, float inverse_magnitude) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = x[i] + inverse_magnitude * vector_sin_squared(frequency * x[i]);
  }
}

MINIACC_ISA_VARIANTS(void, snake_row,
                     (float* out, const float* x, std::int64_t count, float frequency,
                      float inverse_magnitude),
                     (out, x, count, frequency, inverse_magnitude))

}  // namespace

void snake(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView alpha) {
  const std::int64_t channels = x.dim(1);
  const std::int64_t length = x.dim(2);
  const std::int64_t pieces = (length + kSamples - 1) / kSamples;
  const float* input = x.f32();
  float* output = out.f32();
  const float* alphas = alpha.f32();
  constexpr std::int64_t kCost = 16;  // operations a sample
  parallel_for(ctx, x.dim(0) * channels * pieces, kCost * std::min(length, kSamples),
               [&](std::int64_t item) {
                 const std::int64_t row = item / pieces;
                 const std::int64_t first = item % pieces * kSamples;
                 const std::int64_t count = std::min(kSamples, length - first);
                 const float frequency = alphas[row % channels];
                 const float inverse_magnitude = 1.0F / (frequency + 1e-9F);
                 const float* source = input + row * length + first;
                 float* target = output + row * length + first;
                 if (max_magnitude(source, count) * std::fabs(frequency) <= kSinSquaredLimit) {
                   snake_row(target, source, count, frequency, inverse_magnitude);
                   return;
                 }
                 for (std::int64_t i = 0; i < count; ++i) {
                   const float sine = std::sin(frequency * source[i]);
                   target[i] = source[i] + inverse_magnitude * sine * sine;
                 }
               });
}

void antialiased_snake_beta(OpContext& ctx, TensorView out, ConstTensorView x,
                            ConstTensorView alpha, ConstTensorView beta, ConstTensorView up_filter,
                            ConstTensorView down_filter) {
  const std::int64_t channels = x.dim(1);
  const std::int64_t length = x.dim(2);
  const float* input = x.f32();
  float* output = out.f32();
  const float* alphas = alpha.f32();
  const float* betas = beta.f32();
  const float* up = up_filter.f32();
  const float* down = down_filter.f32();
  float gain = 0.0F;  // how much the upsampling can raise a value
  for (std::int64_t k = 0; k < kTaps; ++k) {
    gain += 2.0F * std::fabs(up[k]);
  }
  constexpr std::int64_t kCost = 64;  // operations a sample
  parallel_for(ctx, x.dim(0) * channels, kCost * length, [&](std::int64_t row) {
    const std::int64_t channel = row % channels;
    const float* source = input + row * length;
    const float frequency = std::exp(alphas[channel]);
    const float inverse_magnitude = 1.0F / (std::exp(betas[channel]) + 1e-9F);
    float padded[kSamples + 2 * kEdge];
    float even[kSamples + kEdge];
    float odd[kSamples + kEdge];
    for (std::int64_t first = 0; first < length; first += kSamples) {
      const std::int64_t count = std::min(kSamples, length - first);
      // Doubled samples q in [first - 3, first + count + 3) from inputs three further out.
      for (std::int64_t i = 0; i < count + 12; ++i) {
        padded[i] = source[std::clamp<std::int64_t>(first - 6 + i, 0, length - 1)];
      }
      const std::int64_t wide_count = count + 6;
      const Upsampled wide{even, odd};
      const bool reducible =
          max_magnitude(padded, count + 12) * gain * frequency <= kSinSquaredLimit;
      (reducible ? upsample_snake : upsample_snake_exact)(wide, padded, wide_count, up, frequency,
                                                          inverse_magnitude);
      // Beyond the ends the doubled signal repeats its first and last sample.
      for (std::int64_t q = 0; q < 3 && first == 0; ++q) {
        odd[q] = even[q] = even[3];
      }
      for (std::int64_t q = length - first + 3; q < wide_count; ++q) {
        even[q] = odd[q] = odd[length - first + 2];
      }
      downsample(output + row * length + first, wide, count, down);
    }
  });
}

}  // namespace miniacc::ops::cpu
