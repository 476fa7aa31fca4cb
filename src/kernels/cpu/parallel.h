#pragma once

#include <cstdint>

#include "kernels/op_context.h"

namespace miniacc::ops::cpu {

/// body(i) for i in [0, count), spread over ctx.num_threads threads. Bodies must not throw and must
/// not depend on each other, so that the result does not depend on the number of threads.
template <typename Body>
void parallel_for(const OpContext& ctx, std::int64_t count, const Body& body) {
  const int threads = count > 1 ? ctx.num_threads : 1;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    body(i);
  }
}

}  // namespace miniacc::ops::cpu
