#pragma once

namespace miniacc::ops::cuda {

/// A sum of many short f32 sums: Kahan's, so that its error does not grow with their number. No
/// multiplication, hence nothing for the compiler to contract.
struct CompensatedSum {
  float sum = 0.0F;
  float lost = 0.0F;
  __device__ void add(float value) {
    const float wanted = value - lost;
    const float next = sum + wanted;
    lost = (next - sum) - wanted;
    sum = next;
  }
};

}  // namespace miniacc::ops::cuda
