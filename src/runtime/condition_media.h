#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/image.h"
#include "runtime/conditions.h"

namespace miniacc {

/// The pixels and samples of one condition, as both encoders get them.
struct ConditionMedia {
  /// A picture is a clip of one frame; a video has every frame that the text encoder samples from,
  /// of which the first Condition::num_encoded_frames() go to the video VAE. Empty for sound.
  RgbClip frames;
  std::optional<StereoSound> sound;  ///< 32 kHz
};

/// What the header of a condition's file says. Errors name the file.
[[nodiscard]] Result<SourceInfo> probe_condition(const Condition& condition);
/// How prepare_request() learns about files; tests put descriptions in its place.
using ConditionProbe = std::function<Result<SourceInfo>(const Condition& condition)>;

/// Size and time of change of a file, or of the files in a folder: what differs after a change.
[[nodiscard]] Result<std::string> file_stamp(const std::filesystem::path& path);

/// SHA-256 in hex of a file's bytes; of a folder: of name and bytes of its files in order of names.
[[nodiscard]] Result<std::string> content_sha256(const std::filesystem::path& path);

/// Puts a keyframe onto the clip's canvas the way request.keyframe_fit says. Source: spec model.md
/// §4.5, demands.md I05.
[[nodiscard]] RgbImage fit_keyframe_pixels(const RgbImage& image, const Condition& condition,
                                           const GenerateRequest& request);

/// Decodes a condition and brings it to its size; `condition` then tells what really was there, and
/// has the content's hash. kInvalidInput when the file is not the one that was checked: its stamp
/// or, where the request has one, its hash differs.
[[nodiscard]] Result<ConditionMedia> read_condition(Condition& condition,
                                                    const GenerateRequest& request,
                                                    const ClipGeometry& clip,
                                                    const ConditionRules& rules,
                                                    std::vector<std::string>& notes);

}  // namespace miniacc
