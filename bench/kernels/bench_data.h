#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <thread>

#include "core/tensor.h"
#include "core/weight_matrix.h"
#include "device/cpu_device.h"
#include "kernels/op_context.h"

namespace miniacc::bench {

/// Reproducible values in [-1, 1); the distribution does not matter for speed, zeros would.
Tensor uniform_tensor(Device& device, const Shape& shape, std::uint64_t seed);
/// A weight matrix [n, k] in the form that `precision` runs on.
OwnedWeightMatrix uniform_weights(OpContext& ctx, std::int64_t n, std::int64_t k,
                                  Precision precision, std::uint64_t seed);

/// The threads a benchmark may use: every core of the machine.
inline int all_threads() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

/// Reports GFLOP/s over all iterations of the run.
inline void report_flops(benchmark::State& state, double flops_per_iteration) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops_per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// Reports GB/s of compulsory traffic (every input read once, every output written once).
inline void report_bytes(benchmark::State& state, double bytes_per_iteration) {
  state.counters["GB/s"] =
      benchmark::Counter(bytes_per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace miniacc::bench
