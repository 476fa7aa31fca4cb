#include "model/audio_vae/pre_block.h"

#include <cmath>
#include <numbers>

#include "kernels/attention.h"
#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/residual.h"

namespace miniacc::audio_vae {
namespace {

constexpr float kNormEps = 1e-5F;

Tensor project(OpContext& ctx, ConstTensorView x, const LinearWeights& linear) {
  Tensor out = empty_tensor(ctx.device, {x.dim(0), linear.weight.values.shape()[0]});
  ops::linear(ctx, out.view(), x, linear.weight.view(), linear.bias.view());
  return out;
}

Tensor normalize(OpContext& ctx, ConstTensorView x, const NormWeights& norm) {
  Tensor out = empty_tensor(ctx.device, x.shape);
  ops::layer_norm(ctx, out.view(), x, norm.weight.view(), norm.bias.view(), kNormEps);
  return out;
}

}  // namespace

void pool_heads(TensorView out, ConstTensorView attended) {
  MINIACC_REQUIRE(out.shape.rank() == 2 && attended.shape.rank() == 3 &&
                      out.dim(0) == attended.dim(0) && out.dim(1) > 0 &&
                      attended.dim(2) % out.dim(1) == 0 && out.is_contiguous() &&
                      attended.is_contiguous(),
                  "pool_heads: out [rows, C], attended [rows, heads, head_dim] in whole groups");
  const std::int64_t heads = attended.dim(1);
  const std::int64_t head_dim = attended.dim(2);
  const std::int64_t size = head_dim / out.dim(1);
  for (std::int64_t row = 0; row < out.dim(0); ++row) {
    const float* source = attended.f32() + row * heads * head_dim;
    for (std::int64_t c = 0; c < out.dim(1); ++c) {
      double sum = 0.0;
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t i = 0; i < size; ++i) {
          sum += static_cast<double>(source[head * head_dim + c * size + i]);
        }
      }
      out.f32()[row * out.dim(1) + c] = static_cast<float>(sum / static_cast<double>(heads * size));
    }
  }
}

void geglu(TensorView out, ConstTensorView gate, ConstTensorView value) {
  MINIACC_REQUIRE(out.shape == gate.shape && gate.shape == value.shape && out.is_contiguous() &&
                      gate.is_contiguous() && value.is_contiguous(),
                  "geglu: out, gate and value are contiguous and of one shape");
  constexpr double kFactor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  for (std::int64_t i = 0; i < out.num_elements(); ++i) {
    const auto x = static_cast<double>(gate.f32()[i]);
    const double gelu = 0.5 * x * (1.0 + std::tanh(kFactor * (x + 0.044715 * x * x * x)));
    out.f32()[i] = static_cast<float>(gelu * static_cast<double>(value.f32()[i]));
  }
}

Tensor attend(OpContext& ctx, ConstTensorView normed, const PreBlock& block,
              const AudioEncoderConfig& config) {
  const std::int64_t rows = normed.dim(0);
  const std::int64_t heads = config.num_heads;
  const std::int64_t head_dim = config.latent_dim / heads;
  const Tensor qkv = project(ctx, normed, block.qkv);  // [rows, 3·D]
  const ConstTensorView parts = qkv.view().reshape(Shape({rows, 3 * heads, head_dim}));
  Tensor attended = empty_tensor(ctx.device, {rows, heads, head_dim});
  ops::attention(ctx, attended.view(), parts.narrow(1, 0, heads), parts.narrow(1, heads, heads),
                 parts.narrow(1, 2 * heads, heads),
                 {.scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                  .mask = ops::AttentionMask::kCausal});
  // A few hundred values a latent: the host averages them.
  const Tensor on_host_attended = to_host(ctx, std::move(attended));
  Tensor pooled = empty_tensor(ctx.host_device(), {rows, config.latent_channels});
  pool_heads(pooled.view(), on_host_attended.view());
  const Placed placed = on_device(ctx, pooled.view());
  return project(ctx, placed.view, block.attn_proj);
}

Tensor run_pre_block(OpContext& ctx, ConstTensorView trunk, const PreBlock& block,
                     const AudioEncoderConfig& config) {
  Tensor y = project(ctx, normalize(ctx, trunk, block.norm3).view(), block.proj);  // [rows, C]
  ops::add(ctx, y.view(),
           attend(ctx, normalize(ctx, trunk, block.norm1).view(), block, config).view());
  // Two norms in a row: the block's own and the mlp's.
  Tensor x = normalize(ctx, normalize(ctx, y.view(), block.norm2).view(), block.mlp_norm);
  Tensor gate = to_host(ctx, project(ctx, x.view(), block.w0));  // [rows, F]
  const Tensor value = to_host(ctx, project(ctx, x.view(), block.w1));
  geglu(gate.view(), gate.view(), value.view());
  const Placed product = on_device(ctx, gate.view());
  ops::add(ctx, y.view(), project(ctx, product.view, block.w2).view());
  return y;
}

}  // namespace miniacc::audio_vae
