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
  /// The half of MiniMax-H3 that it is for, in place of what the file says: "fl2va" or "ref2va".
  std::string half = {};
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
  std::int64_t num_modules = 0;   ///< low-rank pairs and dense changes that are merged
  std::int64_t matched = 0;       ///< tensors of the file that are used
  std::int64_t unmatched = 0;     ///< tensors whose module the checkpoint does not have
  std::int64_t rejected = 0;      ///< tensors that this form of the checkpoint cannot take
  std::int64_t other_half = 0;    ///< tensors for the other half of MiniMax-H3
  std::int64_t projected = 0;     ///< AdaLN changes carried over to a pruned checkpoint's curve
  std::int64_t head_steps = 0;    ///< output heads of a PDD adapter; 0: none
  std::string half;               ///< "fl2va", "ref2va", or empty: nothing tells
  std::string recipe;             ///< the schedule it was made for; empty: nothing tells
  std::string recipe_source;      ///< what tells it
  bool sparse_attention = false;  ///< it was trained with block-sparse attention
  std::string mode = "merge";     ///< how blocks take it: "merge" or "side"
};

}  // namespace miniacc
