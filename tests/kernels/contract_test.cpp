#include "kernels/contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/build_config.h"
#include "device/cpu_device.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/attention_int8.h"
#include "kernels/conv1d.h"
#include "kernels/conv3d.h"
#include "kernels/fused.h"
#include "kernels/gelu.h"
#include "kernels/group_norm.h"
#include "kernels/linear.h"
#include "kernels/low_rank.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rope.h"
#include "kernels/snake.h"

namespace miniacc::ops {
namespace {

/// Every op refuses arguments that break its contract before it touches memory. The views stand
/// for any memory of that shape; each check changes one thing about a call that is accepted.
class Contract : public ::testing::Test {
 protected:
  TensorView view(const Shape& shape, DType dtype = DType::kF32) {
    tensors_.push_back(empty_tensor(device_, shape, dtype));
    TensorView result = tensors_.back().view();
    std::fill_n(static_cast<std::byte*>(result.data), tensors_.back().size_bytes(), std::byte{0});
    return result;
  }
  /// Rows contiguous, last dimension strided: what no op takes.
  TensorView strided_last(const Shape& shape) {
    TensorView result = view({shape.num_elements() * 2});
    result.shape = shape;
    std::int64_t stride = 2;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      result.strides[static_cast<std::size_t>(axis)] = stride;
      stride *= shape[axis];
    }
    return result;
  }
  static TensorView on_gpu(TensorView view) {
    view.device = {DeviceKind::kCuda, 0};
    return view;
  }
  static TensorView as_dtype(TensorView view, DType dtype) {
    view.dtype = dtype;
    return view;
  }

  CpuDevice device_;
  OpContext ctx_{.device = device_, .num_threads = 2};
  std::vector<Tensor> tensors_;
};

#define EXPECT_BROKEN(call) EXPECT_THROW(call, InternalError)

/// The message of the InternalError that `call` ends on.
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_F(Contract, MayOverlapKnowsColumnsOfOneBuffer) {
  const TensorView buffer = view({4, 12});
  const TensorView q = buffer.narrow(1, 0, 4);
  const TensorView k = buffer.narrow(1, 4, 4);
  EXPECT_FALSE(may_overlap(q, k));
  EXPECT_FALSE(may_overlap(k, q));
  EXPECT_TRUE(may_overlap(q, buffer.narrow(1, 3, 4)));
  EXPECT_TRUE(may_overlap(buffer.narrow(1, 3, 4), q));
  EXPECT_TRUE(may_overlap(q, q));
  EXPECT_TRUE(may_overlap(q, buffer));
  EXPECT_FALSE(may_overlap(buffer.narrow(0, 0, 2), buffer.narrow(0, 2, 2)));
  EXPECT_TRUE(may_overlap(buffer.narrow(0, 0, 3), buffer.narrow(0, 2, 2)));
  // The last columns of row r touch the first of row r + 1 only where both are taken.
  EXPECT_FALSE(may_overlap(buffer.narrow(1, 8, 4), buffer.narrow(0, 1, 3).narrow(1, 0, 4)));
  EXPECT_FALSE(may_overlap(q, TensorView{}));
  EXPECT_FALSE(may_overlap(q, view({4, 12})));
}

TEST_F(Contract, AddLowRank) {
  const auto delta = [&](const Shape& down, const Shape& up, std::int64_t first_row,
                         DType up_dtype = DType::kF32) {
    return LowRankDelta{empty_tensor(device_, down), empty_tensor(device_, up, up_dtype), 1.0F,
                        first_row};
  };
  const TensorView out = view({2, 6});
  const TensorView x = view({2, 8});
  EXPECT_NO_THROW(add_low_rank(ctx_, out, x, delta({3, 8}, {4, 3}, 2)));
  EXPECT_NO_THROW(add_low_rank(ctx_, view({0, 6}), view({0, 8}), delta({3, 8}, {4, 3}, 2)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, x, delta({3, 7}, {4, 3}, 2)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, x, delta({3, 8}, {4, 2}, 2)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, x, delta({3, 8}, {4, 3}, 3)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, x, delta({3, 8}, {4, 3}, -1)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, x, delta({3, 8}, {7, 3}, 0)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, x, delta({3, 8}, {4, 3}, 0, DType::kBF16)));
  EXPECT_BROKEN(add_low_rank(ctx_, view({3, 6}), x, delta({3, 8}, {4, 3}, 0)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, strided_last({2, 8}), delta({3, 8}, {4, 3}, 0)));
  EXPECT_BROKEN(add_low_rank(ctx_, out, as_dtype(x, DType::kI32), delta({3, 8}, {4, 3}, 0)));
  EXPECT_BROKEN(add_low_rank(ctx_, on_gpu(out), x, delta({3, 8}, {4, 3}, 0)));
  EXPECT_BROKEN(add_low_rank(ctx_, x.narrow(1, 0, 6), x, delta({3, 8}, {4, 3}, 0)));
}

TEST_F(Contract, Linear) {
  const WeightMatrix w{.values = view({3, 8})};
  EXPECT_NO_THROW(linear(ctx_, view({2, 3}), view({2, 8}), w, view({3})));
  EXPECT_BROKEN(linear(ctx_, view({2, 4}), view({2, 8}), w));
  EXPECT_BROKEN(linear(ctx_, view({1, 3}), view({2, 8}), w));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 7}), w));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({1, 2, 8}), w));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), strided_last({2, 8}), w));
  EXPECT_BROKEN(linear(ctx_, strided_last({2, 3}), view({2, 8}), w));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), as_dtype(view({2, 8}), DType::kI32), w));
  EXPECT_BROKEN(linear(ctx_, on_gpu(view({2, 3})), view({2, 8}), w));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), on_gpu(view({2, 8})), w));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 8}), w, view({2})));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 8}), w, as_dtype(view({3}), DType::kI32)));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 8}), {.values = view({3, 8}, DType::kF16)}));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 8}), {.values = strided_last({3, 8})}));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 8}), {.values = view({3, 8}, DType::kI8)}));
  EXPECT_BROKEN(
      linear(ctx_, view({2, 3}), view({2, 8}), {.values = view({3, 8}), .row_scale = view({3})}));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 8}),
                       {.values = view({3, 8}, DType::kI8), .row_scale = view({2})}));
  EXPECT_BROKEN(linear(ctx_, view({2, 3}), view({2, 8}),
                       {.values = view({3, 8}), .row_scale = {}, .rotation_group = 4}));
  for (const std::int64_t group : {-4, 1, 2, 8, 16}) {
    EXPECT_BROKEN(linear(
        ctx_, view({2, 3}), view({2, 8}),
        {.values = view({3, 8}, DType::kI8), .row_scale = view({3}), .rotation_group = group}));
  }
  const TensorView square = view({8, 8});
  EXPECT_BROKEN(linear(ctx_, square, square, {.values = view({8, 8})}));
}

TEST_F(Contract, QuantizeAndRotate) {
  const TensorView packed = view({2, 8}, DType::kI8);
  EXPECT_NO_THROW(quantize_rows(ctx_, packed, view({2}), view({2, 8})));
  EXPECT_BROKEN(quantize_rows(ctx_, packed, view({3}), view({2, 8})));
  EXPECT_BROKEN(quantize_rows(ctx_, packed, view({2}), view({2, 4})));
  EXPECT_BROKEN(quantize_rows(ctx_, view({2, 8}), view({2}), view({2, 8})));
  EXPECT_BROKEN(quantize_rows(ctx_, packed, view({2}), strided_last({2, 8})));
  EXPECT_NO_THROW(rotate_rows(ctx_, view({2, 8}), 4));
  EXPECT_BROKEN(rotate_rows(ctx_, view({2, 8}), 16));
  EXPECT_BROKEN(rotate_rows(ctx_, view({2, 8}), 2));
  EXPECT_BROKEN(rotate_rows(ctx_, view({2, 8}), 0));
  EXPECT_BROKEN(rotate_rows(ctx_, view({2, 6}), 4));
}

TEST_F(Contract, Norms) {
  EXPECT_NO_THROW(rms_norm(ctx_, view({2, 3}), view({2, 3}), view({3}), 1e-5F));
  EXPECT_BROKEN(rms_norm(ctx_, view({2, 3}), view({2, 3}), view({2}), 1e-5F));
  EXPECT_BROKEN(rms_norm(ctx_, view({2, 2}), view({2, 3}), view({3}), 1e-5F));
  EXPECT_BROKEN(rms_norm(ctx_, view({3}), view({3}), view({3}), 1e-5F));
  EXPECT_BROKEN(rms_norm(ctx_, view({2, 3}), strided_last({2, 3}), view({3}), 1e-5F));
  EXPECT_BROKEN(
      rms_norm(ctx_, view({2, 3}), view({2, 3}), as_dtype(view({3}), DType::kI32), 1e-5F));
  EXPECT_NO_THROW(layer_norm(ctx_, view({2, 3}), view({2, 3}), view({3}), view({3}), 1e-5F));
  EXPECT_BROKEN(layer_norm(ctx_, view({2, 3}), view({2, 3}), view({3}), view({2}), 1e-5F));
  EXPECT_BROKEN(layer_norm(ctx_, view({2, 3}), view({2, 3}), TensorView{}, view({3}), 1e-5F));
  EXPECT_BROKEN(layer_norm(ctx_, view({2, 3}), strided_last({2, 3}), view({3}), view({3}), 1e-5F));
  const TensorView index = view({2}, DType::kI32);
  const TensorView x = view({2, 3});
  const TensorView table = view({4, 3});
  EXPECT_NO_THROW(modulated_rms_norm(ctx_, view({2, 3}), x, view({3}), table, table, index, 1e-5F));
  EXPECT_BROKEN(
      modulated_rms_norm(ctx_, view({2, 3}), x, view({3}), table, view({3, 3}), index, 1e-5F));
  EXPECT_BROKEN(modulated_rms_norm(ctx_, view({2, 3}), x, view({3}), table, table,
                                   view({3}, DType::kI32), 1e-5F));
  EXPECT_BROKEN(
      modulated_rms_norm(ctx_, view({2, 3}), x, view({3}), table, table, view({2}), 1e-5F));
  EXPECT_BROKEN(modulated_rms_norm(ctx_, view({2, 3}), x, view({2}), table, table, index, 1e-5F));
  EXPECT_BROKEN(modulated_rms_norm(ctx_, view({2, 3}), x, view({3}), view({4, 2}), view({4, 2}),
                                   index, 1e-5F));
}

TEST_F(Contract, Elementwise) {
  EXPECT_NO_THROW(silu_mul(ctx_, view({2, 3}), view({2, 3}), view({2, 3})));
  EXPECT_BROKEN(silu_mul(ctx_, view({2, 3}), view({2, 3}), view({2, 2})));
  EXPECT_BROKEN(silu_mul(ctx_, view({2, 3}), strided_last({2, 3}), view({2, 3})));
  EXPECT_BROKEN(silu_mul(ctx_, view({6}), view({6}), view({6})));
  const TensorView shared = view({2, 3});
  EXPECT_NO_THROW(silu_mul(ctx_, shared, shared, view({2, 3})));
  EXPECT_NO_THROW(silu_mul(ctx_, shared, view({2, 3}), shared));
  const TensorView both = view({2, 6});
  const TensorView gate = both.narrow(1, 0, 3);
  EXPECT_NO_THROW(silu_mul(ctx_, gate, gate, both.narrow(1, 3, 3)));
  EXPECT_BROKEN(silu_mul(ctx_, gate, gate, both.narrow(1, 2, 3)));
  const TensorView tall = view({3, 3});
  EXPECT_NO_THROW(silu_mul(ctx_, tall.narrow(0, 0, 1), tall.narrow(0, 1, 1), view({1, 3})));
  EXPECT_BROKEN(silu_mul(ctx_, tall.narrow(0, 0, 2), tall.narrow(0, 1, 2), view({2, 3})));
  EXPECT_BROKEN(silu(ctx_, view({6}), view({5})));
  EXPECT_BROKEN(silu(ctx_, view({6}), strided_last({6})));
  EXPECT_BROKEN(silu(ctx_, view({6}), as_dtype(view({6}), DType::kI32)));
  EXPECT_BROKEN(gelu(ctx_, view({6}), view({5}), GeluForm::kExact));
  EXPECT_BROKEN(gelu(ctx_, view({6}), strided_last({6}), GeluForm::kTanh));
  EXPECT_BROKEN(gelu(ctx_, view({6}), as_dtype(view({6}), DType::kI32), GeluForm::kTanh));
  EXPECT_BROKEN(add(ctx_, view({6}), view({5})));
  EXPECT_BROKEN(add(ctx_, view({6}), as_dtype(view({6}), DType::kI32)));
  EXPECT_BROKEN(add(ctx_, on_gpu(view({6})), view({6})));
  EXPECT_NO_THROW(gated_add(ctx_, view({2, 3}), view({2, 3}), view({1, 3}), {}));
  EXPECT_BROKEN(gated_add(ctx_, view({2, 3}), view({2, 3}), view({3}), {}));
  EXPECT_BROKEN(gated_add(ctx_, view({2, 3}), view({2, 3}), view({0, 3}), {}));
  EXPECT_BROKEN(gated_add(ctx_, view({2, 3}), view({2, 3}), view({1, 2}), {}));
  EXPECT_BROKEN(gated_add(ctx_, view({2, 3}), view({2, 3}), view({1, 3}), view({2})));
  EXPECT_BROKEN(gated_add(ctx_, view({2, 3}), view({2, 3}), view({1, 3}), view({3}, DType::kI32)));
}

TEST_F(Contract, Rope) {
  EXPECT_NO_THROW(apply_rope(ctx_, view({2, 3, 8}), view({2, 4}), view({2, 4})));
  EXPECT_BROKEN(apply_rope(ctx_, view({2, 3, 8}), view({2, 5}), view({2, 5})));
  EXPECT_BROKEN(apply_rope(ctx_, view({2, 3, 8}), view({3, 4}), view({3, 4})));
  EXPECT_BROKEN(apply_rope(ctx_, view({2, 3, 8}), view({2, 4}), view({2, 3})));
  EXPECT_BROKEN(apply_rope(ctx_, view({2, 24}), view({2, 4}), view({2, 4})));
  EXPECT_BROKEN(apply_rope(ctx_, strided_last({2, 3, 8}), view({2, 4}), view({2, 4})));
  EXPECT_BROKEN(
      apply_rope(ctx_, as_dtype(view({2, 3, 8}), DType::kI32), view({2, 4}), view({2, 4})));
}

TEST_F(Contract, Attention) {
  const TensorView q = view({4, 2, 8});
  const TensorView kv = view({5, 2, 8});
  EXPECT_NO_THROW(attention(ctx_, view({4, 2, 8}), q, kv, kv, {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 7}), q, kv, kv, {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 8}), q, kv, view({4, 2, 8}), {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 8}), q, view({5, 2, 4}), view({5, 2, 4}), {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 3, 8}), view({4, 3, 8}), kv, kv, {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 8}), q, view({0, 2, 8}), view({0, 2, 8}), {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 8}), q, kv, kv, {.mask = AttentionMask::kCausal}));
  EXPECT_NO_THROW(attention(ctx_, view({4, 2, 8}), q, kv, kv, {.precision = Precision::kInt8}));
  EXPECT_BROKEN(attention(ctx_, view({5, 2, 8}), view({5, 2, 8}), kv, kv,
                          {.mask = AttentionMask::kCausal, .precision = Precision::kInt8}));
  const TensorView wide = view({1, 1, 129});
  const auto attend_int8 = [&] {
    attention(ctx_, view({1, 1, 129}), wide, wide, wide, {.precision = Precision::kInt8});
  };
  EXPECT_THAT(refusal(attend_int8), ::testing::HasSubstr("head_dim 1 to 128, got 129"));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 8}), q, kv, kv, {.scale = 0.0F}));
  EXPECT_BROKEN(attention(ctx_, q, q, kv, kv, {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 8}), view({4, 2, 16}).narrow(2, 0, 8), kv, kv, {}));
  EXPECT_BROKEN(attention(ctx_, view({4, 2, 8}), on_gpu(q), kv, kv, {}));
}

TEST_F(Contract, Int8Attention) {
  const TensorView q = view({4, 2, 8});
  const TensorView kv = view({4, 1, 8});
  const TensorView norm = view({8});
  const TensorView angles = view({4, 3});
  QuantizedAttention made = empty_quantized_attention(device_, 4, 2, 4, 1, 8);
  EXPECT_NO_THROW(quantize_attention(ctx_, made, q, kv, kv));
  EXPECT_BROKEN(quantize_attention(ctx_, made, view({5, 2, 8}), kv, kv));
  EXPECT_BROKEN(quantize_attention(ctx_, made, q, view({4, 2, 8}), view({4, 2, 8})));
  EXPECT_BROKEN(quantize_attention(ctx_, made, q, kv, view({3, 1, 8})));
  EXPECT_BROKEN(quantize_attention(ctx_, made, q, kv, on_gpu(kv)));
  EXPECT_BROKEN(quantize_attention(ctx_, made, view({4, 2, 16}).narrow(2, 0, 8), kv, kv));
  EXPECT_NO_THROW(
      qk_norm_rope_quantize(ctx_, made, q, kv, kv, {norm, norm, 1e-6F, angles, angles}));
  EXPECT_NO_THROW(qk_norm_rope_quantize(ctx_, made, q, kv, kv, {norm, norm, 1e-6F}));
  EXPECT_BROKEN(qk_norm_rope_quantize(ctx_, made, q, kv, kv, {view({7}), norm, 1e-6F}));
  EXPECT_BROKEN(qk_norm_rope_quantize(ctx_, made, q, kv, kv, {norm, norm, 1e-6F, angles, {}}));
  EXPECT_BROKEN(qk_norm_rope_quantize(ctx_, made, q, kv, kv,
                                      {norm, norm, 1e-6F, view({4, 5}), view({4, 5})}));
  EXPECT_BROKEN(qk_norm_rope_quantize(ctx_, made, q, kv, kv,
                                      {norm, norm, 1e-6F, view({5, 3}), view({5, 3})}));
  EXPECT_NO_THROW(attention_int8(ctx_, view({4, 2, 8}), made, 1.0F));
  EXPECT_BROKEN(attention_int8(ctx_, view({4, 2, 9}), made, 1.0F));
  EXPECT_BROKEN(attention_int8(ctx_, view({4, 2, 8}), made, 0.0F));
  EXPECT_BROKEN(empty_quantized_attention(device_, 4, 3, 4, 2, 8));
  EXPECT_BROKEN(empty_quantized_attention(device_, 4, 2, 4, 2, 129));
}

TEST_F(Contract, FusedProducers) {
  const TensorView codes = view({2, 16}, DType::kI8);
  const TensorView scale = view({2});
  const TensorView x = view({2, 16});
  EXPECT_NO_THROW(rotate_quantize_rows(ctx_, codes, scale, x, 16));
  EXPECT_NO_THROW(rotate_quantize_rows(ctx_, codes, scale, x, 0));
  EXPECT_BROKEN(rotate_quantize_rows(ctx_, codes, scale, x, 8));
  EXPECT_BROKEN(rotate_quantize_rows(ctx_, codes, scale, x, 64));
  EXPECT_BROKEN(rotate_quantize_rows(ctx_, view({2, 16}), scale, x, 4));
  EXPECT_BROKEN(rotate_quantize_rows(ctx_, codes, view({3}), x, 4));
  EXPECT_BROKEN(rotate_quantize_rows(ctx_, codes, scale, view({2, 15}), 0));
  EXPECT_BROKEN(rotate_quantize_rows(ctx_, codes, scale, strided_last({2, 16}), 4));
  EXPECT_BROKEN(rotate_quantize_rows(ctx_, codes, on_gpu(scale), x, 4));
  const TensorView weight = view({16});
  const TensorView table = view({3, 16});
  const TensorView index = view({2}, DType::kI32);
  const auto norm = [&](TensorView w, TensorView shift, TensorView gain, TensorView rows) {
    modulated_rms_norm_quantize(ctx_, codes, scale, x, w, shift, gain, rows, 1e-5F, 16);
  };
  EXPECT_NO_THROW(norm(weight, table, table, index));
  EXPECT_BROKEN(norm(view({15}), table, table, index));
  EXPECT_BROKEN(norm(weight, view({3, 15}), view({3, 15}), index));
  EXPECT_BROKEN(norm(weight, table, view({2, 16}), index));
  EXPECT_BROKEN(norm(weight, table, table, view({2})));
  EXPECT_BROKEN(norm(weight, table, table, view({3}, DType::kI32)));
  EXPECT_NO_THROW(silu_mul_quantize(ctx_, codes, scale, x, view({2, 16}), 16));
  EXPECT_BROKEN(silu_mul_quantize(ctx_, codes, scale, x, view({2, 15}), 16));
  EXPECT_BROKEN(silu_mul_quantize(ctx_, codes, scale, strided_last({2, 16}), x, 16));
  const WeightMatrix w = {.values = view({5, 16}, DType::kI8), .row_scale = view({5})};
  EXPECT_NO_THROW(linear_quantized(ctx_, view({2, 5}), codes, scale, w));
  EXPECT_BROKEN(linear_quantized(ctx_, view({2, 4}), codes, scale, w));
  EXPECT_BROKEN(linear_quantized(ctx_, view({2, 5}), x, scale, w));
  EXPECT_BROKEN(linear_quantized(ctx_, view({2, 5}), codes, view({3}), w));
  EXPECT_BROKEN(linear_quantized(ctx_, view({2, 5}), codes, scale, w, view({4})));
  EXPECT_BROKEN(linear_quantized(ctx_, view({2, 5}), codes, scale, {.values = w.values}));
  const std::vector<LowRankDelta> side(1);
  WeightMatrix with_side = w;
  with_side.low_rank = side;
  EXPECT_BROKEN(linear_quantized(ctx_, view({2, 5}), codes, scale, with_side));
}

TEST_F(Contract, Convolutions) {
  const TensorView x = view({1, 2, 9});
  const TensorView w = view({3, 2, 3});
  EXPECT_NO_THROW(conv1d(ctx_, view({1, 3, 7}), x, w, view({3}), {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 8}), x, w, {}, {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 2, 7}), x, w, {}, {}));
  EXPECT_BROKEN(conv1d(ctx_, view({2, 3, 7}), x, w, {}, {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 7}), x, view({3, 1, 3}), {}, {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 7}), x, w, view({2}), {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 7}), x, w, {}, {.stride = 0}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 7}), x, w, {}, {.dilation = 0}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 5}), x, w, {}, {.padding = -1}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 0}), view({1, 2, 1}), w, {}, {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 7}), strided_last({1, 2, 9}), w, {}, {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 7}), as_dtype(view({1, 2, 9}), DType::kI32), w, {}, {}));
  EXPECT_BROKEN(conv1d(ctx_, view({1, 3, 7}), x, on_gpu(view({3, 2, 3})), {}, {}));
  const TensorView up = view({2, 3, 4});
  EXPECT_NO_THROW(conv_transpose1d(ctx_, view({1, 3, 20}), x, up, {}, {.stride = 2}));
  EXPECT_BROKEN(conv_transpose1d(ctx_, view({1, 3, 19}), x, up, {}, {.stride = 2}));
  EXPECT_BROKEN(conv_transpose1d(ctx_, view({1, 3, 12}), x, up, {}, {.dilation = 2}));
  EXPECT_BROKEN(conv_transpose1d(ctx_, view({1, 3, 20}), x, w, {}, {.stride = 2}));
  EXPECT_BROKEN(conv_transpose1d(ctx_, view({1, 3, 20}), x, up, {}, {.stride = 0}));
}

TEST_F(Contract, Conv3d) {
  const TensorView x = view({1, 4, 5, 6, 2});
  const TensorView w = view({3, 2, 3, 3, 3});
  const Conv3dOptions causal{.past_frames = 2, .pad_before = 1, .pad_after = 1};
  const TensorView out = view({1, 4, 5, 6, 3});
  EXPECT_NO_THROW(conv3d(ctx_, out, x, w, view({3}), causal));
  EXPECT_NO_THROW(conv3d(ctx_, view({1, 2, 3, 4, 3}), x, w, {}, {}));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 3, 5, 6, 3}), x, w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 4, 4, 6, 3}), x, w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 4, 5, 5, 3}), x, w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 4, 5, 6, 4}), x, w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, view({2, 4, 5, 6, 3}), x, w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, out, x, view({3, 1, 3, 3, 3}), {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, out, x, w, view({2}), causal));
  EXPECT_BROKEN(conv3d(ctx_, out, x, w, {}, {.stride_t = 0, .past_frames = 2}));
  EXPECT_BROKEN(conv3d(ctx_, out, x, w, {}, {.stride_hw = 0, .past_frames = 2}));
  EXPECT_BROKEN(conv3d(ctx_, out, x, w, {}, {.past_frames = -1, .pad_before = 1, .pad_after = 1}));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 5, 5, 6, 3}), x, w, {},
                       {.past_frames = 3, .pad_before = 1, .pad_after = 1}));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 4, 1, 1, 3}), view({1, 4, 1, 1, 2}), w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 1, 5, 6, 3}), view({1, 1, 5, 6, 2}), w, {},
                       {.past_frames = 1, .pad_before = 1, .pad_after = 1}));
  EXPECT_BROKEN(conv3d(ctx_, view({1, 4, 5, 6, 2}), x, view({2, 2, 3, 3, 0}), {}, causal));
  Conv3dOptions normalized = causal;
  normalized.normalize = {view({4, 2}), view({4, 2})};
  EXPECT_NO_THROW(conv3d(ctx_, out, x, w, {}, normalized));
  normalized.normalize.shift = {};
  EXPECT_BROKEN(conv3d(ctx_, out, x, w, {}, normalized));
  normalized.normalize = {view({3, 2}), view({3, 2})};
  EXPECT_BROKEN(conv3d(ctx_, out, x, w, {}, normalized));
  EXPECT_BROKEN(conv3d(ctx_, out, strided_last({1, 4, 5, 6, 2}), w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, out, as_dtype(view({1, 4, 5, 6, 2}), DType::kI32), w, {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, out, x, on_gpu(view({3, 2, 3, 3, 3})), {}, causal));
  EXPECT_BROKEN(conv3d(ctx_, x, x, view({2, 2, 3, 3, 3}), {}, causal));
}

TEST_F(Contract, GroupNormCoefficients) {
  const TensorView x = view({2, 5, 6});
  const TensorView s = view({2, 6});
  const TensorView t = view({2, 6});
  const TensorView w = view({6});
  EXPECT_NO_THROW(group_norm_coefficients(ctx_, s, t, x, w, w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, view({1, 6}), t, x, w, w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, view({2, 5}), x, w, w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, view({2, 6}), w, w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, x, view({5}), w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, x, w, view({5}), 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, x, w, w, 4, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, x, w, w, 0, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, s, x, w, w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, view({2, 0, 6}), w, w, 3, 1e-6F));
  EXPECT_BROKEN(
      group_norm_coefficients(ctx_, s, t, as_dtype(view({2, 5, 6}), DType::kI32), w, w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, strided_last({2, 5, 6}), w, w, 3, 1e-6F));
  EXPECT_BROKEN(group_norm_coefficients(ctx_, s, t, x, on_gpu(view({6})), w, 3, 1e-6F));
}

TEST_F(Contract, Snake) {
  const TensorView x = view({1, 2, 9});
  const TensorView p = view({2});
  EXPECT_NO_THROW(snake(ctx_, x, x, p));
  EXPECT_NO_THROW(snake(ctx_, view({1, 2, 9}), x, p));
  EXPECT_BROKEN(snake(ctx_, view({1, 2, 8}), x, p));
  EXPECT_BROKEN(snake(ctx_, view({1, 2, 9}), x, view({3})));
  EXPECT_BROKEN(snake(ctx_, view({18}), view({18}), p));
  EXPECT_BROKEN(snake(ctx_, view({1, 2, 9}), strided_last({1, 2, 9}), p));
  EXPECT_BROKEN(snake(ctx_, view({1, 2, 9}), x, on_gpu(view({2}))));
  const TensorView f = view({12});
  EXPECT_NO_THROW(antialiased_snake_beta(ctx_, view({1, 2, 9}), x, p, p, f, f));
  EXPECT_BROKEN(antialiased_snake_beta(ctx_, view({1, 2, 8}), x, p, p, f, f));
  EXPECT_BROKEN(antialiased_snake_beta(ctx_, view({1, 2, 9}), x, view({3}), p, f, f));
  EXPECT_BROKEN(antialiased_snake_beta(ctx_, view({1, 2, 9}), x, p, view({3}), f, f));
  EXPECT_BROKEN(antialiased_snake_beta(ctx_, view({1, 2, 9}), x, p, p, view({11}), f));
  EXPECT_BROKEN(antialiased_snake_beta(ctx_, view({1, 2, 9}), x, p, p, f, view({13})));
  EXPECT_BROKEN(antialiased_snake_beta(ctx_, x, x, p, p, f, f));
  EXPECT_BROKEN(antialiased_snake_beta(ctx_, view({2, 9}), view({2, 9}), p, p, f, f));
}

// The views carry host memory: a launch would fault, a refusal never looks at it.
TEST_F(Contract, WithoutCudaItsViewsAreRefusedByTheOpsName) {
  using ::testing::HasSubstr;
  if (kHasCuda) {
    return;  // they are served
  }
  const auto gpu = [&](const Shape& shape) { return on_gpu(view(shape)); };
  EXPECT_THAT(refusal([&] {
                conv1d(ctx_, gpu({1, 3, 7}), gpu({1, 2, 9}), gpu({3, 2, 3}), {}, {});
              }),
              HasSubstr("conv1d: no backend for CUDA"));
  EXPECT_THAT(
      refusal([&] {
        conv_transpose1d(ctx_, gpu({1, 3, 20}), gpu({1, 2, 9}), gpu({2, 3, 4}), {}, {.stride = 2});
      }),
      HasSubstr("conv_transpose1d: no backend for CUDA"));
  EXPECT_THAT(refusal([&] {
                antialiased_snake_beta(ctx_, gpu({1, 2, 9}), gpu({1, 2, 9}), gpu({2}), gpu({2}),
                                       gpu({12}), gpu({12}));
              }),
              HasSubstr("antialiased_snake_beta: no backend for CUDA"));
}

TEST_F(Contract, CudaViewsThatTheBuildCannotServeAreRefused) {
  const auto gpu = [&](const Shape& shape) { return on_gpu(view(shape)); };
  if (kHasCuda) {
    // A group beyond a block's shared memory, rows beyond its registers, heads beyond its tiles.
    EXPECT_BROKEN(rotate_rows(ctx_, gpu({1, 16384}), 16384));
    const TensorView codes = as_dtype(gpu({1, 16640}), DType::kI8);
    EXPECT_THAT(refusal([&] {
                  rotate_quantize_rows(ctx_, codes, gpu({1}), gpu({1, 16640}), 256);
                }),
                ::testing::HasSubstr("16640 columns"));
    const auto attend = [&](std::int64_t dim, Precision precision) {
      return refusal([&] {
        attention(ctx_, gpu({1, 1, dim}), gpu({1, 1, dim}), gpu({1, 1, dim}), gpu({1, 1, dim}),
                  {.precision = precision});
      });
    };
    EXPECT_THAT(attend(257, Precision::kF32), ::testing::HasSubstr("got 257"));
    EXPECT_THAT(attend(129, Precision::kBF16), ::testing::HasSubstr("got 129"));
    return;
  }
  const TensorView matrix = on_gpu(view({2, 4}));
  EXPECT_BROKEN(add(ctx_, matrix, matrix));
  EXPECT_BROKEN(silu(ctx_, matrix, matrix));
  EXPECT_BROKEN(rms_norm(ctx_, matrix, matrix, {}, 1e-5F));
  EXPECT_BROKEN(rotate_rows(ctx_, matrix, 4));
  EXPECT_BROKEN(linear(ctx_, gpu({2, 3}), gpu({2, 8}), {.values = gpu({3, 8})}));
  EXPECT_BROKEN(
      attention(ctx_, gpu({4, 2, 8}), gpu({4, 2, 8}), gpu({4, 2, 8}), gpu({4, 2, 8}), {}));
}

}  // namespace
}  // namespace miniacc::ops
