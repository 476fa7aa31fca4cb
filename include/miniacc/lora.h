#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

/// Adapters as requests and results speak of them.
namespace miniacc {

/// A low-rank adapter to merge into the transformer; docs/adapters.md says which files are read.
struct LoraRequest {
  std::filesystem::path path;
  float strength = 1.0F;                      ///< 0 changes no bit
  std::optional<float> alpha = std::nullopt;  ///< in place of what the file says
};

/// What became of one adapter.
struct LoraReport {
  std::filesystem::path path;
  float strength = 0.0F;
  std::string family;        ///< "diffusers", "official", "DiffSynth" or "lora_unet"
  std::string alpha_source;  ///< where the scale comes from
  double min_scale = 1.0;    ///< alpha / rank over its modules, without strength
  double max_scale = 1.0;
  std::int64_t min_rank = 0;  ///< 0: no low-rank pair
  std::int64_t max_rank = 0;
  std::int64_t num_modules = 0;  ///< low-rank pairs and dense changes that are merged
  std::int64_t matched = 0;      ///< tensors of the file that are used
  std::int64_t unmatched = 0;    ///< tensors whose module the checkpoint does not have
  std::int64_t rejected = 0;     ///< tensors that this form of the checkpoint cannot take
};

}  // namespace miniacc
