#include "kernels/copy.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "device/cpu_device.h"
#include "kernels/backend_test.h"

namespace miniacc::testing {
namespace {

class Copy : public BackendTest {};
MINIACC_BACKEND_SUITE(Copy);

std::vector<float> counted(std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST_P(Copy, WithinTheDeviceLeavesTheRestAlone) {
  const auto values = counted(7 * 5);
  const TensorView from = upload(values, {7, 5});
  const TensorView to = empty({9, 5});
  OpContext context = ctx();
  ops::copy(context, to.narrow(0, 1, 7), from);
  const std::vector<float> result = download(to);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (i < 5 || i >= 40) {
      EXPECT_TRUE(std::isnan(result[i]));
    } else {
      EXPECT_EQ(result[i], values[i - 5]);
    }
  }
}

TEST_P(Copy, ToTheDeviceAndBackIsDoneWhenTheCallReturns) {
  CpuDevice host;
  OpContext context = ctx();
  context.host = &host;
  std::vector<float> values = counted(1001);
  Tensor there = miniacc::upload(context, std::span<const float>(values), {7, 11, 13});
  values.assign(values.size(), 0.0F);  // the source may go away
  EXPECT_EQ(there.device(), device().id());
  Tensor doubled = empty_tensor(device(), there.shape());
  ops::copy(context, doubled.view(), there.view());
  ops::divide(context, doubled.view(), 3.0F);
  const Tensor back = to_host(context, std::move(doubled));
  ASSERT_EQ(back.device(), DeviceId{});
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back.f32()[i], static_cast<float>(i + 1) / 3.0F);
  }
  const Placed again = on_device(context, back.view());
  EXPECT_EQ(again.view.device, device().id());
  EXPECT_EQ(again.storage.empty(), device().id() == DeviceId{}) << "no copy where none is needed";
  EXPECT_EQ(download(again.view)[1000], 1001.0F / 3.0F);
}

TEST_P(Copy, FillsWithZeros) {
  const TensorView x = empty({3, 77});
  OpContext context = ctx();
  ops::fill_zero(context, x.narrow(0, 1, 1));
  const std::vector<float> values = download(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::isnan(values[i]), i / 77 != 1);
  }
}

TEST_P(Copy, AllFiniteFindsOneBadValueAnywhere) {
  OpContext context = ctx();
  for (const std::int64_t size : {1, 255, 256, 257, 100000, 300001}) {
    std::vector<float> values(static_cast<std::size_t>(size), std::numeric_limits<float>::max());
    EXPECT_TRUE(ops::all_finite(context, upload(values, {size})));
    for (const std::size_t at : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        const float good = values[at];
        values[at] = bad;
        EXPECT_FALSE(ops::all_finite(context, upload(values, {size})));
        values[at] = good;
      }
    }
  }
  EXPECT_TRUE(ops::all_finite(context, empty({0})));
}

}  // namespace
}  // namespace miniacc::testing
