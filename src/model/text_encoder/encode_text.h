#pragma once

#include <cstdint>
#include <span>

#include "core/weight_source.h"
#include "kernels/op_context.h"
#include "model/common/layer_progress.h"
#include "model/common/layer_source.h"
#include "model/text_encoder/config.h"
#include "model/vision/vision_grid.h"
#include "model/vision/vision_tower.h"

namespace miniacc {

/// The language layers that run.
[[nodiscard]] LayerStack text_layer_stack(const TextEncoderConfig& config, Precision precision);

/// A run of pad rows in a presentation and what takes their place.
struct VisualSpan {
  std::int64_t first = 0;  ///< row of the first pad; grid.num_tokens() of them follow
  VisionGrid grid;
  const VisionFeatures* features = nullptr;  ///< of this grid; outlives the call
};

/// The hidden state that conditions the transformer: the residual stream behind the last used
/// layer, without a final norm (spec text_encoder.md §1, §4). One causal pass over the
/// presentation; of the embedding table only the rows of `ids` are read.
///   ids      token ids of the presentation, at least one (else InternalError)
///   visuals  its vision blocks in rising order, without overlap (else InternalError). Their pad
///            rows hold features.merged instead of an embedding, take two-dimensional positions
///            (mrope.h), and get deepstack[j] added between layers j and j + 1 (§5.6)
///   returns  [T, hidden] f32
/// Precision is that of the linear layers (and, unless kF32, of the attention products: bf16); the
/// residual stream and norms are f32, because its largest channels overflow f16 (§4.3). An id
/// without an embedding row is kInvalidInput: tokenizer and weights are not of one model. A
/// non-finite result is an error. Layers come from `layers`, a source of text_layer_stack()'s
/// layers; without one each is read, used and released.
[[nodiscard]] Result<Tensor> encode_text(OpContext& ctx, WeightSource& weights,
                                         const TextEncoderConfig& config,
                                         std::span<const std::int32_t> ids,
                                         std::span<const VisualSpan> visuals, Precision precision,
                                         const LayerProgress& progress = {},
                                         LayerSource* layers = nullptr);

/// The same for a presentation of text alone.
[[nodiscard]] Result<Tensor> encode_text(OpContext& ctx, WeightSource& weights,
                                         const TextEncoderConfig& config,
                                         std::span<const std::int32_t> ids, Precision precision,
                                         const LayerProgress& progress = {});

}  // namespace miniacc
