#include "runtime/lora_verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/adapter_files.h"
#include "device/cpu_device.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::test_data;

class LoraVerify : public ::testing::Test {
 protected:
  LoraVerification verify(const AdapterTensors& tensors, Precision precision = Precision::kF32,
                          const std::string& mode = "auto", float strength = 1.0F) {
    const auto path = write_adapter(folder_ / "adapter.safetensors", tensors);
    OpContext ctx{device_};
    return verify_loras(ctx, *base_, {.loras = {{path, strength}}, .mode = mode}, precision,
                        make_schedule({.recipe = "lightx2v4"}).value())
        .value();
  }
  AdapterTensors blocks(float size) {
    AdapterTensors tensors = diffusers_names(testing::random_changes(*base_, 4, 7), "",
                                             ".lora_A.weight", ".lora_B.weight");
    for (auto& [name, tensor] : tensors) {
      for (float& value : tensor.values) {
        value *= name.ends_with(".lora_B.weight") ? size : 1.0F;
      }
    }
    return tensors;
  }

  testing::TempDir folder_;
  CpuDevice device_;
  std::unique_ptr<ComponentWeights> base_ =
      open_component(test_data("golden/h3-micro/transformer")).value();
};

TEST_F(LoraVerify, AnAdapterThatIsAppliedPassesInEveryArithmeticAndMode) {
  AdapterTensors tensors = blocks(1.0F);
  tensors["transformer_blocks.1.norm1.diff"] = {{48}, testing::random_factor(1, 48, 6).values};
  tensors["audio_proj_in.diff_b"] = {{48}, testing::random_factor(1, 48, 8).values};
  tensors["transformer_blocks.2.adaln_proj.linear.lora_A.weight"] =
      testing::random_factor(2, 36, 1);
  tensors["transformer_blocks.2.adaln_proj.linear.lora_B.weight"] =
      testing::random_factor(864, 2, 2);
  for (const auto& [precision, mode] : {std::pair{Precision::kF32, "merge"},
                                        {Precision::kF32, "side"},
                                        {Precision::kBF16, "merge"},
                                        {Precision::kBF16, "side"},
                                        {Precision::kInt8, "auto"},
                                        {Precision::kInt8, "merge"}}) {
    const LoraVerification result = verify(tensors, precision, mode);
    EXPECT_THAT(result.failures, IsEmpty()) << mode << " " << static_cast<int>(precision);
    EXPECT_EQ(result.modules.size(), 23U);  // 20 matrices of blocks, a norm, a bias, an AdaLN
    for (const ModuleProbe& probe : result.modules) {
      EXPECT_TRUE(probe.attached && probe.passed) << probe.tensor;
      EXPECT_GT(probe.change, 1e-3) << probe.tensor;
    }
    EXPECT_GT(result.video_difference, 1e-4);
    EXPECT_GT(result.audio_difference, 1e-4);
    EXPECT_GT(result.largest_difference, 0.0);
  }
}

TEST_F(LoraVerify, AnAdapterThatChangesNothingFails) {
  for (const LoraVerification& result :
       {verify(blocks(0.0F)), verify(blocks(1.0F), Precision::kF32, "side", 0.0F)}) {
    ASSERT_FALSE(result.failures.empty());
    EXPECT_THAT(result.failures.back(), HasSubstr("same latents"));
    EXPECT_EQ(result.largest_difference, 0.0);
  }
}

TEST_F(LoraVerify, AChangeThatTheMergeRoundsAwayFailsAndASideProductKeepsIt) {
  const LoraVerification gone = verify(blocks(1e-9F), Precision::kBF16, "merge");
  ASSERT_EQ(gone.failures.size(), 2U);
  EXPECT_THAT(gone.failures.front(), HasSubstr("20 of 20 tensors"));
  EXPECT_THAT(gone.failures.back(), HasSubstr("same latents"));
  // Requantised rows move by a bit of their scale, and that is not the adapter.
  const AdapterTensors tiny = blocks(1e-4F);
  const LoraVerification merged = verify(tiny, Precision::kInt8, "merge");
  ASSERT_FALSE(merged.warnings.empty());
  EXPECT_THAT(merged.warnings.back(), HasSubstr("--lora-mode side"));
  const LoraVerification side = verify(tiny, Precision::kInt8, "side");
  EXPECT_THAT(side.failures, IsEmpty());
  EXPECT_THAT(side.warnings, IsEmpty());
  EXPECT_GT(side.largest_difference, 0.0);
}

}  // namespace
}  // namespace miniacc
