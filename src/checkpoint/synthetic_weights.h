#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/open_component.h"
#include "checkpoint/synthetic_model.h"

namespace miniacc {

/// A made-up model that lies in no file: its weights are computed when they are asked for.
struct SyntheticSpec {
  SyntheticSize size = SyntheticSize::kTiny;
  /// kInt8: the pruned transformer and the text encoder as ConvRot int8, as published;
  /// otherwise the complete transformer, every matrix in this type.
  Precision stored = Precision::kBF16;
  std::uint64_t seed = 0;
};

/// "synthetic:full-int8", "synthetic:tiny-bf16", "synthetic:small-f32": sizes tiny, small, full;
/// types f32, bf16, int8. Empty for a text without the prefix; kInvalidArgument, with what there
/// is, for another size or type.
[[nodiscard]] Result<std::optional<SyntheticSpec>> parse_synthetic(std::string_view text);
[[nodiscard]] std::string synthetic_name(const SyntheticSpec& spec);

/// One component of a made-up model, for measurements and for plans that need no file. The values
/// of f32 and bf16 are those that make_checkpoint writes for the same size and seed. Int8 matrices
/// are drawn as int8 (normal, full range), since rotating and quantising 20 GB to get random
/// numbers would take minutes. Nothing is kept: each load computes its tensor.
[[nodiscard]] Result<std::unique_ptr<ComponentWeights>> open_synthetic(const SyntheticSpec& spec,
                                                                       Component component);

}  // namespace miniacc
