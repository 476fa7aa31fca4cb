#pragma once

#include <cstdint>
#include <filesystem>

#include "core/error.h"

namespace miniacc {

/// Ids of a made-up tokenizer, first added token first.
struct SyntheticTokenizer {
  std::int64_t num_entries = 0;  ///< vocabulary: bytes and merges
  std::int64_t vocab_size = 0;   ///< with the 26 added tokens and H3's seven
};
[[nodiscard]] SyntheticTokenizer synthetic_tokenizer();

/// Writes tokenizer.json, tokenizer_config.json, vocab.json and merges.txt in the official form
/// (spec text_encoder.md §2) into `folder`: byte-level BPE over the 256 byte symbols with merges
/// for common English words, the 26 added tokens in tokenizer.json, H3's seven only in
/// tokenizer_config.json.
[[nodiscard]] Status write_synthetic_tokenizer(const std::filesystem::path& folder);

}  // namespace miniacc
