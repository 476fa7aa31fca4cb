#include "kernels/attention.h"

#include <cmath>
#include <limits>

#include "core/cancel_token.h"
#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Attention : public BackendTest {
 protected:
  struct Case {
    reference::AttentionShape shape;
    bool causal = false;
    float q_factor = 1.0F;  // large: a softmax with one winner
  };

  void check(const Case& c, Precision precision) {
    const reference::AttentionShape& s = c.shape;
    auto q = random_normal(s.q_rows * s.heads * s.head_dim, 1);
    for (float& value : q) {
      value *= c.q_factor;
    }
    const auto k = random_normal(s.kv_rows * s.kv_heads * s.head_dim, 2);
    const auto v = random_normal(s.kv_rows * s.kv_heads * s.head_dim, 3);
    const float scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
    const auto out = run_identically([&](OpContext& ctx) {
      TensorView result = empty({s.q_rows, s.heads, s.head_dim});
      ops::attention(ctx, result, upload(q, {s.q_rows, s.heads, s.head_dim}),
                     upload(k, {s.kv_rows, s.kv_heads, s.head_dim}),
                     upload(v, {s.kv_rows, s.kv_heads, s.head_dim}),
                     {.scale = scale,
                      .mask = c.causal ? ops::AttentionMask::kCausal : ops::AttentionMask::kNone,
                      .precision = precision});
      return result;
    });
    const bool bf16 = precision == Precision::kBF16;
    const auto expected = bf16 ? reference::attention(reference::to_bf16(q), reference::to_bf16(k),
                                                      reference::to_bf16(v), s, scale, c.causal)
                               : reference::attention(q, k, v, s, scale, c.causal);
    const char* row = bf16 ? "bf16" : c.q_factor > 1.0F ? "f32_peaked" : "f32";
    expect_close(out, expected, tolerance("attention", row));
  }
};
MINIACC_BACKEND_SUITE(Attention);

TEST_P(Attention, MatchesReference) {
  const Case cases[] = {
      {{1, 1, 1, 1, 1}},                     // everything one
      {{3, 5, 2, 1, 7}},                     // odd head_dim, shared kv head
      {{127, 130, 2, 2, 16}},                // tile - 1
      {{128, 128, 1, 1, 32}},                // one tile
      {{129, 64, 3, 3, 64}},                 // tile + 1
      {{300, 300, 4, 2, 24}, true},          // causal over three tiles, grouped heads
      {{1, 1, 2, 1, 8}, true},               // causal single row
      {{450, 1125, 1, 1, 64}},               // the video VAE's window
      {{70, 257, 2, 2, 128}, false, 40.0F},  // scores of several hundred
      {{2, 3000, 1, 1, 16}},                 // many keys
  };
  for (const Case& c : cases) {
    check(c, Precision::kF32);
    check(c, Precision::kBF16);
  }
}

TEST_P(Attention, ReadsQkvOfOneFusedProjection) {
  constexpr std::int64_t kRows = 140;
  constexpr std::int64_t kHeads = 2;
  constexpr std::int64_t kDim = 12;
  const auto qkv = random_normal(kRows * 3 * kHeads * kDim, 4);
  std::vector<float> parts[3];
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (int p = 0; p < 3; ++p) {
      const auto first = qkv.begin() + (3 * r + p) * kHeads * kDim;
      parts[p].insert(parts[p].end(), first, first + kHeads * kDim);
    }
  }
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    TensorView buffer = upload(qkv, {kRows, 3 * kHeads, kDim});
    TensorView wide = empty({kRows, 2 * kHeads, kDim});
    TensorView out = wide.narrow(1, kHeads, kHeads);  // a strided output as well
    OpContext context = ctx();
    ops::attention(context, out, buffer.narrow(1, 0, kHeads), buffer.narrow(1, kHeads, kHeads),
                   buffer.narrow(1, 2 * kHeads, kHeads), {.scale = 0.3F, .precision = precision});
    const bool bf16 = precision == Precision::kBF16;
    expect_close(
        download(out),
        reference::attention(parts[0], parts[1], parts[2], {kRows, kRows, kHeads, kHeads, kDim},
                             static_cast<double>(0.3F), false),
        tolerance("attention", bf16 ? "bf16" : "f32"));
    for (const float value : download(wide.narrow(1, 0, kHeads))) {
      ASSERT_TRUE(std::isnan(value)) << "wrote outside its columns";
    }
  }
}

// bf16 is not f32 under another name.
TEST_P(Attention, Bf16OptionRoundsItsOperands) {
  OpContext context = ctx();
  const TensorView q = upload({1.0F}, {1, 1, 1});
  const TensorView v = upload({1.0F + 0x1.0p-12F}, {1, 1, 1});
  TensorView out = empty({1, 1, 1});
  ops::attention(context, out, q, q, v, {.precision = Precision::kBF16});
  EXPECT_EQ(download(out)[0], 1.0F);
  ops::attention(context, out, q, q, v, {.precision = Precision::kF32});
  EXPECT_EQ(download(out)[0], 1.0F + 0x1.0p-12F);
}

TEST_P(Attention, EqualKeysAverageTheValues) {
  OpContext context = ctx();
  TensorView out = empty({1, 1, 2});
  ops::attention(context, out, upload({3, -1}, {1, 1, 2}), upload({1, 2, 1, 2}, {2, 1, 2}),
                 upload({1, 10, 3, 30}, {2, 1, 2}), {});
  EXPECT_NEAR(download(out)[0], 2.0, 1e-6);
  EXPECT_NEAR(download(out)[1], 20.0, 1e-5);
}

TEST_P(Attention, NanInOneQueryStaysInItsRowAndNanInAKeyReachesAll) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OpContext context = ctx();
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    TensorView out = empty({2, 1, 1});
    ops::attention(context, out, upload({nan, 1}, {2, 1, 1}), upload({1, 2}, {2, 1, 1}),
                   upload({1, 2}, {2, 1, 1}), {.precision = precision});
    EXPECT_TRUE(std::isnan(download(out)[0]));
    EXPECT_TRUE(std::isfinite(download(out)[1]));
    ops::attention(context, out, upload({1, 1}, {2, 1, 1}), upload({1, nan}, {2, 1, 1}),
                   upload({1, 2}, {2, 1, 1}), {.precision = precision});
    EXPECT_TRUE(std::isnan(download(out)[0]));
    EXPECT_TRUE(std::isnan(download(out)[1]));
  }
}

TEST_P(Attention, StopsWhenCancelled) {
  CancelToken token;
  token.cancel();
  for (const int threads : {1, 2}) {
    OpContext context{.device = device(), .num_threads = threads, .cancel = &token};
    const auto q = random_normal(600 * 64, 1);
    const TensorView view = upload(q, {600, 1, 64});
    try {
      ops::attention(context, empty({600, 1, 64}), view, view, view, {});
      FAIL() << "not cancelled";
    } catch (const ErrorException& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kCancelled);
    }
  }
}

TEST(AttentionForm, NamesTheInstructionThatMultiplies) {
  const DeviceId cpu;
  const DeviceId cuda{DeviceKind::kCuda, 0};
  EXPECT_EQ(ops::attention_form(cpu, Precision::kF32, 128), "f32");
  EXPECT_EQ(ops::attention_form(cuda, Precision::kF32, 128), "f32");
  EXPECT_EQ(ops::attention_form(cpu, Precision::kBF16, 128), "bf16 cpu");
  EXPECT_EQ(ops::attention_form(cpu, Precision::kInt8, 128), "int8 cpu");
  EXPECT_EQ(ops::attention_form(cuda, Precision::kBF16, 128), "bf16 mma.sync");
}

}  // namespace
}  // namespace miniacc::testing
