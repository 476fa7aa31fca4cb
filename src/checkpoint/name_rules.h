#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/component.h"

namespace miniacc {

/// How the rows (outermost dimension) of a canonical tensor come from what is stored.
enum class RowLayout {
  kAsStored,
  kConcatenated,    ///< part 0, then part 1, ...: separate q, k, v become [Q;K;V]
  kInterleavedQkv,  ///< stored head by head, [head][q|k|v][channel]; canonical [Q;K;V]
  kSwappedHalves,   ///< second half first: value-first becomes gate-first
  kWeightNorm,      ///< parts v and g: g · v / ‖v‖, the norm over all dimensions but the first
  kPatchSlots,  ///< parts are the two time steps of a patch kernel: [n,c,p,p] x 2 -> [n,c,2,p,p]
  kResampleFilter,  ///< nothing stored: the Kaiser-windowed sinc of spec vae.md §4.3
};

/// One stored name pattern and the canonical tensor it is (a part of). `{}` stands for a number,
/// a final `*` for the rest of the name.
struct NameRule {
  std::string_view stored;
  std::string_view canonical;
  RowLayout layout = RowLayout::kAsStored;
  int part = 0;
  int num_parts = 1;
};

/// The rules of one naming; the first match wins. The fused qkv of official files is listed as
/// kInterleavedQkv; the reader turns that into kAsStored where rows are plain.
/// Sources: spec model.md §2.1-2.6, vae.md §7, text_encoder.md §7.
[[nodiscard]] std::span<const NameRule> name_rules(Component component, Naming naming);

/// `to` with the holes of `from` filled as `name` fills them; empty when `name` does not match.
/// rewrite("blocks.7.x", "blocks.{}.*", "layers.{}.*") is "layers.7.x".
[[nodiscard]] std::optional<std::string> rewrite(std::string_view name, std::string_view from,
                                                 std::string_view to);

struct MappedName {
  std::string canonical;
  RowLayout layout = RowLayout::kAsStored;
  int part = 0;
  int num_parts = 1;
};
/// The canonical tensor a stored tensor belongs to. Empty when no rule matches.
[[nodiscard]] std::optional<MappedName> to_canonical(Component component, Naming naming,
                                                     std::string_view stored);

/// One stored tensor of a canonical one.
struct StoredName {
  std::string stored;
  RowLayout layout = RowLayout::kAsStored;
  int part = 0;
};
/// The inverse: the tensors a canonical tensor is stored as, in order of their part.
[[nodiscard]] std::vector<StoredName> to_stored(Component component, Naming naming,
                                                std::string_view canonical);

/// True for tensors that files carry and nothing reads: skipped without a word.
[[nodiscard]] bool is_ignored(Component component, std::string_view canonical);

}  // namespace miniacc
