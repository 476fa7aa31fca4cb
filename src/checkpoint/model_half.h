#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace miniacc {

/// MiniMax-H3 comes as two transformers of one architecture: FL2VA makes clips from text and
/// keyframes, Ref2VA from references. Tensor names and shapes are identical.
enum class ModelHalf { kFl2va, kRef2va };

/// "FL2VA", "Ref2VA".
[[nodiscard]] std::string_view half_name(ModelHalf half);
/// "fl2va" or "ref2va".
[[nodiscard]] std::optional<ModelHalf> parse_half(std::string_view name);

struct HalfEvidence {
  std::optional<ModelHalf> half;
  std::string reason;  ///< what says so: "its folder is named Ref2VA"; empty when nothing does
};

/// Which half a transformer file or folder is, by what surrounds it, first match wins:
///   - for a folder `transformer`, the model_index.json beside it: `partition` ("fl2va", "ref2va"),
///     or the diffusers layout, which keeps Ref2VA in `transformer_ref`;
///   - the name of the file, then of the two folders above it, nearest first: …fl2v…, …ref2v… or
///     transformer_ref…;
///   - `transformer` beside a `transformer_ref`.
/// Nothing inside the tensors tells (spec model.md §2.7), so no weight is read.
[[nodiscard]] HalfEvidence detect_half(const std::filesystem::path& transformer);

}  // namespace miniacc
