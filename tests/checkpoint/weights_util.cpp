#include "checkpoint/weights_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "device/cpu_device.h"
#include "support/compare.h"

namespace miniacc::testing {

std::unique_ptr<ComponentWeights> open_or_fail(const std::filesystem::path& path) {
  auto opened = open_component(path);
  EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
  return opened ? *std::move(opened) : nullptr;
}

int expect_same_weights(ComponentWeights& left, ComponentWeights& right) {
  CpuDevice device;
  std::set<std::string> names;
  for (ComponentWeights* side : {&left, &right}) {
    const auto own = side->names();
    names.insert(own.begin(), own.end());
  }
  names.erase("rope.inv_freq");
  int compared = 0;
  for (const std::string& name : names) {
    const auto a = left.load(name, device);
    const auto b = right.load(name, device);
    EXPECT_TRUE(a && b) << name << (a ? "" : " " + a.error().message)
                        << (b ? "" : " " + b.error().message);
    if (a && b) {
      EXPECT_EQ(a->shape(), b->shape()) << name;
      EXPECT_TRUE(identical_to(a->f32(), b->f32())) << name;
      ++compared;
    }
  }
  return compared;
}

}  // namespace miniacc::testing
