#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/tokenizer_bpe.h"

namespace miniacc {

/// A token that is matched literally in the raw text, before any other step.
struct AddedToken {
  std::string text;
  std::int32_t id = 0;
};

/// What a tokenizer is made of, whatever it was read from. Nothing is checked against anything else
/// yet: Tokenizer::build does that.
struct TokenizerData {
  std::string source;                                            ///< file or folder, for messages
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;  ///< byte-alphabet text, id
  std::vector<BpeMerge> merges;                                  ///< lowest rank first
  std::vector<AddedToken> added_tokens;
  /// Added tokens without an id: those that nothing else lists get the next free ids, in order.
  std::vector<std::string> unnumbered_tokens;
  std::string split_pattern;
};

/// Reads tokenizer.json, or vocab.json with merges.txt where that is absent, and the added tokens
/// of tokenizer_config.json beside it. `path` is the folder or the tokenizer.json.
///
/// kNotFound when there is neither; kInvalidInput for anything malformed (with the file, the field
/// and what was wanted); kUnsupported for a tokenizer that is not byte-level BPE with NFC and a
/// split pattern, so that no text is ever encoded by other rules than its file asks for.
[[nodiscard]] Result<TokenizerData> read_tokenizer_data(const std::filesystem::path& path);

}  // namespace miniacc
