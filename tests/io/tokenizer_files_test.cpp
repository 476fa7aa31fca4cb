#include "io/tokenizer_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "io/file_util.h"
#include "io/tokenizer.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::filesystem::path kMicro =
    std::filesystem::path(MINIACC_TEST_DATA) / "golden" / "h3-micro" / "tokenizer";

/// The micro tokenizer.json and tokenizer_config.json, changed before they are opened.
class TokenizerFiles : public ::testing::Test {
 protected:
  Json tokenizer_ = Json::parse(testing::read_file(kMicro / "tokenizer.json"));
  Json config_ = Json::parse(testing::read_file(kMicro / "tokenizer_config.json"));
  testing::TempDir folder_;

  Result<Tokenizer> open() {
    testing::write_file(folder_ / "tokenizer.json", tokenizer_.dump());
    testing::write_file(folder_ / "tokenizer_config.json", config_.dump());
    return Tokenizer::open(folder_.path());
  }
  void expect_refused(const std::string& part, ErrorCode code = ErrorCode::kInvalidInput) {
    const auto opened = open();
    ASSERT_FALSE(opened) << "wanted a refusal with: " << part;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    EXPECT_THAT(opened.error().message, HasSubstr(part));
    EXPECT_THAT(opened.error().message, HasSubstr(folder_.path().string()));
  }
  void expect_text_refused(const std::string& text, const std::string& part) {
    testing::write_file(folder_ / "tokenizer.json", text);
    const auto opened = Tokenizer::open(folder_ / "tokenizer.json");
    ASSERT_FALSE(opened) << part;
    EXPECT_EQ(opened.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(opened.error().message, HasSubstr(part));
  }
  Json& vocabulary() { return tokenizer_["model"]["vocab"]; }
  Json& merges() { return tokenizer_["model"]["merges"]; }
};

TEST_F(TokenizerFiles, UnchangedCopyOpensWithoutWarning) {
  const auto opened = open();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE(opened->warnings().empty());
}

TEST_F(TokenizerFiles, BothSpellingsOfMergesGiveTheSameIds) {
  const auto before = open();
  for (Json& merge : merges()) {
    if (merge.is_array()) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      merge = Json::array({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
    }
  }
  const auto after = open();
  ASSERT_TRUE(before && after);
  const std::string text = "The camera follows a courier through the rain, 42 \xE9\x9B\xA8";
  EXPECT_EQ(before->encode(text).value(), after->encode(text).value());
}

TEST_F(TokenizerFiles, IdsOfTheFileWinOverAppendedOnes) {
  tokenizer_["added_tokens"].push_back(
      {{"id", 570}, {"content", "<d>"}, {"special", true}, {"normalized", false}});
  const auto opened = open();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->id_of("<d>"), 570);
  EXPECT_EQ(opened->id_of("</d>"), 571);
}

TEST_F(TokenizerFiles, MissingH3TokensOfAForeignVocabularyAreRefused) {
  config_.erase("additional_special_tokens");
  expect_refused("<d>");
}

TEST_F(TokenizerFiles, LongestAddedTokenWins) {
  config_["additional_special_tokens"].push_back("<d><d>");
  const auto opened = open();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->encode("<d><d><d>").value(),
            (std::vector<std::int32_t>{*opened->id_of("<d><d>"), *opened->id_of("<d>")}));
}

TEST_F(TokenizerFiles, RefusesWrongTypes) {
  const Json good = tokenizer_;
  const std::function<void()> changes[] = {
      [&] { tokenizer_.erase("model"); },
      [&] { tokenizer_["model"] = 7; },
      [&] { vocabulary() = Json::array(); },
      [&] { vocabulary()["a"] = "x"; },
      [&] { vocabulary()["a"] = 1.5; },
      [&] { vocabulary()["a"] = nullptr; },
      [&] { vocabulary()[""] = 3; },
      [&] { merges() = "a b"; },
      [&] { merges()[0] = 1; },
      [&] { merges()[0] = "ab"; },
      [&] { merges()[0] = "a  b"; },
      [&] { merges()[0] = Json::array({"a"}); },
      [&] {
        merges()[0] = Json::array({"a", 2});
      },
      [&] { tokenizer_["added_tokens"] = Json::object(); },
      [&] { tokenizer_["added_tokens"][0] = "x"; },
      [&] { tokenizer_["added_tokens"][0].erase("id"); },
      [&] { tokenizer_["added_tokens"][0]["content"] = 4; },
      [&] { tokenizer_["added_tokens"][0]["content"] = ""; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    tokenizer_ = good;
    changes[i]();
    const auto opened = open();
    ASSERT_FALSE(opened) << "change " << i;
    EXPECT_THAT(opened.error().message, HasSubstr("tokenizer.json: ")) << "change " << i;
  }
}

TEST_F(TokenizerFiles, RefusesWhatWouldEncodeByOtherRules) {
  const Json good = tokenizer_;
  const std::function<void()> changes[] = {
      [&] { tokenizer_["normalizer"] = nullptr; },
      [&] { tokenizer_["normalizer"]["type"] = "NFKC"; },
      [&] { tokenizer_["model"]["type"] = "Unigram"; },
      [&] { tokenizer_["model"]["byte_fallback"] = true; },
      [&] { tokenizer_["model"]["ignore_merges"] = true; },
      [&] { tokenizer_["model"]["dropout"] = 0.1; },
      [&] { tokenizer_["model"]["unk_token"] = "?"; },
      [&] {
        tokenizer_["pre_tokenizer"] = {{"type", "ByteLevel"}};
      },
      [&] { tokenizer_["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
      [&] { tokenizer_["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; },
      [&] { tokenizer_["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; },
      [&] { tokenizer_["added_tokens"][0]["lstrip"] = true; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    tokenizer_ = good;
    changes[i]();
    const auto opened = open();
    ASSERT_FALSE(opened) << "change " << i;
    EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported) << opened.error().message;
  }
}

TEST_F(TokenizerFiles, RefusesMergeOfUnknownSymbol) {
  merges()[3] = "zq qz";
  expect_refused("needs \"zq\"");
}

TEST_F(TokenizerFiles, RefusesMergeWithUnknownResult) {
  merges().push_back("~ ~");
  expect_refused("needs \"~~\"");
}

TEST_F(TokenizerFiles, RefusesMergeTwice) {
  merges().push_back(merges()[0]);
  expect_refused("listed twice");
}

TEST_F(TokenizerFiles, RefusesVocabularyWithoutAByte) {
  vocabulary().erase("\xC4\xA0");  // the symbol of a space
  expect_refused("byte 32");
}

TEST_F(TokenizerFiles, RefusesDuplicateIds) {
  vocabulary()["a"] = vocabulary()["b"];
  expect_refused("both have the id");
}

TEST_F(TokenizerFiles, RefusesAbsurdIds) {
  for (const Json& id : {Json(-1), Json(1U << 20U), Json(0xFFFFFFFFFFFFFFFFU)}) {
    vocabulary()["a"] = id;
    expect_refused("wanted a token id below");
  }
}

TEST_F(TokenizerFiles, RefusesConflictingAddedTokens) {
  const Json good = tokenizer_;
  tokenizer_["added_tokens"][1]["id"] = tokenizer_["added_tokens"][0]["id"];
  expect_refused("has already");
  tokenizer_ = good;
  tokenizer_["added_tokens"][0]["id"] = 575;  // tokenizer_config.json says otherwise
  expect_refused("has the ids");
}

TEST_F(TokenizerFiles, RefusesBadConfig) {
  const Json good = config_;
  config_["added_tokens_decoder"]["12x"] = "t";
  expect_refused("added_tokens_decoder[\"12x\"]");
  config_ = good;
  config_["additional_special_tokens"] = "t";
  expect_refused("additional_special_tokens is a string");
  config_ = good;
  config_["additional_special_tokens"].push_back(Json::array());
  expect_refused("has no text");
  config_ = good;
  for (int i = 0; i < 2000; ++i) {
    config_["additional_special_tokens"].push_back(fmt::format("t{}", i));
  }
  expect_refused("at most 1024");
}

TEST_F(TokenizerFiles, RefusesBrokenRegex) {
  auto& pattern = tokenizer_["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  for (const char* broken : {"(a", "[z-a]", "a**b(", "\\p{Nope}", "(?<=a*)b", "\\C"}) {
    pattern = broken;
    expect_refused("not a regular expression");
  }
  pattern = std::string(100'000, 'a');
  expect_refused("at most 4096");
}

TEST_F(TokenizerFiles, RefusesBrokenJson) {
  const std::string text = tokenizer_.dump();
  expect_text_refused("", "not valid JSON");
  expect_text_refused(text.substr(0, text.size() / 2), "not valid JSON");
  expect_text_refused("[1, 2]", "wanted an object");
  expect_text_refused("{\"model\": {}, \"model\": {}}", "twice");
  expect_text_refused("{\"a\xFF\": 1}", "not valid JSON");
  expect_text_refused("{\"a\":" + std::string(1'000'000, '['), "nested deeper");
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) {
    deep = fmt::format("{{\"a\":{}}}", deep);
  }
  expect_text_refused(deep, "nested deeper");
}

TEST_F(TokenizerFiles, RefusesHugeFile) {
  testing::write_file(folder_ / "tokenizer.json", "{}");
  std::filesystem::resize_file(folder_ / "tokenizer.json", std::uintmax_t{1} << 36U);
  const auto opened = Tokenizer::open(folder_.path());
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("at most"));
}

TEST_F(TokenizerFiles, MissingFilesAreNotFound) {
  for (const auto& path : {folder_.path(), folder_ / "none"}) {
    const auto opened = Tokenizer::open(path);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(opened.error().message, HasSubstr(path.string()));
  }
}

TEST_F(TokenizerFiles, RefusesBrokenMergesFile) {
  std::filesystem::copy_file(kMicro / "vocab.json", folder_ / "vocab.json");
  for (const char* text : {"nospace\n", "a b c\n", " a\n", "a \n", "#version: 0.2\n#x\n"}) {
    testing::write_file(folder_ / "merges.txt", text);
    const auto opened = Tokenizer::open(folder_.path());
    ASSERT_FALSE(opened) << text;
    EXPECT_THAT(opened.error().message, HasSubstr("merges.txt: merge 0"));
  }
}

}  // namespace
}  // namespace miniacc
