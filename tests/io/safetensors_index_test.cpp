#include <gtest/gtest.h>

#include <string>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/tensor_file.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::expect_error;
using testing::safetensors_bytes;
using testing::write_file;

/// Two shards: "a" and "b" in one, "c" in two, one byte each.
class SafetensorsIndex : public ::testing::Test {
 protected:
  SafetensorsIndex() {
    write_file(dir_ / "one.safetensors",
               safetensors_bytes(R"({"__metadata__":{"format":"pt","part":"one"},)"
                                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                 "AB"));
    write_file(dir_ / "two.safetensors",
               safetensors_bytes(R"({"__metadata__":{"format":"pt","part":"two"},)"
                                 R"("c":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                 "C"));
  }
  Result<TensorFile> open(const std::string& json) {
    write_file(dir_ / "model.safetensors.index.json", json);
    return TensorFile::open(dir_ / "model.safetensors.index.json");
  }
  Result<TensorFile> open_map(const std::string& pairs) {
    return open(R"({"metadata":{"total_size":3,"deep":[{"weight_map":{}}]},"weight_map":{)" +
                pairs + "}}");
  }

  const std::string right_ = R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors")";
  testing::TempDir dir_;
};

TEST_F(SafetensorsIndex, JoinsTheShards) {
  const auto file = open_map(right_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->format(), ContainerFormat::kSafetensors);
  EXPECT_EQ(file->files().size(), 2U);
  std::string content;
  for (const TensorEntry& entry : file->entries()) {
    content += entry.name + std::to_integer<char>(file->bytes(entry).value()[0]);
  }
  EXPECT_EQ(content, "aAbBcC");
  EXPECT_EQ(file->metadata().at("part"), "one");
}

TEST_F(SafetensorsIndex, RejectsWhatIsNoIndex) {
  expect_error(open("{}"), "has no weight_map, so it is not a safetensors index");
  expect_error(open(R"({"architectures":["x"],"hidden_size":5})"), "has no weight_map");
  expect_error(open("[1,2]      "), "is a JSON array, wanted a safetensors index");
  expect_error(open("{\"weight_map\":"), "is not valid JSON at byte");
  expect_error(open(R"({"weight_map":{}})"), "weight_map is empty");
  expect_error(open(R"({"weight_map":[]})"), "weight_map is not an object");
  expect_error(open(R"({"weight_map":7})"), "weight_map is not an object");
  expect_error(open(R"({"weight_map":"one.safetensors"})"), "weight_map is not an object");
  expect_error(open_map(R"("a":7)"), "gives no shard name for tensor a");
  expect_error(open_map(R"("a":{"b":"c"})"), "gives no shard name for tensor a");
}

TEST_F(SafetensorsIndex, RejectsDuplicates) {
  expect_error(open_map(right_ + R"(,"a":"two.safetensors")"), "weight_map has tensor a twice");
  expect_error(open("{\"weight_map\":{" + right_ + "},\"weight_map\":{" + right_ + "}}"),
               "has weight_map twice");
}

TEST_F(SafetensorsIndex, RejectsShardsOutsideTheFolder) {
  expect_error(open_map(R"("a":"../one.safetensors")"),
               "weight_map sends tensor a to shard '../one.safetensors', which leaves the folder");
  expect_error(open_map(R"("a":"sub/../../x.safetensors")"), "leaves the folder");
  expect_error(open_map(R"("a":"/etc/passwd")"), "is an absolute path");
  expect_error(open_map(R"("a":"")"), "is empty");
  expect_error(open_map(R"("a":"x\u0000y")"), "holds control characters");
}

TEST_F(SafetensorsIndex, NamesTheMissingShard) {
  std::filesystem::remove(dir_ / "two.safetensors");
  expect_error(open_map(right_), "shard two.safetensors with 1 tensors is missing",
               ErrorCode::kNotFound);
}

TEST_F(SafetensorsIndex, NamesTheBrokenShard) {
  write_file(dir_ / "two.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  expect_error(open_map(right_), "two.safetensors: is a git-lfs pointer");
  const std::string whole = testing::read_file(dir_ / "one.safetensors");
  write_file(dir_ / "one.safetensors", whole.substr(0, whole.size() - 1));
  expect_error(open_map(right_), "one.safetensors: is truncated");
}

TEST_F(SafetensorsIndex, RefusesOtherFilesAsShards) {
  write_file(dir_ / "two.safetensors", "GGUF....");
  expect_error(open_map(right_), "two.safetensors: is not a safetensors file, but ");
  expect_error(open_map(R"("a":"model.safetensors.index.json")"), "is not a safetensors file");
  expect_error(open_map(R"("a":".")"), "is a folder, wanted a file");
}

TEST_F(SafetensorsIndex, RejectsMapThatDisagreesWithTheShards) {
  expect_error(open_map(right_ + R"(,"d":"two.safetensors")"),
               "weight_map lists tensor d in two.safetensors, which lacks it");
  expect_error(open_map(R"("a":"one.safetensors","c":"two.safetensors")"),
               "weight_map does not list tensor b of shard one.safetensors");
  expect_error(open_map(R"("a":"one.safetensors","b":"two.safetensors","c":"two.safetensors")"),
               "weight_map sends tensor b to two.safetensors, but one.safetensors holds one too");
}

TEST_F(SafetensorsIndex, OneFileUnderTwoSpellingsIsADuplicate) {
  expect_error(open_map(R"("a":"one.safetensors","b":"./one.safetensors","c":"two.safetensors")"),
               "holds one too");
}

}  // namespace
}  // namespace miniacc
