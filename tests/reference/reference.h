#pragma once

#include <cstdint>
#include <vector>

/// The ops in double precision, written from their formulas with plain loops. Inputs are what the
/// op reads (f32), results are double. Nothing here includes a header of src/.
namespace miniacc::reference {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// x [rows, k] · wᵀ [k, n] + bias [n] (or empty).
Doubles linear(const Floats& x, const Floats& w, const Floats& bias, std::int64_t rows,
               std::int64_t n, std::int64_t k);
/// Every value rounded to 8 bits of mantissa, ties to even.
Floats to_bf16(const Floats& values);
/// x · H over groups, H built as a dense matrix from its Kronecker definition.
Doubles rotate(const Floats& x, std::int64_t rows, std::int64_t k, std::int64_t group);

/// weight may be empty.
Doubles rms_norm(const Floats& x, const Floats& weight, std::int64_t hidden, double eps);
Doubles modulated_rms_norm(const Floats& x, const Floats& weight, const Floats& shift,
                           const Floats& scale, const std::vector<std::int32_t>& index,
                           std::int64_t hidden, double eps);
Doubles layer_norm(const Floats& x, const Floats& weight, const Floats& bias, std::int64_t hidden,
                   double eps);

Doubles silu(const Floats& x);
Doubles gelu_exact(const Floats& x);
Doubles gelu_tanh(const Floats& x);
Doubles silu_mul(const Floats& gate, const Floats& value);
Doubles gated_add(const Floats& h, const Floats& x, const Floats& gate,
                  const std::vector<std::int32_t>& index, std::int64_t hidden);
/// x [rows, heads, head_dim]; cos, sin [rows, n].
Doubles rope(const Floats& x, const Floats& cos, const Floats& sin, std::int64_t rows,
             std::int64_t heads, std::int64_t head_dim, std::int64_t n);

struct AttentionShape {
  std::int64_t q_rows, kv_rows, heads, kv_heads, head_dim;
};
Doubles attention(const Floats& q, const Floats& k, const Floats& v, const AttentionShape& shape,
                  double scale, bool causal);

struct ConvShape {
  std::int64_t batch, in, out, length, kernel;
  std::int64_t stride = 1, padding = 0, dilation = 1;
};
Doubles conv1d(const Floats& x, const Floats& weight, const Floats& bias, const ConvShape& shape);
/// By its definition: every input scatters into the output.
Doubles conv_transpose1d(const Floats& x, const Floats& weight, const Floats& bias,
                         const ConvShape& shape);

/// Kernels, strides and reflected padding of height and width are alike.
struct Conv3dShape {
  std::int64_t batch, frames, height, width, in, out, kernel_t, kernel_hw;
  std::int64_t stride_t = 1, stride_hw = 1, past_frames = 0, pad_before = 0, pad_after = 0;
};
/// x [batch, frames, height, width, in], weight [out, in, kernel_t, kernel_hw, kernel_hw]: first
/// reflected, then zero frames in front, then convolved.
Doubles conv3d(const Doubles& x, const Floats& weight, const Floats& bias,
               const Conv3dShape& shape);
/// x [frames, positions, channels], each frame normalised by itself.
Doubles group_norm(const Floats& x, const Floats& weight, const Floats& bias, std::int64_t frames,
                   std::int64_t positions, std::int64_t channels, std::int64_t num_groups,
                   double eps);
/// x + sin(alpha·x)² / (alpha + 1e-9); alpha [channels].
Doubles snake(const Floats& x, const Floats& alpha, std::int64_t batch, std::int64_t channels,
              std::int64_t length);

/// By its definition (spec vae.md §4.3): replicate-pad 5, transposed convolution with stride 2,
/// times 2, cut 15 on both sides; SnakeBeta; replicate-pad 5 and 6, convolution with stride 2.
Doubles antialiased_snake_beta(const Floats& x, const Floats& alpha, const Floats& beta,
                               const Floats& up, const Floats& down, std::int64_t batch,
                               std::int64_t channels, std::int64_t length);
/// The 12 Kaiser-windowed sinc taps of spec vae.md §4.3.
Doubles antialiasing_taps();

}  // namespace miniacc::reference
