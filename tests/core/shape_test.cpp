#include "core/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

namespace miniacc {
namespace {

TEST(Shape, HoldsDimensionsInOrder) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape.back(), 4);
  EXPECT_EQ(shape.num_elements(), 24);
  EXPECT_EQ(shape.to_string(), "[2, 3, 4]");
  EXPECT_EQ(std::vector<std::int64_t>(shape.dims().begin(), shape.dims().end()),
            (std::vector<std::int64_t>{2, 3, 4}));
}

TEST(Shape, RankZeroHasOneElementAndAZeroDimensionNone) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().to_string(), "[]");
  EXPECT_EQ(Shape({3, 0, 5}).num_elements(), 0);
}

TEST(Shape, ComparesByRankAndDimensions) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_FALSE(Shape({2, 3}) == Shape({3, 2}));
  EXPECT_FALSE(Shape({2}) == Shape({2, 1}));
  EXPECT_FALSE(Shape({0}) == Shape());
}

TEST(Shape, SetAndPushBackChangeOneDimension) {
  Shape shape{2};
  shape.push_back(5);
  shape.set(0, 7);
  EXPECT_EQ(shape, Shape({7, 5}));
}

TEST(Shape, RefusesWhatItCannotHold) {
  EXPECT_EQ(Shape({1, 2, 3, 4, 5, 6}).rank(), Shape::kMaxRank);
  EXPECT_THROW(Shape({1, 2, 3, 4, 5, 6, 7}), InternalError);
  EXPECT_THROW(Shape({2, -1}), InternalError);
  Shape shape{2};
  EXPECT_THROW(shape.set(0, -1), InternalError);
  EXPECT_THROW(shape.set(1, 3), InternalError);
  EXPECT_THROW(static_cast<void>(shape[1]), InternalError);
  EXPECT_THROW(static_cast<void>(shape[-1]), InternalError);
  EXPECT_THROW(static_cast<void>(Shape().back()), InternalError);
}

TEST(Shape, RefusesToCountMoreElementsThanAnIntegerHolds) {
  constexpr std::int64_t kBig = std::int64_t{1} << 40;
  EXPECT_THROW(static_cast<void>(Shape({kBig, kBig}).num_elements()), InternalError);
  EXPECT_EQ(Shape({kBig, kBig, 0}).num_elements(), 0);
}

}  // namespace
}  // namespace miniacc
