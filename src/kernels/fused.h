#pragma once

#include "kernels/op_context.h"

/// Producers of int8 activations: what stands before an int8 product in a block, in one pass over
/// the row instead of one pass an op. Each equals the chain of ops that it replaces: bit for bit on
/// the CPU, which computes that chain; on CUDA but for the order in which a row's squares are
/// summed and the card's exp, which can move a value by one step of its scale.
/// Common to all:
///   out     [rows, k] i8, contiguous        as quantize_rows writes it
///   scale   [rows] f32, contiguous
///   group   0 for no rotation, or the ConvRot group as in rotate_rows, k whole groups. Shapes that
///           fits_fused_rows() denies are an InternalError that names them
/// A row with NaN or infinity becomes zeros with a NaN scale. Nothing may alias. Source: spec
/// acceleration_full.md §3.3 and §10.4, with the rounding of quantize_rows and no intermediate
/// rounding to bf16.
namespace miniacc::ops {

/// What the producers take on a device of this kind: every shape on the CPU, on CUDA at most 16384
/// columns in groups of at most 256.
bool fits_fused_rows(DeviceKind device, std::int64_t columns, std::int64_t group);

/// quantize_rows(rotate_rows(x)).   x [rows, k] f32; rows may be strided
void rotate_quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x,
                          std::int64_t group);

/// quantize_rows(rotate_rows(modulated_rms_norm(x, weight, shift, gain, index, eps))): what stands
/// before qkv_proj and fc1. x, weight, shift, index as in modulated_rms_norm; `gain` is its scale.
void modulated_rms_norm_quantize(OpContext& ctx, TensorView out, TensorView scale,
                                 ConstTensorView x, ConstTensorView weight, ConstTensorView shift,
                                 ConstTensorView gain, ConstTensorView index, float eps,
                                 std::int64_t group);

/// quantize_rows(rotate_rows(silu_mul(gate, value))): what stands before fc2. gate and value as in
/// silu_mul: the two halves of fc1's output.
void silu_mul_quantize(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView gate,
                       ConstTensorView value, std::int64_t group);

/// out = x · Wᵀ + bias for rows that a producer has already rotated and quantised: the second half
/// of linear() with i8 weights, with the same bits.
///   out      [rows, n] f32; rows may be strided
///   x        [rows, k] i8, x_scale [rows] f32, contiguous, rotated by w.rotation_group
///   w        i8 with row scales and no low_rank; bias [n] f32 or empty
void linear_quantized(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                      const WeightMatrix& w, ConstTensorView bias = {});

}  // namespace miniacc::ops
