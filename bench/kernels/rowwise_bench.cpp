#include "kernels/activation.h"
#include "kernels/bench_data.h"
#include "kernels/norm.h"
#include "kernels/residual.h"

namespace miniacc::bench {
namespace {

/// Arguments: rows, hidden. Memory bound: every op must read its inputs and write its output once.
void rms_norm(benchmark::State& state) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const Shape shape{state.range(0), state.range(1)};
  const Tensor x = uniform_tensor(device, shape, 1);
  const Tensor weight = uniform_tensor(device, {shape[1]}, 2);
  Tensor out = empty_tensor(device, shape);
  for (auto _ : state) {
    ops::rms_norm(ctx, out.view(), x.view(), weight.view(), 1e-5F);
    benchmark::ClobberMemory();
  }
  report_bytes(state, 8.0 * static_cast<double>(shape.num_elements()));
}

void silu_mul(benchmark::State& state) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const Shape shape{state.range(0), state.range(1)};
  const Tensor x = uniform_tensor(device, {shape[0], 2 * shape[1]}, 1);
  Tensor out = empty_tensor(device, shape);
  for (auto _ : state) {
    ops::silu_mul(ctx, out.view(), x.view().narrow(1, 0, shape[1]),
                  x.view().narrow(1, shape[1], shape[1]));
    benchmark::ClobberMemory();
  }
  report_bytes(state, 12.0 * static_cast<double>(shape.num_elements()));
}

void gated_add(benchmark::State& state) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const Shape shape{state.range(0), state.range(1)};
  const Tensor x = uniform_tensor(device, shape, 1);
  const Tensor gate = uniform_tensor(device, {1, shape[1]}, 2);
  Tensor h = uniform_tensor(device, shape, 3);
  for (auto _ : state) {
    ops::gated_add(ctx, h.view(), x.view(), gate.view(), {});
    benchmark::ClobberMemory();
  }
  report_bytes(state, 12.0 * static_cast<double>(shape.num_elements()));
}

BENCHMARK(rms_norm)->Args({1125, 2048})->Args({36000, 64})->UseRealTime();
BENCHMARK(silu_mul)->Args({1125, 8192})->UseRealTime();
BENCHMARK(gated_add)->Args({1125, 2048})->UseRealTime();

}  // namespace
}  // namespace miniacc::bench
