#include "runtime/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "device/cpu_device.h"
#include "runtime/latents_file.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;
using ::testing::HasSubstr;
using testing::identical_to;
using testing::relative_error;
using testing::test_data;

// The request of tools/reference/pipeline.py.
constexpr const char* kPrompt =
    "A red fox walking through snow, <d>the wind hums</d>, 镜头缓缓推进.";

// Bounds of docs/testing.md; measured: 6.3e-7 for the latents, 10 of 405,504 bytes of pixels off by
// one level, 2.3e-6 for the sound.
constexpr double kLatentBound = 1e-3;
constexpr double kStageBound = 1e-4;

class MicroPipeline : public ::testing::Test {
 protected:
  static PreparedRequest request(NoiseOrder noise) {
    GenerateRequest request;
    request.prompt = kPrompt;
    request.width = 96;
    request.height = 64;
    request.num_frames = 22;
    request.seed = 42;
    request.sampling.recipe = "lightx2v4";  // shifts 12 and 3, five grid points
    request.sampling.noise = std::string(noise_order_name(noise));
    request.output = "unused.mp4";
    return prepare_request(request).value();
  }
  Pipeline open(const std::string& folder, Precision precision = Precision::kF32,
                std::size_t cache_bytes = std::size_t{1} << 30) {
    ModelPaths model;
    model.folder = test_data("golden/" + folder);
    auto pipeline = Pipeline::open(model, device_, precision, cache_bytes);
    if (!pipeline) {
      throw std::runtime_error(pipeline.error().message);
    }
    return *std::move(pipeline);
  }
  ClipLatents denoise(Pipeline& pipeline, NoiseOrder noise,
                      std::optional<Precision> attention = {}) {
    PreparedRequest prepared = request(noise);
    prepared.attention = attention;
    JobProgress progress = silent_progress();
    const Tensor hidden =
        pipeline.encode_text(ctx_, pipeline.tokenize(kPrompt).value(), progress).value();
    std::vector<double> step_seconds;
    ClipLatents latents =
        pipeline.denoise(ctx_, prepared, hidden.view(), progress, step_seconds).value();
    EXPECT_EQ(step_seconds.size(), 4U);
    return latents;
  }
  static JobProgress silent_progress() {
    return JobProgress({{kLoadStage, 1.0},
                        {kTextStage, 1.0},
                        {kDenoiseStage, 1.0},
                        {kAudioStage, 1.0},
                        {kVideoStage, 1.0},
                        {kSaveStage, 1.0}},
                       nullptr);
  }

  CpuDevice device_;
  // One thread: the bits are the same, and a loaded machine does not wait at barriers.
  OpContext ctx_{device_, 1};
  Golden golden_{"golden/pipeline.safetensors"};
};

TEST_F(MicroPipeline, TokensAndHiddenStateMatchTheReference) {
  Pipeline pipeline = open("h3-micro");
  const auto ids = pipeline.tokenize(kPrompt).value();
  const auto wanted = golden_.integers("ids");
  ASSERT_EQ(ids.size(), wanted.size());
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), wanted.begin()));
  JobProgress progress = silent_progress();
  const Tensor hidden = pipeline.encode_text(ctx_, ids, progress).value();
  EXPECT_TRUE(close_to(hidden.f32(), golden_.floats("prompt_embeds"), kStageBound));
}

TEST_F(MicroPipeline, LatentsMatchTheReferenceInEveryDrawOrder) {
  Pipeline pipeline = open("h3-micro");
  for (const NoiseOrder noise : {NoiseOrder::kSglang, NoiseOrder::kDiffusers, NoiseOrder::kComfy}) {
    const ClipLatents latents = denoise(pipeline, noise);
    const std::string name(noise_order_name(noise));
    EXPECT_TRUE(close_to(latents.video.f32(), golden_.floats(name + ".latents"), kLatentBound));
    EXPECT_TRUE(
        close_to(latents.audio.f32(), golden_.floats(name + ".audio_latents"), kLatentBound));
  }
}

TEST_F(MicroPipeline, OfficialAndDiffusersFoldersGiveTheSameBits) {
  Pipeline official = open("h3-micro");
  Pipeline diffusers = open("h3-micro-diffusers");
  const ClipLatents a = denoise(official, NoiseOrder::kSglang);
  const ClipLatents b = denoise(diffusers, NoiseOrder::kSglang);
  EXPECT_TRUE(identical_to(a.video.f32(), b.video.f32()));
  EXPECT_TRUE(identical_to(a.audio.f32(), b.audio.f32()));
}

TEST_F(MicroPipeline, ResidencyChangesNoBit) {
  Pipeline resident = open("h3-micro");
  Pipeline streamed = open("h3-micro", Precision::kF32, 0);
  const ClipLatents a = denoise(resident, NoiseOrder::kSglang);
  const ClipLatents b = denoise(streamed, NoiseOrder::kSglang);
  EXPECT_TRUE(identical_to(a.video.f32(), b.video.f32()));
  EXPECT_TRUE(identical_to(a.audio.f32(), b.audio.f32()));
}

TEST_F(MicroPipeline, LowerPrecisionsStayNearTheReference) {
  // bf16 operands carry 8 bits, int8 ones 7 and a scale a row. The bounds are twice what was
  // measured over the four steps (3.8e-3 and 1.8e-2).
  for (const auto& [precision, bound] :
       {std::pair{Precision::kBF16, 8e-3}, std::pair{Precision::kInt8, 3.6e-2}}) {
    Pipeline pipeline = open("h3-micro", precision);
    const ClipLatents latents = denoise(pipeline, NoiseOrder::kSglang);
    const double error = relative_error(latents.video.f32(), golden_.floats("sglang.latents"));
    EXPECT_LE(error, bound);
    EXPECT_GT(error, 1e-5) << "the precision had no effect";
  }
}

TEST_F(MicroPipeline, AttentionIsChosenApartFromThePrecision) {
  // Twice what was measured over the four steps: 2.7e-3 and 1.0e-3, and 1.9e-2 with int8 products.
  const auto error_of = [&](const ClipLatents& latents) {
    return relative_error(latents.video.f32(), golden_.floats("sglang.latents"));
  };
  Pipeline exact = open("h3-micro");
  const double int8 = error_of(denoise(exact, NoiseOrder::kSglang, Precision::kInt8));
  const double bf16 = error_of(denoise(exact, NoiseOrder::kSglang, Precision::kBF16));
  EXPECT_LE(int8, 5.4e-3);
  EXPECT_LE(bf16, 2.1e-3);
  EXPECT_GT(int8, 1e-5) << "int8 attention had no effect";
  EXPECT_GT(bf16, 1e-5) << "bf16 attention had no effect";
  Pipeline int8_model = open("h3-micro", Precision::kInt8);
  const ClipLatents by_default = denoise(int8_model, NoiseOrder::kSglang);
  const ClipLatents named = denoise(int8_model, NoiseOrder::kSglang, Precision::kBF16);
  const ClipLatents both = denoise(int8_model, NoiseOrder::kSglang, Precision::kInt8);
  EXPECT_TRUE(identical_to(named.video.f32(), by_default.video.f32()));
  EXPECT_FALSE(identical_to(both.video.f32(), by_default.video.f32()));
  EXPECT_LE(error_of(both), 3.7e-2);
}

TEST_F(MicroPipeline, PixelsAndSoundMatchTheReference) {
  Pipeline pipeline = open("h3-micro");
  const ClipLatents latents = denoise(pipeline, NoiseOrder::kSglang);
  JobProgress progress = silent_progress();
  const Tensor sound = pipeline.decode_audio(ctx_, latents, progress).value();
  const auto positions = golden_.integers("sglang.audio.positions");
  const auto wanted_sound = golden_.floats("sglang.audio.samples");
  std::vector<float> sampled;
  for (std::int64_t side = 0; side < 2; ++side) {
    for (const std::int64_t position : positions) {
      sampled.push_back(sound.f32()[static_cast<std::size_t>(side * sound.shape()[1] + position)]);
    }
  }
  EXPECT_TRUE(close_to(sampled, wanted_sound, kLatentBound));

  std::vector<std::uint8_t> frames;
  const auto sink = [&](const video_vae::FrameBatch& batch) -> Status {
    const auto* rgb = batch.rgb.as<std::uint8_t>();
    frames.insert(frames.end(), rgb, rgb + batch.rgb.num_elements());
    return {};
  };
  ASSERT_TRUE(pipeline.decode_video(ctx_, latents, sink, progress));
  const auto wanted = golden_.bytes("sglang.frames_u8");
  ASSERT_EQ(frames.size(), wanted.size());
  std::size_t off = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    off += std::abs(static_cast<int>(frames[i]) - static_cast<int>(wanted[i])) > 1 ? 1 : 0;
  }
  EXPECT_LE(static_cast<double>(off), 0.001 * static_cast<double>(frames.size()));
}

TEST_F(MicroPipeline, EmptyPromptIsOnePadToken) {
  const Pipeline pipeline = open("h3-micro");
  EXPECT_EQ(pipeline.tokenize("").value().size(), 1U);
}

TEST_F(MicroPipeline, LatentsFileRoundTrips) {
  Pipeline pipeline = open("h3-micro");
  const ClipLatents latents = denoise(pipeline, NoiseOrder::kSglang);
  const testing::TempDir folder;
  const auto path = folder / "latents.safetensors";
  ASSERT_TRUE(save_latents(path, latents, "{}"));
  const ClipLatents read = load_latents(path, device_).value();
  EXPECT_TRUE(identical_to(read.video.f32(), latents.video.f32()));
  EXPECT_TRUE(identical_to(read.audio.f32(), latents.audio.f32()));
  EXPECT_TRUE(pipeline.check_latents(read, request(NoiseOrder::kSglang).geometry));
  ClipGeometry other = request(NoiseOrder::kSglang).geometry;
  other.latent_frames = 12;
  EXPECT_THAT(pipeline.check_latents(read, other).error().message, HasSubstr("[24, 7, 4, 6]"));
  EXPECT_THAT(load_latents(test_data("golden/schedule.safetensors"), device_).error().message,
              HasSubstr("no latents file"));
}

TEST(LatentsFile, TargetIsCheckedBeforeTheSampling) {
  const testing::TempDir folder;
  const auto message = [&](const std::filesystem::path& path, bool overwrite) {
    const Status status = check_latents_target(path, folder / "clip.mp4", overwrite);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message(folder / "clip.latents", false), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the check left a file behind";
  EXPECT_THAT(message(folder / "./clip.mp4", true), HasSubstr("both name"));
  EXPECT_THAT(message(folder / "missing/clip.latents", false), HasSubstr("cannot write"));
  EXPECT_THAT(message(folder.path(), true), HasSubstr("is a folder"));
  // A checkpoint named by mistake, for example.
  std::ofstream(folder / "model.safetensors") << "weights";
  EXPECT_THAT(message(folder / "model.safetensors", false), HasSubstr("--overwrite"));
  EXPECT_EQ(message(folder / "model.safetensors", true), "");
  EXPECT_EQ(std::filesystem::file_size(folder / "model.safetensors"), 7U);
}

TEST_F(MicroPipeline, PartsOfDifferentModelsAreRefused) {
  ModelPaths model;
  model.folder = test_data("golden/h3-micro");
  model.video_vae = test_data("golden/h3-micro/audio_vae");
  auto pipeline = Pipeline::open(model, device_, Precision::kF32, 0);
  ASSERT_FALSE(pipeline);
  EXPECT_THAT(pipeline.error().message, HasSubstr("audio VAE"));
  model = {};
  pipeline = Pipeline::open(model, device_, Precision::kF32, 0);
  ASSERT_FALSE(pipeline);
  EXPECT_THAT(pipeline.error().message, HasSubstr("--diffusion-model"));
}

}  // namespace
}  // namespace miniacc
