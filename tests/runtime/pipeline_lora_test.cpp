#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/adapter_files.h"
#include "device/cpu_device.h"
#include "runtime/pipeline.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;
using testing::identical_to;
using testing::relative_error;
using testing::test_data;

class PipelineLora : public ::testing::Test {
 protected:
  PipelineLora() {
    const auto base = open_component(test_data("golden/h3-micro/transformer")).value();
    const auto changes = testing::random_changes(*base, 4, 7);
    diffusers_ = write_adapter(folder_ / "diffusers.safetensors",
                               diffusers_names(changes, "", ".lora_A.weight", ".lora_B.weight"),
                               {{"alpha", "4"}});
    comfy_ =
        write_adapter(folder_ / "comfy.safetensors",
                      fused_names(changes, "diffusion_model.", ".lora_A.weight", ".lora_B.weight"));
  }
  Pipeline open(const std::vector<LoraRequest>& loras, Precision precision = Precision::kF32,
                std::size_t cache_bytes = 0) {
    ModelPaths model;
    model.folder = test_data("golden/h3-micro");
    Pipeline pipeline = Pipeline::open(model, device_, precision, cache_bytes).value();
    const Status merged = pipeline.merge_loras(loras, false, 2);
    EXPECT_TRUE(merged) << (merged ? "" : merged.error().message);
    return pipeline;
  }
  ClipLatents denoise(Pipeline& pipeline) {
    GenerateRequest request;
    request.prompt = "a fox";
    request.width = 64;
    request.height = 64;
    request.num_frames = 22;
    request.sampling.recipe = "lightx2v4";
    request.output = "unused.mp4";
    JobProgress progress({{kLoadStage, 1.0}, {kTextStage, 1.0}, {kDenoiseStage, 1.0}}, nullptr);
    const Tensor hidden =
        pipeline.encode_text(ctx_, pipeline.tokenize(request.prompt).value(), progress).value();
    std::vector<double> seconds;
    return pipeline
        .denoise(ctx_, prepare_request(request).value(), hidden.view(), progress, seconds)
        .value();
  }

  testing::TempDir folder_;
  CpuDevice device_;
  // One thread: the bits are the same, and a loaded machine does not wait at barriers.
  OpContext ctx_{device_, 1};
  std::filesystem::path diffusers_;
  std::filesystem::path comfy_;
};

TEST_F(PipelineLora, AnAdapterChangesTheLatentsAndStrengthZeroNoBit) {
  Pipeline plain = open({});
  Pipeline adapted = open({{diffusers_, 1.0F}});
  Pipeline zero = open({{diffusers_, 0.0F}});
  const ClipLatents base = denoise(plain);
  const ClipLatents changed = denoise(adapted);
  const ClipLatents unchanged = denoise(zero);
  EXPECT_GT(relative_error(changed.video.f32(), base.video.f32()), 1e-3);
  EXPECT_GT(relative_error(changed.audio.f32(), base.audio.f32()), 1e-3);
  EXPECT_TRUE(identical_to(unchanged.video.f32(), base.video.f32()));
  EXPECT_TRUE(identical_to(unchanged.audio.f32(), base.audio.f32()));
  EXPECT_EQ(zero.identity(), plain.identity());
  EXPECT_NE(adapted.identity(), plain.identity());
}

TEST_F(PipelineLora, NamingAndResidencyChangeNoBit) {
  Pipeline diffusers = open({{diffusers_, 0.5F}});
  Pipeline comfy = open({{comfy_, 0.5F}}, Precision::kF32, std::size_t{1} << 30);
  const ClipLatents a = denoise(diffusers);
  const ClipLatents b = denoise(comfy);
  EXPECT_TRUE(identical_to(a.video.f32(), b.video.f32()));
  EXPECT_TRUE(identical_to(a.audio.f32(), b.audio.f32()));
}

TEST_F(PipelineLora, LowerPrecisionsCarryTheAdapterAndInt8Warns) {
  Pipeline reference = open({{diffusers_, 1.0F}});
  const ClipLatents wanted = denoise(reference);
  // The bounds are those of the pipeline without adapters (pipeline_test.cpp).
  for (const auto& [precision, bound] :
       {std::pair{Precision::kBF16, 8e-3}, std::pair{Precision::kInt8, 3.6e-2}}) {
    Pipeline pipeline = open({{diffusers_, 1.0F}}, precision);
    EXPECT_LE(relative_error(denoise(pipeline).video.f32(), wanted.video.f32()), bound);
    EXPECT_EQ(pipeline.warnings().size(), precision == Precision::kInt8 ? 1U : 0U);
  }
}

TEST_F(PipelineLora, ReportsAreReadyForMetadata) {
  const Pipeline pipeline = open({{diffusers_, 0.5F}, {comfy_, 1.0F}});
  ASSERT_EQ(pipeline.lora_reports().size(), 2U);
  const std::string json = lora_reports_to_json(pipeline.lora_reports());
  EXPECT_THAT(json, HasSubstr(R"("matched":60,)"));
  EXPECT_THAT(json, HasSubstr(R"("matched":40,)"));
  EXPECT_THAT(json, HasSubstr(R"("alpha_source":"metadata")"));
  EXPECT_THAT(json, HasSubstr(R"("strength":0.5)"));
}

}  // namespace
}  // namespace miniacc
