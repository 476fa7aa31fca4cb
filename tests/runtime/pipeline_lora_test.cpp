#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/adapter_files.h"
#include "checkpoint/find_components.h"
#include "checkpoint/make_checkpoint.h"
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
    diffusers_ = testing::write_adapter(
        folder_ / "diffusers.safetensors",
        diffusers_names(changes, "", ".lora_A.weight", ".lora_B.weight"), {{"alpha", "4"}});
    comfy_ =
        write_adapter(folder_ / "comfy.safetensors",
                      fused_names(changes, "diffusion_model.", ".lora_A.weight", ".lora_B.weight"));
  }
  Pipeline open(const std::vector<LoraRequest>& loras, Precision precision = Precision::kF32,
                std::size_t cache_bytes = 0, const std::string& mode = "merge") {
    ModelPaths model;
    model.folder = test_data("golden/h3-micro");
    Pipeline pipeline = Pipeline::open(model, device_, precision, cache_bytes).value();
    const Status merged = pipeline.add_loras({.loras = loras, .mode = mode, .num_threads = 2});
    EXPECT_TRUE(merged) << (merged ? "" : merged.error().message);
    return pipeline;
  }
  static PreparedRequest prepared() {
    GenerateRequest request;
    request.prompt = "a fox";
    request.width = 64;
    request.height = 64;
    request.num_frames = 22;
    request.sampling.recipe = "lightx2v4";
    request.output = "unused.mp4";
    return prepare_request(request).value();
  }
  ClipLatents denoise(Pipeline& pipeline) {
    JobProgress progress({{kLoadStage, 1.0}, {kTextStage, 1.0}, {kDenoiseStage, 1.0}}, nullptr);
    const Tensor hidden =
        pipeline.encode_text(ctx_, pipeline.tokenize("a fox").value(), progress).value();
    std::vector<double> seconds;
    return pipeline.denoise(ctx_, prepared(), hidden.view(), progress, seconds).value();
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

TEST_F(PipelineLora, SideProductsGiveTheLatentsOfTheMerge) {
  Pipeline reference = open({{diffusers_, 1.0F}});
  const ClipLatents wanted = denoise(reference);
  // f32: two orders of summation through twelve evaluations (measured 2e-6). The other bounds are
  // those of the arithmetic itself (pipeline_test.cpp).
  for (const auto& [precision, bound] :
       {std::pair{Precision::kF32, 1e-5}, {Precision::kBF16, 8e-3}, {Precision::kInt8, 3.6e-2}}) {
    Pipeline pipeline = open({{comfy_, 1.0F}}, precision, std::size_t{1} << 30, "side");
    EXPECT_LE(relative_error(denoise(pipeline).video.f32(), wanted.video.f32()), bound);
    EXPECT_TRUE(pipeline.warnings().empty());
    EXPECT_EQ(pipeline.lora_reports().front().mode, "side");
  }
}

TEST_F(PipelineLora, SideProductsTakeTheAdaptersBytesAndASmallWorkspace) {
  const auto peak = [&](const std::vector<LoraRequest>& loras) {
    CpuDevice device;
    ModelPaths model;
    model.folder = test_data("golden/h3-micro");
    Pipeline pipeline =
        Pipeline::open(model, device, Precision::kInt8, std::size_t{1} << 30).value();
    EXPECT_TRUE(pipeline.add_loras({.loras = loras}));
    OpContext ctx{device, 1};
    JobProgress progress({{kLoadStage, 1.0}, {kTextStage, 1.0}, {kDenoiseStage, 1.0}}, nullptr);
    const Tensor hidden =
        pipeline.encode_text(ctx, pipeline.tokenize("a fox").value(), progress).value();
    std::vector<double> seconds;
    EXPECT_TRUE(pipeline.denoise(ctx, prepared(), hidden.view(), progress, seconds));
    return device.peak_bytes();
  };
  // Its factors are f32 in the file and stay so; rows are too few for a chunk of the workspace.
  constexpr std::size_t kWorkspace = std::size_t{32} << 10;
  EXPECT_LE(peak({{diffusers_}}), peak({}) + std::filesystem::file_size(diffusers_) + kWorkspace);
}

TEST_F(PipelineLora, AutoKeepsChangesBesideWeightsThatAreOrBecomeQuantised) {
  const auto mode = [](const std::string& name, Precision precision, const std::string& stored) {
    return choose_lora_mode(name, precision, stored).value();
  };
  EXPECT_EQ(mode("auto", Precision::kF32, ""), LoraMode::kMerge);
  EXPECT_EQ(mode("auto", Precision::kBF16, ""), LoraMode::kMerge);
  EXPECT_EQ(mode("auto", Precision::kInt8, ""), LoraMode::kSide);
  EXPECT_EQ(mode("auto", Precision::kBF16, "fp8_scaled"), LoraMode::kSide);
  EXPECT_EQ(mode("auto", Precision::kF32, "q8_0"), LoraMode::kSide);
  EXPECT_EQ(mode("merge", Precision::kInt8, "q8_0"), LoraMode::kMerge);
  EXPECT_EQ(mode("side", Precision::kF32, ""), LoraMode::kSide);
  const auto refused = choose_lora_mode("both", Precision::kF32, "");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("auto, merge or side"));
  EXPECT_EQ(open({{diffusers_}}, Precision::kInt8, 0, "auto").lora_reports().front().mode, "side");
  EXPECT_EQ(open({{diffusers_}}, Precision::kBF16, 0, "auto").lora_reports().front().mode, "merge");

  for (const auto& [format, storage] : {std::pair{CheckpointFormat::kGguf, WeightStorage::kQ8_0},
                                        {CheckpointFormat::kComfy, WeightStorage::kFp8Scaled},
                                        {CheckpointFormat::kComfy, WeightStorage::kInt8ConvRot}}) {
    const auto folder = folder_ / std::to_string(static_cast<int>(storage));
    ASSERT_TRUE(make_checkpoint({.size = SyntheticSize::kTiny,
                                 .format = format,
                                 .storage = storage,
                                 .seed = 3,
                                 .out = folder,
                                 .progress = {}}));
    const auto base = open_component(find_components(folder).value().transformer).value();
    const Shape shape = base->shape("blocks.0.mlp.fc2.weight").value();
    const auto path = testing::write_adapter(
        folder_ / "one.safetensors",
        {{"blocks.0.mlp.fc2.lora_A.weight", testing::random_factor(2, shape[1], 1)},
         {"blocks.0.mlp.fc2.lora_B.weight", testing::random_factor(shape[0], 2, 2)}});
    const AdaptedTransformer adapted =
        adapt_transformer(*base, {.loras = {{path}}}, Precision::kBF16).value();
    EXPECT_EQ(adapted.weights->mode(), LoraMode::kSide);
    const auto matrix =
        adapted.weights->load_matrix("blocks.0.mlp.fc2.weight", Precision::kBF16, device_).value();
    EXPECT_EQ(matrix.low_rank.size(), 1U);
  }
}

TEST_F(PipelineLora, AnAdapterForTheOtherHalfIsRefusedWhereNamesTellIt) {
  const auto folder = folder_ / "MiniMax-H3-Ref2VA";
  std::filesystem::create_directories(folder);
  std::filesystem::copy(test_data("golden/h3-micro/transformer"), folder / "transformer");
  const auto base = open_component(folder / "transformer").value();
  const auto named = folder_ / "minimax_h3_fl2v_turbo_4step_v0.1.safetensors";
  std::filesystem::copy_file(comfy_, named);
  const auto refused = adapt_transformer(*base, {.loras = {{named}}}, Precision::kF32);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("fl2va half"));
  EXPECT_THAT(refused.error().message, HasSubstr("--lora-half ref2va"));
  LoraRequest known{named};
  known.half = "ref2va";
  EXPECT_TRUE(adapt_transformer(*base, {.loras = {known}}, Precision::kF32));
  EXPECT_TRUE(adapt_transformer(*base, {.loras = {{named}}, .half = "fl2va"}, Precision::kF32));
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
