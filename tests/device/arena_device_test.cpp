#include "device/arena_device.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "device/cpu_device.h"

namespace miniacc {
namespace {

TEST(ArenaDevice, HandsOutFreedPiecesAgainWithoutAskingTheDevice) {
  CpuDevice memory;
  ArenaDevice arena(memory);
  ASSERT_TRUE(arena.reserve(std::size_t{1} << 20));
  const std::size_t taken = memory.bytes_in_use();
  void* first = nullptr;
  {
    const Buffer buffer = arena.allocate(1000).value();
    first = buffer.data();
    EXPECT_EQ(arena.bytes_in_use(), 1024U) << "in steps of 256";
  }
  EXPECT_EQ(arena.bytes_in_use(), 0U);
  EXPECT_EQ(arena.allocate(1000).value().data(), first);
  EXPECT_EQ(memory.bytes_in_use(), taken);
  EXPECT_EQ(arena.peak_bytes(), 1024U);
}

TEST(ArenaDevice, NeighboursThatWereGivenBackAreOnePiece) {
  CpuDevice memory;
  ArenaDevice arena(memory);
  ASSERT_TRUE(arena.reserve(3 * 1024));
  {
    const Buffer a = arena.allocate(1024).value();
    Buffer b = arena.allocate(1024).value();
    const Buffer c = arena.allocate(1024).value();
    b = Buffer();
  }
  const std::size_t regions = arena.region_bytes();
  const Buffer all = arena.allocate(3 * 1024).value();
  EXPECT_EQ(arena.region_bytes(), regions);
}

TEST(ArenaDevice, PiecesNeverOverlap) {
  CpuDevice memory;
  ArenaDevice arena(memory);
  ASSERT_TRUE(arena.reserve(std::size_t{1} << 18));
  std::mt19937 random(7);
  struct Piece {
    Buffer buffer;
    unsigned char mark;
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < 3000; ++i) {
    if (pieces.empty() || random() % 5 < 3) {
      Piece piece{arena.allocate(1 + random() % 9000).value(),
                  static_cast<unsigned char>(random() & 0xFFU)};
      std::fill_n(static_cast<unsigned char*>(piece.buffer.data()), piece.buffer.size_bytes(),
                  piece.mark);
      pieces.push_back(std::move(piece));
    } else {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const auto* bytes = static_cast<const unsigned char*>(pieces.back().buffer.data());
      for (std::size_t at = 0; at < pieces.back().buffer.size_bytes(); ++at) {
        ASSERT_EQ(bytes[at], pieces.back().mark) << "step " << i;
      }
      pieces.pop_back();
    }
  }
  pieces.clear();
  EXPECT_EQ(arena.bytes_in_use(), 0U);
  arena.trim();
  EXPECT_EQ(arena.region_bytes(), 0U);
  EXPECT_EQ(memory.bytes_in_use(), 0U);
}

TEST(ArenaDevice, GivesUnusedRegionsBackBeforeItRefuses) {
  CpuDevice memory(100 * 1024);
  ArenaDevice arena(memory);
  ASSERT_TRUE(arena.reserve(90 * 1024));
  const auto too_large = arena.allocate(std::size_t{200} << 10);
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(arena.allocate(95 * 1024)) << "in place of the region that was not used";
  ASSERT_TRUE(arena.reserve(10 * 1024));
}

}  // namespace
}  // namespace miniacc
