#include "adapters/known_adapters.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "adapters/adapter_names.h"
#include "io/sha256.h"

namespace miniacc {
namespace {

// A file whose stem contains another one's stands before it.
constexpr std::array kKnownAdapters = {
    KnownAdapter{.sha256 = "",
                 .stem = "minimax_h3_fl2v_turbo_4step_v0.1_768p_sla",
                 .recipe = "lightx2v4-768p",
                 .half = "fl2va",
                 .sparse = true},
    KnownAdapter{.sha256 = "5ff4a12c8b4599fec716e1b15a45e504e0d1129111896bdcde5ac4a15e395b29",
                 .size_bytes = 1383677888,
                 .stem = "minimax_h3_fl2v_turbo_4step_v0.1",
                 .alpha = 8.0,
                 .recipe = "lightx2v4",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "1bdabc2e",
                 .size_bytes = 1383677808,
                 .stem = "minimax_h3_fl2v_turbo_4step_v1.0_768p",
                 .alpha = 128.0,
                 .recipe = "lightx2v4-768p",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "b5e25a59",
                 .stem = "minimax_h3_fl2v_turbo_4step_v1.1_768p",
                 .alpha = 128.0,
                 .recipe = "lightx2v4-768p",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "",
                 .stem = "minimax_h3_fl2v_turbo_4step_v1.2_768p",
                 .alpha = 8.0,
                 .recipe = "lightx2v4-768p",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "",
                 .stem = "minimax_h3_fl2v_turbo_8step_v1.0_768p",
                 .alpha = 8.0,
                 .recipe = "turbo8",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "e16ac208",
                 .size_bytes = 1383677768,
                 .stem = "minimax_h3_fl2v_turbo_8step_v1.0",
                 .alpha = 8.0,
                 .recipe = "lightx2v8",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "9e642fc8",
                 .stem = "minimax_h3_ref2v_turbo_4step_v0.1",
                 .alpha = 8.0,
                 .recipe = "lightx2v4",
                 .half = "ref2va"},
    // The alpha of this one is in its metadata and not published elsewhere.
    KnownAdapter{.sha256 = "",
                 .stem = "minimax_h3_ref2v_turbo_8step_v1.0_768p",
                 .recipe = "turbo8",
                 .half = "ref2va"},
    KnownAdapter{.sha256 = "5f3a626c",
                 .size_bytes = 779849816,
                 .stem = "minimax_h3_turbo_v4_step600_ema",
                 .recipe = "larry6",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "4ce198c8",
                 .size_bytes = 1485626152,
                 .stem = "fasth3-4-step-preview-v1-lora",
                 .recipe = "fasth3-4",
                 .half = "fl2va"},
    KnownAdapter{.sha256 = "42dc502a",
                 .size_bytes = 5339117712,
                 .stem = "fasth3-4-step-preview-v1-vsa",
                 .recipe = "fasth3-4",
                 .half = "fl2va",
                 .sparse = true},
    KnownAdapter{.sha256 = "", .stem = "taomate-h3", .recipe = "taomate3", .half = "fl2va"},
};

// Hashing a file that the table can hardly hold is not worth the wait.
constexpr std::size_t kSmallestPublished = std::size_t{64} << 20;
// Blocks × (qkv, out, fc1, fc2) pairs, and AdaLN pairs of blocks and final layer.
constexpr std::size_t kLarryTensors = 416 + 102;
// 52 blocks × 6 or 4 layers × 2 factors.
constexpr std::size_t kLightx2vSplit = 624;
constexpr std::size_t kLightx2vFused = 416;
constexpr std::int64_t kLightx2vRank = 128;
// Rows of one output head of the released model.
constexpr std::int64_t kVideoRows = 96;
constexpr std::int64_t kAudioRows = 32;
constexpr std::int64_t kLarryRank = 64;
constexpr std::int64_t kLarryAdalnRank = 16;

bool worth_hashing(const TensorFile& file, std::span<const KnownAdapter> table) {
  std::size_t size = 0;
  for (const MappedFile& part : file.files()) {
    size += part.bytes().size();
  }
  return std::ranges::any_of(table, [&](const KnownAdapter& known) {
    return !known.sha256.empty() &&
           (known.size_bytes == size || (known.size_bytes == 0 && size >= kSmallestPublished));
  });
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Status look_up(const TensorFile& file, std::span<const KnownAdapter> table,
               AdapterIdentity& identity) {
  if (worth_hashing(file, table)) {
    MINIACC_ASSIGN(const std::string digest, sha256_of_file(file.path()));
    for (const KnownAdapter& known : table) {
      if (!known.sha256.empty() && digest.starts_with(known.sha256)) {
        identity.known = &known;
        identity.known_by = KnownBy::kContent;
        return {};
      }
    }
  }
  const std::string name = lower(file.path().filename().string());
  for (const KnownAdapter& known : table) {
    if (name.find(known.stem) != std::string::npos) {
      identity.known = &known;
      identity.known_by = KnownBy::kName;
      return {};
    }
  }
  return {};
}

/// larryvrh's releases: bare official names, rank 64 in blocks and refiner, 16 in AdaLN.
bool has_larry_tensors(const TensorFile& file) {
  if (file.entries().size() != kLarryTensors) {
    return false;
  }
  return std::ranges::all_of(file.entries(), [](const TensorEntry& entry) {
    const auto name = parse_adapter_name(entry.name);
    if (!name || !name->prefix.empty() || name->vocabulary != AdapterVocabulary::kOfficial ||
        entry.shape.rank() != 2) {
      return false;
    }
    const std::int64_t rank = name->role == AdapterRole::kDown ? entry.shape[0] : entry.shape[1];
    const bool adaln = name->module.find("adaln_proj") != std::string::npos;
    return rank == (adaln ? kLarryAdalnRank : kLarryRank);
  });
}

/// A bank of more output heads than one: [heads, rows, D], or [heads · rows, D] as ComfyUI has it.
bool is_head_bank(const TensorEntry& entry) {
  const auto name = parse_adapter_name(entry.name);
  if (!name || name->role != AdapterRole::kReplacement || entry.name.ends_with(".bias")) {
    return false;
  }
  const bool video = name->module == "final_layer.video_out";
  const bool audio = name->module == "final_layer.audio_out";
  return (video || audio) &&
         (entry.shape.rank() == 3 ||
          (entry.shape.rank() == 2 && entry.shape[0] > (video ? kVideoRows : kAudioRows)));
}

/// lightx2v's releases, split (624 tensors) or fused (416, with or without alpha for each pair).
bool has_lightx2v_tensors(const TensorFile& file) {
  std::size_t weights = 0;
  for (const TensorEntry& entry : file.entries()) {
    const auto name = parse_adapter_name(entry.name);
    if (!name) {
      return false;
    }
    if (name->role == AdapterRole::kAlpha) {
      continue;
    }
    if ((name->role != AdapterRole::kDown && name->role != AdapterRole::kUp) ||
        entry.shape.rank() != 2) {
      return false;
    }
    ++weights;
    const std::int64_t rank = name->role == AdapterRole::kDown ? entry.shape[0] : entry.shape[1];
    const bool fused =
        name->vocabulary == AdapterVocabulary::kOfficial && name->module.ends_with("qkv_proj");
    if (rank != (fused ? 3 * kLightx2vRank : kLightx2vRank)) {
      return false;
    }
  }
  return weights == kLightx2vSplit || weights == kLightx2vFused;
}

}  // namespace

std::span<const KnownAdapter> known_adapters() { return kKnownAdapters; }

std::string_view known_by_name(KnownBy by) {
  switch (by) {
    case KnownBy::kNothing:
      return "nothing";
    case KnownBy::kMetadata:
      return "its metadata";
    case KnownBy::kHeadBanks:
      return "its head banks";
    case KnownBy::kContent:
      return "table of known files";
    case KnownBy::kName:
      return "table of known file names";
    case KnownBy::kTensors:
      return "table of known tensors";
  }
  MINIACC_REQUIRE(false, "known_by_name: unknown source");
}

Result<AdapterIdentity> identify_adapter(const TensorFile& file,
                                         std::span<const KnownAdapter> table) {
  AdapterIdentity identity;
  MINIACC_RETURN_IF_ERROR(look_up(file, table, identity));
  if (identity.known != nullptr) {
    identity.recipe = identity.known->recipe;
    identity.recipe_by = identity.known_by;
    identity.half = identity.known->half;
    identity.half_by = identity.half.empty() ? KnownBy::kNothing : identity.known_by;
    identity.sparse = identity.known->sparse;
  }
  const auto& metadata = file.metadata();
  if (const auto recipe = metadata.find("recipe"); recipe != metadata.end()) {
    identity.recipe = recipe->second;
    identity.recipe_by = KnownBy::kMetadata;
  } else if (metadata.contains("pdd_num_steps") ||
             std::ranges::any_of(file.entries(), is_head_bank)) {
    identity.recipe = "pdd8";
    identity.recipe_by =
        metadata.contains("pdd_num_steps") ? KnownBy::kMetadata : KnownBy::kHeadBanks;
  } else if (identity.recipe.empty() && has_larry_tensors(file)) {
    identity.recipe = "larry6";
    identity.recipe_by = KnownBy::kTensors;
    identity.half = "fl2va";
    identity.half_by = KnownBy::kTensors;
  }
  identity.like_few_step = identity.recipe.empty() && has_lightx2v_tensors(file);
  return identity;
}

}  // namespace miniacc
