#include "kernels/attention_int8.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/flash_attention.cuh"
#include "kernels/cuda/hopper/attention.h"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {

namespace {

constexpr int kWideDim = 128;
constexpr AttentionLayout kFastestLayout = AttentionLayout::kShiftedHalves;  // docs/performance.md

}  // namespace

void attention_int8_mma(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale,
                        AttentionLayout layout) {
  FlashArguments args = flash_output(out);
  args.q = static_cast<const unsigned char*>(in.q.view().data);
  args.k = static_cast<const unsigned char*>(in.k.view().data);
  args.v = static_cast<const unsigned char*>(in.v.view().data);
  args.q_scale = in.q_scale.view().f32();
  args.k_scale = in.k_scale.view().f32();
  args.v_scale = in.v_scale.view().f32();
  args.kv_rows = in.kv_rows;
  args.heads_per_kv = in.q.shape()[0] / in.k.shape()[0];
  args.scale = scale;
  const std::int64_t dim = in.q.shape()[2];
  if (dim == kWideDim && layout == AttentionLayout::kTwoBlocks) {
    launch_flash<Int8Attention, kWideDim, AttentionLayout::kTwoBlocks>(ctx, out, args);
  } else if (dim == kWideDim && layout == AttentionLayout::kTwoWideBlocks) {
    launch_flash<Int8Attention, kWideDim, AttentionLayout::kTwoWideBlocks>(ctx, out, args);
  } else if (dim == kWideDim && layout == AttentionLayout::kShiftedHalves) {
    launch_flash<Int8Attention, kWideDim, AttentionLayout::kShiftedHalves>(ctx, out, args);
  } else {
    launch_flash_padded<Int8Attention>(ctx, out, dim, args);
  }
}

void attention_int8(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale) {
  if (in.form == AttentionForm::kWgmma) {
    hopper::attention_int8(ctx, out, in, scale, hopper::AttentionSchedule::kPlainThree);
  } else {
    attention_int8_mma(ctx, out, in, scale, kFastestLayout);
  }
}

}  // namespace miniacc::ops::cuda
