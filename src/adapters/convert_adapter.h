#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/cancel_token.h"
#include "core/error.h"
#include "core/shape.h"

namespace miniacc {

/// Which convention a converted adapter is written in.
enum class AdapterTarget {
  kComfy,      ///< diffusion_model.blocks.0.attn.qkv_proj…, fused [Q;K;V], gate first
  kDiffusers,  ///< transformer.transformer_blocks.0.attn.to_q…, q, k, v apart, value first
};
/// Which of the two released transformers an adapter was trained on.
enum class AdapterBase { kFl2va, kRef2va };

/// Canonical shapes of the transformer an adapter belongs to, by tensor name.
using TensorShapes = std::map<std::string, Shape, std::less<>>;

struct ConvertAdapterOptions {
  AdapterTarget to = AdapterTarget::kComfy;
  /// Numerator of the scale of every module, in place of what the file says.
  std::optional<double> alpha = std::nullopt;
  /// The file's own `.alpha` tensors mean alpha / rank. Without this or `alpha` they are refused:
  /// trainers disagree about what the number is divided by.
  bool trust_alpha_tensors = false;
  std::optional<AdapterBase> base = std::nullopt;
  /// Splitting a fused qkv undoes a block-diagonal up matrix: each part keeps its own rank only.
  bool compact = true;
  const TensorShapes* model = nullptr;  ///< null: names and shapes are not compared with a model
  std::filesystem::path compare = {};   ///< a twin that must hold the same values; empty: none
  const CancelToken* cancel = nullptr;
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};  ///< tensors
};

/// What became of one conversion.
struct AdapterConversion {
  std::string family;        ///< of the source: "diffusers", "official", "DiffSynth", "lora_unet"
  std::string alpha_source;  ///< where the scale comes from
  std::string base;          ///< "fl2va", "ref2va", or "" where nothing says
  std::string sha256;        ///< of the source file
  std::int64_t num_read = 0;
  std::int64_t num_written = 0;
  std::int64_t num_compared = 0;                ///< tensors found equal to the twin's
  std::map<std::string, std::int64_t> dropped;  ///< tensors left out, by reason
  std::vector<std::string> notes;
  std::vector<std::string> problems;  ///< a sentence each; nothing is written when there is one
};

/// Rewrites an adapter in the other convention, bit for bit: rows are moved, nothing is computed
/// (except where q, k and v have scales of their own, which are folded into the up matrices and
/// said in a note). Rules: docs/tools.md; spec adapters.md §2-§4, §9.
///   split q, k, v -> fused   A stacked, B block-diagonal, rank and alpha three times as large
///   fused -> split           B cut in thirds, A copied, then compacted
///   fc1                      halves of B, `.diff` and `.diff_b` change places between conventions
///   DiffSynth's heads        interleaved rows become [Q;K;V]
/// All problems are collected before anything is written; `out` appears complete or not at all. An
/// empty `out` only checks (and compares). Errors: the file cannot be read or written, cancelled.
[[nodiscard]] Result<AdapterConversion> convert_adapter(const std::filesystem::path& in,
                                                        const std::filesystem::path& out,
                                                        const ConvertAdapterOptions& options);

}  // namespace miniacc
