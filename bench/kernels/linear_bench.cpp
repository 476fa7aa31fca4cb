#include <chrono>

#include "kernels/bench_data.h"
#include "kernels/linear.h"

namespace miniacc::bench {
namespace {

struct GemmShape {
  std::int64_t n, k;
};

// The four GEMMs of a block, real widths: video VAE decoder (spec vae.md §2.3) and DiT
// (spec model.md §1), times the row count given as the benchmark's argument.
constexpr GemmShape kVaeBlock[] = {{6144, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}};
constexpr GemmShape kDitBlock[] = {{21504, 5376}, {5376, 7168}, {28672, 5376}, {5376, 14336}};

void run_linear(benchmark::State& state, std::int64_t rows, GemmShape shape, Precision precision) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const Tensor x = uniform_tensor(device, {rows, shape.k}, 1);
  const OwnedWeightMatrix w = uniform_weights(ctx, shape.n, shape.k, precision, 2);
  Tensor out = empty_tensor(device, {rows, shape.n});
  for (auto _ : state) {
    ops::linear(ctx, out.view(), x.view(), w.view());
    benchmark::ClobberMemory();
  }
  report_flops(state, 2.0 * static_cast<double>(rows * shape.n * shape.k));
}

void linear_vae(benchmark::State& state, Precision precision) {
  run_linear(state, state.range(0), kVaeBlock[state.range(1)], precision);
}

void linear_dit(benchmark::State& state, Precision precision) {
  run_linear(state, state.range(0), kDitBlock[state.range(1)], precision);
}

void linear_tiny(benchmark::State& state, Precision precision) {
  run_linear(state, state.range(0), {state.range(1), state.range(2)}, precision);
}

/// All four GEMMs of one block in f32 and in bf16, side by side: the ratio is the figure of merit.
void block_ratio(benchmark::State& state, const GemmShape* shapes) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const std::int64_t rows = state.range(0);
  const auto seconds = [&](Precision precision) {
    double best_total = 0.0;
    for (int i = 0; i < 4; ++i) {
      const Tensor x = uniform_tensor(device, {rows, shapes[i].k}, 1);
      const OwnedWeightMatrix w = uniform_weights(ctx, shapes[i].n, shapes[i].k, precision, 2);
      Tensor out = empty_tensor(device, {rows, shapes[i].n});
      double best = 1e30;
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        ops::linear(ctx, out.view(), x.view(), w.view());
        best = std::min(
            best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      best_total += best;
    }
    return best_total;
  };
  double f32 = 0.0;
  double bf16 = 0.0;
  double int8 = 0.0;
  for (auto _ : state) {
    f32 = seconds(Precision::kF32);
    bf16 = seconds(Precision::kBF16);
    int8 = seconds(Precision::kInt8);
  }
  state.counters["f32_ms"] = f32 * 1e3;
  state.counters["bf16_ms"] = bf16 * 1e3;
  state.counters["int8_ms"] = int8 * 1e3;
  state.counters["f32:bf16"] = f32 / bf16;
  state.counters["f32:int8"] = f32 / int8;
}

#define MINIACC_PRECISIONS(function, arguments)                                  \
  BENCHMARK_CAPTURE(function, f32, Precision::kF32)->arguments->UseRealTime();   \
  BENCHMARK_CAPTURE(function, bf16, Precision::kBF16)->arguments->UseRealTime(); \
  BENCHMARK_CAPTURE(function, int8, Precision::kInt8)->arguments->UseRealTime()

MINIACC_PRECISIONS(linear_vae, ArgsProduct({{1125}, {0, 1, 2, 3}})->Unit(benchmark::kMillisecond));
MINIACC_PRECISIONS(linear_dit, ArgsProduct({{64}, {0, 1, 2, 3}})->Unit(benchmark::kMillisecond));
// Small layers: what a call costs beyond its arithmetic.
MINIACC_PRECISIONS(linear_tiny, Args({1, 64, 64})->Args({51, 96, 32})->Args({1125, 576, 192}));
BENCHMARK_CAPTURE(block_ratio, vae, kVaeBlock)
    ->Arg(1125)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(block_ratio, dit, kDitBlock)
    ->Arg(128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace miniacc::bench
