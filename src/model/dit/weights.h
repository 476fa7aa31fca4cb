#pragma once

#include <cstddef>
#include <cstdint>

#include "core/weight_source.h"
#include "model/common/layer_source.h"
#include "model/dit/config.h"

namespace miniacc {

/// Attention and MLP of one block or refiner block, as views; fields carry the checkpoint's names.
struct DitBlockWeights {
  ConstTensorView norm1;   ///< [D] f32
  WeightMatrix qkv_proj;   ///< [3 · heads · d, D], rows [Q; K; V]
  ConstTensorView q_norm;  ///< [d] f32, shared by the heads
  ConstTensorView k_norm;  ///< [d] f32
  WeightMatrix out_proj;   ///< [D, heads · d]
  ConstTensorView norm2;   ///< [D] f32
  WeightMatrix fc1;        ///< [2F, D], rows [gate; value]
  WeightMatrix fc2;        ///< [D, F]
};

/// A linear layer with bias.
struct BiasedLinear {
  OwnedWeightMatrix weight;  ///< [out, in]
  Tensor bias;               ///< [out] f32

  [[nodiscard]] std::size_t size_bytes() const { return weight.size_bytes() + bias.size_bytes(); }
};

/// The output projections of one evaluation, f32.
struct DitHeads {
  BiasedLinear video_out;  ///< [video row width, D]
  BiasedLinear audio_out;  ///< [audio row width, D]
};

/// What stays f32 in every precision: the projections into and out of the residual stream, the time
/// embedding and the final layer (spec model.md §3.1, §7).
struct DitIslands {
  BiasedLinear video_patch_proj;  ///< [D, video row width]
  BiasedLinear audio_patch_proj;  ///< [D, audio row width]
  BiasedLinear condition_proj;    ///< [D, text_dim]
  BiasedLinear time_proj_in;      ///< [time hidden, time input]; empty in the curve-table form
  BiasedLinear time_proj_out;     ///< [Dt, time hidden]; empty in the curve-table form
  Tensor adaln_t_table;           ///< [grid rows, rank]; empty when there is a time MLP
  Tensor refiner_final_norm;      ///< [D]
  Tensor final_norm;              ///< [D]
  BiasedLinear final_adaln_proj;  ///< [2D, Dt]: shift rows, then scale rows
  BiasedLinear video_out;         ///< [video row width, D]
  BiasedLinear audio_out;         ///< [audio row width, D]
};

/// `blocks.<index>` without its AdaLN projection, which is read once a request and not once a step.
/// The four matrices have the form `precision` needs.
[[nodiscard]] LayerStack dit_block_stack(const DitConfig& config, Precision precision);
/// `token_refiner.blocks.<index>`. Int8 files leave the refiner unquantised: kInt8 reads bf16.
[[nodiscard]] LayerStack refiner_block_stack(const DitConfig& config, Precision precision);
/// A layer of one of these two stacks.
[[nodiscard]] DitBlockWeights dit_block_weights(const LayerView& layer);
/// `blocks.<index>.adaln_proj.linear`. f32 for the f32 reference and the curve-table form (spec
/// model.md §3.2), else bf16, which is lossless for the released checkpoint (§3.1).
[[nodiscard]] Result<BiasedLinear> load_block_adaln(WeightSource& weights, const DitConfig& config,
                                                    std::int64_t index, Precision precision,
                                                    Device& device);
[[nodiscard]] Result<DitIslands> load_dit_islands(WeightSource& weights, const DitConfig& config,
                                                  Device& device);

}  // namespace miniacc
