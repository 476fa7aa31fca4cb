#include "kernels/cuda/hopper/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_convert.h"
#include "device/cpu_device.h"
#include "kernels/attention_int8.h"
#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

// The wgmma form on a device that has it (compute capability 9.0; skipped elsewhere). The probes
// check one assumption about the tensor cores each, so that a wrong layout shows as itself.
namespace miniacc::testing {
namespace {

using ops::AttentionForm;
using ops::cuda::hopper::AttentionSchedule;

struct Inputs {
  reference::AttentionShape shape;
  std::vector<float> q, k, v;
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }
};

Inputs inputs_of(const reference::AttentionShape& s, bool outliers) {
  Inputs in = {s, random_normal(s.q_rows * s.heads * s.head_dim, 1),
               random_normal(s.kv_rows * s.kv_heads * s.head_dim, 2),
               random_normal(s.kv_rows * s.kv_heads * s.head_dim, 3)};
  for (std::size_t i = 0; outliers && i < in.k.size(); ++i) {
    const auto channel = static_cast<std::int64_t>(i) % s.head_dim;
    in.k[i] += static_cast<float>(channel % 7) - 3.0F;
    in.k[i] *= channel == 1 ? 5.0F : 1.0F;
    in.v[i] *= channel == 2 ? 9e4F : 1.0F;
  }
  return in;
}

/// A numerator within a millionth of the middle between two e4m3 values may become either: one code
/// of the row's sums is then off by up to an eighth of one weight. A wrong layout moves all values.
void expect_few_differ(const std::vector<float>& a, const std::vector<float>& b,
                       std::int64_t head_dim) {
  float largest = 0.0F;
  for (const float value : b) {
    largest = std::max(largest, std::fabs(value));
  }
  std::int64_t far = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    far += std::fabs(a[i] - b[i]) > 1e-3F * largest ? 1 : 0;
  }
  EXPECT_LE(far, static_cast<std::int64_t>(a.size()) / 50 + head_dim);
}

class HopperAttention : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (!IsSkipped() && !ops::cuda::hopper::attention_available(device().id())) {
      GTEST_SKIP() << "needs a card of compute capability 9.0 and a build for it";
    }
  }

  std::vector<float> attend(const Inputs& in, AttentionSchedule schedule) {
    const reference::AttentionShape& s = in.shape;
    OpContext context = ctx();
    auto quantized = ops::empty_quantized_attention(device(), s.q_rows, s.heads, s.kv_rows,
                                                    s.kv_heads, s.head_dim, AttentionForm::kWgmma);
    ops::quantize_attention(context, quantized, upload(in.q, {s.q_rows, s.heads, s.head_dim}),
                            upload(in.k, {s.kv_rows, s.kv_heads, s.head_dim}),
                            upload(in.v, {s.kv_rows, s.kv_heads, s.head_dim}));
    TensorView out = empty({s.q_rows, s.heads, s.head_dim});
    ops::cuda::hopper::attention_int8(context, out, quantized, in.scale(), schedule);
    return download(out);
  }

  static std::vector<float> attend_on_cpu(const Inputs& in) {
    const reference::AttentionShape& s = in.shape;
    CpuDevice device;
    OpContext ctx{.device = device, .num_threads = 2};
    Tensor q = make_tensor(device, {s.q_rows, s.heads, s.head_dim}, in.q);
    Tensor k = make_tensor(device, {s.kv_rows, s.kv_heads, s.head_dim}, in.k);
    Tensor v = make_tensor(device, {s.kv_rows, s.kv_heads, s.head_dim}, in.v);
    auto quantized = ops::empty_quantized_attention(device, s.q_rows, s.heads, s.kv_rows,
                                                    s.kv_heads, s.head_dim, AttentionForm::kWgmma);
    ops::quantize_attention(ctx, quantized, q.view(), k.view(), v.view());
    Tensor out = empty_tensor(device, {s.q_rows, s.heads, s.head_dim});
    ops::attention_int8(ctx, out.view(), quantized, in.scale());
    return {out.f32().begin(), out.f32().end()};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, HopperAttention, ::testing::Values(Backend{DeviceKind::kCuda}),
                         backend_name);

constexpr std::int64_t kTile = 128;
constexpr std::int64_t kQueries = 64;

std::int64_t swizzled(std::int64_t row, std::int64_t column) {
  return row * kTile + ((column / 16) ^ (row % 8)) * 16 + column % 16;
}

/// Where key `key` % 16 lies among the 16 of a chunk of v.
std::int64_t place_of_key(std::int64_t key) {
  constexpr std::int64_t kOrder[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
  return std::find(kOrder, kOrder + 16, key % 16) - kOrder;
}

TEST_P(HopperAttention, ProbeScoresOfOneTile) {
  std::vector<std::int8_t> q(kQueries * kTile);
  std::vector<std::int8_t> k(kTile * kTile);
  std::vector<std::int8_t> q_swizzled(q.size());
  std::vector<std::int8_t> k_swizzled(k.size());
  const auto noise = random_normal(static_cast<std::int64_t>(q.size() + k.size()), 11);
  for (std::size_t i = 0; i < q.size() + k.size(); ++i) {
    const auto code = static_cast<std::int8_t>(std::clamp(noise[i] * 40.0F, -127.0F, 127.0F));
    auto& plain = i < q.size() ? q : k;
    auto& moved = i < q.size() ? q_swizzled : k_swizzled;
    const std::size_t at = i < q.size() ? i : i - q.size();
    plain[at] = code;
    moved[static_cast<std::size_t>(swizzled(static_cast<std::int64_t>(at) / kTile,
                                            static_cast<std::int64_t>(at) % kTile))] = code;
  }
  OpContext context = ctx();
  TensorView scores = upload_i32(std::vector<std::int32_t>(kQueries * kTile, -1));
  ops::cuda::hopper::probe_scores(context, scores.reshape({kQueries, kTile}),
                                  upload_i8(q_swizzled, {kQueries, kTile}),
                                  upload_i8(k_swizzled, {kTile, kTile}));
  const std::vector<std::int32_t> result = download_i32(scores);
  int wrong = 0;
  for (std::int64_t row = 0; row < kQueries; ++row) {
    for (std::int64_t key = 0; key < kTile; ++key) {
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < kTile; ++i) {
        sum += std::int32_t{q[static_cast<std::size_t>(row * kTile + i)]} *
               std::int32_t{k[static_cast<std::size_t>(key * kTile + i)]};
      }
      if (result[static_cast<std::size_t>(row * kTile + key)] != sum && ++wrong < 10) {
        ADD_FAILURE() << "row " << row << " key " << key << ": "
                      << result[static_cast<std::size_t>(row * kTile + key)] << ", wanted " << sum;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(HopperAttention, ProbeValuesOfOneTile) {
  // Small integers: exact in e4m3, and so is their sum.
  std::vector<float> p(kQueries * kTile);
  std::vector<float> v(kTile * kTile);  // [key, channel]
  std::vector<std::int8_t> moved(v.size());
  for (std::int64_t i = 0; i < kQueries * kTile; ++i) {
    p[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + i / 128 * 3) % 9);
  }
  for (std::int64_t key = 0; key < kTile; ++key) {
    for (std::int64_t channel = 0; channel < kTile; ++channel) {
      const auto value = static_cast<float>((key * 5 + channel * 11 + key * channel) % 7 - 3);
      v[static_cast<std::size_t>(key * kTile + channel)] = value;
      moved[static_cast<std::size_t>(swizzled(channel, key / 16 * 16 + place_of_key(key)))] =
          static_cast<std::int8_t>(float_to_f8e4m3(value));
    }
  }
  OpContext context = ctx();
  TensorView sums = empty({kQueries, kTile});
  ops::cuda::hopper::probe_values(context, sums, upload(p, {kQueries, kTile}),
                                  upload_i8(moved, {kTile, kTile}));
  const auto result = download(sums);
  int wrong = 0;
  for (std::int64_t row = 0; row < kQueries; ++row) {
    for (std::int64_t channel = 0; channel < kTile; ++channel) {
      float sum = 0.0F;
      for (std::int64_t key = 0; key < kTile; ++key) {
        sum += p[static_cast<std::size_t>(row * kTile + key)] *
               v[static_cast<std::size_t>(key * kTile + channel)];
      }
      if (result[static_cast<std::size_t>(row * kTile + channel)] != sum && ++wrong < 10) {
        ADD_FAILURE() << "row " << row << " channel " << channel << ": "
                      << result[static_cast<std::size_t>(row * kTile + channel)] << ", wanted "
                      << sum;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

// The instruction keeps its f32 sums with fewer bits than an f32 has: how far one tile's sums are
// off.
TEST_P(HopperAttention, ProbeValuesRounding) {
  const auto numerators = random_normal(kQueries * kTile, 12);
  const auto values = random_normal(kTile * kTile, 13);  // [key, channel]
  std::vector<float> p(numerators.size());
  std::vector<double> v(values.size());
  std::vector<std::int8_t> moved(values.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = f8e4m3_to_float(float_to_f8e4m3(448.0F * std::exp(-2.0F * std::fabs(numerators[i]))));
  }
  for (std::int64_t key = 0; key < kTile; ++key) {
    for (std::int64_t channel = 0; channel < kTile; ++channel) {
      const auto at = static_cast<std::size_t>(key * kTile + channel);
      const std::uint8_t code = float_to_f8e4m3(100.0F * values[at]);
      v[at] = static_cast<double>(f8e4m3_to_float(code));
      moved[static_cast<std::size_t>(swizzled(channel, key / 16 * 16 + place_of_key(key)))] =
          static_cast<std::int8_t>(code);
    }
  }
  OpContext context = ctx();
  TensorView sums = empty({kQueries, kTile});
  ops::cuda::hopper::probe_values(context, sums, upload(p, {kQueries, kTile}),
                                  upload_i8(moved, {kTile, kTile}));
  std::vector<double> exact(kQueries * kTile);
  for (std::int64_t i = 0; i < kQueries * kTile; ++i) {
    for (std::int64_t key = 0; key < kTile; ++key) {
      exact[static_cast<std::size_t>(i)] +=
          static_cast<double>(p[static_cast<std::size_t>(i / kTile * kTile + key)]) *
          v[static_cast<std::size_t>(key * kTile + i % kTile)];
    }
  }
  expect_close(download(sums), exact, tolerance("attention", "e4m3_sums"));
}

constexpr reference::AttentionShape kShapes[] = {
    {1, 1, 1, 1, 128},      {64, 128, 1, 1, 128},  {128, 128, 2, 2, 128}, {3, 5, 2, 1, 7},
    {63, 65, 1, 1, 32},     {65, 129, 1, 1, 64},   {129, 64, 3, 3, 64},   {127, 130, 2, 1, 16},
    {70, 257, 2, 2, 128},   {128, 384, 4, 2, 128}, {300, 191, 1, 1, 96},  {193, 300, 1, 1, 128},
    {257, 1100, 2, 1, 128},
};

TEST_P(HopperAttention, AgreesWithTheCpuInEverySchedule) {
  for (const auto& shape : kShapes) {
    for (const bool outliers : {false, true}) {
      const Inputs in = inputs_of(shape, outliers);
      const auto cpu = attend_on_cpu(in);
      const std::vector<double> wide(cpu.begin(), cpu.end());
      std::vector<float> first;
      for (const AttentionSchedule schedule : ops::cuda::hopper::kAttentionSchedules) {
        SCOPED_TRACE(::testing::Message()
                     << shape.q_rows << "x" << shape.kv_rows << ", " << shape.heads << " heads of "
                     << shape.head_dim << ", outliers " << outliers << ", schedule "
                     << static_cast<int>(schedule));
        const auto out = attend(in, schedule);
        expect_close(out, wide, tolerance("attention", "e4m3_backends"));
        expect_few_differ(out, cpu, shape.head_dim);
        EXPECT_TRUE(identical_to(attend(in, schedule), out));
        if (first.empty()) {
          first = out;
        }
        EXPECT_TRUE(identical_to(out, first));
      }
    }
  }
}

TEST_P(HopperAttention, StaysCloseToExactAttention) {
  for (const auto& shape : kShapes) {
    for (const bool outliers : {false, true}) {
      SCOPED_TRACE(::testing::Message() << shape.q_rows << "x" << shape.kv_rows);
      const Inputs in = inputs_of(shape, outliers);
      expect_close(
          attend(in, AttentionSchedule::kPlainThree),
          reference::attention(in.q, in.k, in.v, in.shape, static_cast<double>(in.scale()), false),
          tolerance("attention", outliers ? "e4m3_outliers" : "e4m3"));
    }
  }
}

// Long rows, a few queries of which are computed in double.
TEST_P(HopperAttention, LongRowsStayCloseToExactAttention) {
  for (const std::int64_t keys : {40001, 170000}) {
    const Inputs in = inputs_of({133, keys, 1, 1, 128}, false);
    const auto out = attend(in, AttentionSchedule::kPlainThree);
    for (const std::int64_t query : {0, 71, 132}) {
      const auto part = [&](const auto& from) {
        return std::vector(from.begin() + query * 128, from.begin() + (query + 1) * 128);
      };
      expect_close(part(out),
                   reference::attention(part(in.q), in.k, in.v, {1, keys, 1, 1, 128},
                                        static_cast<double>(in.scale()), false),
                   tolerance("attention", "e4m3_long"));
    }
  }
}

}  // namespace
}  // namespace miniacc::testing
