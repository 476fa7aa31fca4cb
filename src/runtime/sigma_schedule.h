#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// Noise levels of the two streams; both walk their lists in step, one forward per interval.
struct SigmaSchedule {
  std::vector<float> video;  ///< strictly falling from at most 1 to exactly 0
  std::vector<float> audio;  ///< the same length

  [[nodiscard]] std::size_t num_forwards() const { return video.size() - 1; }
};

/// `shift·b / (1 + (shift - 1)·b)` in float, as the reference evaluates it. Source: spec §6.1.
float shift_sigma(float base, float shift);

/// torch.linspace(1, 0, num_points) in float.
std::vector<float> base_grid(std::int64_t num_points);

/// A named way of sampling: its shifts and the unshifted grid (spec model.md §6.3).
struct Recipe {
  std::string name;
  std::string description;
  float video_shift = 12.0F;
  float audio_shift = 3.0F;
  std::vector<float> base;  ///< unshifted grid, 1 … 0

  [[nodiscard]] std::int64_t num_forwards() const {
    return static_cast<std::int64_t>(base.size()) - 1;
  }
};

/// Every recipe, in the order in which --help lists them.
const std::vector<Recipe>& all_recipes();
const Recipe* find_recipe(std::string_view name);

/// What a request may change about a recipe.
struct ScheduleOptions {
  std::string recipe = "base";
  std::optional<std::int64_t> steps =
      std::nullopt;  ///< forwards on a uniform grid instead of the recipe's own
  std::optional<float> video_shift = std::nullopt;
  std::optional<float> audio_shift = std::nullopt;
  std::vector<float> video_sigmas =
      {};  ///< explicit; the audio list is derived unless given as well
  std::vector<float> audio_sigmas = {};
};

/// kInvalidArgument names the option that contradicts another or is out of range.
[[nodiscard]] Result<SigmaSchedule> make_schedule(const ScheduleOptions& options);

}  // namespace miniacc
