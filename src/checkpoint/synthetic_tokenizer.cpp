#include "checkpoint/synthetic_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/text_file.h"

namespace miniacc {
namespace {

using nlohmann::ordered_json;

struct AddedToken {
  std::string_view text;
  bool special;
};
constexpr std::array<AddedToken, 26> kAddedTokens = {{
    {"<|endoftext|>", true},      {"<|im_start|>", true},
    {"<|im_end|>", true},         {"<|object_ref_start|>", true},
    {"<|object_ref_end|>", true}, {"<|box_start|>", true},
    {"<|box_end|>", true},        {"<|quad_start|>", true},
    {"<|quad_end|>", true},       {"<|vision_start|>", true},
    {"<|vision_end|>", true},     {"<|vision_pad|>", true},
    {"<|image_pad|>", true},      {"<|video_pad|>", true},
    {"<tool_call>", false},       {"</tool_call>", false},
    {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
    {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
    {"<|repo_name|>", false},     {"<|file_sep|>", false},
    {"<tool_response>", false},   {"</tool_response>", false},
    {"<think>", false},           {"</think>", false},
}};
constexpr std::array<std::string_view, 7> kH3Tokens = {"<d>",
                                                       "</d>",
                                                       "<|cutoff|>",
                                                       "<|lyrics_start|>",
                                                       "<|lyrics_end|>",
                                                       "<|caption_start|>",
                                                       "<|caption_end|>"};
constexpr std::size_t kLastSpecialInConfig = 14;  // <|im_start|> .. <|video_pad|> are listed there

/// Words that prompts are made of; each becomes one token when a space precedes it.
constexpr std::string_view kWords[] = {
    "the",    "and",    "with",   "over",   "under", "into",   "from",   "through",  "across",
    "a",      "of",     "in",     "on",     "at",    "to",     "is",     "as",       "by",
    "camera", "shot",   "slow",   "close",  "wide",  "light",  "dark",   "morning",  "night",
    "sunset", "rain",   "snow",   "wind",   "ocean", "waves",  "river",  "mountain", "forest",
    "tree",   "flower", "city",   "street", "house", "window", "door",   "table",    "woman",
    "man",    "child",  "people", "dog",    "cat",   "bird",   "horse",  "car",      "train",
    "boat",   "walks",  "runs",   "looks",  "turns", "speaks", "sings",  "plays",    "music",
    "sound",  "voice",  "piano",  "guitar", "drum",  "crowd",  "quiet",  "loud",     "soft",
    "red",    "blue",   "green",  "golden", "white", "black",  "bright", "warm",     "cold",
    "small",  "large",  "old",    "young",  "water", "fire",   "smoke",  "cloud",    "sky",
    "moving", "drifts", "still",  "while",  "then",  "before", "after",  "film",     "scene",
};

constexpr std::string_view kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string utf8(std::uint32_t code) {
  if (code < 0x80) {
    return {static_cast<char>(code)};
  }
  return {static_cast<char>(0xC0U | (code >> 6)), static_cast<char>(0x80U | (code & 0x3FU))};
}

/// The symbol of each byte: printable Latin-1 bytes stand for themselves, the others follow from
/// U+0100 in order (spec text_encoder.md §2.3, step 4).
std::vector<std::string> byte_symbols() {
  std::vector<std::string> symbols;
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    symbols.push_back(utf8(printable ? byte : next++));
  }
  return symbols;
}

struct Vocabulary {
  std::vector<std::string> entries;  ///< by id
  std::vector<std::string> merges;
};

Vocabulary make_vocabulary() {
  Vocabulary vocabulary;
  const std::vector<std::string> symbols = byte_symbols();
  vocabulary.entries = symbols;
  std::set<std::string> known(vocabulary.entries.begin(), vocabulary.entries.end());
  for (const std::string_view word : kWords) {
    std::string prefix = symbols[' '];
    for (const char letter : word) {
      std::string longer = prefix + letter;
      if (known.insert(longer).second) {
        vocabulary.merges.push_back(prefix + ' ' + letter);
        vocabulary.entries.push_back(longer);
      }
      prefix = std::move(longer);
    }
  }
  return vocabulary;
}

ordered_json added_token(std::int64_t id, const AddedToken& token) {
  return {{"id", id},        {"content", token.text}, {"single_word", false},    {"lstrip", false},
          {"rstrip", false}, {"normalized", false},   {"special", token.special}};
}

ordered_json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", false}};
}

}  // namespace

SyntheticTokenizer synthetic_tokenizer() {
  SyntheticTokenizer result;
  result.num_entries = static_cast<std::int64_t>(make_vocabulary().entries.size());
  result.vocab_size =
      result.num_entries + static_cast<std::int64_t>(kAddedTokens.size() + kH3Tokens.size());
  return result;
}

Status write_synthetic_tokenizer(const std::filesystem::path& folder) {
  const Vocabulary vocabulary = make_vocabulary();
  ordered_json vocab = ordered_json::object();
  for (std::size_t id = 0; id < vocabulary.entries.size(); ++id) {
    vocab[vocabulary.entries[id]] = id;
  }
  ordered_json added = ordered_json::array();
  ordered_json decoder = ordered_json::object();
  for (std::size_t i = 0; i < kAddedTokens.size(); ++i) {
    const auto id = static_cast<std::int64_t>(vocabulary.entries.size() + i);
    added.push_back(added_token(id, kAddedTokens[i]));
    decoder[std::to_string(id)] = added_token(id, kAddedTokens[i]);
    decoder[std::to_string(id)].erase("id");
  }
  const ordered_json split = {{"type", "Split"},
                              {"pattern", {{"Regex", kPattern}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  const ordered_json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, byte_level()})}}},
      {"post_processor", byte_level()},
      {"decoder", byte_level()},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", vocabulary.merges}}}};
  ordered_json special = ordered_json::array();
  for (std::size_t i = 1; i < kLastSpecialInConfig; ++i) {
    special.push_back(kAddedTokens[i].text);
  }
  for (const std::string_view token : kH3Tokens) {
    special.push_back(token);
  }
  const ordered_json config = {{"add_bos_token", false},
                               {"add_prefix_space", false},
                               {"added_tokens_decoder", decoder},
                               {"additional_special_tokens", special},
                               {"bos_token", nullptr},
                               {"clean_up_tokenization_spaces", false},
                               {"eos_token", "<|im_end|>"},
                               {"errors", "replace"},
                               {"model_max_length", 262144},
                               {"pad_token", "<|endoftext|>"},
                               {"split_special_tokens", false},
                               {"tokenizer_class", "Qwen2Tokenizer"},
                               {"unk_token", nullptr}};
  std::string merges;
  for (const std::string& merge : vocabulary.merges) {
    merges += merge + '\n';
  }
  MINIACC_RETURN_IF_ERROR(write_text_file(folder / "tokenizer.json", tokenizer.dump(1) + '\n'));
  MINIACC_RETURN_IF_ERROR(write_text_file(folder / "tokenizer_config.json", config.dump(1) + '\n'));
  MINIACC_RETURN_IF_ERROR(write_text_file(folder / "vocab.json", vocab.dump() + '\n'));
  return write_text_file(folder / "merges.txt", merges);
}

}  // namespace miniacc
