#include "io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::expect_error;
using testing::write_file;

/// Pages of the part that are in this process's memory map right now, from /proc/self/smaps.
std::size_t resident_kb(const MappedFile& file) {
  const std::string maps = testing::read_file("/proc/self/smaps");
  const std::size_t region = maps.find(file.path().string());
  EXPECT_NE(region, std::string::npos);
  const std::size_t rss = maps.find("Rss:", region);
  return std::stoul(maps.substr(rss + 4, 40));
}

TEST(MappedFile, ServesTheBytesAndItsPath) {
  const testing::TempDir dir;
  write_file(dir / "a", "hello");
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->bytes().data()), 5), "hello");
  EXPECT_EQ(file->bytes().size(), 5U);
  EXPECT_EQ(file->path(), dir / "a");
}

TEST(MappedFile, MovesWithoutUnmapping) {
  const testing::TempDir dir;
  write_file(dir / "a", "hello");
  write_file(dir / "b", "other");
  auto file = MappedFile::open(dir / "a");
  auto other = MappedFile::open(dir / "b");
  ASSERT_TRUE(file && other);
  MappedFile moved(*std::move(file));
  *other = std::move(moved);
  EXPECT_EQ(std::to_integer<char>(other->bytes()[0]), 'h');
  EXPECT_TRUE(other->check_unchanged());
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const testing::TempDir dir;
  expect_error(MappedFile::open(dir / "none"), "no such file", ErrorCode::kNotFound);
  expect_error(MappedFile::open(dir.path()), "is a folder, wanted a file");
  write_file(dir / "empty", "");
  expect_error(MappedFile::open(dir / "empty"), "is empty (0 bytes)");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_error(MappedFile::open(dir / "pipe"), "is a device or pipe");
  expect_error(MappedFile::open("/dev/zero"), "/dev/zero: is a device or pipe");
}

TEST(MappedFile, DropsWholePagesAndStillReads) {
  const testing::TempDir dir;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::string content(64 * page, 'x');
  content.back() = 'y';
  write_file(dir / "a", content);
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file);
  const auto bytes = file->bytes();
  const auto count = [&] { return std::count(bytes.begin(), bytes.end(), std::byte{'x'}); };
  ASSERT_EQ(count(), static_cast<std::ptrdiff_t>(content.size() - 1));
  const std::size_t before = resident_kb(*file);
  ASSERT_GE(before, 64 * page / 1024);

  // The pages that the part shares with its neighbours stay.
  file->drop_pages(bytes.subspan(1, 10 * page));
  EXPECT_EQ(resident_kb(*file), before - 9 * page / 1024);
  file->drop_pages(bytes);
  EXPECT_EQ(resident_kb(*file), 0U);
  EXPECT_EQ(count(), static_cast<std::ptrdiff_t>(content.size() - 1));
  EXPECT_EQ(bytes.back(), std::byte{'y'});
}

TEST(MappedFile, DropOfLessThanAPageDoesNothing) {
  const testing::TempDir dir;
  write_file(dir / "a", std::string(10000, 'x'));
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file);
  file->drop_pages({});
  file->drop_pages(file->bytes().subspan(5, 100));
  EXPECT_EQ(file->bytes()[7], std::byte{'x'});
  const std::vector<std::byte> elsewhere(10);
  EXPECT_THROW(file->drop_pages(elsewhere), InternalError);
}

TEST(MappedFile, ShrinkingAndGrowingIsAnErrorNotACrash) {
  const testing::TempDir dir;
  write_file(dir / "a", std::string(10000, 'x'));
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->check_unchanged());
  ASSERT_EQ(truncate((dir / "a").c_str(), 100), 0);
  expect_error(file->check_unchanged(), "changed while in use: has 100 bytes, had 10000",
               ErrorCode::kIo);
  ASSERT_EQ(truncate((dir / "a").c_str(), 20000), 0);
  expect_error(file->check_unchanged(), "has 20000 bytes, had 10000", ErrorCode::kIo);
}

}  // namespace
}  // namespace miniacc
