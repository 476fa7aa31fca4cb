#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "device/cpu_device.h"
#include "runtime/condition_files.h"
#include "runtime/pipeline.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;
using ::testing::HasSubstr;
using testing::identical_to;
using testing::test_data;

// Bounds of docs/testing.md.
constexpr double kStageBound = 1e-4;
constexpr double kLatentBound = 1e-3;
constexpr std::size_t kEmbedsStride = 3;

/// A request of tools/reference/conditions.py, carried out stage by stage.
class ConditionedPipeline : public ::testing::Test {
 protected:
  using Change = std::function<void(GenerateRequest&)>;

  GenerateRequest request(const Change& change) const {
    GenerateRequest request;
    request.prompt = "The fox of <Picture 1> walks, <d>snow falls</d>.";
    request.width = 96;
    request.height = 64;
    request.num_frames = 22;
    request.seed = 77;
    request.sampling.steps = 3;  // four grid points
    request.output = "unused.mp4";
    change(request);
    return request;
  }
  static PrepareOptions options() {
    PrepareOptions options;
    options.rules.canvas = {.short_edge = 64, .max_pixels = 64 * 96};
    options.rules.reference_short_edge = 96;
    return options;
  }
  Pipeline open(Task task) {
    ModelPaths model;
    model.folder = test_data("golden/h3-micro");
    model.half = task == Task::kRef2va ? "ref2va" : "fl2va";  // its index says fl2va
    return Pipeline::open(model, device_, Precision::kF32, std::size_t{1} << 30, task).value();
  }
  static JobProgress silent_progress() {
    return JobProgress(
        {{kConditionStage, 1.0}, {kVisionStage, 1.0}, {kTextStage, 1.0}, {kDenoiseStage, 1.0}},
        nullptr);
  }

  struct Run {
    PreparedRequest prepared;
    Presentation presentation;
    std::vector<ConditionMedia> media;
    ConditionLatents conditions;
    Tensor hidden;
  };
  /// Everything before the denoising.
  Run encode(Pipeline& pipeline, const GenerateRequest& request) {
    Run run;
    run.prepared = prepare_request(request, options()).value();
    std::vector<std::string> notes;
    for (Condition& condition : run.prepared.conditions) {
      run.media.push_back(read_condition(condition, run.prepared.request, run.prepared.geometry,
                                         run.prepared.rules, notes)
                              .value());
    }
    run.presentation = pipeline.present(run.prepared).value();
    JobProgress progress = silent_progress();
    run.conditions = pipeline.encode_conditions(ctx_, run.prepared, run.media, progress).value();
    const auto features = pipeline.run_vision(ctx_, run.presentation, run.media, progress).value();
    run.hidden = pipeline.encode_text(ctx_, run.presentation, features, progress).value();
    return run;
  }
  ClipLatents denoise(Pipeline& pipeline, const Run& run, NoiseOrder order) {
    PreparedRequest prepared = run.prepared;
    prepared.noise = order;
    JobProgress progress = silent_progress();
    std::vector<double> step_seconds;
    return pipeline
        .denoise(ctx_, prepared, run.hidden.view(), progress, step_seconds, run.presentation.tags,
                 run.conditions)
        .value();
  }

  void expect_same_as_golden(const std::string& name, const GenerateRequest& request) {
    SCOPED_TRACE(name);
    Pipeline pipeline = open(check_inputs(request).value());
    const Run run = encode(pipeline, request);

    const auto wanted_tags = golden_.bytes(name + ".text_tags");
    ASSERT_EQ(run.presentation.tags.size(), wanted_tags.size());
    for (std::size_t i = 0; i < wanted_tags.size(); ++i) {
      EXPECT_EQ(static_cast<int>(run.presentation.tags[i]), wanted_tags[i]) << "row " << i;
    }
    for (std::size_t i = 0; i < run.conditions.visual.size(); ++i) {
      const std::string key = name + ".condition_" + std::to_string(i);
      EXPECT_EQ(run.conditions.visual[i].shape(), golden_.shape(key));
      EXPECT_TRUE(close_to(run.conditions.visual[i].f32(), golden_.floats(key), kStageBound))
          << key;
    }
    EXPECT_FALSE(golden_.has(name + ".condition_" + std::to_string(run.conditions.visual.size())));
    for (std::size_t i = 0; i < run.conditions.audio.size(); ++i) {
      const std::string key = name + ".audio_condition_" + std::to_string(i);
      EXPECT_EQ(run.conditions.audio[i].shape(), golden_.shape(key));
      EXPECT_TRUE(close_to(run.conditions.audio[i].f32(), golden_.floats(key), kStageBound)) << key;
    }
    const auto hidden_size = static_cast<std::size_t>(run.hidden.shape()[1]);
    std::vector<float> kept;
    for (std::size_t row = 0; row < run.presentation.ids.size(); row += kEmbedsStride) {
      const auto values = run.hidden.f32().subspan(row * hidden_size, hidden_size);
      kept.insert(kept.end(), values.begin(), values.end());
    }
    EXPECT_TRUE(close_to(kept, golden_.floats(name + ".prompt_embeds"), kStageBound));

    int orders = 0;
    for (const NoiseOrder order :
         {NoiseOrder::kSglang, NoiseOrder::kDiffusers, NoiseOrder::kComfy}) {
      const std::string key = name + "." + std::string(noise_order_name(order));
      if (!golden_.has(key + ".latents")) {
        continue;
      }
      ++orders;
      const ClipLatents latents = denoise(pipeline, run, order);
      EXPECT_TRUE(close_to(latents.video.f32(), golden_.floats(key + ".latents"), kLatentBound))
          << key;
      EXPECT_TRUE(
          close_to(latents.audio.f32(), golden_.floats(key + ".audio_latents"), kLatentBound))
          << key;
    }
    EXPECT_GT(orders, 0);
  }

  std::filesystem::path picture(std::int64_t width, std::int64_t height, std::int64_t number) {
    return testing::write_formula_picture(folder_ / (std::to_string(number) + ".png"), width,
                                          height, number);
  }

  CpuDevice device_;
  OpContext ctx_{device_, 1};
  Golden golden_{"golden/conditions.safetensors"};
  testing::TempDir folder_;
};

TEST_F(ConditionedPipeline, FirstFrameMatchesTheReference) {
  expect_same_as_golden("first", request([&](GenerateRequest& changed) {
                          changed.init_image.path = picture(100, 60, 1);
                        }));
}

TEST_F(ConditionedPipeline, LastFrameMatchesTheReference) {
  expect_same_as_golden("last", request([&](GenerateRequest& changed) {
                          changed.end_image.path = picture(90, 70, 2);
                        }));
}

TEST_F(ConditionedPipeline, BothFramesMatchTheReference) {
  expect_same_as_golden("both", request([&](GenerateRequest& changed) {
                          changed.init_image.path = picture(100, 60, 1);
                          changed.end_image.path = picture(90, 70, 2);
                        }));
}

TEST_F(ConditionedPipeline, ReferencesOfEveryKindMatchTheReference) {
  using Kind = ReferenceInput::Kind;
  expect_same_as_golden(
      "mixed", request([&](GenerateRequest& changed) {
        changed.references = {
            {Kind::kImage, {picture(70, 50, 3), {}}, false},
            {Kind::kVideo,
             {testing::write_formula_video(folder_ / "video", 80, 64, 30, 4, 40000), {}},
             true},
            {Kind::kAudio, {testing::write_formula_sound(folder_ / "a.wav", 20001, 5), {}}, false}};
      }));
}

TEST_F(ConditionedPipeline, ReferencesInAnotherOrderMatchTheReference) {
  using Kind = ReferenceInput::Kind;
  expect_same_as_golden(
      "sound_first", request([&](GenerateRequest& changed) {
        changed.references = {
            {Kind::kAudio, {testing::write_formula_sound(folder_ / "a.wav", 9000, 6), {}}, false},
            // Fifteen frames: fewer than a chunk and its head, which the encoder fills up.
            {Kind::kVideo,
             {testing::write_formula_video(folder_ / "video", 64, 72, 15, 7, 0), {}},
             false},
            {Kind::kImage, {picture(64, 64, 8), {}}, false},
            {Kind::kImage, {picture(40, 100, 9), {}}, false}};
      }));
}

// Keyframes and references are hints that the sampler must leave alone, and it must use them.
TEST_F(ConditionedPipeline, EveryConditionMovesTheResult) {
  const auto with_picture = [&](std::int64_t number) {
    return request([&, number](GenerateRequest& changed) {
      changed.init_image.path = picture(96, 64, number);
    });
  };
  Pipeline pipeline = open(Task::kFl2va);
  const Run one = encode(pipeline, with_picture(1));
  const Run other = encode(pipeline, with_picture(2));
  const ClipLatents a = denoise(pipeline, one, NoiseOrder::kSglang);
  const ClipLatents b = denoise(pipeline, other, NoiseOrder::kSglang);
  EXPECT_GT(testing::relative_error(a.video.f32(), b.video.f32()), 1e-2);
  const ClipLatents again = denoise(pipeline, one, NoiseOrder::kSglang);
  EXPECT_TRUE(identical_to(a.video.f32(), again.video.f32()));
}

// demands.md W13: a reference that decodes to zeros is legal, one that is not finite is an error.
TEST_F(ConditionedPipeline, BlackPicturesAreLegal) {
  const std::filesystem::path path = folder_ / "black.png";
  RgbImage black{96, 64, std::vector<std::uint8_t>(96 * 64 * 3, 0)};
  Pipeline pipeline = open(Task::kFl2va);
  GenerateRequest with_black =
      request([&](GenerateRequest& changed) { changed.init_image.path = picture(96, 64, 1); });
  Run run = encode(pipeline, with_black);
  run.media[0].frames.pixels = black.pixels;
  JobProgress progress = silent_progress();
  EXPECT_TRUE(pipeline.encode_conditions(ctx_, run.prepared, run.media, progress));
}

TEST_F(ConditionedPipeline, TheOtherHalfIsRefused) {
  ModelPaths model;
  model.folder = test_data("golden/h3-micro");
  const auto message = [&](Task task) {
    const auto pipeline = Pipeline::open(model, device_, Precision::kF32, 0, task);
    return pipeline ? std::string() : pipeline.error().message;
  };
  EXPECT_EQ(message(Task::kT2va), "");
  EXPECT_EQ(message(Task::kFl2va), "");
  EXPECT_THAT(message(Task::kRef2va), HasSubstr("is the FL2VA half"));
  EXPECT_THAT(message(Task::kRef2va), HasSubstr("references need the Ref2VA half"));
  EXPECT_THAT(message(Task::kRef2va), HasSubstr("--model-half ref2va"));
  model.half = "ref2va";
  EXPECT_EQ(message(Task::kRef2va), "");
  EXPECT_THAT(message(Task::kFl2va), HasSubstr("keyframes need the FL2VA half"));
  EXPECT_THAT(message(Task::kT2va), HasSubstr("a clip from text alone needs the FL2VA half"));
}

TEST_F(ConditionedPipeline, AnUnknownHalfIsAWarning) {
  const auto file = folder_ / "h3.safetensors";
  std::filesystem::create_hard_link(test_data("golden/h3-micro-pruned/transformer.safetensors"),
                                    file);
  ModelPaths model;
  model.folder = test_data("golden/h3-micro");
  model.transformer = file;
  const Pipeline pipeline =
      Pipeline::open(model, device_, Precision::kF32, 0, Task::kRef2va).value();
  EXPECT_THAT(pipeline.warnings(),
              ::testing::Contains(HasSubstr("references need Ref2VA: name it with --model-half")));
  model.half = "ref2va";
  EXPECT_THAT(Pipeline::open(model, device_, Precision::kF32, 0, Task::kRef2va).value().warnings(),
              ::testing::Not(::testing::Contains(HasSubstr("half"))));
}

}  // namespace
}  // namespace miniacc
