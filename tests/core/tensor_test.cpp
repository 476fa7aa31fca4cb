#include "core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/weight_matrix.h"
#include "device/cpu_device.h"

namespace miniacc {
namespace {

std::vector<float> iota(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(TensorView, IsRowMajor) {
  std::vector<float> values = iota(24);
  const TensorView view(values.data(), {2, 3, 4}, DType::kF32);
  EXPECT_EQ(view.stride(0), 12);
  EXPECT_EQ(view.stride(1), 4);
  EXPECT_EQ(view.stride(2), 1);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_FALSE(view.empty());
  EXPECT_TRUE(TensorView().empty());
}

TEST(TensorView, NarrowKeepsStridesAndMovesTheStart) {
  std::vector<float> values = iota(24);
  const TensorView view(values.data(), {4, 6}, DType::kF32);
  const TensorView columns = view.narrow(1, 2, 3);
  EXPECT_EQ(columns.shape, Shape({4, 3}));
  EXPECT_EQ(columns.stride(0), 6);
  EXPECT_EQ(*columns.f32(), 2.0F);
  EXPECT_EQ(columns.f32()[columns.stride(0)], 8.0F);
  EXPECT_FALSE(columns.is_contiguous());
  const TensorView rows = view.narrow(0, 1, 2);
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_EQ(*rows.f32(), 6.0F);
  EXPECT_TRUE(columns.narrow(0, 3, 1).is_contiguous()) << "one row has no stride";
  EXPECT_EQ(columns.narrow(1, 1, 1).f32()[0], 3.0F);
  EXPECT_EQ(view.narrow(0, 4, 0).num_elements(), 0);
}

TEST(TensorView, NarrowCountsBytesOfItsType) {
  std::vector<std::uint16_t> bits = {1, 2, 3, 4};
  const TensorView view(bits.data(), {4}, DType::kBF16);
  EXPECT_EQ(*view.narrow(0, 3, 1).as<std::uint16_t>(), 4);
}

TEST(TensorView, NarrowRefusesRangesOutsideAndBlockTypes) {
  std::vector<float> values = iota(6);
  const TensorView view(values.data(), {2, 3}, DType::kF32);
  EXPECT_THROW(static_cast<void>(view.narrow(1, 2, 2)), InternalError);
  EXPECT_THROW(static_cast<void>(view.narrow(1, -1, 2)), InternalError);
  EXPECT_THROW(static_cast<void>(view.narrow(1, 0, -1)), InternalError);
  EXPECT_THROW(static_cast<void>(view.narrow(2, 0, 1)), InternalError);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(static_cast<void>(view.narrow(1, kMax, kMax)), InternalError);
  const TensorView blocks(values.data(), {32}, DType::kQ4_0);
  EXPECT_THROW(static_cast<void>(blocks.narrow(0, 0, 1)), InternalError);
}

TEST(TensorView, ReshapeKeepsElementsAndNeedsContiguity) {
  std::vector<float> values = iota(12);
  const TensorView view(values.data(), {2, 6}, DType::kF32);
  const TensorView other = view.reshape({3, 2, 2});
  EXPECT_EQ(other.stride(0), 4);
  EXPECT_EQ(other.data, view.data);
  EXPECT_THROW(static_cast<void>(view.reshape({5})), InternalError);
  EXPECT_THROW(static_cast<void>(view.narrow(1, 0, 3).reshape({6})), InternalError);
}

TEST(TensorView, TypedAccessChecksTheType) {
  std::vector<float> values = iota(4);
  const TensorView view(values.data(), {4}, DType::kF32);
  EXPECT_THROW(static_cast<void>(view.as<std::uint16_t>()), InternalError);
  const TensorView integers(values.data(), {4}, DType::kI32);
  EXPECT_THROW(static_cast<void>(integers.f32()), InternalError);
  EXPECT_NO_THROW(static_cast<void>(integers.as<std::int32_t>()));
}

TEST(TensorView, MutableViewsConvertToConstOnes) {
  std::vector<float> values = iota(4);
  const ConstTensorView view = TensorView(values.data(), {2, 2}, DType::kF32).narrow(1, 1, 1);
  EXPECT_EQ(view.stride(0), 2);
  static_assert(std::is_same_v<decltype(view.f32()), const float*>);
  static_assert(!std::is_convertible_v<ConstTensorView, TensorView>);
}

TEST(Tensor, DefaultIsEmptyAndOwnersMove) {
  static_assert(std::is_default_constructible_v<OwnedWeightMatrix>);
  static_assert(!std::is_copy_constructible_v<Tensor>);
  EXPECT_TRUE(Tensor().empty());
  EXPECT_EQ(Tensor().size_bytes(), 0U);
  CpuDevice device;
  Tensor first = empty_tensor(device, {3});
  first.f32()[2] = 5.0F;
  const Tensor second = std::move(first);
  EXPECT_EQ(second.f32()[2], 5.0F);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): the moved-from state is the point
}

TEST(Tensor, GivesItsMemoryBack) {
  CpuDevice device;
  {
    const Tensor tensor = empty_tensor(device, {100});
    EXPECT_GE(device.bytes_in_use(), 400U);
    Tensor other = empty_tensor(device, {50});
    other = empty_tensor(device, {10});
  }
  EXPECT_EQ(device.bytes_in_use(), 0U);
}

TEST(Tensor, RefusesABufferTooSmall) {
  CpuDevice device;
  EXPECT_THROW(Tensor(*device.allocate(64), {17}, DType::kF32, {}), InternalError);
}

TEST(WeightMatrix, ViewShowsWhatTheOwnerHolds) {
  CpuDevice device;
  OwnedWeightMatrix owner;
  owner.values = empty_tensor(device, {2, 4}, DType::kI8);
  EXPECT_TRUE(owner.view().row_scale.empty());
  owner.row_scale = empty_tensor(device, {2});
  owner.rotation_group = 4;
  const WeightMatrix view = owner.view();
  EXPECT_EQ(view.values.shape, Shape({2, 4}));
  EXPECT_EQ(view.row_scale.shape, Shape({2}));
  EXPECT_EQ(view.rotation_group, 4);
  EXPECT_EQ(owner.size_bytes(), owner.values.size_bytes() + owner.row_scale.size_bytes());
}

}  // namespace
}  // namespace miniacc
