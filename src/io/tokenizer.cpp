#include "io/tokenizer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace miniacc {
namespace {

constexpr const char* kImagePad = "<|image_pad|>";
constexpr const char* kVideoPad = "<|video_pad|>";

// The released vocabulary: 151,643 BPE tokens, then these, in id order (MiniMax-H3,
// FL2VA/tokenizer; the last seven are listed there without an id).
constexpr std::size_t kReleasedVocabularyEntries = 151'643;
constexpr std::array<const char*, 33> kReleasedAddedTokens = {"<|endoftext|>",
                                                              "<|im_start|>",
                                                              "<|im_end|>",
                                                              "<|object_ref_start|>",
                                                              "<|object_ref_end|>",
                                                              "<|box_start|>",
                                                              "<|box_end|>",
                                                              "<|quad_start|>",
                                                              "<|quad_end|>",
                                                              "<|vision_start|>",
                                                              "<|vision_end|>",
                                                              "<|vision_pad|>",
                                                              kImagePad,
                                                              kVideoPad,
                                                              "<tool_call>",
                                                              "</tool_call>",
                                                              "<|fim_prefix|>",
                                                              "<|fim_middle|>",
                                                              "<|fim_suffix|>",
                                                              "<|fim_pad|>",
                                                              "<|repo_name|>",
                                                              "<|file_sep|>",
                                                              "<tool_response>",
                                                              "</tool_response>",
                                                              "<think>",
                                                              "</think>",
                                                              "<d>",
                                                              "</d>",
                                                              "<|cutoff|>",
                                                              "<|lyrics_start|>",
                                                              "<|lyrics_end|>",
                                                              "<|caption_start|>",
                                                              "<|caption_end|>"};
constexpr std::size_t kFirstH3Token = 26;  // index of "<d>"

}  // namespace

Result<Tokenizer> Tokenizer::open(const std::filesystem::path& path) {
  MINIACC_ASSIGN(const TokenizerData data, read_tokenizer_data(path));
  return build(data);
}

Result<Tokenizer> Tokenizer::build(const TokenizerData& data) {
  const auto in_source = [&data](Error error) {
    error.message = fmt::format("{}: {}", data.source, error.message);
    return error;
  };
  BpeVocabulary vocabulary;
  vocabulary.reserve(data.vocabulary.size());
  std::int32_t highest_id = -1;
  for (const auto& [text, id] : data.vocabulary) {
    MINIACC_REQUIRE(id >= 0, "tokenizer: ids are checked when read");
    if (!vocabulary.emplace(text, id).second) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: the vocabulary has \"{}\" twice", data.source, text));
    }
    highest_id = std::max(highest_id, id);
  }
  for (const AddedToken& token : data.added_tokens) {
    highest_id = std::max(highest_id, token.id);
  }
  std::vector<std::string> texts(static_cast<std::size_t>(highest_id + 1));
  for (const auto& [text, id] : vocabulary) {
    std::string& slot = texts[static_cast<std::size_t>(id)];
    if (!slot.empty()) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: \"{}\" and \"{}\" both have the id {}", data.source,
                              std::min(slot, text), std::max(slot, text), id));
    }
    slot = text;
  }
  MINIACC_ASSIGN(BytePairEncoder encoder,
                 BytePairEncoder::build(vocabulary, data.merges).map_error(in_source));
  MINIACC_ASSIGN(RegexSplitter splitter,
                 RegexSplitter::compile(data.split_pattern).map_error(in_source));

  Tokenizer tokenizer(std::move(splitter), std::move(encoder));
  tokenizer.ids_ = std::move(vocabulary);
  tokenizer.texts_ = std::move(texts);
  for (const AddedToken& token : data.added_tokens) {
    MINIACC_RETURN_IF_ERROR(tokenizer.add_token(token, data.source));
  }
  for (const std::string& text : data.unnumbered_tokens) {
    if (!tokenizer.added_ids_.contains(text)) {
      const auto known = tokenizer.ids_.find(text);
      const std::int32_t id = known != tokenizer.ids_.end()
                                  ? known->second
                                  : static_cast<std::int32_t>(tokenizer.texts_.size());
      MINIACC_RETURN_IF_ERROR(tokenizer.add_token({text, id}, data.source));
    }
  }
  MINIACC_RETURN_IF_ERROR(tokenizer.complete_added_tokens(data.source, data.vocabulary.size()));
  for (auto& tokens : tokenizer.added_by_first_byte_) {
    std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.text.size() > b.text.size();
    });
  }
  return tokenizer;
}

/// Enters one added token; the same token may be listed by several files, with the same id.
Status Tokenizer::add_token(const AddedToken& token, const std::string& source) {
  const auto known = ids_.find(token.text);
  if (known != ids_.end() && known->second != token.id) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: added token \"{}\" has the ids {} and {}", source, token.text,
                            known->second, token.id));
  }
  if (static_cast<std::size_t>(token.id) >= texts_.size()) {
    texts_.resize(static_cast<std::size_t>(token.id) + 1);
  }
  std::string& slot = texts_[static_cast<std::size_t>(token.id)];
  if (!slot.empty() && slot != token.text) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: added token \"{}\" has the id {}, which \"{}\" has already",
                            source, token.text, token.id, slot));
  }
  slot = token.text;
  ids_[token.text] = token.id;
  if (added_ids_.emplace(token.text, token.id).second) {
    added_by_first_byte_[static_cast<unsigned char>(token.text.front())].push_back(token);
  }
  return {};
}

/// H3's tokens are in the embedding whether or not a file lists them; a loader without them would
/// cut dialogue and lyrics marks into pieces of ordinary text.
Status Tokenizer::complete_added_tokens(const std::string& source, std::size_t vocabulary_entries) {
  const bool released = vocabulary_entries == kReleasedVocabularyEntries;
  std::vector<std::string> appended;
  for (std::size_t i = 0; i < kReleasedAddedTokens.size(); ++i) {
    const std::string text = kReleasedAddedTokens[i];
    if (added_ids_.contains(text) || (!released && i < kFirstH3Token)) {
      continue;
    }
    if (!released) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: no file lists \"{}\", and a vocabulary of {} tokens is not the "
                              "released one ({}), so that its id cannot be known",
                              source, text, vocabulary_entries, kReleasedVocabularyEntries));
    }
    MINIACC_RETURN_IF_ERROR(
        add_token({text, static_cast<std::int32_t>(kReleasedVocabularyEntries + i)}, source));
    appended.push_back(text);
  }
  if (!appended.empty()) {
    warnings_.push_back(
        fmt::format("{}: no file lists the added tokens {}; they were given their published ids",
                    source, fmt::join(appended, " ")));
  }
  return {};
}

const AddedToken* Tokenizer::added_token_at(std::string_view text) const {
  for (const AddedToken& token : added_by_first_byte_[static_cast<unsigned char>(text.front())]) {
    if (text.starts_with(token.text)) {
      return &token;
    }
  }
  return nullptr;
}

Status Tokenizer::encode_stretch(std::string_view text, std::vector<std::int32_t>& ids) const {
  MINIACC_ASSIGN(const std::string normalized, normalize_nfc(text));
  return splitter_.split(normalized, [&](std::string_view piece) { encoder_.encode(piece, ids); });
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view utf8,
                                                    PadTokens pad_tokens) const {
  if (utf8.size() > kMaxTextBytes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("text has {} bytes, at most {} are accepted", utf8.size(), kMaxTextBytes));
  }
  if (const auto offset = find_invalid_utf8(utf8)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("text: byte {} is not valid UTF-8", *offset));
  }
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;  // of the stretch without added tokens
  for (std::size_t i = 0; i < utf8.size();) {
    const AddedToken* token = added_token_at(utf8.substr(i));
    if (token == nullptr) {
      ++i;
      continue;
    }
    if (pad_tokens == PadTokens::kRefuse &&
        (token->text == kImagePad || token->text == kVideoPad)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("text: has {} at byte {}, a placeholder for a picture's rows that "
                              "only the program may place",
                              token->text, i));
    }
    MINIACC_RETURN_IF_ERROR(encode_stretch(utf8.substr(begin, i - begin), ids));
    ids.push_back(token->id);
    i += token->text.size();
    begin = i;
  }
  MINIACC_RETURN_IF_ERROR(encode_stretch(utf8.substr(begin), ids));
  return ids;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional<std::int32_t>(found->second);
}

std::optional<std::string> Tokenizer::token_text(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= texts_.size() ||
      texts_[static_cast<std::size_t>(id)].empty()) {
    return std::nullopt;
  }
  return texts_[static_cast<std::size_t>(id)];
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  for (const std::int32_t id : ids) {
    const auto text = token_text(id);
    if (!text) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("no token has the id {}", id));
    }
    if (added_ids_.contains(*text)) {
      out += *text;
      continue;
    }
    MINIACC_ASSIGN(const std::string bytes, bytes_of_symbols(*text));
    out += bytes;
  }
  return out;
}

}  // namespace miniacc
