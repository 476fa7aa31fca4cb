#include "runtime/lora_tags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LoraTags, LeaveThePromptWithOneOfTheirSpaces) {
  struct Case {
    const char* prompt;
    const char* wanted;
    std::size_t tags;
  };
  for (const Case& c : {Case{"a fox", "a fox", 0},
                        {"a <lora:style> fox", "a fox", 1},
                        {"<lora:style:0.5> a fox", "a fox", 1},
                        {"a fox <lora:style:-1>", "a fox", 1},
                        {"a<lora:style:1>fox", "afox", 1},
                        {"<lora:a><lora:b:2>", "", 2},
                        {"a <lora:a> <lora:b> fox", "a fox", 2},
                        {"", "", 0},
                        {"a < b > c", "a < b > c", 0}}) {
    const auto tagged = split_lora_tags(c.prompt);
    ASSERT_TRUE(tagged) << c.prompt;
    EXPECT_EQ(tagged->prompt, c.wanted);
    EXPECT_EQ(tagged->tags.size(), c.tags);
  }
  const auto tagged = split_lora_tags("x <lora:my:style v1.0:0.25> y").value();
  EXPECT_EQ(tagged.tags.front().name, "my:style v1.0");
  EXPECT_EQ(tagged.tags.front().weight, 0.25F);
}

TEST(LoraTags, ThatCannotBeMeantAreErrors) {
  for (const char* bad :
       {"<lora:", "a <lora:style", "<lora:>", "<lora::1>", "<lora:style:>", "<lora:style:x>",
        "<lora:style:nan>", "<lora:style:inf>", "<lora:style:1e99>", "<lora:style:1 >"}) {
    const auto tagged = split_lora_tags(bad);
    ASSERT_FALSE(tagged) << bad;
    EXPECT_EQ(tagged.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(split_lora_tags("<lora:" + std::string(300, 'a') + ">"));
  std::string many;
  for (int i = 0; i < 65; ++i) {
    many += "<lora:a>";
  }
  EXPECT_FALSE(split_lora_tags(many));
}

TEST(LoraTags, NameFilesOfTheFolderAndNoOthers) {
  testing::TempDir folder;
  testing::TempDir outside;
  for (const char* name : {"style_one.safetensors", "style_two.safetensors", "other.safetensors"}) {
    std::ofstream(folder / name) << "x";
  }
  std::ofstream(outside / "secret.safetensors") << "x";
  EXPECT_EQ(find_lora_file(folder / "", "style_one").value().filename(), "style_one.safetensors");
  EXPECT_EQ(find_lora_file(folder / "", "style_one.safetensors").value().filename(),
            "style_one.safetensors");
  const auto missing = find_lora_file(folder / "", "style_on");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("style_one, style_two, other"), HasSubstr("style_on.safetensors")));
  for (const std::string& bad :
       {std::string("../secret"), std::string("/etc/passwd"), std::string(".."), std::string("."),
        std::string("a/b"), std::string("a\\b"), std::string("a\0b", 3), std::string()}) {
    const auto found = find_lora_file(folder / "", bad);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  }
  std::filesystem::create_symlink(outside / "secret.safetensors", folder / "link.safetensors");
  std::filesystem::create_symlink(folder / "other.safetensors", folder / "inner.safetensors");
  EXPECT_THAT(find_lora_file(folder / "", "link").error().message, HasSubstr("leads out"));
  EXPECT_TRUE(find_lora_file(folder / "", "inner"));
  EXPECT_FALSE(find_lora_file(folder / "absent", "style_one"));
}

}  // namespace
}  // namespace miniacc
