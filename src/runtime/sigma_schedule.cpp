#include "runtime/sigma_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace miniacc {
namespace {

constexpr std::int64_t kMaxForwards = 999;

/// The base of a shifted sigma: the inverse of shift_sigma.
float unshift_sigma(float sigma, float shift) { return sigma / (shift - (shift - 1.0F) * sigma); }

std::vector<float> shifted(const std::vector<float>& base, float shift) {
  std::vector<float> sigmas;
  sigmas.reserve(base.size());
  for (const float value : base) {
    sigmas.push_back(shift_sigma(value, shift));
  }
  return sigmas;
}

/// Points `indices` of the official 50-point grid.
std::vector<float> points_of_base(std::initializer_list<std::size_t> indices) {
  const std::vector<float> grid = base_grid(50);
  std::vector<float> points;
  for (const std::size_t index : indices) {
    points.push_back(grid.at(index));
  }
  return points;
}

std::vector<Recipe> make_recipes() {
  return {
      {"base", "the base model: 50 grid points, 49 forwards", 12.0F, 3.0F, base_grid(50)},
      {"lightx2v4", "lightx2v FL2VA 4-step LoRA (544p)", 12.0F, 3.0F, base_grid(5)},
      {"lightx2v4-768p", "lightx2v FL2VA 4-step LoRA (768p)", 6.0F, 3.0F, base_grid(5)},
      {"lightx2v8", "lightx2v FL2VA 8-step LoRA (544p)", 12.0F, 3.0F, base_grid(9)},
      {"larry6", "larryvrh Turbo LoRA, the author's 6 steps", 12.0F, 3.0F, base_grid(7)},
      {"turbo4", "Minimax-H3-Turbo 768p LoRA, 4 steps", 6.0F, 3.0F, base_grid(5)},
      {"turbo8", "Minimax-H3-Turbo 768p LoRA, 8 steps", 6.0F, 3.0F, base_grid(9)},
      {"fasth3-4",
       "FastH3 4-step checkpoint (dense)",
       12.0F,
       3.0F,
       {0.999F, 0.749F, 0.5F, 0.25F, 0.0F}},
      {"taomate3", "TaoMate-H3 LoRA: points 0, 16, 33, 49 of the base grid", 12.0F, 3.0F,
       points_of_base({0, 16, 33, 49})},
      {"pdd8", "alibaba-pai Acc LoRA with output heads (PDD): 8 blocks of 4 of 32 intervals", 12.0F,
       3.0F, base_grid(9)},
      {"pdmd2", "PDMD LoRA, 2 steps", 12.0F, 3.0F, base_grid(3)},
  };
}

Status check_sigmas(std::string_view option, const std::vector<float>& sigmas) {
  if (sigmas.size() < 2) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} needs at least two values, got {}", option, sigmas.size()));
  }
  for (std::size_t i = 0; i < sigmas.size(); ++i) {
    const bool falls = i == 0 || sigmas[i] < sigmas[i - 1];
    if (!(sigmas[i] >= 0.0F && sigmas[i] <= 1.0F) || !falls) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} must fall strictly from at most 1 to 0, got {}", option,
                              fmt::join(sigmas, ",")));
    }
  }
  if (sigmas.back() != 0.0F) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} must end in 0, got {}", option, fmt::join(sigmas, ",")));
  }
  return {};
}

Status check_shift(std::string_view option, float shift) {
  if (!(shift >= 0.01F && shift <= 1000.0F)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} must lie in 0.01 … 1000, got {}", option, shift));
  }
  return {};
}

std::string recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : all_recipes()) {
    names.push_back(recipe.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

float shift_sigma(float base, float shift) { return shift * base / (1.0F + (shift - 1.0F) * base); }

std::vector<float> base_grid(std::int64_t num_points) {
  MINIACC_REQUIRE(num_points >= 2, "base_grid: at least two points");
  // torch fills a float linspace from both ends with one rounded step.
  const float step = -1.0F / static_cast<float>(num_points - 1);
  std::vector<float> grid(static_cast<std::size_t>(num_points));
  for (std::int64_t i = 0; i < num_points; ++i) {
    grid[static_cast<std::size_t>(i)] = i < num_points / 2
                                            ? std::fma(step, static_cast<float>(i), 1.0F)
                                            : 0.0F - step * static_cast<float>(num_points - 1 - i);
  }
  return grid;
}

const std::vector<Recipe>& all_recipes() {
  static const std::vector<Recipe> recipes = make_recipes();
  return recipes;
}

const Recipe* find_recipe(std::string_view name) {
  const auto& recipes = all_recipes();
  const auto found = std::find_if(recipes.begin(), recipes.end(),
                                  [&](const Recipe& recipe) { return recipe.name == name; });
  return found == recipes.end() ? nullptr : &*found;
}

Result<SigmaSchedule> make_schedule(const ScheduleOptions& options) {
  const Recipe* recipe = find_recipe(options.recipe);
  if (recipe == nullptr) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no recipe '{}'; choose one of {}", options.recipe, recipe_names()));
  }
  const float video_shift = options.video_shift.value_or(recipe->video_shift);
  const float audio_shift = options.audio_shift.value_or(recipe->audio_shift);
  MINIACC_RETURN_IF_ERROR(check_shift("--flow-shift", video_shift));
  MINIACC_RETURN_IF_ERROR(check_shift("--audio-flow-shift", audio_shift));

  if (!options.video_sigmas.empty()) {
    if (options.steps) {
      return fail(ErrorCode::kInvalidArgument,
                  "--sigmas already gives the number of steps; leave --steps out");
    }
    MINIACC_RETURN_IF_ERROR(check_sigmas("--sigmas", options.video_sigmas));
    SigmaSchedule schedule{options.video_sigmas, options.audio_sigmas};
    if (schedule.audio.empty()) {
      for (const float sigma : options.video_sigmas) {
        schedule.audio.push_back(shift_sigma(unshift_sigma(sigma, video_shift), audio_shift));
      }
    }
    MINIACC_RETURN_IF_ERROR(check_sigmas("--audio-sigmas", schedule.audio));
    if (schedule.audio.size() != schedule.video.size()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--audio-sigmas has {} values and --sigmas {}; both streams walk "
                              "together",
                              schedule.audio.size(), schedule.video.size()));
    }
    return schedule;
  }
  if (!options.audio_sigmas.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--audio-sigmas needs --sigmas beside it");
  }
  if (options.steps && (*options.steps < 1 || *options.steps > kMaxForwards)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--steps must lie in 1 … {}, got {}", kMaxForwards, *options.steps));
  }
  const std::vector<float> base = options.steps && *options.steps != recipe->num_forwards()
                                      ? base_grid(*options.steps + 1)
                                      : recipe->base;
  SigmaSchedule schedule{shifted(base, video_shift), shifted(base, audio_shift)};
  MINIACC_RETURN_IF_ERROR(check_sigmas("the video schedule", schedule.video));
  MINIACC_RETURN_IF_ERROR(check_sigmas("the audio schedule", schedule.audio));
  return schedule;
}

}  // namespace miniacc
