// Blocks of int8 matrices against the chain of single ops that their fused producers stand for.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/cpu_device.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rope.h"
#include "model/common/row_chunks.h"
#include "model/dit/block.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc {
namespace {

using testing::identical_to;
using testing::random_normal;
using testing::random_tensor;

constexpr std::int64_t kTableRows = 3;

DitConfig small_config() {
  DitConfig config;
  config.hidden_size = 48;
  config.num_heads = 3;
  config.head_dim = 32;
  config.ffn_hidden_size = 80;
  config.rope_freqs = 4;
  config.norm_eps = 1e-5F;
  config.qk_norm_eps = 1e-6F;
  return config;
}

class FusedBlock : public ::testing::Test {
 protected:
  enum class SideProducts { kNone, kEverywhere, kOnFc2 };

  OwnedWeightMatrix matrix(std::int64_t n, std::int64_t k, std::int64_t group, bool with_side) {
    OwnedWeightMatrix w;
    Tensor values = random_tensor(device_, {n, k}, next_seed_++);
    w.values = empty_tensor(device_, {n, k}, DType::kI8);
    w.row_scale = empty_tensor(device_, {n});
    ops::quantize_rows(ctx_, w.values.view(), w.row_scale.view(), values.view());
    for (float& scale : w.row_scale.f32()) {
      scale /= std::sqrt(static_cast<float>(k));
    }
    w.rotation_group = group;
    if (with_side) {
      w.low_rank.push_back({random_tensor(device_, {4, k}, next_seed_++),
                            random_tensor(device_, {n / 2, 4}, next_seed_++), 0.05F, n / 4});
      w.low_rank.push_back({random_tensor(device_, {2, k}, next_seed_++),
                            random_tensor(device_, {n, 2}, next_seed_++), 0.02F, 0});
    }
    return w;
  }

  struct OwnedBlock {
    Tensor norm1;
    OwnedWeightMatrix qkv_proj;
    Tensor q_norm;
    Tensor k_norm;
    OwnedWeightMatrix out_proj;
    Tensor norm2;
    OwnedWeightMatrix fc1;
    OwnedWeightMatrix fc2;

    [[nodiscard]] DitBlockWeights view() const {
      return {norm1.view(),    qkv_proj.view(), q_norm.view(), k_norm.view(),
              out_proj.view(), norm2.view(),    fc1.view(),    fc2.view()};
    }
  };

  OwnedBlock block(SideProducts side) {
    const bool all = side == SideProducts::kEverywhere;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t attention = config_.attention_size();
    OwnedBlock weights;
    weights.norm1 = random_tensor(device_, {hidden}, next_seed_++);
    weights.qkv_proj = matrix(3 * attention, hidden, 16, all);
    weights.q_norm = random_tensor(device_, {config_.head_dim}, next_seed_++);
    weights.k_norm = random_tensor(device_, {config_.head_dim}, next_seed_++);
    weights.out_proj = matrix(hidden, attention, 0, all);
    weights.norm2 = random_tensor(device_, {hidden}, next_seed_++);
    weights.fc1 = matrix(2 * config_.ffn_hidden_size, hidden, 4, all);
    weights.fc2 = matrix(hidden, config_.ffn_hidden_size, 16, side != SideProducts::kNone);
    return weights;
  }

  /// What every block of a pass reads beside its weights.
  struct Pass {
    Tensor table;
    Tensor index;
    RopeTable rope;
  };
  Pass pass(std::int64_t rows) {
    Pass result{random_tensor(device_, {kTableRows, 6 * config_.hidden_size}, 5),
                empty_tensor(device_, {rows}, DType::kI32),
                {random_tensor(device_, {rows, 3 * config_.rope_freqs}, 6),
                 random_tensor(device_, {rows, 3 * config_.rope_freqs}, 7)}};
    for (std::int64_t row = 0; row < rows; ++row) {
      result.index.view().as<std::int32_t>()[row] = static_cast<std::int32_t>(row % kTableRows);
    }
    return result;
  }

  /// The block by its definition: one op after the other, nothing fused.
  void chain(TensorView h, const DitBlockWeights& weights, const Pass& pass, Precision precision) {
    const std::int64_t rows = h.dim(0);
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = config_.num_heads;
    const std::int64_t ffn = config_.ffn_hidden_size;
    const auto vector = [&](std::int64_t i) {
      return pass.table.view().narrow(1, i * hidden, hidden);
    };
    Tensor y = empty_tensor(device_, {rows, hidden});
    Tensor qkv = empty_tensor(device_, {rows, 3 * heads, config_.head_dim});
    Tensor attention = empty_tensor(device_, {rows, heads, config_.head_dim});
    ops::modulated_rms_norm(ctx_, y.view(), h, weights.norm1, vector(0), vector(1),
                            pass.index.view(), config_.norm_eps);
    linear_by_rows(ctx_, qkv.view().reshape({rows, 3 * config_.attention_size()}), y.view(),
                   weights.qkv_proj);
    const TensorView q = qkv.view().narrow(1, 0, heads);
    const TensorView k = qkv.view().narrow(1, heads, heads);
    ops::rms_norm(ctx_, q, q, weights.q_norm, config_.qk_norm_eps);
    ops::rms_norm(ctx_, k, k, weights.k_norm, config_.qk_norm_eps);
    ops::apply_rope(ctx_, qkv.view().narrow(1, 0, 2 * heads), pass.rope.cos.view(),
                    pass.rope.sin.view());
    ops::attention(ctx_, attention.view(), q, k, qkv.view().narrow(1, 2 * heads, heads),
                   {.scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                    .mask = ops::AttentionMask::kNone,
                    .precision = precision});
    linear_by_rows(ctx_, y.view(), attention.view().reshape({rows, config_.attention_size()}),
                   weights.out_proj);
    ops::gated_add(ctx_, h, y.view(), vector(2), pass.index.view());
    ops::modulated_rms_norm(ctx_, y.view(), h, weights.norm2, vector(3), vector(4),
                            pass.index.view(), config_.norm_eps);
    Tensor fc1 = empty_tensor(device_, {rows, 2 * ffn});
    Tensor activation = empty_tensor(device_, {rows, ffn});
    linear_by_rows(ctx_, fc1.view(), y.view(), weights.fc1);
    ops::silu_mul(ctx_, activation.view(), fc1.view().narrow(1, 0, ffn),
                  fc1.view().narrow(1, ffn, ffn));
    linear_by_rows(ctx_, y.view(), activation.view(), weights.fc2);
    ops::gated_add(ctx_, h, y.view(), vector(5), pass.index.view());
  }

  void expect_the_chains_bits(std::int64_t rows, Precision attention, SideProducts side) {
    const OwnedBlock owned = block(side);
    const DitBlockWeights weights = owned.view();
    const Pass fixed = pass(rows);
    Tensor fused = random_tensor(device_, {rows, config_.hidden_size}, 8);
    Tensor unfused = random_tensor(device_, {rows, config_.hidden_size}, 8);
    BlockActivations activations(device_, config_, rows, {Precision::kInt8, attention});
    for (const Tensor* buffer : {&activations.y, &activations.qkv, &activations.fc1}) {
      std::fill_n(static_cast<float*>(const_cast<void*>(buffer->view().data)),
                  buffer->shape().num_elements(), std::numeric_limits<float>::quiet_NaN());
    }
    for (int i = 0; i < 2; ++i) {  // the second block meets the buffers as the first left them
      dit_block(ctx_, fused.view(), weights, config_, {fixed.table.view(), fixed.index.view()},
                fixed.rope, activations);
      chain(unfused.view(), weights, fixed, attention);
    }
    EXPECT_TRUE(identical_to(fused.f32(), unfused.f32()));
    EXPECT_TRUE(std::isfinite(fused.f32().front()));
  }

  CpuDevice device_;
  OpContext ctx_{device_, 2};
  DitConfig config_ = small_config();
  std::uint64_t next_seed_ = 100;
};

TEST_F(FusedBlock, GivesTheBitsOfItsChainOnTheCpu) {
  for (const Precision attention : {Precision::kF32, Precision::kBF16, Precision::kInt8}) {
    for (const std::int64_t rows : {1, 37, 130}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, attention " << int(attention));
      expect_the_chains_bits(rows, attention, SideProducts::kNone);
    }
  }
}

TEST_F(FusedBlock, GivesTheBitsOfItsChainAcrossChunksOfRows) {
  expect_the_chains_bits(kRowChunk + 5, Precision::kInt8, SideProducts::kNone);
  expect_the_chains_bits(kRowChunk + 5, Precision::kInt8, SideProducts::kOnFc2);
}

TEST_F(FusedBlock, SideProductsSeeTheInputAsItIs) {
  for (const SideProducts side : {SideProducts::kEverywhere, SideProducts::kOnFc2}) {
    for (const Precision attention : {Precision::kBF16, Precision::kInt8}) {
      expect_the_chains_bits(37, attention, side);
    }
  }
}

TEST_F(FusedBlock, SideProductsChangeTheResult) {
  const std::int64_t rows = 5;
  const Pass fixed = pass(rows);
  BlockActivations activations(device_, config_, rows, {Precision::kInt8, Precision::kBF16});
  OwnedBlock weights = block(SideProducts::kOnFc2);
  Tensor with = random_tensor(device_, {rows, config_.hidden_size}, 8);
  Tensor without = random_tensor(device_, {rows, config_.hidden_size}, 8);
  const BlockModulation modulation{fixed.table.view(), fixed.index.view()};
  dit_block(ctx_, with.view(), weights.view(), config_, modulation, fixed.rope, activations);
  weights.fc2.low_rank.clear();
  dit_block(ctx_, without.view(), weights.view(), config_, modulation, fixed.rope, activations);
  EXPECT_FALSE(identical_to(with.f32(), without.f32()));
}

TEST_F(FusedBlock, ActivationsTakeTheBytesTheySay) {
  constexpr std::size_t kRounding = 13 * 256;  // of 13 buffers
  const Precision all[] = {Precision::kF32, Precision::kBF16, Precision::kInt8};
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{65}, kRowChunk + 5}) {
    for (const Precision linear : all) {
      for (const Precision attention : all) {
        const BlockPrecision precision{linear, attention};
        const std::size_t before = device_.bytes_in_use();
        const BlockActivations activations(device_, config_, rows, precision);
        const std::size_t planned =
            BlockActivations::size_bytes(config_, rows, precision, DeviceKind::kCpu);
        EXPECT_EQ(device_.bytes_in_use() - before, activations.size_bytes());
        EXPECT_LE(activations.size_bytes(), planned);
        EXPECT_GE(activations.size_bytes() + kRounding, planned);
        EXPECT_EQ(activations.attention.empty(), attention == Precision::kInt8);
        EXPECT_EQ(activations.codes.empty(), linear != Precision::kInt8);
      }
    }
  }
}

// On CUDA a long clip takes no more room for its MLP than 16384 rows do, and none for fc2's input.
TEST_F(FusedBlock, TheDeviceDecidesHowManyRowsAreInHand) {
  const BlockPrecision precision{Precision::kInt8, Precision::kInt8};
  const auto bytes = [&](std::int64_t rows, DeviceKind device) {
    return static_cast<std::int64_t>(
        BlockActivations::size_bytes(config_, rows, precision, device));
  };
  // A multiple of 64 rows: every buffer is whole runs of 256 bytes.
  const std::int64_t floats = config_.hidden_size + 2 * config_.ffn_hidden_size + 1;
  const std::int64_t cuda_row = 4 * floats + config_.attention_size();
  const std::int64_t cpu_row = cuda_row + 4 * config_.ffn_hidden_size;
  EXPECT_EQ(bytes(2 * kCudaRowChunk, DeviceKind::kCuda) - kCudaRowChunk * cuda_row,
            bytes(2 * kCudaRowChunk, DeviceKind::kCpu) - kRowChunk * cpu_row);
}

}  // namespace
}  // namespace miniacc
