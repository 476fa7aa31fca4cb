#pragma once

#include "core/build_config.h"
#include "core/error.h"
#include "core/tensor.h"

/// Calls the backend of `out`'s device: ops::cpu::op(...) or ops::cuda::op(...). A view of a device
/// that this build has no backend for is a defect of the caller: the engine refuses such a device
/// before any work. Without CUDA the second call is a discarded statement, which needs the
/// declarations of kernels/cuda/ops.h and no definition.
#define MINIACC_DISPATCH(op, ctx, out, ...)                                                \
  do {                                                                                     \
    const bool miniacc_on_cuda = (out).device.kind == ::miniacc::DeviceKind::kCuda;        \
    MINIACC_REQUIRE(!miniacc_on_cuda || ::miniacc::kHasCuda, #op ": no backend for CUDA"); \
    if constexpr (::miniacc::kHasCuda) {                                                   \
      if (miniacc_on_cuda) {                                                               \
        cuda::op((ctx), (out)__VA_OPT__(, ) __VA_ARGS__);                                  \
        break;                                                                             \
      }                                                                                    \
    }                                                                                      \
    cpu::op((ctx), (out)__VA_OPT__(, ) __VA_ARGS__);                                       \
  } while (false)

/// The same for an op that only the CPU computes: on any other device it is refused by its name.
#define MINIACC_DISPATCH_CPU(op, ctx, out, ...)                       \
  do {                                                                \
    MINIACC_REQUIRE((out).device.kind == ::miniacc::DeviceKind::kCpu, \
                    #op ": no backend for CUDA");                     \
    cpu::op((ctx), (out)__VA_OPT__(, ) __VA_ARGS__);                  \
  } while (false)
