#include "kernels/cpu/dnnl_util.h"

#include <omp.h>

namespace miniacc::ops::cpu {

DnnlThreads::DnnlThreads(int num_threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(num_threads);
}

DnnlThreads::~DnnlThreads() { omp_set_num_threads(before_); }

}  // namespace miniacc::ops::cpu
