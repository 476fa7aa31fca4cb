#pragma once

#include "core/error.h"
#include "core/tensor.h"

/// Calls the backend of `out`'s device: ops::cpu::op(...). A view of a device that this build has
/// no backend for is a defect of the caller: the engine refuses such a device before any work.
#define MINIACC_DISPATCH(op, ctx, out, ...)                           \
  do {                                                                \
    MINIACC_REQUIRE((out).device.kind == ::miniacc::DeviceKind::kCpu, \
                    #op ": no backend for this device");              \
    cpu::op((ctx), (out)__VA_OPT__(, ) __VA_ARGS__);                  \
  } while (false)
