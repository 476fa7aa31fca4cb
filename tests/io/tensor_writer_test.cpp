#include "io/tensor_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/tensor_file.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::expect_error;
using Metadata = std::map<std::string, std::string>;

std::vector<std::byte> pattern(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed) * 7) & 0xFF);
  }
  return bytes;
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// What both formats promise; the parameter picks the format.
class TensorWriterBoth : public ::testing::TestWithParam<ContainerFormat> {
 protected:
  [[nodiscard]] Result<std::unique_ptr<TensorWriter>> create(const std::vector<TensorSpec>& specs,
                                                             const Metadata& metadata = {}) const {
    const auto make = GetParam() == ContainerFormat::kGguf ? create_gguf : create_safetensors;
    return make(path_, specs, metadata);
  }

  testing::TempDir dir_;
  std::filesystem::path path_ = dir_ / "out.bin";
};
INSTANTIATE_TEST_SUITE_P(Formats, TensorWriterBoth,
                         ::testing::Values(ContainerFormat::kSafetensors, ContainerFormat::kGguf),
                         [](const auto& format) {
                           return format.param == ContainerFormat::kGguf ? "Gguf" : "Safetensors";
                         });

TEST_P(TensorWriterBoth, RoundTripsShapesBytesAndMetadata) {
  const std::vector<TensorSpec> specs = {
      {"z \"quoted\" é", DType::kF32, {2, 3}},
      {"scalar", DType::kF32, {}},
      {"empty", DType::kBF16, {0, 4}},
      {"six", DType::kI8, {1, 2, 1, 3, 1, 2}},
      {"five", DType::kF16, {2, 3, 1, 2, 2}},
      {"last", DType::kF64, {1}},
      {"end", DType::kI64, {3, 0}},
  };
  const Metadata metadata = {{"format", "pt"}, {"a", "line\nbreak \"x\" ü"}};
  auto writer = create(specs, metadata);
  ASSERT_TRUE(writer) << writer.error().message;
  int seed = 0;
  for (const TensorSpec& spec : specs) {
    const auto bytes =
        pattern(storage_bytes(spec.dtype, spec.shape.num_elements()).value(), seed++);
    const std::size_t half = bytes.size() / 2;
    ASSERT_TRUE((*writer)->append(std::span(bytes).first(half)));
    ASSERT_TRUE((*writer)->append(std::span(bytes).subspan(half)));
  }
  ASSERT_TRUE((*writer)->finish());

  const auto file = TensorFile::open(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->format(), GetParam());
  ASSERT_EQ(file->entries().size(), specs.size());
  seed = 0;
  for (const TensorSpec& spec : specs) {
    const TensorEntry* entry = file->find(spec.name);
    ASSERT_NE(entry, nullptr) << spec.name;
    EXPECT_EQ(entry->dtype, spec.dtype);
    EXPECT_EQ(entry->shape, spec.shape) << spec.name;
    const auto wanted = pattern(entry->size_bytes, seed++);
    const auto got = file->bytes(*entry).value();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end())) << spec.name;
  }
  for (const auto& [key, value] : metadata) {
    EXPECT_EQ(file->metadata().at(key), value);
  }
  EXPECT_EQ(files_in(dir_.path()), 1U);
}

TEST_P(TensorWriterBoth, OneAppendMayHoldSeveralTensors) {
  auto writer = create({{"a", DType::kI8, {3}}, {"b", DType::kI8, {5}}});
  ASSERT_TRUE(writer);
  const auto bytes = pattern(8, 1);
  ASSERT_TRUE((*writer)->append(bytes));
  ASSERT_TRUE((*writer)->finish());
  const auto file = TensorFile::open(path_);
  ASSERT_TRUE(file) << file.error().message;
  const auto b = file->bytes(*file->find("b")).value();
  EXPECT_EQ(std::memcmp(b.data(), bytes.data() + 3, 5), 0);
}

TEST_P(TensorWriterBoth, WritesNoTensorsAtAll) {
  auto writer = create({});
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->finish());
  const auto file = TensorFile::open(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->entries().empty());
  EXPECT_TRUE(file->metadata().empty());
}

TEST_P(TensorWriterBoth, UnfinishedWriterLeavesNothing) {
  {
    auto writer = create({{"a", DType::kI8, {8}}});
    ASSERT_TRUE(writer);
    ASSERT_TRUE((*writer)->append(pattern(7, 0)));
    EXPECT_EQ(files_in(dir_.path()), 1U);  // the temporary file
    EXPECT_FALSE(std::filesystem::exists(path_));
    expect_error((*writer)->finish(), "tensor 1 of 1 has 7 of its 8 bytes", ErrorCode::kInternal);
  }
  EXPECT_EQ(files_in(dir_.path()), 0U);
}

TEST_P(TensorWriterBoth, RefusesMoreBytesThanTheTensorsHave) {
  auto writer = create({{"a", DType::kI8, {8}}});
  ASSERT_TRUE(writer);
  expect_error((*writer)->append(pattern(9, 0)), "more bytes than the tensors have",
               ErrorCode::kInternal);
}

TEST_P(TensorWriterBoth, ReplacesTheTargetOnlyAtTheEnd) {
  testing::write_file(path_, "old");
  auto writer = create({{"a", DType::kI8, {1}}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->append(pattern(1, 0)));
  EXPECT_EQ(testing::read_file(path_), "old");
  ASSERT_TRUE((*writer)->finish());
  EXPECT_TRUE(TensorFile::open(path_));
}

TEST_P(TensorWriterBoth, TwoWritersOfOneTargetDoNotMeet) {
  auto first = create({{"a", DType::kI8, {1}}});
  auto second = create({{"b", DType::kI8, {1}}});
  ASSERT_TRUE(first && second);
  ASSERT_TRUE((*first)->append(pattern(1, 0)));
  ASSERT_TRUE((*second)->append(pattern(1, 0)));
  ASSERT_TRUE((*first)->finish());
  ASSERT_TRUE((*second)->finish());
  EXPECT_EQ(TensorFile::open(path_)->entries()[0].name, "b");
}

TEST_P(TensorWriterBoth, RefusesTargetsItCannotWrite) {
  path_ = dir_ / "none/out.bin";
  expect_error(create({}), "none/out.bin: cannot write in the folder: No such file",
               ErrorCode::kIo);
  path_ = dir_.path();
  expect_error(create({}), "is a folder", ErrorCode::kIo);
  EXPECT_EQ(files_in(dir_.path()), 0U);
}

/// Lowers the largest file size for its life; the signal that goes with it is ignored.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_P(TensorWriterBoth, SaysBeforeWritingThatSpaceDoesNotSuffice) {
  const FileSizeLimit limit(1 << 16);
  expect_error(create({{"a", DType::kI8, {1 << 20}}}), "cannot ", ErrorCode::kIo);
  EXPECT_EQ(files_in(dir_.path()), 0U);
}

TEST_P(TensorWriterBoth, FailedWriteIsAnErrorAndLeavesNothing) {
  {
    auto writer = create({{"a", DType::kI8, {1 << 20}}});
    ASSERT_TRUE(writer);
    const FileSizeLimit limit(1 << 16);
    expect_error((*writer)->append(pattern(1 << 20, 0)), "out.bin: cannot write a file for",
                 ErrorCode::kIo);
  }
  EXPECT_EQ(files_in(dir_.path()), 0U);
}

TEST_P(TensorWriterBoth, AFullDiskIsAnErrorAndLeavesNothing) {
  // Larger than any disk: the reservation is refused with "No space left" or "File too large".
  expect_error(create({{"a", DType::kI8, {std::int64_t{1} << 60}}}),
               "out.bin: cannot reserve space", ErrorCode::kIo);
  EXPECT_EQ(files_in(dir_.path()), 0U);
}

TEST_P(TensorWriterBoth, RefusesBadSpecs) {
  const ErrorCode code = ErrorCode::kInvalidArgument;
  expect_error(create({{"", DType::kI8, {1}}}), "tensor name '' is empty", code);
  expect_error(create({{"a\n", DType::kI8, {1}}}), "holds control characters", code);
  expect_error(create({{"a\xFF", DType::kI8, {1}}}), "is not UTF-8", code);
  expect_error(create({{"a", DType::kI8, {1}}, {"a", DType::kI8, {1}}}), "a is listed twice", code);
  const std::int64_t huge = std::int64_t{1} << 40;
  expect_error(create({{"a", DType::kI8, {huge, huge}}}), "product overflows", code);
  const std::int64_t half = std::int64_t{1} << 62;
  expect_error(create({{"a", DType::kI8, {half}}, {"b", DType::kI8, {half}}}), "over 2^63 bytes",
               code);
  expect_error(create({}, {{"k", "\xFF"}}), "metadata key 'k'", code);
  expect_error(create({}, {{"", "v"}}), "metadata key ''", code);
}

TEST(SafetensorsWriter, RefusesWhatTheFormatLacks) {
  const testing::TempDir dir;
  expect_error(create_safetensors(dir / "a", {{"w", DType::kQ8_0, {32}}}, {}),
               "tensor w is q8_0, which safetensors files cannot hold", ErrorCode::kUnsupported);
  expect_error(create_safetensors(dir / "a", {{"__metadata__", DType::kI8, {1}}}, {}),
               "__metadata__ cannot be a tensor's name", ErrorCode::kInvalidArgument);
}

TEST(SafetensorsWriter, AlignsTheData) {
  const testing::TempDir dir;
  for (const char* name : {"a", "ab", "abc"}) {
    auto writer = create_safetensors(dir / "x", {{name, DType::kF64, {0}}}, {});
    ASSERT_TRUE(writer);
    ASSERT_TRUE((*writer)->finish());
    EXPECT_EQ(std::filesystem::file_size(dir / "x") % 8, 0U);
  }
}

TEST(GgufWriter, RefusesWhatTheFormatLacks) {
  const testing::TempDir dir;
  expect_error(create_gguf(dir / "a", {{"w", DType::kU8, {32}}}, {}),
               "tensor w is u8, which GGUF files cannot hold", ErrorCode::kUnsupported);
  expect_error(create_gguf(dir / "a", {{"w", DType::kF8E4M3, {32}}}, {}), "is f8_e4m3, which",
               ErrorCode::kUnsupported);
  expect_error(create_gguf(dir / "a", {{"w", DType::kQ4_K, {2, 128}}}, {}),
               "tensor w is [2, 128], q4_k wants rows of a multiple of 256 values",
               ErrorCode::kInvalidArgument);
  expect_error(create_gguf(dir / "a", {}, {{"general.alignment", "32"}}),
               "general.alignment has a meaning of its own", ErrorCode::kInvalidArgument);
}

TEST(GgufWriter, WritesEveryBlockType) {
  const testing::TempDir dir;
  const std::vector<DType> types = {DType::kQ4_0, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K,
                                    DType::kQ6_K};
  std::vector<TensorSpec> specs;
  specs.reserve(types.size());
  for (const DType dtype : types) {
    specs.push_back({std::string(dtype_name(dtype)), dtype, {3, 256}});
  }
  auto writer = create_gguf(dir / "x", specs, {});
  ASSERT_TRUE(writer);
  for (const DType dtype : types) {
    ASSERT_TRUE((*writer)->append(pattern(storage_bytes(dtype, 3 * 256).value(), 3)));
  }
  ASSERT_TRUE((*writer)->finish());
  const auto file = TensorFile::open(dir / "x");
  ASSERT_TRUE(file) << file.error().message;
  for (const DType dtype : types) {
    const TensorEntry* entry = file->find(dtype_name(dtype));
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->dtype, dtype);
    const auto wanted = pattern(entry->size_bytes, 3);
    const auto got = file->bytes(*entry).value();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
  }
}

}  // namespace
}  // namespace miniacc
