#include "runtime/adapter_wishes.h"

#include <fmt/format.h>

#include "adapters/lora.h"
#include "runtime/lora_tags.h"
#include "runtime/sigma_schedule.h"

namespace miniacc {
namespace {

struct Wish {
  std::string file;
  const Recipe* recipe = nullptr;
  std::string_view source;
};

bool same_schedule(const Recipe& a, const Recipe& b) {
  return a.video_shift == b.video_shift && a.audio_shift == b.audio_shift && a.base == b.base;
}

std::string describe(const Recipe& recipe) {
  return fmt::format("{} ({} forwards, shifts {:g} / {:g})", recipe.name, recipe.num_forwards(),
                     recipe.video_shift, recipe.audio_shift);
}

Status take_tags(GenerateRequest& request) {
  MINIACC_ASSIGN(TaggedPrompt tagged, split_lora_tags(request.prompt));
  if (tagged.tags.empty()) {
    return {};
  }
  if (request.lora_dir.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the prompt has <lora:{}>, and no --lora-dir says where such files are",
                            tagged.tags.front().name));
  }
  for (const TaggedPrompt::Tag& tag : tagged.tags) {
    LoraRequest& lora = request.loras.emplace_back();
    MINIACC_ASSIGN(lora.path, find_lora_file(request.lora_dir, tag.name));
    lora.strength = tag.weight;
  }
  request.prompt = std::move(tagged.prompt);
  return {};
}

/// Steps, shifts and sigmas of the request that are not the recipe's.
std::vector<std::string> contradictions(const SamplingOptions& sampling, const Recipe& recipe) {
  std::vector<std::string> found;
  if (sampling.steps && *sampling.steps != recipe.num_forwards()) {
    found.push_back(fmt::format("--steps {}", *sampling.steps));
  }
  if (sampling.video_shift && *sampling.video_shift != recipe.video_shift) {
    found.push_back(fmt::format("--flow-shift {:g}", *sampling.video_shift));
  }
  if (sampling.audio_shift && *sampling.audio_shift != recipe.audio_shift) {
    found.push_back(fmt::format("--audio-flow-shift {:g}", *sampling.audio_shift));
  }
  const auto schedule = make_schedule({.recipe = recipe.name});
  if (!sampling.video_sigmas.empty() && schedule && sampling.video_sigmas != schedule->video) {
    found.emplace_back("--sigmas");
  }
  if (!sampling.audio_sigmas.empty() && schedule && sampling.audio_sigmas != schedule->audio) {
    found.emplace_back("--audio-sigmas");
  }
  return found;
}

Status apply_recipe(GenerateRequest& request, const std::vector<Wish>& wishes,
                    AdapterWishes& result) {
  if (wishes.empty()) {
    return {};
  }
  if (wishes.size() > 1) {
    result.warnings.push_back(
        fmt::format("{} and {} are both few-step adapters; each was made to be used without the "
                    "other",
                    wishes[0].file, wishes[1].file));
  }
  SamplingOptions& sampling = request.sampling;
  if (!sampling.recipe.empty()) {
    const Recipe* given = find_recipe(sampling.recipe);  // make_schedule refuses a name of nothing
    for (const Wish& wish : wishes) {
      if (given != nullptr && !same_schedule(*given, *wish.recipe)) {
        result.warnings.push_back(fmt::format("{} was made for recipe {}; --recipe {} is used",
                                              wish.file, describe(*wish.recipe), given->name));
      }
    }
  } else {
    for (const Wish& wish : wishes) {
      if (!same_schedule(*wish.recipe, *wishes.front().recipe)) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} wants recipe {} and {} wants {}; choose one with --recipe",
                                wishes.front().file, describe(*wishes.front().recipe), wish.file,
                                describe(*wish.recipe)));
      }
    }
    const Wish& wish = wishes.front();
    sampling.recipe = wish.recipe->name;
    result.notes.push_back(fmt::format("{} asks for recipe {}, told by {}", wish.file,
                                       describe(*wish.recipe), wish.source));
  }
  const Recipe* used = find_recipe(sampling.recipe);
  if (used != nullptr) {
    for (const std::string& option : contradictions(sampling, *wishes.front().recipe)) {
      result.warnings.push_back(fmt::format("{} is used, though {} was made for recipe {}", option,
                                            wishes.front().file, describe(*wishes.front().recipe)));
    }
  }
  return {};
}

}  // namespace

Result<AdapterWishes> apply_adapter_wishes(GenerateRequest& request) {
  MINIACC_RETURN_IF_ERROR(take_tags(request));
  AdapterWishes result;
  std::vector<Wish> wishes;
  for (const LoraRequest& lora : request.loras) {
    MINIACC_RETURN_IF_ERROR(check_lora_request(lora));
    MINIACC_ASSIGN(const TensorFile file, TensorFile::open(lora.path));
    MINIACC_ASSIGN(AdapterIdentity identity, identify_adapter(file));
    if (!identity.recipe.empty() && lora.strength != 0.0F) {
      const Recipe* recipe = find_recipe(identity.recipe);
      if (recipe == nullptr) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: {} asks for recipe '{}', which does not exist; `miniacc "
                                "recipes` lists them, --recipe chooses one",
                                lora.path.string(), known_by_name(identity.recipe_by),
                                identity.recipe.substr(0, 64)));
      }
      wishes.push_back({lora.path.string(), recipe, known_by_name(identity.recipe_by)});
    } else if (identity.like_few_step && request.sampling.recipe.empty()) {
      result.warnings.push_back(
          fmt::format("{}: its tensors are those of a few-step adapter, and nothing tells for "
                      "which schedule it was made; choose one with --recipe",
                      lora.path.string()));
    }
    result.identities.push_back(std::move(identity));
  }
  MINIACC_RETURN_IF_ERROR(apply_recipe(request, wishes, result));
  return result;
}

}  // namespace miniacc
