#include "io/file_content.h"

#include <gtest/gtest.h>

#include <string>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::expect_error;
using testing::safetensors_bytes;
using testing::write_file;
using namespace std::string_literals;

class FileContentTest : public ::testing::Test {
 protected:
  Result<FileContent> recognise(const std::string& bytes, const char* name = "model.bin") {
    write_file(dir_ / name, bytes);
    auto file = MappedFile::open(dir_ / name);
    EXPECT_TRUE(file);
    return recognise_content(*file);
  }

  testing::TempDir dir_;
};

TEST_F(FileContentTest, DecidesByContentNotByEnding) {
  EXPECT_EQ(recognise("GGUF\x03\0\0\0"s, "a.safetensors"), FileContent::kGguf);
  EXPECT_EQ(recognise(safetensors_bytes("{}", ""), "a.gguf"), FileContent::kSafetensors);
  EXPECT_EQ(recognise("{\"weight_map\": {}}", "a.gguf"), FileContent::kSafetensorsIndex);
  EXPECT_EQ(recognise("\n  {\n"), FileContent::kSafetensorsIndex);
  EXPECT_EQ(recognise("{}"), FileContent::kSafetensorsIndex);
}

TEST_F(FileContentTest, HeaderLengthMayLookLikeAnything) {
  // 0x7B is '{', 0x8B1F the signature of gzip, 0x0280 (as bytes 80 02) that of a pickle.
  for (const std::size_t length : {0x7BU, 0x8B1FU, 0x0280U, 0x4B50U}) {
    std::string header(length, ' ');
    header.front() = '{';
    header.back() = '}';
    EXPECT_EQ(recognise(safetensors_bytes(header, "")), FileContent::kSafetensors) << length;
  }
}

TEST_F(FileContentTest, NamesTheUsualWrongFiles) {
  expect_error(recognise("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
                         "model.safetensors"),
               "is a git-lfs pointer, not the file itself");
  expect_error(recognise("<!DOCTYPE html><html>404"), "is a web page, not a checkpoint");
  expect_error(recognise("<html>404"), "is a web page");
  expect_error(recognise("PK\x03\x04 and so on"), "zip archive");
  expect_error(recognise("\x80\x02}q\x01 and so on"), "pickle");
  expect_error(recognise("\x1F\x8B\x08 and so on"), "gzip");
  expect_error(recognise(std::string(4096, '\0'), "model.safetensors"), "begins with zeros");
  expect_error(recognise("Hello, world! This is text."), "is neither a safetensors file, nor");
  expect_error(recognise("x"), "is neither a safetensors file, nor");
}

TEST_F(FileContentTest, LeavesBrokenSafetensorsToTheirReader) {
  EXPECT_EQ(recognise("abc", "a.safetensors"), FileContent::kSafetensors);
  EXPECT_EQ(recognise("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}"s), FileContent::kSafetensors);
}

}  // namespace
}  // namespace miniacc
