#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/tensor_file.h"

namespace miniacc {

/// What a published adapter is for, where its file does not tell.
struct KnownAdapter {
  std::string_view sha256;  ///< first digits of the whole file's; empty where nobody published it
  std::size_t size_bytes = 0;  ///< of the file with that digest; 0: not published
  std::string_view stem;       ///< part of its published file name, in lower case
  std::optional<double> alpha = std::nullopt;
  std::string_view recipe = {};  ///< a name that `miniacc recipes` lists
  std::string_view half = {};    ///< "fl2va" or "ref2va": the weights it was trained on
  bool sparse = false;           ///< trained with block-sparse attention
};
/// Source: spec adapters.md §1, §4, §13; acceleration_full.md §7.1. One author's files differ by a
/// factor of 16 in scale and by six in shift, so every file is listed by itself.
[[nodiscard]] std::span<const KnownAdapter> known_adapters();

/// What tells which adapter a file is; the first that says something decides.
enum class KnownBy {
  kNothing,
  kMetadata,   ///< "pdd_num_steps", or "recipe"
  kHeadBanks,  ///< output heads for each of many steps
  kContent,    ///< table of known files, by SHA-256
  kName,       ///< table of known files, by file name
  kTensors,    ///< table of known sets of tensors: names, count, ranks
};
[[nodiscard]] std::string_view known_by_name(KnownBy by);

/// Which adapter a file is, as far as that can be told without a checkpoint.
struct AdapterIdentity {
  const KnownAdapter* known = nullptr;  ///< in the table; null when not found there
  KnownBy known_by = KnownBy::kNothing;
  std::string recipe;  ///< the schedule it wants; empty: nothing tells
  KnownBy recipe_by = KnownBy::kNothing;
  std::string half;  ///< of the transformer it is for; empty: nothing tells
  KnownBy half_by = KnownBy::kNothing;
  bool sparse = false;
  /// Its tensors are those of lightx2v's releases, which want a schedule, and nothing tells which.
  bool like_few_step = false;
};

/// Reads names, shapes and metadata; hashes the file where its size is one that the table knows, or
/// may be. kIo when the file cannot be read to its end.
[[nodiscard]] Result<AdapterIdentity> identify_adapter(
    const TensorFile& file, std::span<const KnownAdapter> table = known_adapters());

}  // namespace miniacc
