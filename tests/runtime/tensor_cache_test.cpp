#include "runtime/tensor_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "device/cpu_device.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class Cache : public ::testing::Test {
 protected:
  TensorCache open(std::size_t max_bytes = 1 << 20) {
    return TensorCache::open(dir_ / "cache", max_bytes).value();
  }
  Tensor tensor(const Shape& shape, float first) {
    Tensor made = empty_tensor(device_, shape);
    for (float& value : made.f32()) {
      value = first++;
    }
    return made;
  }
  std::optional<std::vector<Tensor>> find(const TensorCache& cache, const std::string& key) {
    warning_.clear();
    return cache.find(key, device_, warning_);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(dir_ / "cache")) {
      found.push_back(entry.path());
    }
    return found;
  }

  testing::TempDir dir_;
  CpuDevice device_;
  std::string warning_;
};

TEST_F(Cache, GivesBackWhatWasStoredBitForBit) {
  const TensorCache cache = open();
  Tensor a = tensor({2, 3}, 1.0F);
  a.f32()[0] = -0.0F;
  const Tensor b = tensor({4}, 9.5F);
  EXPECT_FALSE(find(cache, "prompt"));
  ASSERT_TRUE(cache.store("prompt", {a.view(), b.view()}));
  const auto found = find(open(), "prompt");
  ASSERT_TRUE(found) << warning_;
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[0].shape(), Shape({2, 3}));
  EXPECT_TRUE(std::signbit((*found)[0].f32()[0]));
  EXPECT_THAT((*found)[1].f32(), ElementsAre(9.5F, 10.5F, 11.5F, 12.5F));
  EXPECT_FALSE(find(cache, "prompt "));
  EXPECT_FALSE(find(cache, ""));
}

TEST_F(Cache, ALaterStoreReplaces) {
  const TensorCache cache = open();
  const Tensor a = tensor({2}, 1.0F);
  const Tensor b = tensor({2}, 5.0F);
  ASSERT_TRUE(cache.store("k", {a.view()}));
  ASSERT_TRUE(cache.store("k", {b.view()}));
  EXPECT_THAT(find(cache, "k")->at(0).f32(), ElementsAre(5.0F, 6.0F));
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(Cache, DamageIsSeenSaidAndRemoved) {
  const TensorCache cache = open();
  const Tensor a = tensor({64}, 1.0F);
  for (const int damage : {0, 1, 2}) {
    ASSERT_TRUE(cache.store("k", {a.view()}));
    const fs::path path = files().at(0);
    const auto size = fs::file_size(path);
    if (damage == 0) {  // one bit of the data
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(size) - 5);
      file.put('\x01');
    } else if (damage == 1) {
      fs::resize_file(path, size - 8);
    } else {
      std::ofstream(path, std::ios::trunc) << "no tensors";
    }
    EXPECT_FALSE(find(cache, "k")) << damage;
    EXPECT_THAT(warning_, HasSubstr("damaged cache file was removed")) << damage;
    EXPECT_TRUE(files().empty()) << damage;
    EXPECT_FALSE(find(cache, "k"));
    EXPECT_EQ(warning_, "");
  }
}

TEST_F(Cache, AFileUnderAnotherKeysNameIsNotServed) {
  const TensorCache cache = open();
  const Tensor a = tensor({2}, 1.0F);
  ASSERT_TRUE(cache.store("one", {a.view()}));
  const fs::path one = files().at(0);
  ASSERT_TRUE(cache.store("two", {a.view()}));
  for (const fs::path& path : files()) {
    if (path != one) {
      fs::copy_file(one, path, fs::copy_options::overwrite_existing);
    }
  }
  EXPECT_FALSE(find(cache, "two"));
  EXPECT_THAT(warning_, HasSubstr("something else"));
}

TEST_F(Cache, LinksAreNotFollowed) {
  const TensorCache cache = open();
  const Tensor a = tensor({2}, 1.0F);
  ASSERT_TRUE(cache.store("k", {a.view()}));
  const fs::path path = files().at(0);
  fs::rename(path, dir_ / "elsewhere");
  fs::create_symlink(dir_ / "elsewhere", path);
  EXPECT_FALSE(find(cache, "k"));
}

TEST_F(Cache, TheLeastRecentlyUsedGoesFirst) {
  const Tensor a = tensor({256}, 1.0F);  // 1 KiB and a header: two fit, three do not
  const TensorCache cache = open(3000);
  const auto age = [&](const std::string& key, int minutes) {
    ASSERT_TRUE(cache.store(key, {a.view()}));
    for (const fs::path& path : files()) {
      if (fs::last_write_time(path) > fs::file_time_type::clock::now() - std::chrono::seconds(30)) {
        fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
      }
    }
  };
  age("old", 30);
  age("older", 60);
  ASSERT_TRUE(find(cache, "older"));  // a hit makes it the newest
  ASSERT_TRUE(cache.store("new", {a.view()}));
  EXPECT_TRUE(find(cache, "new"));
  EXPECT_TRUE(find(cache, "older"));
  EXPECT_FALSE(find(cache, "old"));
}

TEST_F(Cache, WhatIsLargerThanTheLimitIsNotKept) {
  const Tensor a = tensor({2048}, 1.0F);
  const TensorCache cache = open(4000);
  ASSERT_TRUE(cache.store("k", {a.view()}));
  EXPECT_TRUE(files().empty());
}

TEST_F(Cache, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(dir_ / "file") << "x";
  const auto cache = TensorCache::open(dir_ / "file" / "cache", 100);
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code, ErrorCode::kIo);
  EXPECT_THAT(cache.error().message, HasSubstr("cache"));
}

TEST_F(Cache, WhatDoesNotFitInMemoryIsNoDamage) {
  const Tensor a = tensor({2048}, 1.0F);
  const TensorCache cache = open();
  ASSERT_TRUE(cache.store("k", {a.view()}));
  CpuDevice small(1024);
  std::string warning;
  EXPECT_FALSE(cache.find("k", small, warning));
  EXPECT_EQ(warning, "");
  EXPECT_EQ(files().size(), 1U);
}

}  // namespace
}  // namespace miniacc
