#include "runtime/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/build_config.h"
#include "runtime/cuda_ceilings.h"
#include "runtime/job_plan.h"

namespace miniacc {
namespace {

double measure_host_copy(Device& device) {
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  constexpr int kRepeats = 5;
  Tensor from = empty_tensor(device, {kBytes}, DType::kU8);
  Tensor to = empty_tensor(device, {kBytes}, DType::kU8);
  std::memset(from.view().data, 1, kBytes);
  double best = 0.0;
  for (int i = 0; i <= kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.view().data, from.view().data, kBytes);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = i == 0 ? 0.0 : std::max(best, 2.0 * kBytes / seconds);  // the first one maps the pages
  }
  return best;
}

}  // namespace

Result<Ceilings> measure_ceilings(OpContext& ctx, Precision precision) {
  if constexpr (kHasCuda) {
    if (ctx.device.id().kind == DeviceKind::kCuda) {
      return cuda::measure_ceilings(ctx, precision);
    }
  }
  return Ceilings{.operations_per_second = measure_flops_per_second(precision, ctx.num_threads),
                  .copy_bytes_per_second = measure_host_copy(ctx.device)};
}

}  // namespace miniacc
