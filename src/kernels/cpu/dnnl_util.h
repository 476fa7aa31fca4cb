#pragma once

#include <dnnl.hpp>

#include "kernels/op_context.h"

namespace miniacc::ops::cpu {

/// oneDNN's CPU engine and an in-order stream; cheap enough to make per call.
struct DnnlSession {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

/// oneDNN takes its thread count from OpenMP's per-thread setting. Restores it on destruction.
class DnnlThreads {
 public:
  explicit DnnlThreads(int num_threads);
  ~DnnlThreads();
  DnnlThreads(const DnnlThreads&) = delete;
  DnnlThreads& operator=(const DnnlThreads&) = delete;

 private:
  int before_;
};

/// oneDNN wants non-const pointers for sources too; it does not write to them.
inline dnnl::memory dnnl_memory(const dnnl::memory::desc& desc, const dnnl::engine& engine,
                                const void* data) {
  return {desc, engine, const_cast<void*>(data)};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

}  // namespace miniacc::ops::cpu
