#include "kernels/attention_int8.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu_device.h"
#include "kernels/attention.h"
#include "kernels/backend_test.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

struct Inputs {
  reference::AttentionShape shape;
  std::vector<float> q, k, v;
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }
};

Inputs normal_inputs(const reference::AttentionShape& s) {
  return {s, random_normal(s.q_rows * s.heads * s.head_dim, 1),
          random_normal(s.kv_rows * s.kv_heads * s.head_dim, 2),
          random_normal(s.kv_rows * s.kv_heads * s.head_dim, 3)};
}

/// What breaks plain 8-bit attention: all keys share a large vector, one channel is fifty times the
/// others, and the values have a channel near f16's end.
Inputs inputs_with_outliers(const reference::AttentionShape& s) {
  Inputs inputs = normal_inputs(s);
  for (std::size_t i = 0; i < inputs.k.size(); ++i) {
    const auto channel = static_cast<std::int64_t>(i) % s.head_dim;
    inputs.k[i] += static_cast<float>(channel % 7) - 3.0F;
    inputs.k[i] *= channel == 1 ? 5.0F : 1.0F;
    inputs.v[i] *= channel == 2 ? 9e4F : 1.0F;
  }
  return inputs;
}

class Int8Attention : public BackendTest {
 protected:
  TensorView attend(OpContext& context, const Inputs& in) {
    const reference::AttentionShape& s = in.shape;
    TensorView out = empty({s.q_rows, s.heads, s.head_dim});
    ops::attention(context, out, upload(in.q, {s.q_rows, s.heads, s.head_dim}),
                   upload(in.k, {s.kv_rows, s.kv_heads, s.head_dim}),
                   upload(in.v, {s.kv_rows, s.kv_heads, s.head_dim}),
                   {.scale = in.scale(),
                    .precision = Precision::kInt8,
                    .int8_form = ops::AttentionForm::kMmaSync});
    return out;
  }
  std::vector<float> run(const Inputs& in) {
    return run_identically([&](OpContext& context) { return attend(context, in); });
  }
  std::vector<float> run_once(const Inputs& in) {  // NaN is not identical to NaN
    OpContext context = ctx();
    return download(attend(context, in));
  }

  /// The same on the CPU, whatever the backend under test.
  static std::vector<float> run_on_cpu(const Inputs& in) {
    const reference::AttentionShape& s = in.shape;
    CpuDevice device;
    OpContext ctx{.device = device, .num_threads = 2};
    Tensor q = make_tensor(device, {s.q_rows, s.heads, s.head_dim}, in.q);
    Tensor k = make_tensor(device, {s.kv_rows, s.kv_heads, s.head_dim}, in.k);
    Tensor v = make_tensor(device, {s.kv_rows, s.kv_heads, s.head_dim}, in.v);
    Tensor out = empty_tensor(device, {s.q_rows, s.heads, s.head_dim});
    ops::attention(ctx, out.view(), q.view(), k.view(), v.view(),
                   {.scale = in.scale(),
                    .precision = Precision::kInt8,
                    .int8_form = ops::AttentionForm::kMmaSync});
    return {out.f32().begin(), out.f32().end()};
  }

  ops::QuantizedAttention quantize_wgmma(const Inputs& in) {
    const reference::AttentionShape& s = in.shape;
    OpContext context = ctx();
    auto out = ops::empty_quantized_attention(device(), s.q_rows, s.heads, s.kv_rows, s.kv_heads,
                                              s.head_dim, ops::AttentionForm::kWgmma);
    ops::quantize_attention(context, out, upload(in.q, {s.q_rows, s.heads, s.head_dim}),
                            upload(in.k, {s.kv_rows, s.kv_heads, s.head_dim}),
                            upload(in.v, {s.kv_rows, s.kv_heads, s.head_dim}));
    return out;
  }
  [[nodiscard]] std::vector<std::int8_t> download_bytes(const ConstTensorView& view) const {
    const auto bytes = static_cast<std::int64_t>(view.num_elements() * block_bytes(view.dtype));
    return download_i8(ConstTensorView(view.data, {bytes}, DType::kI8, view.device));
  }
  /// To the CPU from the backend under test.
  void copy_bytes(Tensor& to, const Tensor& from) const {
    ASSERT_EQ(to.shape(), from.shape());
    const auto bytes = download_bytes(from.view());
    std::memcpy(to.view().data, bytes.data(), bytes.size());
  }

  static std::vector<double> expected(const Inputs& in) {
    return reference::attention(in.q, in.k, in.v, in.shape, static_cast<double>(in.scale()), false);
  }

  static constexpr reference::AttentionShape kShapes[] = {
      {1, 1, 1, 1, 1},     {3, 5, 2, 1, 7},      {63, 65, 1, 1, 32},   {64, 64, 2, 2, 33},
      {129, 64, 3, 3, 64}, {127, 130, 2, 1, 16}, {70, 257, 2, 2, 128}, {128, 63, 4, 2, 128},
      {2, 3000, 1, 1, 16}, {300, 191, 1, 1, 96}, {16, 1, 2, 1, 128},
  };
};
MINIACC_BACKEND_SUITE(Int8Attention);

TEST_P(Int8Attention, StaysCloseToExactAttention) {
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << shape.q_rows << "x" << shape.kv_rows << ", " << shape.heads
                                      << " heads of " << shape.head_dim);
    const Inputs in = normal_inputs(shape);
    expect_close(run(in), expected(in), tolerance("attention", "i8"));
  }
}

TEST_P(Int8Attention, KeepsItsErrorUnderOutliers) {
  for (const reference::AttentionShape& shape :
       {reference::AttentionShape{70, 257, 2, 1, 128}, {100, 400, 1, 1, 64}}) {
    const Inputs in = inputs_with_outliers(shape);
    expect_close(run(in), expected(in), tolerance("attention", "i8_outliers"));
  }
}

// Every backend computes the arithmetic that the header writes down, not just something close to
// attention: the CPU's result is the measure, an order of magnitude tighter.
TEST_P(Int8Attention, AgreesWithTheCpu) {
  for (const auto& shape : kShapes) {
    for (const Inputs& in : {normal_inputs(shape), inputs_with_outliers(shape)}) {
      const auto cpu = run_on_cpu(in);
      const std::vector<double> wide(cpu.begin(), cpu.end());
      expect_close(run(in), wide, tolerance("attention", "i8_backends"));
    }
  }
}

// The wgmma form's arithmetic, as the CPU computes it from what the backend quantised: on CUDA the
// quantiser is under test here, the product in hopper_attention_test.cpp.
TEST_P(Int8Attention, WgmmaFormStaysCloseToExactAttention) {
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << shape.q_rows << "x" << shape.kv_rows << ", " << shape.heads
                                      << " heads of " << shape.head_dim);
    for (const bool outliers : {false, true}) {
      const Inputs in = outliers ? inputs_with_outliers(shape) : normal_inputs(shape);
      CpuDevice cpu;
      OpContext cpu_ctx{.device = cpu, .num_threads = 2};
      const auto quantized = quantize_wgmma(in);
      auto on_cpu = ops::empty_quantized_attention(cpu, shape.q_rows, shape.heads, shape.kv_rows,
                                                   shape.kv_heads, shape.head_dim,
                                                   ops::AttentionForm::kWgmma);
      copy_bytes(on_cpu.q, quantized.q);
      copy_bytes(on_cpu.k, quantized.k);
      copy_bytes(on_cpu.v, quantized.v);
      copy_bytes(on_cpu.q_scale, quantized.q_scale);
      copy_bytes(on_cpu.k_scale, quantized.k_scale);
      copy_bytes(on_cpu.v_scale, quantized.v_scale);
      Tensor out = empty_tensor(cpu, {shape.q_rows, shape.heads, shape.head_dim});
      ops::attention_int8(cpu_ctx, out.view(), on_cpu, in.scale());
      expect_close({out.f32().begin(), out.f32().end()}, expected(in),
                   tolerance("attention", outliers ? "e4m3_outliers" : "e4m3"));
    }
  }
}

TEST_P(Int8Attention, WgmmaFormPadsWithZeros) {
  const Inputs in = normal_inputs({65, 129, 2, 1, 100});
  const auto quantized = quantize_wgmma(in);
  EXPECT_EQ(ops::attention_form_name(quantized.form), "int8 wgmma");
  ASSERT_EQ(quantized.q.shape(), Shape({2, 128, 128}));
  ASSERT_EQ(quantized.k.shape(), Shape({1, 256, 128}));
  ASSERT_EQ(quantized.k_scale.shape(), Shape({1, 4, 4}));
  ASSERT_EQ(quantized.v.shape(), Shape({1, 2, 128, 128}));
  const auto bytes_of = [&](const Tensor& tensor) { return download_bytes(tensor.view()); };
  const auto q = bytes_of(quantized.q);
  const auto k = bytes_of(quantized.k);
  const auto v = bytes_of(quantized.v);
  for (std::size_t i = 0; i < 2 * 128 * 128; ++i) {
    ASSERT_TRUE(i / 128 % 128 < 65 || q[i] == 0) << i;
  }
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < 256 * 128; ++i) {
    ASSERT_TRUE(i / 128 < 129 || k[i] == 0) << i;
    const std::size_t channel = i / 128 % 128;
    zeros += v[i] == 0 ? 1 : 0;
    ASSERT_TRUE(channel < 100 || v[i] == 0) << i;
  }
  EXPECT_GE(zeros, 28U * 256 + 100U * 127);
  EXPECT_LE(zeros, 28U * 256 + 100U * 127 + 600);  // normal values that round to zero
}

// A constant added to all keys changes nothing but the rounding of their mean.
TEST_P(Int8Attention, IgnoresWhatAllKeysShare) {
  Inputs in = normal_inputs({40, 100, 1, 1, 64});
  const auto plain = run(in);
  for (std::size_t i = 0; i < in.k.size(); ++i) {
    in.k[i] += 100.0F * static_cast<float>(i % 64 % 5);
  }
  EXPECT_TRUE(close_to(run(in), plain, 2e-2));
}

TEST_P(Int8Attention, EqualKeysAverageTheValues) {
  const Inputs in = {{1, 2, 1, 1, 2}, {3, -1}, {1, 2, 1, 2}, {1, 10, 3, 30}};
  const auto out = run(in);
  EXPECT_NEAR(out[0], 2.0, 2e-3);
  EXPECT_NEAR(out[1], 20.0, 2e-2);
}

// Zero keys beyond the last would have a score, and a vote: the tail must be cut, not padded.
TEST_P(Int8Attention, KeysBeyondTheLastHaveNoVote) {
  for (const std::int64_t keys : {1, 2, 63, 65, 100, 127}) {
    Inputs in = normal_inputs({3, keys, 1, 1, 32});
    for (float& value : in.v) {
      value = 1.0F;
    }
    for (const float value : run(in)) {
      EXPECT_NEAR(value, 1.0F, 1e-3F) << keys;
    }
  }
}

TEST_P(Int8Attention, SmallestAndLargestInputs) {
  Inputs in = normal_inputs({5, 70, 1, 1, 32});
  std::fill(in.q.begin(), in.q.begin() + 32, 0.0F);
  for (std::size_t i = 32; i < 64; ++i) {
    in.q[i] *= 1e-39F;
  }
  for (std::size_t i = 0; i < in.k.size(); ++i) {
    in.k[i] *= 1e-20F;
    in.v[i] *= i % 32 == 4 ? 1e-39F : i % 32 == 5 ? 1e37F : i % 32 == 6 ? 0.0F : 1.0F;
  }
  const auto out = run(in);
  const auto reference = expected(in);
  for (std::size_t i = 0; i < out.size(); ++i) {  // a channel a scale
    const double bound = i % 32 == 5 ? 3e34 : i % 32 == 4 ? 1e-41 : 3e-3;
    ASSERT_NEAR(out[i], reference[i], bound) << i;
  }
}

TEST_P(Int8Attention, NanReachesWhatTheContractSays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Inputs clean = normal_inputs({20, 70, 1, 1, 32});
  Inputs in = clean;
  in.q[3 * 32 + 1] = nan;
  auto out = run_once(in);
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::isnan(out[i]), i / 32 == 3) << i;
  }
  in = clean;
  in.k[69 * 32] = nan;
  for (const float value : run_once(in)) {
    EXPECT_TRUE(std::isnan(value));
  }
  in = clean;
  in.v[40 * 32 + 5] = std::numeric_limits<float>::infinity();
  out = run_once(in);
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::isnan(out[i]), i % 32 == 5) << i;
  }
}

TEST_P(Int8Attention, ReadsAndWritesStridedRows) {
  constexpr std::int64_t kRows = 70;
  const auto qkv = random_normal(kRows * 6 * 32, 4);  // 2 heads each of q, k, v
  Inputs in = {{kRows, kRows, 2, 2, 32}, {}, {}, {}};
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto at = [&](int part) { return qkv.begin() + (row * 6 + part * 2) * 32; };
    in.q.insert(in.q.end(), at(0), at(1));
    in.k.insert(in.k.end(), at(1), at(2));
    in.v.insert(in.v.end(), at(2), at(3));
  }
  OpContext context = ctx();
  const TensorView packed = upload(qkv, {kRows, 6, 32});
  TensorView wide = empty({kRows, 4, 32});
  TensorView out = wide.narrow(1, 2, 2);
  ops::attention(context, out, packed.narrow(1, 0, 2), packed.narrow(1, 2, 2),
                 packed.narrow(1, 4, 2),
                 {.scale = in.scale(),
                  .precision = Precision::kInt8,
                  .int8_form = ops::AttentionForm::kMmaSync});
  EXPECT_TRUE(identical_to(download(out), run(in)));
  for (const float value : download(wide.narrow(1, 0, 2))) {
    ASSERT_TRUE(std::isnan(value)) << "wrote outside its heads";
  }
}

TEST_P(Int8Attention, FusedStepIsItsChain) {
  for (const auto& [rows, heads, kv_heads, dim, n] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>{70, 2, 1,
                                                                                         32, 16},
        {65, 2, 2, 128, 48},
        {5, 1, 1, 12, 3},
        {129, 1, 1, 64, 0}}) {
    SCOPED_TRACE(dim);
    const Inputs in = inputs_with_outliers({rows, rows, heads, kv_heads, dim});
    const TensorView q = upload(in.q, {rows, heads, dim});
    const TensorView k = upload(in.k, {rows, kv_heads, dim});
    const TensorView v = upload(in.v, {rows, kv_heads, dim});
    const TensorView q_norm = upload(random_normal(dim, 5), {dim});
    const TensorView k_norm = upload(random_normal(dim, 6), {dim});
    std::vector<float> cosines;
    std::vector<float> sines;
    for (std::int64_t i = 0; i < rows * n; ++i) {
      cosines.push_back(std::cos(static_cast<float>(i) * 0.37F));
      sines.push_back(std::sin(static_cast<float>(i) * 0.37F));
    }
    const TensorView cos = n == 0 ? TensorView{} : upload(cosines, {rows, n});
    const TensorView sin = n == 0 ? TensorView{} : upload(sines, {rows, n});
    OpContext context = ctx();
    auto fused = ops::empty_quantized_attention(device(), rows, heads, rows, kv_heads, dim,
                                                ops::AttentionForm::kMmaSync);
    ops::qk_norm_rope_quantize(context, fused, q, k, v, {q_norm, k_norm, 1e-6F, cos, sin});

    TensorView q_rotated = empty({rows, heads, dim});
    TensorView k_rotated = empty({rows, kv_heads, dim});
    ops::rms_norm(context, q_rotated, q, q_norm, 1e-6F);
    ops::rms_norm(context, k_rotated, k, k_norm, 1e-6F);
    if (n != 0) {
      ops::apply_rope(context, q_rotated, cos, sin);
      ops::apply_rope(context, k_rotated, cos, sin);
    }
    auto chain = ops::empty_quantized_attention(device(), rows, heads, rows, kv_heads, dim,
                                                ops::AttentionForm::kMmaSync);
    ops::quantize_attention(context, chain, q_rotated, k_rotated, v);

    TensorView fused_out = empty({rows, heads, dim});
    TensorView chain_out = empty({rows, heads, dim});
    ops::attention_int8(context, fused_out, fused, in.scale());
    ops::attention_int8(context, chain_out, chain, in.scale());
    if (GetParam().kind == DeviceKind::kCpu) {
      EXPECT_EQ(download_i8(fused.q.view()), download_i8(chain.q.view()));
      EXPECT_EQ(download_i8(fused.k.view()), download_i8(chain.k.view()));
      EXPECT_TRUE(identical_to(download(fused_out), download(chain_out)));
    } else {  // norms sum their squares in another order, which may move a code by one
      const auto a = download_i8(fused.k.view());
      const auto b = download_i8(chain.k.view());
      std::size_t moved = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_LE(std::abs(int{a[i]} - int{b[i]}), 1);
        moved += a[i] != b[i] ? 1 : 0;
      }
      EXPECT_LE(moved, a.size() / 500 + 1);
      EXPECT_TRUE(close_to(download(fused_out), download(chain_out), 2e-3));
    }
  }
}

}  // namespace
}  // namespace miniacc::testing
