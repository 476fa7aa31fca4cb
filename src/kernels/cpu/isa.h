#pragma once

/// One loop, three instruction sets. The build targets plain x86-64, so hot loops are written once
/// as an always-inline body and compiled again for wider vectors; the widest set that the machine
/// has is picked at run time. Results may differ between instruction sets in the last bit (fused
/// multiply-add, width of sums), never between thread counts or runs on one machine.
///
///   MINIACC_ISA_VARIANTS(void, scale, (float* x, std::int64_t n), (x, n))
///
/// defines scale(...) from an existing `template <int kLanes> MINIACC_ISA_BODY void
/// scale_body(...)`, kLanes being the floats of one vector register: 16, 8 or 4.
#define MINIACC_ISA_BODY [[gnu::always_inline]] inline

// NOLINTBEGIN(bugprone-macro-parentheses): types and parameter lists cannot be put in parentheses
#if defined(__x86_64__)
#define MINIACC_ISA_VARIANTS(result, name, parameters, arguments)          \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))   \
  result name##_avx512 parameters {                                        \
    return name##_body<16> arguments;                                      \
  }                                                                        \
  __attribute__((target("avx2,fma"))) result name##_avx2 parameters {      \
    return name##_body<8> arguments;                                       \
  }                                                                        \
  result name##_baseline parameters { return name##_body<4> arguments; }   \
  result name parameters {                                                 \
    if (has_avx512()) {                                                    \
      return name##_avx512 arguments;                                      \
    }                                                                      \
    return has_avx2() ? name##_avx2 arguments : name##_baseline arguments; \
  }
#else
#define MINIACC_ISA_VARIANTS(result, name, parameters, arguments) \
  result name parameters { return name##_body<4> arguments; }
#endif
// NOLINTEND(bugprone-macro-parentheses)

namespace miniacc::ops::cpu {

#if defined(__x86_64__)
inline bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}
#endif

}  // namespace miniacc::ops::cpu
