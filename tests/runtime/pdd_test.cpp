#include "runtime/pdd.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/adapter_files.h"
#include "device/cpu_device.h"
#include "model/dit/dit.h"
#include "runtime/noise.h"
#include "runtime/pipeline.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using ::testing::HasSubstr;
using testing::identical_to;
using testing::relative_error;
using testing::test_data;

constexpr std::int64_t kSteps = 32;

class Pdd : public ::testing::Test {
 protected:
  /// Banks around the checkpoint's own heads; `spread` 0: every head is that one.
  AdapterTensors banks(float spread) {
    AdapterTensors tensors;
    const std::pair<const char*, const char*> kNames[] = {
        {"final_layer.video_out.weight", "proj_out.weight"},
        {"final_layer.video_out.bias", "proj_out.bias"},
        {"final_layer.audio_out.weight", "audio_proj_out.weight"},
        {"final_layer.audio_out.bias", "audio_proj_out.bias"}};
    for (const auto& [stored, name] : kNames) {
      const Tensor head = base_->load(stored, device_).value();
      const auto size = static_cast<std::size_t>(head.shape().num_elements());
      testing::AdapterTensor& bank = tensors[name];
      bank.shape = head.shape().rank() == 2 ? Shape({kSteps, head.shape()[0], head.shape()[1]})
                                            : Shape({kSteps, head.shape()[0]});
      bank.values = testing::random_factor(kSteps, static_cast<std::int64_t>(size), 9).values;
      for (std::size_t i = 0; i < bank.values.size(); ++i) {
        bank.values[i] = head.f32()[i % size] + spread * bank.values[i];
      }
    }
    return tensors;
  }
  std::filesystem::path adapter(const AdapterTensors& bank_tensors, bool with_blocks) {
    AdapterTensors tensors = bank_tensors;
    if (with_blocks) {
      tensors.merge(
          diffusers_names(testing::random_changes(*base_, 4, 7), "", ".lora_down", ".lora_up"));
    }
    return write_adapter(folder_ / fmt::format("pdd{}.safetensors", ++num_files_), tensors,
                         {{"pdd_num_steps", "32"},
                          {"pdd_block_size", "4"},
                          {"lora_rank", "4"},
                          {"lora_alpha", "4"}});
  }
  Pipeline open(const std::vector<LoraRequest>& loras) {
    ModelPaths model;
    model.folder = test_data("golden/h3-micro");
    Pipeline pipeline = Pipeline::open(model, device_, Precision::kF32, 1U << 30).value();
    const Status added = pipeline.add_loras({.loras = loras});
    EXPECT_TRUE(added) << (added ? "" : added.error().message);
    return pipeline;
  }
  static PreparedRequest request(std::optional<std::int64_t> steps = std::nullopt) {
    GenerateRequest request;
    request.prompt = "a fox";
    request.width = 64;
    request.height = 64;
    request.num_frames = 22;
    request.sampling.recipe = "pdd8";
    request.sampling.steps = steps;
    request.output = "unused.mp4";
    return prepare_request(request).value();
  }
  static JobProgress silent() {
    return JobProgress({{kLoadStage, 1.0}, {kTextStage, 1.0}, {kDenoiseStage, 1.0}}, nullptr);
  }
  Tensor encode(Pipeline& pipeline) {
    JobProgress progress = silent();
    return pipeline.encode_text(ctx_, pipeline.tokenize("a fox").value(), progress).value();
  }
  ClipLatents denoise(Pipeline& pipeline, const PreparedRequest& prepared,
                      std::size_t* forwards = nullptr) {
    JobProgress progress = silent();
    const Tensor hidden = encode(pipeline);
    std::vector<double> seconds;
    ClipLatents latents =
        pipeline.denoise(ctx_, prepared, hidden.view(), progress, seconds).value();
    if (forwards != nullptr) {
      *forwards = seconds.size();
    }
    return latents;
  }
  /// x ← x + Σ_n Δσ_n · v_n over the intervals of each block, v_n from head n at the block's start.
  ClipLatents defined(Pipeline& pipeline, const AdapterTensors& bank_tensors) {
    const PreparedRequest prepared = request();
    const ClipGeometry& geometry = prepared.geometry;
    Dit dit = Dit::open(pipeline.transformer(), device_, Precision::kF32, 1U << 30).value();
    const Tensor text = dit.refine_text(ctx_, encode(pipeline).view()).value();
    const PackedSequence sequence = pack_t2va(
        text.shape()[0], {geometry.latent_frames, geometry.latent_height, geometry.latent_width},
        geometry.audio_latents);
    const std::int64_t channels = dit.config().video_row_width / kPatchArea;
    const Noise noise =
        draw_noise(device_, prepared.noise, prepared.request.seed,
                   {channels, geometry.latent_frames, geometry.latent_height, geometry.latent_width,
                    dit.config().audio_row_width, geometry.audio_latents});
    const Shape video_shape = noise.video.shape();
    Tensor video = patchify(device_, noise.video.view());
    Tensor audio = empty_tensor(device_, noise.audio.shape());
    std::ranges::copy(noise.audio.f32(), audio.f32().begin());
    const auto sigma = [](double shift, std::int64_t n) {
      const double b = static_cast<double>(kSteps - n) / static_cast<double>(kSteps);
      return shift * b / (1.0 + (shift - 1.0) * b);
    };
    ModulationCache modulation;
    for (std::int64_t first = 0; first < kSteps; first += 4) {
      std::vector<double> next_video(video.f32().begin(), video.f32().end());
      std::vector<double> next_audio(audio.f32().begin(), audio.f32().end());
      for (std::int64_t n = first; n < first + 4; ++n) {
        DitHeads heads;
        const auto head = [&](const std::string& name, const Shape& shape) {
          Tensor tensor = empty_tensor(device_, shape);
          std::copy_n(bank_tensors.at(name).values.begin() + n * shape.num_elements(),
                      shape.num_elements(), tensor.f32().begin());
          return tensor;
        };
        const std::int64_t hidden = dit.config().hidden_size;
        heads.video_out.weight.values =
            head("proj_out.weight", {dit.config().video_row_width, hidden});
        heads.video_out.bias = head("proj_out.bias", {dit.config().video_row_width});
        heads.audio_out.weight.values =
            head("audio_proj_out.weight", {dit.config().audio_row_width, hidden});
        heads.audio_out.bias = head("audio_proj_out.bias", {dit.config().audio_row_width});
        const DitInput input{.video_rows = video.view(),
                             .audio_rows = audio.view(),
                             .refined_text = text.view(),
                             .video_time = 1.0F - static_cast<float>(sigma(12.0, first)),
                             .audio_time = 1.0F - static_cast<float>(sigma(3.0, first)),
                             .sequence = sequence,
                             .heads = &heads};
        const DitOutput velocity = dit.forward(ctx_, input, modulation).value();
        const auto add = [&](std::vector<double>& state, const Tensor& v, double shift) {
          const double step = sigma(shift, n) - sigma(shift, n + 1);
          for (std::size_t i = 0; i < state.size(); ++i) {
            state[i] += step * static_cast<double>(v.f32()[i]);
          }
        };
        add(next_video, velocity.video, 12.0);
        add(next_audio, velocity.audio, 3.0);
      }
      std::ranges::transform(next_video, video.f32().begin(),
                             [](double value) { return static_cast<float>(value); });
      std::ranges::transform(next_audio, audio.f32().begin(),
                             [](double value) { return static_cast<float>(value); });
    }
    const std::int64_t latents = geometry.audio_latents;
    const std::int64_t width = dit.config().audio_row_width;
    ClipLatents clip{unpatchify(device_, video.view(), video_shape),
                     empty_tensor(device_, {2, width, latents})};
    for (std::int64_t row = 0; row < 2 * latents; ++row) {
      for (std::int64_t c = 0; c < width; ++c) {
        clip.audio.f32()[static_cast<std::size_t>((row / latents * width + c) * latents +
                                                  row % latents)] =
            audio.f32()[static_cast<std::size_t>(row * width + c)];
      }
    }
    return clip;
  }

  testing::TempDir folder_;
  int num_files_ = 0;
  CpuDevice device_;
  OpContext ctx_{device_, 1};
  std::unique_ptr<ComponentWeights> base_ =
      open_component(test_data("golden/h3-micro/transformer")).value();
};

TEST_F(Pdd, EightForwardsWithFusedHeadsEqualTheDefinition) {
  const AdapterTensors bank = banks(1.0F);
  Pipeline pipeline = open({{adapter(bank, true)}});
  EXPECT_EQ(pipeline.lora_reports().front().head_steps, 32);
  EXPECT_EQ(pipeline.lora_reports().front().matched,
            pipeline.lora_reports().front().num_modules * 2 + 4);
  std::size_t forwards = 0;
  const ClipLatents latents = denoise(pipeline, request(), &forwards);
  EXPECT_EQ(forwards, 8U);
  const ClipLatents wanted = defined(pipeline, bank);
  // f32 rounding of fused heads and of eight steps; measured 4e-7.
  EXPECT_LE(relative_error(latents.video.f32(), wanted.video.f32()), 4e-6);
  EXPECT_LE(relative_error(latents.audio.f32(), wanted.audio.f32()), 4e-6);
  // The heads differ from each other: without them another clip comes out.
  Pipeline single = open({{adapter(banks(0.0F), true)}});
  EXPECT_GT(relative_error(denoise(single, request()).video.f32(), wanted.video.f32()), 1e-2);
}

TEST_F(Pdd, EqualHeadsAreTheCheckpointsOwnHeadAndBlocksOfOneThe32StepEuler) {
  Pipeline plain = open({});
  Pipeline with_heads = open({{adapter(banks(0.0F), false)}});
  EXPECT_NE(with_heads.identity(), plain.identity());
  for (const std::int64_t steps : {8, 32}) {
    std::size_t forwards = 0;
    const ClipLatents wanted = denoise(plain, request(steps));
    const ClipLatents latents = denoise(with_heads, request(steps), &forwards);
    EXPECT_EQ(forwards, static_cast<std::size_t>(steps));
    EXPECT_LE(relative_error(latents.video.f32(), wanted.video.f32()), 1e-6);
    EXPECT_LE(relative_error(latents.audio.f32(), wanted.audio.f32()), 1e-6);
  }
}

TEST_F(Pdd, OtherSchedulesAreRefusedAndStrengthZeroIsTheCheckpoint) {
  const auto path = adapter(banks(1.0F), true);
  Pipeline pipeline = open({{path}});
  const auto refusal = [&](const ScheduleOptions& options) {
    const Status status = pipeline.check_schedule(make_schedule(options).value());
    EXPECT_FALSE(status);
    return status ? std::string() : status.error().message;
  };
  for (const std::int64_t steps : {1, 2, 4, 8, 16, 32}) {
    EXPECT_TRUE(pipeline.check_schedule(make_schedule({.recipe = "pdd8", .steps = steps}).value()))
        << steps;
  }
  EXPECT_THAT(refusal({.recipe = "turbo8"}), HasSubstr("shifts 12 and 3"));
  EXPECT_THAT(refusal({.recipe = "pdd8", .audio_shift = 5.0F}), HasSubstr("sigma 1 "));
  EXPECT_THAT(refusal({.recipe = "pdd8", .steps = 6}), HasSubstr("--steps 4, 8, 16 or 32"));
  EXPECT_THAT(refusal({.recipe = "pdd8", .steps = 33}), HasSubstr("32 even points"));
  EXPECT_THAT(refusal({.recipe = "fasth3-4"}), HasSubstr("sigma 0 "));
  EXPECT_THAT(refusal({.recipe = "base"}), HasSubstr("32 even points"));

  Pipeline plain = open({});
  Pipeline zero = open({{path, 0.0F}});
  EXPECT_EQ(zero.identity(), plain.identity());
  EXPECT_TRUE(zero.check_schedule(make_schedule({.recipe = "turbo8"}).value()));
  EXPECT_TRUE(
      identical_to(denoise(zero, request()).video.f32(), denoise(plain, request()).video.f32()));
  Pipeline half = open({{path, 0.5F}});
  ASSERT_EQ(half.warnings().size(), 1U);
  EXPECT_THAT(half.warnings().front(), HasSubstr("output heads"));
}

TEST_F(Pdd, TwoAdaptersWithHeadsAndUnequalRangesAreErrors) {
  const auto first = adapter(banks(1.0F), true);
  const auto second = adapter(banks(0.5F), false);
  ModelPaths model;
  model.folder = test_data("golden/h3-micro");
  Pipeline pipeline = Pipeline::open(model, device_, Precision::kF32, 0).value();
  const Status status = pipeline.add_loras({.loras = {{first}, {second}}});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("pdd1.safetensors"));
  EXPECT_THAT(status.error().message, HasSubstr("pdd2.safetensors"));
}

TEST(HeadRanges, AnyPointsOfTheGridAreAPartition) {
  const auto grid = base_grid(33);
  SigmaSchedule schedule;
  for (const std::size_t point : {0U, 6U, 12U, 17U, 22U, 27U, 32U}) {  // six uneven forwards
    schedule.video.push_back(shift_sigma(grid[point], 12.0F));
    schedule.audio.push_back(shift_sigma(grid[point], 3.0F));
  }
  const auto ranges = head_ranges(schedule, 32).value();
  ASSERT_EQ(ranges.size(), 6U);
  EXPECT_EQ(ranges[2].first, 12);
  EXPECT_EQ(ranges[2].count, 5);
  std::swap(schedule.audio[2], schedule.audio[3]);
  EXPECT_FALSE(head_ranges(schedule, 32));
}

}  // namespace
}  // namespace miniacc
