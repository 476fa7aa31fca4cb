#include <cmath>

#include "kernels/attention.h"
#include "kernels/bench_data.h"

namespace miniacc::bench {
namespace {

/// Arguments: rows, heads, kv_heads, head_dim. Floor: 4·rows²·heads·head_dim FLOP in the two
/// products (half of it counts under a causal mask) and rows²·heads exponentials.
void attention(benchmark::State& state, Precision precision, ops::AttentionMask mask) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const std::int64_t rows = state.range(0);
  const std::int64_t heads = state.range(1);
  const std::int64_t kv_heads = state.range(2);
  const std::int64_t head_dim = state.range(3);
  const Tensor q = uniform_tensor(device, {rows, heads, head_dim}, 1);
  const Tensor k = uniform_tensor(device, {rows, kv_heads, head_dim}, 2);
  const Tensor v = uniform_tensor(device, {rows, kv_heads, head_dim}, 3);
  Tensor out = empty_tensor(device, {rows, heads, head_dim});
  const ops::AttentionOptions options{.scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                                      .mask = mask,
                                      .precision = precision};
  for (auto _ : state) {
    ops::attention(ctx, out.view(), q.view(), k.view(), v.view(), options);
    benchmark::ClobberMemory();
  }
  const double share = mask == ops::AttentionMask::kCausal ? 0.5 : 1.0;
  report_flops(state, share * 4.0 * static_cast<double>(rows * rows * heads * head_dim));
}

// Video VAE tile [1125 and 1797 tokens, 32 heads of 64], DiT [heads of 128], a small model.
#define MINIACC_FULL_SHAPES \
  Args({1125, 4, 4, 64})->Args({1797, 4, 4, 64})->Args({2048, 4, 4, 128})->Args({64, 4, 4, 32})
#define MINIACC_ATTENTION(name, precision)                                                       \
  BENCHMARK_CAPTURE(attention, name, Precision::precision, ops::AttentionMask::kNone)            \
      ->MINIACC_FULL_SHAPES->UseRealTime()                                                       \
      ->Unit(benchmark::kMillisecond);                                                           \
  BENCHMARK_CAPTURE(attention, name##_causal, Precision::precision, ops::AttentionMask::kCausal) \
      ->Args({1024, 8, 2, 128})                                                                  \
      ->UseRealTime()                                                                            \
      ->Unit(benchmark::kMillisecond)

MINIACC_ATTENTION(f32, kF32);
MINIACC_ATTENTION(bf16, kBF16);

}  // namespace
}  // namespace miniacc::bench
