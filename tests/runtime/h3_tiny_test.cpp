#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/cpu_device.h"
#include "runtime/pipeline.h"
#include "support/compare.h"
#include "support/golden.h"

// The trained miniature that ships with the project, against float32 latents computed by the Python
// code that trained it (tools/train_tiny/export.py).

namespace miniacc {
namespace {

using testing::close_to;

// Wanted: 1e-3. Measured: 2.0e-6 over all eight tensors.
constexpr double kBound = 1e-4;

constexpr const char* kCaptions[] = {
    "a small red circle bounces slowly on a dark blue floor, a very low beep at each bounce",
    "A large yellow star moves quickly to the right on a black background."};

class H3Tiny : public ::testing::Test {
 protected:
  static std::filesystem::path folder() { return testing::test_data("../models/h3-tiny"); }

  ClipLatents denoise(const std::string& caption, const std::string& adapter,
                      std::int64_t num_steps) {
    GenerateRequest request;
    request.prompt = caption;
    request.width = 192;
    request.height = 128;
    request.num_frames = 39;
    request.sampling.recipe = "lightx2v4";
    request.sampling.steps = num_steps;
    request.model.folder = folder();
    request.output = "unused.mp4";
    const PreparedRequest prepared = prepare_request(request).value();
    Pipeline pipeline =
        Pipeline::open(request.model, device_, Precision::kF32, std::size_t{1} << 30).value();
    if (!adapter.empty()) {
      LoraRequest lora;
      lora.path = folder() / "adapters" / adapter;
      EXPECT_TRUE(pipeline.add_loras({.loras = {lora}}));
    }
    JobProgress progress({{kTextStage, 1.0}, {kDenoiseStage, 1.0}}, nullptr);
    const Tensor hidden =
        pipeline.encode_text(ctx_, pipeline.tokenize(caption).value(), progress).value();
    std::vector<double> step_seconds;
    return pipeline.denoise(ctx_, prepared, hidden.view(), progress, step_seconds).value();
  }
  void expect_golden(const ClipLatents& latents, const std::string& name) {
    EXPECT_TRUE(close_to(latents.video.f32(), golden_.floats(name + ".video"), kBound)) << name;
    EXPECT_TRUE(close_to(latents.audio.f32(), golden_.floats(name + ".audio"), kBound)) << name;
  }

  CpuDevice device_;
  // One thread: the bits are the same, and a loaded machine does not wait at barriers.
  OpContext ctx_{device_, 1};
  testing::Golden golden_{"../models/h3-tiny/golden/latents.safetensors"};
};

TEST_F(H3Tiny, LatentsMatchTheCodeThatTrainedIt) {
  for (int i = 0; i < 2; ++i) {
    expect_golden(denoise(kCaptions[i], "", 8), "caption_" + std::to_string(i) + ".base_8");
  }
}

TEST_F(H3Tiny, BothNamingsOfTheAdapterMatchIt) {
  for (const std::string adapter :
       {"h3-tiny-4step-diffusers.safetensors", "h3-tiny-4step-comfy.safetensors"}) {
    for (int i = 0; i < 2; ++i) {
      expect_golden(denoise(kCaptions[i], adapter, 4),
                    "caption_" + std::to_string(i) + ".adapter_4");
    }
  }
}

// The price of the video decoder's products in less than f32 (--vae-precision): the picture that
// the golden latents decode to, against f32's.
TEST_F(H3Tiny, TheDecodersPrecisionShowsLittleInThePicture) {
  ModelPaths model;
  model.folder = folder();
  Pipeline pipeline = Pipeline::open(model, device_, Precision::kF32, std::size_t{1} << 30).value();
  const Shape video = {24, 12, 8, 12};  // 39 frames of 192 x 128
  ClipLatents latents{empty_tensor(device_, video), {}};
  const std::vector<float> values = golden_.floats("caption_0.base_8.video");
  ASSERT_EQ(static_cast<std::int64_t>(values.size()), video.num_elements());
  std::copy(values.begin(), values.end(), latents.video.f32().begin());
  const auto decode = [&](Precision precision) {
    std::vector<float> bytes;
    JobProgress progress({{kVideoStage, 1.0}}, nullptr);
    pipeline.set_vae_precision(precision);
    EXPECT_TRUE(pipeline.decode_video(
        ctx_, latents,
        [&](const video_vae::FrameBatch& batch) -> Status {
          const auto* rgb = batch.rgb.as<std::uint8_t>();
          bytes.insert(bytes.end(), rgb, rgb + batch.rgb.num_elements());
          return {};
        },
        progress));
    return bytes;
  };
  const std::vector<float> wanted = decode(Precision::kF32);
  const auto psnr = [&](const std::vector<float>& bytes) {
    double squares = 0.0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      squares +=
          (static_cast<double>(bytes[i]) - wanted[i]) * (static_cast<double>(bytes[i]) - wanted[i]);
    }
    return 10.0 * std::log10(255.0 * 255.0 * static_cast<double>(wanted.size()) / squares);
  };
  const double bf16 = psnr(decode(Precision::kBF16));
  const double int8 = psnr(decode(Precision::kInt8));
  RecordProperty("psnr_bf16", std::to_string(bf16));
  RecordProperty("psnr_int8", std::to_string(int8));
  // In dB. Measured: 65.8 and 53.8; half a step of 8 bits is about 59.
  EXPECT_GT(bf16, 62.0);
  EXPECT_GT(int8, 50.0);
}

}  // namespace
}  // namespace miniacc
