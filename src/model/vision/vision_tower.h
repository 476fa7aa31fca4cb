#pragma once

#include <span>
#include <vector>

#include "core/image.h"
#include "core/weight_source.h"
#include "kernels/op_context.h"
#include "model/common/layer_progress.h"
#include "model/vision/vision_config.h"
#include "model/vision/vision_grid.h"

namespace miniacc {

/// What the language layers get of one grid, on the device that computed it.
struct VisionFeatures {
  Tensor merged;  ///< [grid.num_tokens(), out_size] f32: takes the place of pad embeddings
  /// One per DeepStack block, of the same shape: added behind the first language layers.
  std::vector<Tensor> deepstack;
};

/// One grid: a picture, or the two frames of a pair, of one size with sides that are multiples of
/// 32. The pictures outlive the call.
struct VisionInput {
  std::span<const RgbImage> frames;
};

/// The vision tower over every input; inputs never see each other, and one entry a input comes
/// back, in order. Each layer's weights are read once, used for all inputs and released.
///   weights    the text encoder's; `config` is read_vision_config() of them
///   precision  of the linear layers and the attention products; kInt8 runs as bf16, in which int8
///              files keep the tower. Norms and the residual stream are f32
/// Memory beside one layer's weights grows linearly with patches: the residual stream of every grid
/// (4 bytes times hidden a patch) and four times that for the largest grid, half as much again of
/// it in bf16. A picture of 65,536 patches at width 1152 takes 0.3 + 1.2 GB in f32.
/// kInternal names the block behind which a value is not finite.
/// Source: spec text_encoder.md §5.
[[nodiscard]] Result<std::vector<VisionFeatures>> run_vision_tower(
    OpContext& ctx, WeightSource& weights, const VisionConfig& config,
    std::span<const VisionInput> inputs, Precision precision, const LayerProgress& progress = {});

/// The same for one grid given as its patch rows (patches.h), [grid.num_patches(), 1536] f32
/// in host memory.
[[nodiscard]] Result<VisionFeatures> run_vision_tower(OpContext& ctx, WeightSource& weights,
                                                      const VisionConfig& config,
                                                      ConstTensorView patch_rows,
                                                      const VisionGrid& grid, Precision precision,
                                                      const LayerProgress& progress = {});

}  // namespace miniacc
