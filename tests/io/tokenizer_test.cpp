#include "io/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/file_util.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

const std::filesystem::path kGolden = std::filesystem::path(MINIACC_TEST_DATA) / "golden";

nlohmann::json read_golden(const char* name) {
  return nlohmann::json::parse(testing::read_file(kGolden / name));
}

const Tokenizer& micro() {
  static const Result<Tokenizer> kTokenizer = Tokenizer::open(kGolden / "h3-micro" / "tokenizer");
  if (!kTokenizer) {
    throw std::runtime_error(kTokenizer.error().message);
  }
  return *kTokenizer;
}

/// The released vocabulary where MINIACC_OFFICIAL_TOKENIZER names its folder.
class OfficialTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("MINIACC_OFFICIAL_TOKENIZER");
    if (folder == nullptr) {
      GTEST_SKIP() << "MINIACC_OFFICIAL_TOKENIZER names no folder with the released vocabulary";
    }
    folder_ = folder;
    auto opened = Tokenizer::open(folder_);
    ASSERT_TRUE(opened) << opened.error().message;
    tokenizer_.emplace(*std::move(opened));
  }
  [[nodiscard]] Ids encode(std::string_view text) const {
    const auto ids = tokenizer_->encode(text);
    EXPECT_TRUE(ids) << ids.error().message;
    return ids ? *ids : Ids{};
  }
  std::filesystem::path folder_;
  std::optional<Tokenizer> tokenizer_;
};

TEST(Tokenizer, MatchesReferenceOnEveryGoldenText) {
  const nlohmann::json cases = read_golden("tokenizer_cases.json");
  ASSERT_GE(cases.size(), 70U);
  for (const auto& item : cases) {
    const auto text = item["text"].get<std::string>();
    const auto ids = micro().encode(text, PadTokens::kKeep);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, item["ids"].get<Ids>()) << text;
  }
}

TEST(Tokenizer, MergesFilesGiveTheSameIdsAsTokenizerJson) {
  const testing::TempDir folder;
  for (const char* name : {"vocab.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(kGolden / "h3-micro" / "tokenizer" / name, folder / name);
  }
  const std::string merges = testing::read_file(kGolden / "h3-micro" / "tokenizer" / "merges.txt");
  for (const bool header : {false, true}) {
    testing::write_file(folder / "merges.txt", (header ? "#version: 0.2\n" : "") + merges);
    const auto tokenizer = Tokenizer::open(folder.path());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->vocabulary_size(), micro().vocabulary_size());
    for (const auto& item : read_golden("tokenizer_cases.json")) {
      const auto ids = tokenizer->encode(item["text"].get<std::string>(), PadTokens::kKeep);
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(*ids, item["ids"].get<Ids>()) << item["text"];
    }
  }
}

TEST(Tokenizer, DecodeGivesNormalisedTextBack) {
  for (const auto& item : read_golden("tokenizer_cases.json")) {
    const auto decoded = micro().decode(item["ids"].get<Ids>());
    ASSERT_TRUE(decoded) << decoded.error().message;
    const auto text = item["text"].get<std::string>();
    // Normalisation stops at added tokens, so compare both sides after a whole-text NFC.
    EXPECT_EQ(normalize_nfc(*decoded).value(), normalize_nfc(text).value());
  }
}

TEST(Tokenizer, DecodeRefusesUnknownId) {
  for (const std::int32_t id : {-1, 1 << 30, static_cast<int>(micro().vocabulary_size())}) {
    const auto decoded = micro().decode(Ids{id});
    ASSERT_FALSE(decoded);
    EXPECT_THAT(decoded.error().message, HasSubstr(std::to_string(id)));
  }
}

TEST(Tokenizer, EachH3TokenIsOneIdNextToAnything) {
  const std::int64_t first = micro().vocabulary_size() - 7;
  const char* tokens[] = {"<d>",
                          "</d>",
                          "<|cutoff|>",
                          "<|lyrics_start|>",
                          "<|lyrics_end|>",
                          "<|caption_start|>",
                          "<|caption_end|>"};
  for (int i = 0; i < 7; ++i) {
    const auto id = static_cast<std::int32_t>(first + i);
    EXPECT_EQ(micro().id_of(tokens[i]), id);
    EXPECT_EQ(micro().token_text(id), tokens[i]);
    for (const std::string around : {"", "word", " ", "\xE4\xB8\xAD", "\xCC\x81", "<", "\n"}) {
      const auto ids = micro().encode(around + tokens[i] + around);
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(std::count(ids->begin(), ids->end(), id), 1) << around << tokens[i];
    }
  }
}

TEST(Tokenizer, EmptyTextHasNoIds) { EXPECT_TRUE(micro().encode("").value().empty()); }

TEST(Tokenizer, RefusesPadTokensTypedByUser) {
  for (const std::string pad : {"<|image_pad|>", "<|video_pad|>"}) {
    const auto ids = micro().encode("a fox " + pad);
    ASSERT_FALSE(ids);
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(ids.error().message, HasSubstr(pad + " at byte 6"));
    EXPECT_EQ(micro().encode(pad, PadTokens::kKeep).value(), Ids{*micro().id_of(pad)});
  }
}

TEST(Tokenizer, RefusesInvalidUtf8WithOffset) {
  const std::pair<std::string, int> cases[] = {{"ab\xFF", 2},
                                               {"\x80", 0},
                                               {"a\xC3", 1},
                                               {"\xC0\xAF", 0},
                                               {"\xE0\x80\x80", 0},
                                               {"x\xED\xA0\x80", 1},
                                               {"\xF4\x90\x80\x80", 0},
                                               {"\xE4\xB8", 0},
                                               {"\xF0\x9F\x99x", 0},
                                               {"\xF8\x88\x80\x80\x80", 0}};
  for (const auto& [text, offset] : cases) {
    const auto ids = micro().encode(text);
    ASSERT_FALSE(ids) << text;
    EXPECT_THAT(ids.error().message, HasSubstr("byte " + std::to_string(offset) + " "));
  }
}

TEST(Tokenizer, LongWordsAndMarksTakeNoQuadraticTime) {
  // 400,000 units each: hours if any step were quadratic.
  std::string marks;
  for (int i = 0; i < 100'000; ++i) {
    marks += i % 2 == 0 ? "\xCC\x95" : "\xCC\x80";  // classes 232 and 230: all out of order
  }
  const std::string texts[] = {std::string(400'000, 'a'), std::string(400'000, ' '),
                               std::string(200'000, ' ') + "x\n" + std::string(100'000, '\n'),
                               std::string(400'000, '!'), marks};
  for (const std::string& text : texts) {
    const auto ids = micro().encode(text);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(micro().decode(*ids).value().size(), text.size());
  }
  EXPECT_FALSE(micro().encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a')));
}

TEST(Tokenizer, PromptLengthCountsCharacters) {
  std::string prompt;
  for (std::size_t i = 0; i < kMaxPromptCharacters; ++i) {
    prompt += "\xE4\xB8\xAD";
  }
  EXPECT_TRUE(check_prompt_length(""));
  EXPECT_TRUE(check_prompt_length(std::string(7000, 'a')));
  EXPECT_TRUE(check_prompt_length(prompt));
  const Status refused = check_prompt_length(prompt + "ab");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("20002 characters, at most 20000"));
  EXPECT_THAT(check_prompt_length("ab\xFF").error().message, HasSubstr("byte 2"));
}

TEST(Tokenizer, NormalizesLikeTheStandardsExamples) {
  // UAX #15, figures 4 to 6, and the Hangul composition algorithm.
  const std::pair<const char*, const char*> cases[] = {
      {"\xE2\x84\xAB", "\xC3\x85"},                      // Angstrom sign
      {"o\xCC\x82\xCC\xA3", "\xE1\xBB\x99"},             // marks are reordered, then composed
      {"\xE1\xBA\x9B\xCC\xA3", "\xE1\xBA\x9B\xCC\xA3"},  // long s with dots: no compatibility
      {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"},
      {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},  // composition exclusion
      {"\xEF\xAC\x81", "\xEF\xAC\x81"}};
  for (const auto& [text, wanted] : cases) {
    EXPECT_EQ(normalize_nfc(text).value(), wanted) << text;
  }
}

std::vector<std::string> pieces(const RegexSplitter& splitter, std::string_view text) {
  std::vector<std::string> out;
  EXPECT_TRUE(splitter.split(text, [&](std::string_view piece) { out.emplace_back(piece); }));
  return out;
}

TEST(RegexSplitter, SplitsLikeTheSpecificationsExample) {
  const auto splitter = RegexSplitter::compile(kQwenSplitPattern);
  ASSERT_TRUE(splitter) << splitter.error().message;
  EXPECT_THAT(pieces(*splitter, "Hello, WORLD!  2026\n\xE4\xB8\xAD\xE6\x96\x87 caf\xC3\xA9's"),
              ElementsAre("Hello", ",", " WORLD", "!", " ", " ", "2", "0", "2", "6", "\n",
                          "\xE4\xB8\xAD\xE6\x96\x87", " caf\xC3\xA9", "'s"));
}

TEST(RegexSplitter, WhiteSpaceIsUnicodesOwn) {
  const auto splitter = RegexSplitter::compile("\\s|[^\\s]+|[[:digit:]\\s]");
  ASSERT_TRUE(splitter) << splitter.error().message;
  for (const char* space : {"\t", "\x0B", "\xC2\x85", "\xC2\xA0", "\xE3\x80\x80", "\xE2\x80\xA8"}) {
    EXPECT_THAT(pieces(*splitter, std::string("a") + space + "b"), ElementsAre("a", space, "b"));
  }
  // U+180E left White_Space; U+200B never was in it.
  for (const char* other : {"\xE1\xA0\x8E", "\xE2\x80\x8B"}) {
    EXPECT_THAT(pieces(*splitter, std::string("a") + other), ElementsAre(std::string("a") + other));
  }
}

TEST(RegexSplitter, KeepsWhatNothingMatches) {
  const auto splitter = RegexSplitter::compile("b+|x*");  // with empty matches
  ASSERT_TRUE(splitter) << splitter.error().message;
  EXPECT_THAT(pieces(*splitter, "aabb\xC3\xA9x"), ElementsAre("aa", "bb", "\xC3\xA9", "x"));
}

TEST(RegexSplitter, ExplodingPatternIsAnErrorNotACut) {
  const auto splitter = RegexSplitter::compile("(a+)+[^a!]");
  ASSERT_TRUE(splitter) << splitter.error().message;
  const Status status = splitter->split(std::string(5000, 'a') + "!", [](std::string_view) {});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("limit"));
}

TEST_F(OfficialTokenizer, MatchesReferenceOnEveryGoldenText) {
  const nlohmann::json texts = read_golden("tokenizer_cases.json");
  const nlohmann::json cases = read_golden("tokenizer_cases_official.json");
  ASSERT_EQ(cases.size(), texts.size());
  for (const auto& item : cases) {
    const auto text = texts[item["case"].get<std::size_t>()]["text"].get<std::string>();
    const auto ids = tokenizer_->encode(text, PadTokens::kKeep);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, item["ids"].get<Ids>()) << text;
  }
}

TEST_F(OfficialTokenizer, SpecificationExamples) {
  EXPECT_THAT(encode("A red fox walking through snow"),
              ElementsAre(32, 2518, 38835, 11435, 1526, 11794));
  EXPECT_THAT(encode("cafe\xCC\x81"), ElementsAre(924, 58858));
  EXPECT_THAT(encode("<d> x"), ElementsAre(151669, 856));
  EXPECT_THAT(encode("<0.2 seconds>"), ElementsAre(27, 15, 13, 17, 6486, 29));
  EXPECT_EQ(tokenizer_->vocabulary_size(), 151676);
  EXPECT_TRUE(tokenizer_->warnings().empty());
}

TEST_F(OfficialTokenizer, MissingAddedTokensAreAppendedWithAWarning) {
  const testing::TempDir bare;
  for (const char* name : {"vocab.json", "merges.txt"}) {
    std::filesystem::copy_file(folder_ / name, bare / name);
  }
  const auto tokenizer = Tokenizer::open(bare.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  ASSERT_EQ(tokenizer->warnings().size(), 1U);
  EXPECT_THAT(tokenizer->warnings()[0], HasSubstr("<|caption_end|>"));
  EXPECT_EQ(tokenizer->id_of("<|im_start|>"), 151644);
  EXPECT_EQ(tokenizer->encode("go<d>now</d>").value().at(1), 151669);
}

}  // namespace
}  // namespace miniacc
