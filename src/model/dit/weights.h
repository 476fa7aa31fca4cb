#pragma once

#include <cstddef>
#include <cstdint>

#include "core/weight_source.h"
#include "model/dit/config.h"

namespace miniacc {

/// Attention and MLP of one block or refiner block; fields carry the checkpoint's names.
struct DitBlockWeights {
  Tensor norm1;                ///< [D] f32
  OwnedWeightMatrix qkv_proj;  ///< [3 · heads · d, D], rows [Q; K; V]
  Tensor q_norm;               ///< [d] f32, shared by the heads
  Tensor k_norm;               ///< [d] f32
  OwnedWeightMatrix out_proj;  ///< [D, heads · d]
  Tensor norm2;                ///< [D] f32
  OwnedWeightMatrix fc1;       ///< [2F, D], rows [gate; value]
  OwnedWeightMatrix fc2;       ///< [D, F]

  [[nodiscard]] std::size_t size_bytes() const;
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
/// The four matrices have the form `precision` needs. Errors are those of the source.
[[nodiscard]] Result<DitBlockWeights> load_dit_block(WeightSource& weights, std::int64_t index,
                                                     Precision precision, Device& device);
/// `token_refiner.blocks.<index>`. Int8 files leave the refiner unquantised: kInt8 reads bf16.
[[nodiscard]] Result<DitBlockWeights> load_refiner_block(WeightSource& weights, std::int64_t index,
                                                         Precision precision, Device& device);
/// `blocks.<index>.adaln_proj.linear`. f32 for the f32 reference and the curve-table form (spec
/// model.md §3.2), else bf16, which is lossless for the released checkpoint (§3.1).
[[nodiscard]] Result<BiasedLinear> load_block_adaln(WeightSource& weights, const DitConfig& config,
                                                    std::int64_t index, Precision precision,
                                                    Device& device);
[[nodiscard]] Result<DitIslands> load_dit_islands(WeightSource& weights, const DitConfig& config,
                                                  Device& device);

}  // namespace miniacc
