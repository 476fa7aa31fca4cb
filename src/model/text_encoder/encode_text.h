#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/weight_source.h"
#include "kernels/op_context.h"
#include "model/text_encoder/config.h"

namespace miniacc {

/// Called after each layer with the number of finished ones.
using LayerProgress = std::function<void(std::int64_t finished, std::int64_t total)>;

/// The hidden state that conditions the transformer: the residual stream behind the last used
/// layer, without a final norm (spec text_encoder.md §1, §4). One causal pass over the
/// presentation; each layer is read, used and released, and of the embedding table only the rows of
/// `ids`.
///   ids      token ids of a text-only presentation, at least one (else InternalError)
///   returns  [T, hidden] f32
/// Precision is that of the linear layers (and, unless kF32, of the attention products: bf16); the
/// residual stream and norms are f32, because its largest channels overflow f16 (§4.3). An id
/// without an embedding row is kInvalidInput: tokenizer and weights are not of one model. A
/// non-finite result is an error.
[[nodiscard]] Result<Tensor> encode_text(OpContext& ctx, WeightSource& weights,
                                         const TextEncoderConfig& config,
                                         std::span<const std::int32_t> ids, Precision precision,
                                         const LayerProgress& progress = {});

}  // namespace miniacc
