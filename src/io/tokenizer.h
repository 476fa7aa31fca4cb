#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "io/tokenizer_bpe.h"
#include "io/tokenizer_files.h"
#include "io/tokenizer_split.h"
#include "io/tokenizer_text.h"

namespace miniacc {

/// What to do with `<|image_pad|>` and `<|video_pad|>` in a text. They stand for rows that pictures
/// fill; typed by a user they would stand for pictures that do not exist.
enum class PadTokens {
  kRefuse,
  kKeep,  ///< encode them like any added token (the reference's tokenizer does)
};

/// The byte-level BPE tokenizer of the text encoder: added tokens are cut out of the raw text
/// (leftmost, then longest), the rest is brought to NFC, cut into pieces by the file's regular
/// expression, and each piece is encoded by byte-pair merges. No token is put in front or behind.
/// Immutable after open(), usable from several threads.
class Tokenizer {
 public:
  /// Reads a folder or a tokenizer.json (see read_tokenizer_data) and builds it.
  [[nodiscard]] static Result<Tokenizer> open(const std::filesystem::path& path);

  /// kInvalidInput when ids or texts contradict each other, when the pattern is no regular
  /// expression, or when H3's seven tokens are missing and the vocabulary is not the released one.
  /// A released vocabulary whose files leave out added tokens gets them at their published ids, and
  /// warnings() says so.
  [[nodiscard]] static Result<Tokenizer> build(const TokenizerData& data);

  /// Token ids of a text; an empty text has none. kInvalidArgument for a text that is not UTF-8
  /// (with the byte offset), longer than kMaxTextBytes, or with a pad token while those are
  /// refused.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode(
      std::string_view utf8, PadTokens pad_tokens = PadTokens::kRefuse) const;

  /// The text of some ids. Bytes of tokens are put together as they are, so that a cut in the
  /// middle of a character gives invalid UTF-8. kInvalidArgument for an id that no token has.
  [[nodiscard]] Result<std::string> decode(std::span<const std::int32_t> ids) const;

  /// Id of an added token, or of a vocabulary entry written in the byte alphabet.
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token) const;
  /// Inverse of id_of: valid UTF-8, a space reads as "Ġ" except in added tokens.
  [[nodiscard]] std::optional<std::string> token_text(std::int32_t id) const;
  /// Highest id + 1: the embedding needs at least as many rows.
  [[nodiscard]] std::int64_t vocabulary_size() const {
    return static_cast<std::int64_t>(texts_.size());
  }
  /// One sentence for each thing the user should know about the files.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  /// Bounds the work a caller can ask for; prompts have the tighter kMaxPromptCharacters.
  static constexpr std::size_t kMaxTextBytes = 400'000;

 private:
  Tokenizer(RegexSplitter splitter, BytePairEncoder encoder)
      : splitter_(std::move(splitter)), encoder_(std::move(encoder)) {}
  Status add_token(const AddedToken& token, const std::string& source);
  Status complete_added_tokens(const std::string& source, std::size_t vocabulary_entries);
  [[nodiscard]] const AddedToken* added_token_at(std::string_view text) const;
  Status encode_stretch(std::string_view text, std::vector<std::int32_t>& ids) const;

  RegexSplitter splitter_;
  BytePairEncoder encoder_;
  BpeVocabulary ids_;               // vocabulary and added tokens
  std::vector<std::string> texts_;  // by id; empty where no token has that id
  std::unordered_map<std::string, std::int32_t> added_ids_;
  std::array<std::vector<AddedToken>, 256> added_by_first_byte_;  // longest first
  std::vector<std::string> warnings_;
};

}  // namespace miniacc
