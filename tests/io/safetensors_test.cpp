#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "io/file_util.h"
#include "io/tensor_file.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::safetensors_bytes;
using testing::write_file;

std::vector<std::string> names(const TensorFile& file) {
  std::vector<std::string> result;
  for (const TensorEntry& entry : file.entries()) {
    result.push_back(entry.name);
  }
  return result;
}

class Safetensors : public ::testing::Test {
 protected:
  std::filesystem::path write(std::string_view bytes, const char* name = "model.safetensors") {
    write_file(dir_ / name, bytes);
    return dir_ / name;
  }
  Result<TensorFile> open(std::string_view header, std::string_view data = {}) {
    return TensorFile::open(write(safetensors_bytes(header, data)));
  }
  /// Opening fails with this code, and the message names the file and says this.
  void expect_error(const Result<TensorFile>& result, const char* message,
                    ErrorCode code = ErrorCode::kInvalidInput) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, code);
    EXPECT_THAT(result.error().message, HasSubstr(message));
    EXPECT_THAT(result.error().message, HasSubstr(dir_.path().string()));
  }

  testing::TempDir dir_;
};

TEST_F(Safetensors, ReadsNamesShapesBytesAndMetadata) {
  const auto file = open(R"({"__metadata__":{"format":"pt","note":"a\"b"},)"
                         R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},)"
                         R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                         R"("scalar":{"shape":[],"dtype":"BF16","data_offsets":[11,13]}}   )",
                         "abc01234567XY");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->format(), ContainerFormat::kSafetensors);
  EXPECT_THAT(names(*file), ElementsAre("a", "b", "scalar"));
  EXPECT_THAT(file->metadata(), ElementsAre(Pair("format", "pt"), Pair("note", "a\"b")));
  const TensorEntry* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kF32);
  EXPECT_EQ(b->shape, Shape({2, 1}));
  const auto bytes = file->bytes(*b);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(std::memcmp(bytes->data(), "01234567", 8), 0);
  EXPECT_EQ(bytes->size(), 8U);
  EXPECT_EQ(file->find("scalar")->shape.rank(), 0);
  EXPECT_EQ(file->find("scalar")->size_bytes, 2U);
  EXPECT_EQ(file->find("c"), nullptr);
}

}  // namespace
}  // namespace miniacc
