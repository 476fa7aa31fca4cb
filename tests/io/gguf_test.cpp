#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/gguf_bytes.h"
#include "io/tensor_file.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::expect_error;
using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::little_endian;
using testing::write_file;

// Value types of the format.
constexpr std::uint32_t kUint8 = 0;
constexpr std::uint32_t kUint32 = 4;
constexpr std::uint32_t kInt32 = 5;
constexpr std::uint32_t kBool = 7;
constexpr std::uint32_t kString = 8;
constexpr std::uint32_t kArray = 9;
// Tensor types of ggml.
constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4K = 12;
constexpr std::uint32_t kI8 = 24;

std::string array(std::uint32_t type, std::uint64_t count, const std::string& items) {
  return little_endian(type) + little_endian(count) + items;
}

class Gguf : public ::testing::Test {
 protected:
  Result<TensorFile> open(const GgufBytes& file) { return open(file.bytes()); }
  Result<TensorFile> open(const std::string& bytes) {
    write_file(dir_ / "model.gguf", bytes);
    return TensorFile::open(dir_ / "model.gguf");
  }
  /// Two tensors: "a" 2 x 3 i8 and "b" of 8 f32.
  static GgufBytes two_tensors() {
    GgufBytes file;
    file.info("a", {3, 2}, kI8, 0).info("b", {8}, kF32, 32);
    file.data = std::string(64, 'x');
    return file;
  }

  testing::TempDir dir_;
};

TEST_F(Gguf, ReadsWhatThePublicPackageWrote) {
  const auto file =
      TensorFile::open(std::filesystem::path(MINIACC_TEST_DATA) / "golden/gguf/types.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->format(), ContainerFormat::kGguf);
  EXPECT_EQ(file->entries().size(), 11U);
  const auto& metadata = file->metadata();
  EXPECT_EQ(metadata.at("general.architecture"), "minimax_h3");
  EXPECT_EQ(metadata.at("test.uint8"), "200");
  EXPECT_EQ(metadata.at("test.int8"), "-100");
  EXPECT_EQ(metadata.at("test.uint16"), "60000");
  EXPECT_EQ(metadata.at("test.int16"), "-30000");
  EXPECT_EQ(metadata.at("test.uint32"), "4000000000");
  EXPECT_EQ(metadata.at("test.int32"), "-2000000000");
  EXPECT_EQ(metadata.at("test.float32"), "0.1");
  EXPECT_EQ(metadata.at("test.bool"), "true");
  EXPECT_EQ(metadata.at("test.string"), "vidéo + звук");
  EXPECT_EQ(metadata.at("test.uint64"), "18446744073709551615");
  EXPECT_EQ(metadata.at("test.int64"), "-9223372036854775808");
  EXPECT_EQ(metadata.at("test.float64"), "1e-300");
  EXPECT_EQ(metadata.at("test.array"), "[24, 20, 20, 0]");
  EXPECT_EQ(metadata.at("test.strings"), "[a, bc, ]");
  EXPECT_EQ(metadata.at("test.nested"), "[[1, 2], [3]]");
  ASSERT_NE(file->find("q4_k"), nullptr);
  EXPECT_EQ(file->find("q4_k")->dtype, DType::kQ4_K);
  EXPECT_EQ(file->find("q4_k")->shape, Shape({3, 512}));
  EXPECT_EQ(file->find("f32")->shape, Shape({2, 3, 5}));
  EXPECT_EQ(file->find("folded")->shape, Shape({2, 3, 4, 2, 2}));
}

TEST_F(Gguf, TurnsDimensionsOutermostFirst) {
  const auto file = open(two_tensors());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->metadata().empty());  // files without any pair exist
  EXPECT_EQ(file->find("a")->shape, Shape({2, 3}));
  EXPECT_EQ(file->find("a")->dtype, DType::kI8);
  EXPECT_EQ(file->bytes(*file->find("a"))->size(), 6U);
}

TEST_F(Gguf, ReadsVersion2AndNoTensors) {
  GgufBytes file = two_tensors();
  file.version = 2;
  EXPECT_TRUE(open(file));
  EXPECT_TRUE(open(GgufBytes{}));
}

TEST_F(Gguf, HonoursTheAlignment) {
  GgufBytes file = two_tensors();
  file.pair("general.alignment", kUint32, little_endian<std::uint32_t>(64));
  file.alignment = 64;
  expect_error(open(file), "tensor b has offset 32, wanted a multiple of 64");

  GgufBytes other;
  other.pair("general.alignment", kUint32, little_endian<std::uint32_t>(8));
  other.alignment = 8;
  other.info("a", {3, 2}, kI8, 0).info("b", {2}, kF32, 8);
  other.data = "abcdef..01234567";
  const auto opened = open(other);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(std::memcmp(opened->bytes(*opened->find("b"))->data(), "01234567", 8), 0);

  for (const std::uint32_t bad : {0U, 3U, 1U << 31}) {
    GgufBytes wrong;
    wrong.pair("general.alignment", kUint32, little_endian(bad));
    expect_error(open(wrong),
                 "general.alignment is " + std::to_string(bad) + ", wanted a power of two");
  }
  GgufBytes text;
  text.pair("general.alignment", kString, GgufBytes::text("32"));
  expect_error(open(text), "general.alignment is 32, wanted a power of two");
}

TEST_F(Gguf, RejectsOtherVersionsAndByteOrders) {
  GgufBytes file;
  file.version = 1;
  expect_error(open(file), "is GGUF version 1, supported are 2 and 3", ErrorCode::kUnsupported);
  file.version = 4;
  expect_error(open(file), "is GGUF version 4", ErrorCode::kUnsupported);
  file.version = 0x03000000;
  expect_error(open(file), "big-endian", ErrorCode::kUnsupported);
}

TEST_F(Gguf, RefusesUnsupportedTensorTypesByName) {
  const auto with_type = [&](std::uint32_t type) {
    GgufBytes file;
    file.info("blk.0.attn.weight", {256}, type, 0);
    file.data = std::string(512, 'x');
    return open(file);
  };
  expect_error(with_type(17), "tensor blk.0.attn.weight is stored as iq2_xs, which is not",
               ErrorCode::kUnsupported);
  expect_error(with_type(10), "stored as q2_k", ErrorCode::kUnsupported);
  expect_error(with_type(39), "stored as mxfp4", ErrorCode::kUnsupported);
  expect_error(with_type(77), "stored as type 77", ErrorCode::kUnsupported);
}

TEST_F(Gguf, RejectsAbsurdCounts) {
  GgufBytes file;
  file.num_tensors = std::uint64_t{1} << 60;
  expect_error(open(file), "a list of 1152921504606846976 tensors at byte");
  file.num_tensors = 0;
  file.num_pairs = ~std::uint64_t{0};
  expect_error(open(file), "a list of 18446744073709551615 key/value pairs");
}

TEST_F(Gguf, RejectsBadKeys) {
  GgufBytes twice;
  twice.pair("k", kUint8, "a").pair("k", kUint8, "b");
  expect_error(open(twice), "key k is present twice");
  GgufBytes empty;
  empty.pair("", kUint8, "a");
  expect_error(open(empty), "a key is 0 bytes long, wanted 1 to 65535");
  GgufBytes huge;
  huge.pair(std::string(70000, 'k'), kUint8, "a");
  expect_error(open(huge), "a key is 70000 bytes long");
  GgufBytes binary;
  binary.pair("a\xFF", kUint8, "a");
  expect_error(open(binary), "key a? is not UTF-8");
}

TEST_F(Gguf, RejectsBadValues) {
  GgufBytes type;
  type.pair("k", 13, "abcdefgh");
  expect_error(open(type), "key k has the unknown value type 13");
  GgufBytes boolean;
  boolean.pair("k", kBool, "\x02");
  expect_error(open(boolean), "key k is a boolean of value 2");
  GgufBytes text;
  text.pair("k", kString, GgufBytes::text("\xC3("));
  expect_error(open(text), "key k has a value that is not UTF-8");
  GgufBytes length;
  length.pair("k", kString, little_endian(~std::uint64_t{0}) + "abc");
  expect_error(open(length), "is truncated: key k at byte");
}

TEST_F(Gguf, BoundsArraysInSizeAndDepth) {
  GgufBytes count;
  count.pair("k", kArray, array(kInt32, std::uint64_t{1} << 62, "abcd"));
  expect_error(open(count), "a list of 4611686018427387904 items of key k");
  GgufBytes type;
  type.pair("k", kArray, array(99, 1, "abcd"));
  expect_error(open(type), "key k has the unknown value type 99");

  const auto nested = [&](int depth) {
    std::string value = array(kUint8, 1, "a");
    for (int i = 1; i < depth; ++i) {
      value = array(kArray, 1, value);
    }
    GgufBytes file;
    file.pair("k", kArray, value);
    return open(file);
  };
  EXPECT_EQ(nested(4)->metadata().at("k"), "[[[[97]]]]");
  expect_error(nested(5), "key k nests arrays more than 4 deep");
  expect_error(nested(1000), "nests arrays more than 4 deep");
}

TEST_F(Gguf, ShowsLongArraysAsACount) {
  GgufBytes file;
  file.pair("tokens", kArray, array(kUint8, 100, std::string(100, 'x')));
  EXPECT_EQ(open(file)->metadata().at("tokens"), "[100 items]");
}

TEST_F(Gguf, RefusesPartsOfASplitFile) {
  GgufBytes file;
  file.pair("split.count", 2, little_endian<std::uint16_t>(3));
  expect_error(open(file), "is one of 3 parts of a split GGUF file", ErrorCode::kUnsupported);
  GgufBytes whole;
  whole.pair("split.count", 2, little_endian<std::uint16_t>(1));
  EXPECT_TRUE(open(whole));
}

TEST_F(Gguf, RejectsBadTensorInfos) {
  const auto with_info = [&](std::string_view name, const std::vector<std::uint64_t>& dims,
                             std::uint32_t type = kF32, std::uint64_t offset = 0) {
    GgufBytes file;
    file.info(name, dims, type, offset);
    file.data = std::string(1024, 'x');
    return open(file);
  };
  expect_error(with_info("", {256}), "tensor name '' is empty");
  expect_error(with_info("a\n", {256}), "tensor name 'a?' holds control characters");
  expect_error(with_info("a\xFF", {256}), "tensor name 'a?' is not UTF-8");
  expect_error(with_info("a", {1, 1, 1, 1, 1, 1, 256}), "tensor a has 7 dimensions");
  expect_error(with_info("a", {std::uint64_t{1} << 33, std::uint64_t{1} << 33}),
               "product overflows 63 bits");
  expect_error(with_info("a", {~std::uint64_t{0}}), "product overflows 63 bits");
  expect_error(with_info("a", {std::uint64_t{1} << 62}),
               "is truncated: tensor a is f32 [4611686018427387904], more than the file's");
  expect_error(with_info("a", {1000}), "is truncated: tensor a is f32 [1000], more than");
  expect_error(with_info("a", {128, 2}, kQ4K),
               "tensor a has rows of 128 values, q4_k wants a multiple of 256");
  expect_error(with_info("a", {4}, kF32, 5), "tensor a has offset 5, wanted a multiple of 32");
  expect_error(with_info("a", {4}, kF32, std::uint64_t{1} << 63), "is truncated: tensor a begins");
}

TEST_F(Gguf, RejectsDuplicateTensors) {
  GgufBytes file;
  file.info("a", {8}, kF32, 0).info("a", {8}, kF32, 32);
  file.data = std::string(64, 'x');
  expect_error(open(file), "tensor a is present twice");
}

TEST_F(Gguf, RejectsOverlapHolesAndTrailingBytes) {
  GgufBytes overlap;
  overlap.info("a", {16}, kF32, 0).info("b", {8}, kF32, 32);
  overlap.data = std::string(64, 'x');
  expect_error(open(overlap), "tensors a and b overlap at byte");
  GgufBytes hole;
  hole.info("a", {8}, kF32, 0).info("b", {8}, kF32, 64);
  hole.data = std::string(96, 'x');
  expect_error(open(hole), "32 bytes before tensor b belong to no tensor");
  GgufBytes trailing = two_tensors();
  trailing.data += std::string(32, 'x');
  expect_error(open(trailing), "32 bytes after the last tensor belong to no tensor");
}

TEST_F(Gguf, OriginalShapeOverridesAndIsChecked) {
  const auto with_shape = [&](const std::string& value) {
    GgufBytes file;
    file.pair("comfy.gguf.orig_shape.a", kArray, value).info("a", {4, 2}, kF32, 0);
    file.data = std::string(32, 'x');
    return open(file);
  };
  const auto ints = [](const std::vector<std::int32_t>& values) {
    std::string items;
    for (const std::int32_t value : values) {
      items += little_endian(value);
    }
    return array(kInt32, values.size(), items);
  };
  const auto file = with_shape(ints({2, 1, 2, 2, 1}));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->entries()[0].shape, Shape({2, 1, 2, 2, 1}));
  expect_error(with_shape(ints({2, 3})),
               "comfy.gguf.orig_shape.a is [2, 3], which is not a shape of the tensor's 8 values");
  expect_error(with_shape(ints({1, 1, 1, 1, 1, 1, 8})), "which is not a shape");
  expect_error(with_shape(ints({-2, -4})), "is not a short array of sizes");
  expect_error(with_shape(array(kString, 1, GgufBytes::text("8"))), "is not a short array");
}

TEST_F(Gguf, RejectsEveryTruncation) {
  GgufBytes file = two_tensors();
  file.pair("k", kArray, array(kString, 2, GgufBytes::text("ab") + GgufBytes::text("c")));
  const std::string whole = file.bytes();
  ASSERT_TRUE(open(whole));
  for (std::size_t size = 4; size < whole.size(); ++size) {
    const auto opened = open(whole.substr(0, size));
    ASSERT_FALSE(opened) << size << " bytes";
    EXPECT_THAT(opened.error().message, HasSubstr("model.gguf: is truncated: "));
  }
}

}  // namespace
}  // namespace miniacc
