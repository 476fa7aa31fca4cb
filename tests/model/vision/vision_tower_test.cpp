#include "model/vision/vision_tower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "model/support/micro_weights.h"
#include "model/vision/patches.h"
#include "support/compare.h"
#include "support/test_picture.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;
using ::testing::HasSubstr;
using testing::identical_to;
using testing::MemoryWeights;
using testing::relative_error;
using testing::test_picture;

/// Pictures of every grid of a golden case.
using Grids = std::vector<std::vector<RgbImage>>;

Grids golden_case(const std::string& name) {
  if (name == "square") {
    return {{test_picture(64, 64, 0)}};
  }
  if (name == "wide") {
    return {{test_picture(32, 128, 1)}};
  }
  if (name == "tall") {
    return {{test_picture(160, 96, 2)}};
  }
  if (name == "three") {
    return {{test_picture(64, 96, 3)}, {test_picture(96, 64, 4)}, {test_picture(32, 32, 5)}};
  }
  if (name == "large") {
    return {{test_picture(768, 832, 9)}};
  }
  return {{test_picture(64, 96, 6), test_picture(64, 96, 7)},
          {test_picture(64, 96, 8), test_picture(64, 96, 8)}};
}

std::vector<VisionFeatures> run(WeightSource& weights, const Grids& grids, CpuDevice& device,
                                Precision precision = Precision::kF32, int num_threads = 1) {
  OpContext ctx{device, num_threads};
  std::vector<VisionInput> inputs;
  for (const auto& frames : grids) {
    inputs.push_back({frames});
  }
  const VisionConfig config = read_vision_config(weights).value();
  return run_vision_tower(ctx, weights, config, inputs, precision).value();
}

/// One part (-1: merged, j: deepstack j) of all grids, one after the other.
std::vector<float> joined(const std::vector<VisionFeatures>& features, int part) {
  std::vector<float> values;
  for (const VisionFeatures& entry : features) {
    const Tensor& tensor =
        part < 0 ? entry.merged : entry.deepstack.at(static_cast<std::size_t>(part));
    values.insert(values.end(), tensor.f32().begin(), tensor.f32().end());
  }
  return values;
}

double worst_error(Precision precision) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  MemoryWeights weights = testing::micro_text_encoder();
  double worst = 0.0;
  for (const std::string name : {"square", "wide", "tall", "three", "video"}) {
    const auto features = run(weights, golden_case(name), device, precision);
    worst = std::max(
        worst, relative_error(joined(features, -1), golden.floats("tower." + name + ".merged")));
    for (int j = 0; j < 3; ++j) {
      worst = std::max(
          worst, relative_error(joined(features, j), golden.floats("tower." + name + ".deepstack_" +
                                                                   std::to_string(j))));
    }
  }
  return worst;
}

// Measured 8.6e-7.
TEST(VisionTower, FeaturesMatchTheReference) {
  const double error = worst_error(Precision::kF32);
  RecordProperty("relative_error", std::to_string(error * 1e9) + "e-9");
  EXPECT_LE(error, 1e-5);
}

// Measured 4.7e-3.
TEST(VisionTower, Bf16StaysNearTheReference) {
  const double error = worst_error(Precision::kBF16);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 8e-3);
  EXPECT_GE(error, 1e-4);  // otherwise this was not bf16
  EXPECT_EQ(worst_error(Precision::kInt8), error);
}

// 2496 patches: several chunks of rows.
TEST(VisionTower, ManyPatchesMatchTheReference) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  MemoryWeights weights = testing::micro_text_encoder();
  const auto features = run(weights, golden_case("large"), device);
  ASSERT_EQ(features[0].merged.shape(), Shape({624, 56}));
  for (const int part : {-1, 2}) {
    const std::vector<float> all = joined(features, part);
    std::vector<float> sampled;
    for (std::size_t token = 0; token < 624; token += 13) {
      sampled.insert(sampled.end(), all.begin() + static_cast<std::ptrdiff_t>(token * 56),
                     all.begin() + static_cast<std::ptrdiff_t>((token + 1) * 56));
    }
    EXPECT_TRUE(close_to(
        sampled, golden.floats(part < 0 ? "tower.large.merged" : "tower.large.deepstack_2"), 1e-5));
  }
}

TEST(VisionTower, MergersStandBehindTheirBlocks) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  MemoryWeights weights = testing::micro_text_encoder();
  weights.config_values["deepstack_visual_indexes"] = {0, 2, 3};
  const auto features = run(weights, golden_case("tall"), device);
  for (int j = 0; j < 3; ++j) {
    EXPECT_TRUE(close_to(joined(features, j),
                         golden.floats("tower.blocks_0_2_3.deepstack_" + std::to_string(j)), 1e-5));
  }
}

TEST(VisionTower, PatchRowsAndPicturesGiveTheSameBits) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const Grids grids = golden_case("tall");
  const Tensor rows = patch_rows(device, grids[0]);
  const VisionFeatures one = run_vision_tower(ctx, weights, read_vision_config(weights).value(),
                                              rows.view(), {10, 6}, Precision::kF32)
                                 .value();
  const auto other = run(weights, grids, device);
  EXPECT_TRUE(identical_to(one.merged.f32(), other[0].merged.f32()));
  EXPECT_TRUE(identical_to(one.deepstack[2].f32(), other[0].deepstack[2].f32()));
}

TEST(VisionTower, GridsDoNotSeeEachOtherAndThreadsChangeNothing) {
  CpuDevice device;
  MemoryWeights weights = testing::micro_text_encoder();
  const Grids grids = golden_case("three");
  const auto together = run(weights, grids, device, Precision::kF32, 2);
  for (std::size_t i = 0; i < grids.size(); ++i) {
    const auto alone = run(weights, {grids[i]}, device);
    EXPECT_TRUE(identical_to(together[i].merged.f32(), alone[0].merged.f32()));
    EXPECT_TRUE(identical_to(together[i].deepstack[1].f32(), alone[0].deepstack[1].f32()));
  }
}

TEST(VisionTower, CheckpointFolderGivesTheSameFeatures) {
  CpuDevice device;
  MemoryWeights memory = testing::micro_text_encoder();
  const auto folder =
      open_component(testing::test_data("golden/h3-micro/text_encoder"), Component::kTextEncoder);
  ASSERT_TRUE(folder) << folder.error().message;
  const auto a = run(**folder, golden_case("wide"), device);
  const auto b = run(memory, golden_case("wide"), device);
  EXPECT_TRUE(identical_to(a[0].merged.f32(), b[0].merged.f32()));
  EXPECT_TRUE(identical_to(a[0].deepstack[0].f32(), b[0].deepstack[0].f32()));
}

TEST(VisionTower, ReadsEachLayerOnceAndKeepsNoneOfThem) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const Grids grids = golden_case("three");
  std::vector<VisionInput> inputs;
  for (const auto& frames : grids) {
    inputs.push_back({frames});
  }
  std::vector<std::int64_t> finished;
  const std::size_t before = device.bytes_in_use();
  {
    const auto features =
        run_vision_tower(ctx, weights, read_vision_config(weights).value(), inputs, Precision::kF32,
                         [&](std::int64_t done, std::int64_t total) {
                           EXPECT_EQ(total, 4);
                           finished.push_back(done);
                         })
            .value();
    std::size_t held = 0;
    for (const VisionFeatures& entry : features) {
      held += entry.merged.size_bytes();
      for (const Tensor& tensor : entry.deepstack) {
        held += tensor.size_bytes();
      }
    }
    EXPECT_EQ(device.bytes_in_use() - before, held);
  }
  EXPECT_THAT(finished, ::testing::ElementsAre(1, 2, 3, 4));
  for (const auto& [name, count] : weights.reads) {
    EXPECT_EQ(count, 1) << name;
    EXPECT_TRUE(name.starts_with("visual.")) << name;
  }
  EXPECT_EQ(weights.reads.size(), 4U * 12 + 4U * 6 + 3);
}

// The size of a square reference picture: 16,384 patches. What is needed beside weights, which are
// small here, grows with patches and not their square. One block, because time does.
TEST(VisionTower, MemoryGrowsLinearlyWithPatches) {
  MemoryWeights weights = testing::micro_text_encoder();
  std::erase_if(weights.tensors, [](const auto& entry) {
    return entry.first.starts_with("visual.deepstack_merger_list.") ||
           (entry.first.starts_with("visual.blocks.") &&
            !entry.first.starts_with("visual.blocks.0."));
  });
  weights.config_values["deepstack_visual_indexes"] = {};
  const auto peak = [&](std::int64_t height, std::int64_t width) {
    CpuDevice device;
    (void)run(weights, {{test_picture(height, width, 1)}}, device);
    return static_cast<double>(device.peak_bytes());
  };
  const double four_thousand = peak(1024, 1024);
  const double sixteen_thousand = peak(2048, 2048);
  EXPECT_LT(sixteen_thousand, 4.0 * four_thousand);
}

TEST(VisionTower, NamesTheBlockBehindWhichAValueIsNotFinite) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  weights.allow_non_finite = true;
  weights.values("visual.blocks.2.mlp.linear_fc2.bias")[0] = std::numeric_limits<float>::infinity();
  const Grids grids = golden_case("square");
  const VisionInput input = {grids[0]};
  const auto features = run_vision_tower(ctx, weights, read_vision_config(weights).value(),
                                         {&input, 1}, Precision::kF32);
  ASSERT_FALSE(features);
  EXPECT_THAT(features.error().message, HasSubstr("block 2 of 4"));
}

TEST(VisionTower, StopsBetweenBlocksWhenCancelled) {
  CpuDevice device;
  CancelToken cancel;
  OpContext ctx{device, 1, &cancel};
  MemoryWeights weights = testing::micro_text_encoder();
  const Grids grids = golden_case("square");
  const VisionInput input = {grids[0]};
  EXPECT_THROW(
      (void)run_vision_tower(ctx, weights, read_vision_config(weights).value(), {&input, 1},
                             Precision::kF32, [&](std::int64_t, std::int64_t) { cancel.cancel(); }),
      ErrorException);
  EXPECT_EQ(weights.reads.count("visual.blocks.1.attn.qkv.weight"), 0U);
}

TEST(VisionTower, RefusesRowsThatAreNoGrid) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const VisionConfig config = read_vision_config(weights).value();
  const Tensor rows = patch_rows(device, golden_case("square")[0]);
  EXPECT_THROW((void)run_vision_tower(ctx, weights, config, rows.view(), {4, 6}, Precision::kF32),
               InternalError);
  EXPECT_THROW((void)run_vision_tower(ctx, weights, config, rows.view(), {16, 1}, Precision::kF32),
               InternalError);
  EXPECT_TRUE(
      run_vision_tower(ctx, weights, config, std::span<const VisionInput>{}, Precision::kF32)
          .value()
          .empty());
}

}  // namespace
}  // namespace miniacc
