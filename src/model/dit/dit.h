#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/weight_source.h"
#include "kernels/op_context.h"
#include "model/common/layer_source.h"
#include "model/dit/block.h"
#include "model/dit/modulation.h"
#include "model/dit/packed_sequence.h"
#include "model/dit/weights.h"

namespace miniacc {

/// What one evaluation reads. Views are f32 and contiguous.
struct DitInput {
  ConstTensorView video_rows;    ///< [num_video_rows, video row width]: conditions, then target
  ConstTensorView audio_rows;    ///< [num_audio_rows, audio row width], same order
  ConstTensorView refined_text;  ///< [L, D], from Dit::refine_text
  float video_time = 0.0F;       ///< t = 1 - sigma of the video stream, 0 = noise
  float audio_time = 0.0F;
  const PackedSequence& sequence;
  const DitHeads* heads = nullptr;  ///< in place of the checkpoint's video_out and audio_out
};

/// Velocities v = x0 - noise of the target rows: x0 = x_t + sigma·v.
struct DitOutput {
  Tensor video;  ///< [target video rows, video row width] f32
  Tensor audio;  ///< [target audio rows, audio row width] f32
};

/// Called after each block with the number of finished ones.
using BlockProgress = std::function<void(std::int64_t finished, std::int64_t total)>;

/// The diffusion transformer. Precision decides the form of the linear layers of blocks and refiner
/// and of the refiner's attention; the residual stream, norms, modulation, time embedding, patch
/// projections and heads are f32 always (spec model.md §3.1, §7).
///   kF32   everything f32: the reference
///   kBF16  linear layers, AdaLN of files with a time MLP, and attention with bf16 operands
///   kInt8  the four linear layers of each block in int8; refiner, AdaLN and attention as in kBF16
/// The attention of the blocks may be chosen apart from it.
class Dit {
 public:
  /// Reads the configuration and the f32 islands. Blocks come from `blocks`, a source of
  /// dit_block_stack()'s layers; without one they are read when a pass needs them, and as many as
  /// fit `cache_budget_bytes` stay. Where they come from changes the time a pass takes and no bit
  /// of its result. `attention` is the arithmetic of the blocks' attention, empty:
  /// default_attention(). `weights`, `device` and `blocks` outlive the object.
  [[nodiscard]] static Result<Dit> open(WeightSource& weights, Device& device, Precision precision,
                                        std::size_t cache_budget_bytes,
                                        LayerSource* blocks = nullptr,
                                        std::optional<Precision> attention = {});

  [[nodiscard]] const DitConfig& config() const { return config_; }
  [[nodiscard]] const DitIslands& islands() const { return islands_; }
  [[nodiscard]] Precision precision() const { return precision_; }
  /// Blocks read so far, and bytes of those that stay.
  [[nodiscard]] std::int64_t num_block_loads() const { return blocks_->loads(); }
  [[nodiscard]] std::size_t resident_bytes() const { return blocks_->resident_bytes(); }
  /// Bytes of activations that forward() takes for a sequence of `num_rows` rows on a device of
  /// that kind, without the scratch of single ops.
  [[nodiscard]] static std::size_t activation_bytes(const DitConfig& config, std::int64_t num_rows,
                                                    BlockPrecision precision, DeviceKind device);

  /// Text rows as the blocks see them: condition_proj, refiner, final norm. Depends on neither time
  /// nor noise, so it is called once a request. Reads the refiner and releases it.
  ///   text_hidden [L, text_dim] f32, L >= 1 · returns [L, D] f32
  [[nodiscard]] Result<Tensor> refine_text(OpContext& ctx, ConstTensorView text_hidden);

  /// Adds the AdaLN outputs for `times` to `modulation`, reading each AdaLN projection at most
  /// once. Call it with a whole schedule's times before the first step.
  [[nodiscard]] Status prepare_modulation(OpContext& ctx, std::span<const float> times,
                                          ModulationCache& modulation);

  /// One evaluation. Times that `modulation` lacks are prepared first. A NaN or infinity in the
  /// residual stream or in the result is the error "non-finite velocity", naming the first block
  /// behind which it shows.
  [[nodiscard]] Result<DitOutput> forward(OpContext& ctx, const DitInput& input,
                                          ModulationCache& modulation,
                                          const BlockProgress& progress = {});

 private:
  Dit(WeightSource& weights, Precision precision, Precision attention, const DitConfig& config,
      DitIslands islands, std::unique_ptr<LayerSource> own_blocks, LayerSource* blocks);

  void embed_rows(OpContext& ctx, const DitInput& input, TensorView h) const;
  /// `z` [rows at a time, D] is room for normalised rows.
  [[nodiscard]] DitOutput run_heads(OpContext& ctx, const DitInput& input, ConstTensorView h,
                                    const RowTimesteps& timesteps,
                                    const ModulationCache& modulation, TensorView z) const;

  WeightSource* weights_;
  Precision precision_;
  Precision attention_;
  DitConfig config_;
  DitIslands islands_;
  std::vector<float> inv_freq_;
  std::unique_ptr<LayerSource> own_blocks_;
  LayerSource* blocks_;  ///< own_blocks_, or the caller's
};

}  // namespace miniacc
