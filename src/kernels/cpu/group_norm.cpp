#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {
namespace {

// Positions whose statistics are taken at once: 64 rows of 1024 channels stay in the L2 cache for
// the second pass over them, and one frame has pieces enough for all threads.
constexpr std::int64_t kPiece = 64;

/// Of every channel over `rows` positions: the mean and the sum of squared distances from it.
template <int kLanes>
MINIACC_ISA_BODY void piece_statistics_body(double* mean, double* squares, const float* x,
                                            std::int64_t rows, std::int64_t channels) {
  std::fill(mean, mean + channels, 0.0);
  std::fill(squares, squares + channels, 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      mean[c] += static_cast<double>(x[row * channels + c]);
    }
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    mean[c] /= static_cast<double>(rows);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const double distance = static_cast<double>(x[row * channels + c]) - mean[c];
      squares[c] += distance * distance;
    }
  }
}

MINIACC_ISA_VARIANTS(void, piece_statistics,
                     (double* mean, double* squares, const float* x, std::int64_t rows,
                      std::int64_t channels),
                     (mean, squares, x, rows, channels))

/// Mean and summed squared distances of a growing set (Chan, Golub & LeVeque 1983).
struct Moments {
  double count = 0.0;
  double mean = 0.0;
  double squares = 0.0;

  void add(double other_count, double other_mean, double other_squares) {
    const double total = count + other_count;
    const double distance = other_mean - mean;
    squares += other_squares + distance * distance * (count * other_count / total);
    mean += distance * (other_count / total);
    count = total;
  }
};

}  // namespace

void group_norm_coefficients(OpContext& ctx, TensorView scale, TensorView shift, ConstTensorView x,
                             ConstTensorView weight, ConstTensorView bias, std::int64_t num_groups,
                             float eps) {
  const std::int64_t frames = x.dim(0);
  const std::int64_t positions = x.dim(1);
  const std::int64_t channels = x.dim(2);
  const std::int64_t pieces = (positions + kPiece - 1) / kPiece;
  const std::int64_t group_size = channels / num_groups;
  const float* input = x.f32();
  const float* weights = weight.f32();
  const float* biases = bias.f32();
  float* scales = scale.f32();
  float* shifts = shift.f32();
  const auto rows_of = [&](std::int64_t piece) {
    return std::min(kPiece, positions - piece * kPiece);
  };
  // Of one piece: the means of its channels, then their squares.
  Tensor statistics = empty_tensor(ctx.device, {frames * pieces, 2, channels}, DType::kF64);
  auto* values = statistics.view().as<double>();
  parallel_for(ctx, frames * pieces, 2 * kPiece * channels, [&](std::int64_t item) {
    const std::int64_t first = item / pieces * positions + item % pieces * kPiece;
    double* mean = values + item * 2 * channels;
    piece_statistics(mean, mean + channels, input + first * channels, rows_of(item % pieces),
                     channels);
  });
  parallel_for(ctx, frames, 8 * pieces * channels, [&](std::int64_t frame) {
    for (std::int64_t group = 0; group < num_groups; ++group) {
      Moments moments;
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const double* mean = values + (frame * pieces + piece) * 2 * channels;
        for (std::int64_t c = group * group_size; c < (group + 1) * group_size; ++c) {
          moments.add(static_cast<double>(rows_of(piece)), mean[c], mean[channels + c]);
        }
      }
      const double variance = moments.squares / moments.count;
      const double factor = 1.0 / std::sqrt(variance + static_cast<double>(eps));
      for (std::int64_t c = group * group_size; c < (group + 1) * group_size; ++c) {
        const double channel_scale = static_cast<double>(weights[c]) * factor;
        scales[frame * channels + c] = static_cast<float>(channel_scale);
        shifts[frame * channels + c] =
            static_cast<float>(static_cast<double>(biases[c]) - moments.mean * channel_scale);
      }
    }
  });
}

}  // namespace miniacc::ops::cpu
