#pragma once

#include "kernels/op_context.h"

/// Producers of bf16 activations, and the product that takes them: what stands around a bf16
/// product in a block, rounded where it is made instead of in a pass of its own. Each equals the
/// chain of ops that it replaces, bit for bit on the CPU, which computes that chain; on CUDA but
/// for the order in which a row's squares are summed.
///   out  [rows, k] bf16, contiguous, k even
namespace miniacc::ops {

/// out = bf16(rms_norm(x, weight, eps)).   x [rows, k] f32, contiguous · weight [k] f32
void rms_norm_rounded(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      float eps);

/// out = bf16(silu_mul(gate, value)).   gate, value [rows, k] f32; rows may be strided, of an even
/// stride
void silu_mul_rounded(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value);

/// Three columns a value, for a product that keeps f32's digits on bf16 units: with high = bf16(x)
/// and low = bf16(x - high) the columns of an activation are [high, high, low], those of a matrix
/// [high, low, high]. Their product is that of the f32 values but for low · low, 2^-16 of it.
///   out [rows, 3k] bf16, contiguous · x [rows, k] f32, contiguous
enum class SplitSide { kActivation, kMatrix };
void split_rows(OpContext& ctx, TensorView out, ConstTensorView x, SplitSide side);

/// linear() for an x that is rounded already: x [rows, k] bf16, contiguous; w bf16 without
/// low_rank.
///   out [rows, n] f32; rows may be strided · bias [n] f32 or empty
void linear_rounded(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                    ConstTensorView bias = {});

}  // namespace miniacc::ops
