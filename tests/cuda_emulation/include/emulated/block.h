#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <vector>

#include "vector_types.h"

/// What device code sees of the block that is running. A launch runs block by block on one thread
/// of the operating system; every CUDA thread is a fiber that runs until it waits for others or
/// ends. CUDA's built-in variables; set before a fiber runs.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace cuda_emulation {

/// One call that the lanes of a warp make together (shuffle, vote, mma, ...). Lives on the stack of
/// the fiber that waits in it. The last lane to arrive computes the results of all.
struct WarpCall {
  const char* name = nullptr;
  unsigned mask = 0;  ///< lanes that take part
  std::source_location where;
  const void* input = nullptr;
  /// Computes this lane's result; `inputs` holds null for lanes that do not take part.
  void (*compute)(WarpCall& self, const std::array<const void*, 32>& inputs) = nullptr;
};

/// A copy that cp.async has promised and not done.
struct PendingCopy {
  void* to = nullptr;
  const void* from = nullptr;
  unsigned bytes = 0;  ///< read from `from`; the rest of the 16 are zeros
};

/// What a CUDA thread may ask about itself.
struct ThreadState {
  uint3 thread_index{};
  unsigned lane = 0;
  std::vector<PendingCopy> open_copies;               ///< since the last commit
  std::vector<std::vector<PendingCopy>> copy_groups;  ///< committed, oldest first
};
extern ThreadState* this_thread;  ///< null outside kernels

enum class Vote { kNone, kAnd, kOr, kCount };
/// Waits for all threads of the block; gives the vote over `predicate`.
int wait_for_block(Vote vote, bool predicate, const std::source_location& where);
/// Waits until all lanes of call.mask that still run have made the same call, then computes.
void wait_for_warp(WarpCall& call);
/// Stops the launch with this trouble; the context's later calls report cudaErrorLaunchFailure.
[[noreturn]] void stop_kernel(const char* trouble, const std::source_location& where);
/// 10 times the compute capability of the machine, e.g. 89.
int compute_capability();
/// True when [data, data + bytes) is shared memory of the running block.
bool is_shared_memory(const void* data, std::size_t bytes);

/// The inputs of a warp call as their type; null for a lane that does not take part.
template <typename In>
struct LaneInputs {
  const std::array<const void*, 32>& inputs;
  const In* operator[](unsigned lane) const { return static_cast<const In*>(inputs[lane]); }
};

/// Every lane of `mask` gives `input` and gets of_lane(inputs of all lanes).
template <typename Out, typename In, typename OfLane>
Out warp_collective(const char* name, unsigned mask, const In& input, const OfLane& of_lane,
                    const std::source_location& where) {
  struct Call : WarpCall {
    const OfLane* of_lane = nullptr;
    Out* out = nullptr;
  };
  Out out{};
  Call call;
  call.name = name;
  call.mask = mask;
  call.where = where;
  call.input = &input;
  call.of_lane = &of_lane;
  call.out = &out;
  call.compute = [](WarpCall& self, const std::array<const void*, 32>& inputs) {
    auto& typed = static_cast<Call&>(self);
    *typed.out = (*typed.of_lane)(LaneInputs<In>{inputs});
  };
  wait_for_warp(call);
  return out;
}

/// What reading a lane gives that is not there: NaN in every format.
template <typename T>
T poison() {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memset(static_cast<void*>(&value), 0xFF, sizeof(T));
  return value;
}

}  // namespace cuda_emulation
