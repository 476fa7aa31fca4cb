#include <cstring>
#include <dnnl.hpp>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {
namespace {

using dnnl::memory;

void linear_bf16(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                 ConstTensorView bias) {
  const Tensor rounded = round_rows_to_bf16(ctx, x);
  matmul(ctx, out, memory::data_type::f32, rounded.view(), memory::data_type::bf16, w.values,
         memory::data_type::bf16, bias);
}

template <int kLanes>
MINIACC_ISA_BODY std::int32_t dot_int8_body(const std::int8_t* a, const std::int8_t* b,
                                            std::int64_t size) {
  std::int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < size; ++i) {
    sum += static_cast<std::int32_t>(a[i]) * static_cast<std::int32_t>(b[i]);
  }
  return sum;
}

MINIACC_ISA_VARIANTS(std::int32_t, dot_int8,
                     (const std::int8_t* a, const std::int8_t* b, std::int64_t size), (a, b, size))

/// oneDNN multiplies i8 without saturating only where the CPU has VNNI.
bool has_exact_int8_matmul() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

void linear_int8(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                 ConstTensorView bias) {
  const std::int64_t rows = x.dim(0);
  const std::int64_t k = x.dim(1);
  Tensor source = empty_tensor(ctx.device, x.shape);
  float* copy = source.f32().data();
  const float* input = x.f32();
  parallel_for(ctx, rows, k, [&](std::int64_t row) {
    std::memcpy(copy + row * k, input + row * x.stride(0),
                static_cast<std::size_t>(k) * sizeof(float));
  });
  if (w.rotation_group != 0) {
    rotate_rows(ctx, source.view(), w.rotation_group);
  }
  Tensor quantized = empty_tensor(ctx.device, x.shape, DType::kI8);
  Tensor scale = empty_tensor(ctx.device, {rows});
  quantize_rows(ctx, quantized.view(), scale.view(), source.view());
  linear_quantized(ctx, out, quantized.view(), scale.view(), w, bias);
}

}  // namespace

void matmul_int8_portable(OpContext& ctx, TensorView out, ConstTensorView x,
                          ConstTensorView weights) {
  const std::int64_t k = x.dim(1);
  const std::int64_t n = weights.dim(0);
  const auto* source = x.as<std::int8_t>();
  const auto* matrix = weights.as<std::int8_t>();
  auto* target = out.as<std::int32_t>();
  parallel_for(ctx, n, x.dim(0) * k / 8, [&](std::int64_t column) {
    for (std::int64_t row = 0; row < x.dim(0); ++row) {
      target[row * n + column] = dot_int8(source + row * k, matrix + column * k, k);
    }
  });
}

void matmul_int8(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weights) {
  if (has_exact_int8_matmul()) {
    matmul(ctx, out, memory::data_type::s32, x, memory::data_type::s8, weights,
           memory::data_type::s8, {});
  } else {
    matmul_int8_portable(ctx, out, x, weights);
  }
}

void linear_quantized(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                      const WeightMatrix& w, ConstTensorView bias) {
  const std::int64_t rows = x.dim(0);
  const std::int64_t n = w.values.dim(0);
  Tensor sums = empty_tensor(ctx.device, {rows, n}, DType::kI32);
  matmul_int8(ctx, sums.view(), x, w.values);
  const auto* accumulated = sums.view().as<std::int32_t>();
  const float* row_scale = w.row_scale.f32();
  const float* bias_values = bias.empty() ? nullptr : bias.f32();
  const float* token_scales = x_scale.f32();
  float* output = out.f32();
  parallel_for(ctx, rows, n, [&](std::int64_t row) {
    float* target = output + row * out.stride(0);
    const float token_scale = token_scales[row];
    for (std::int64_t c = 0; c < n; ++c) {
      const float value =
          static_cast<float>(accumulated[row * n + c]) * (token_scale * row_scale[c]);
      target[c] = bias_values == nullptr ? value : value + bias_values[c];
    }
  });
}

void linear(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
            ConstTensorView bias) {
  switch (w.values.dtype) {
    case DType::kF32:
      matmul(ctx, out, memory::data_type::f32, x, memory::data_type::f32, w.values,
             memory::data_type::f32, bias);
      return;
    case DType::kBF16:
      linear_bf16(ctx, out, x, w, bias);
      return;
    default:
      linear_int8(ctx, out, x, w, bias);
      return;
  }
}

}  // namespace miniacc::ops::cpu
