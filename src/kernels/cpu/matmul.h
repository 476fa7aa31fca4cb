#pragma once

#include <dnnl.hpp>

#include "kernels/op_context.h"

namespace miniacc::ops::cpu {

/// What a product does with what is in its output.
enum class MatmulOutput { kReplace, kAdd };

/// One oneDNN matmul: dst [m, n] = src [m, k] · weights, weights stored [n, k] (hence read
/// transposed), optional bias. Rows of dst and src may be strided; kAdd adds to an f32 dst.
void matmul(const OpContext& ctx, TensorView dst, dnnl::memory::data_type dst_type,
            ConstTensorView src, dnnl::memory::data_type src_type, ConstTensorView weights,
            dnnl::memory::data_type weights_type, ConstTensorView bias,
            MatmulOutput output = MatmulOutput::kReplace);

/// A contiguous bf16 copy of an f32 matrix.
[[nodiscard]] Tensor round_rows_to_bf16(OpContext& ctx, ConstTensorView x);

}  // namespace miniacc::ops::cpu
