#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/tensor_file.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::little_endian;
using ::testing::Pair;
using testing::safetensors_bytes;
using testing::write_file;

class Safetensors : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& bytes) {
    write_file(dir_ / "model.safetensors", bytes);
    return dir_ / "model.safetensors";
  }
  Result<TensorFile> open(const std::string& header, const std::string& data = {}) {
    return TensorFile::open(write(safetensors_bytes(header, data)));
  }

  testing::TempDir dir_;
};

TEST_F(Safetensors, ReadsNamesShapesBytesAndMetadata) {
  const auto file = open(R"({"__metadata__":{"format":"pt","note":"a\"b"},)"
                         R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},)"
                         R"("a.comfy_quant":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                         R"("scalar":{"shape":[],"dtype":"BF16","data_offsets":[11,13]}}   )",
                         "abc01234567XY");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->format(), ContainerFormat::kSafetensors);
  EXPECT_EQ(file->path(), dir_ / "model.safetensors");
  ASSERT_EQ(file->entries().size(), 3U);
  EXPECT_EQ(file->entries()[0].name, "a.comfy_quant");
  EXPECT_EQ(file->entries()[1].name, "b");
  EXPECT_EQ(file->entries()[2].name, "scalar");
  EXPECT_THAT(file->metadata(), ElementsAre(Pair("format", "pt"), Pair("note", "a\"b")));
  const TensorEntry* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kF32);
  EXPECT_EQ(b->shape, Shape({2, 1}));
  const auto bytes = file->bytes(*b);
  ASSERT_TRUE(bytes);
  ASSERT_EQ(bytes->size(), 8U);
  EXPECT_EQ(std::memcmp(bytes->data(), "01234567", 8), 0);
  EXPECT_EQ(file->find("scalar")->shape.rank(), 0);
  EXPECT_EQ(file->find("scalar")->size_bytes, 2U);
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->find(""), nullptr);
}

TEST_F(Safetensors, ReadsEveryDType) {
  const std::vector<std::pair<const char*, DType>> types = {
      {"F64", DType::kF64},   {"F32", DType::kF32},        {"F16", DType::kF16},
      {"BF16", DType::kBF16}, {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2},
      {"I64", DType::kI64},   {"I32", DType::kI32},        {"I16", DType::kI16},
      {"I8", DType::kI8},     {"U8", DType::kU8},          {"BOOL", DType::kBool},
  };
  for (const auto& [name, dtype] : types) {
    const std::size_t size = 3 * block_bytes(dtype);
    const auto file = open(R"({"x":{"dtype":")" + std::string(name) +
                               R"(","shape":[3],"data_offsets":[0,)" + std::to_string(size) + "]}}",
                           std::string(size, '\0'));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->entries()[0].dtype, dtype) << name;
  }
}

TEST_F(Safetensors, AcceptsNoTensorsEmptyTensorsAndNullMetadata) {
  EXPECT_TRUE(open("{}"));
  EXPECT_TRUE(open(R"({"__metadata__":null})"));
  const auto file = open(R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},)"
                         R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("c":{"dtype":"F32","shape":[3,0],"data_offsets":[1,1]}})",
                         "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->bytes(*file->find("c")).value().empty());
}

TEST_F(Safetensors, RejectsFileShorterThanAHeader) {
  expect_error(TensorFile::open(write("\x02")), "is truncated: 1 bytes are too few");
  expect_error(TensorFile::open(write(safetensors_bytes("", ""))), "incomplete download");
}

TEST_F(Safetensors, RejectsHeaderLongerThanFile) {
  const std::string whole = safetensors_bytes("{      }", "");
  expect_error(TensorFile::open(write(whole.substr(0, 12))),
               "is truncated: its header is 8 bytes long, the file has 12");
}

TEST_F(Safetensors, RejectsHeaderOfAbsurdLength) {
  expect_error(TensorFile::open(write(little_endian<std::uint64_t>(100'000'001) + "{}")),
               "header would be 100000001 bytes long, at most 100000000");
  expect_error(TensorFile::open(write(little_endian<std::uint64_t>(-1) + "{}")),
               "header would be 18446744073709551615 bytes long");
}

TEST_F(Safetensors, RejectsWhatIsNotJson) {
  expect_error(open("{\"a\":}"), "not valid JSON at byte 14");
  expect_error(open("{} {}"), "not valid JSON");
  expect_error(open("{"), "not valid JSON");
  expect_error(open("{\"a\xFF\":{}}"), "not valid JSON");  // not UTF-8
  expect_error(open("[1]"), "the header holds an array, wanted an object");
}

TEST_F(Safetensors, RejectsDeepNesting) {
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) {
    deep += "[";
  }
  expect_error(open(deep), "tensor a holds an array, wanted an object");
}

TEST_F(Safetensors, RejectsDuplicateNames) {
  const std::string a = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_error(open("{" + a + "," + a + "}"), "the header has tensor a twice");
  expect_error(open(R"({"__metadata__":{},"__metadata__":{}})"), "has __metadata__ twice");
  expect_error(open(R"({"__metadata__":{"k":"1","k":"2"}})"), "has the key k twice");
  expect_error(open(R"({"a":{"dtype":"U8","dtype":"I8","shape":[],"data_offsets":[0,1]}})", "x"),
               "tensor a has dtype twice");
  expect_error(open(R"({"a":{"dtype":"U8","shape":[],"shape":[],"data_offsets":[0,1]}})", "x"),
               "tensor a has shape twice");
}

TEST_F(Safetensors, RejectsBadNames) {
  expect_error(open(R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), "is empty");
  expect_error(open(R"({"a\u001b[31m":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
               "tensor name 'a?[31m' holds control characters");
  expect_error(open("{\"a\xC2\x9B\":{}}"), "holds control characters");
  expect_error(open("{\"" + std::string(2000, 'n') + "\":{}}"),
               "is 2000 bytes long, at most 1024 are allowed");
}

TEST_F(Safetensors, RejectsMissingAndUnknownFields) {
  expect_error(open(R"({"a":{"shape":[],"data_offsets":[0,1]}})", "x"), "tensor a lacks dtype");
  expect_error(open(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x"), "tensor a lacks shape");
  expect_error(open(R"({"a":{"dtype":"U8","shape":[]}})"), "tensor a lacks data_offsets");
  expect_error(open(R"({"a":{"dtype":"U8","shape":[],"stride":[]}})"),
               "tensor a has an unknown field stride");
}

TEST_F(Safetensors, RejectsFieldsOfTheWrongKind) {
  expect_error(open(R"({"a":7})"), "tensor a holds a number, wanted an object");
  expect_error(open(R"({"a":null})"), "tensor a holds null, wanted an object");
  expect_error(open(R"({"a":{"dtype":3}})"), "dtype of tensor a holds a number, wanted a string");
  expect_error(open(R"({"a":{"shape":"3"}})"), "shape of tensor a holds a string, wanted an array");
  expect_error(open(R"({"a":{"shape":[[1]]}})"),
               "shape of tensor a holds an array, wanted a number");
  expect_error(open(R"({"a":{"shape":[true]}})"), "holds a boolean, wanted a number");
  expect_error(open(R"({"a":{"shape":{}}})"), "holds an object, wanted an array");
  expect_error(open(R"({"__metadata__":{"a":1}})"), "__metadata__ key a holds a number");
  expect_error(open(R"({"__metadata__":"a"})"), "__metadata__ holds a string, wanted an object");
}

TEST_F(Safetensors, RejectsUnsupportedAndUnknownDTypes) {
  expect_error(open(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "x"),
               "tensor a has the unsupported dtype F4", ErrorCode::kUnsupported);
  expect_error(open(R"({"a":{"dtype":"float","shape":[],"data_offsets":[0,4]}})", "xxxx"),
               "tensor a has the unknown dtype float");
  expect_error(open(R"({"a":{"dtype":"f32","shape":[],"data_offsets":[0,4]}})", "xxxx"),
               "unknown dtype f32");
}

TEST_F(Safetensors, RejectsBadDimensions) {
  const auto with_shape = [&](const char* shape) {
    return open(
        R"({"a":{"dtype":"F64","shape":)" + std::string(shape) + R"(,"data_offsets":[0,8]}})",
        "01234567");
  };
  expect_error(with_shape("[-1]"), "shape of tensor a holds -1, wanted a number of 0 or more");
  expect_error(with_shape("[1.0]"), "holds 1.0, wanted an integer below 2^64");
  expect_error(with_shape("[1e3]"), "holds 1e3, wanted an integer");
  expect_error(with_shape("[18446744073709551616]"), "holds 18446744073709551616, wanted");
  expect_error(with_shape("[18446744073709551615]"), "product overflows 63 bits");
  expect_error(with_shape("[4294967296,4294967296]"), "product overflows 63 bits");
  expect_error(with_shape("[0,4294967296,4294967296]"), "product overflows 63 bits");
  expect_error(with_shape("[2305843009213693952]"), "wanted over 2^64 bytes");
  expect_error(with_shape("[1,1,1,1,1,1,1]"), "has 7 dimensions, at most 6 are supported");
  EXPECT_TRUE(with_shape("[1,1,1,1,1,1]"));
}

TEST_F(Safetensors, RejectsSizeThatDoesNotMatchTheShape) {
  expect_error(
      open(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", std::string(20, 'x')),
      "tensor a is F32 [2, 3], wanted 24 bytes, its data_offsets span 20");
}

TEST_F(Safetensors, RejectsBadOffsets) {
  const auto with_offsets = [&](const char* offsets) {
    return open(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(offsets) + "}}",
                "0123");
  };
  expect_error(with_offsets("[4,0]"), "begin at 4 after their end 0");
  expect_error(with_offsets("[0]"), "holds 1 numbers, wanted two");
  expect_error(with_offsets("[0,4,8]"), "holds more than two numbers");
  expect_error(with_offsets("[-4,0]"), "holds -4, wanted a number of 0 or more");
  expect_error(with_offsets("[18446744073709551611,18446744073709551615]"), "overflows 64 bits");
  EXPECT_TRUE(with_offsets("[0,4]"));
}

TEST_F(Safetensors, RejectsOffsetsBeyondTheFile) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const std::string size = std::to_string(8 + header.size() + 4);
  expect_error(open(header, "012"), "is truncated: its header describes " + size + " bytes");
}

TEST_F(Safetensors, RejectsOverlap) {
  expect_error(open(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                    "0123456"),
               "tensors a and b overlap at byte");
  expect_error(open(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                    "0123"),
               "tensors a and b overlap");
}

TEST_F(Safetensors, RejectsHolesAndTrailingBytes) {
  expect_error(open(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                    "01234"),
               "1 bytes before tensor b belong to no tensor");
  expect_error(open(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "012"),
               "1 bytes before tensor a belong to no tensor");
  expect_error(open(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "01234"),
               "3 bytes after the last tensor belong to no tensor");
  expect_error(open("{}", "x"), "1 bytes after the last tensor");
}

TEST_F(Safetensors, RejectsEveryTruncation) {
  const std::string whole =
      safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                        R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                        "0123");
  ASSERT_TRUE(TensorFile::open(write(whole)));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto file = TensorFile::open(write(whole.substr(0, size)));
    ASSERT_FALSE(file) << size << " bytes";
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(file.error().message, HasSubstr("model.safetensors: is "));
  }
}

TEST_F(Safetensors, RefusesAFolder) {
  expect_error(TensorFile::open(dir_.path()), "is a folder, wanted a file");
}

TEST_F(Safetensors, ReadAfterShrinkingIsAnError) {
  const auto file = open(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "0123");
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->bytes(file->entries()[0]));
  ASSERT_EQ(truncate((dir_ / "model.safetensors").c_str(), 20), 0);
  expect_error(file->bytes(file->entries()[0]), "changed while in use", ErrorCode::kIo);
}

TEST_F(Safetensors, DroppedTensorReadsAgain) {
  std::string data(100000, 'x');
  data[50000] = 'y';
  const auto file =
      open(R"({"a":{"dtype":"U8","shape":[100000],"data_offsets":[0,100000]}})", data);
  ASSERT_TRUE(file) << file.error().message;
  const TensorEntry& entry = file->entries()[0];
  ASSERT_EQ(std::memcmp(file->bytes(entry)->data(), data.data(), data.size()), 0);
  file->drop_pages(entry);
  EXPECT_EQ(std::memcmp(file->bytes(entry)->data(), data.data(), data.size()), 0);
}

}  // namespace
}  // namespace miniacc
