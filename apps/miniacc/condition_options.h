#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "miniacc/miniacc.h"

namespace miniacc {

/// Flags that name files which a clip is conditioned on.
struct ConditionFlags {
  std::string init_image;
  std::string end_image;
  std::vector<std::string> ref_images;
  std::vector<std::string> ref_videos;
  std::vector<std::string> ref_videos_with_sound;
  std::vector<std::string> ref_sounds;
  std::string ref_image_size;
  std::string keyframe_fit;
  std::string background;
};
void add_condition_options(CLI::App& command, ConditionFlags& flags);

/// Puts the flags that were given into the request; references keep their order on the command
/// line, across all four flags, and replace those of the request.
[[nodiscard]] Status apply_condition_flags(const CLI::App& command, const ConditionFlags& flags,
                                           GenerateRequest& request);

}  // namespace miniacc
