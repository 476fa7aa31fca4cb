#include "kernels/bench_data.h"
#include "kernels/snake.h"

namespace miniacc::bench {
namespace {

/// Arguments: channels, length; batch 2. Floor per sample: 24 multiply-adds up, 2 sin², 12
/// multiply-adds down, 8 bytes of memory traffic.
void snake(benchmark::State& state) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const std::int64_t channels = state.range(0);
  const std::int64_t length = state.range(1);
  const Tensor x = uniform_tensor(device, {2, channels, length}, 1);
  const Tensor alpha = uniform_tensor(device, {channels}, 2);
  const Tensor beta = uniform_tensor(device, {channels}, 3);
  const Tensor filter = uniform_tensor(device, {12}, 4);
  Tensor out = empty_tensor(device, {2, channels, length});
  for (auto _ : state) {
    ops::antialiased_snake_beta(ctx, out.view(), x.view(), alpha.view(), beta.view(), filter.view(),
                                filter.view());
    benchmark::ClobberMemory();
  }
  const auto samples = static_cast<double>(2 * channels * length);
  state.counters["Msample/s"] =
      benchmark::Counter(samples * 1e-6, benchmark::Counter::kIsIterationInvariantRate);
  report_bytes(state, 8.0 * samples);
}

BENCHMARK(snake)
    ->Args({512, 1035})
    ->Args({64, 20700})
    ->Args({8, 165600})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace miniacc::bench
