#include "model/video_vae/video_vae_encoder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "device/cpu_device.h"
#include "model/support/encode_inputs.h"
#include "model/support/vae_models.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

using ::testing::HasSubstr;
using testing::VaeMemorySource;

class VideoEncoder : public ::testing::Test {
 protected:
  VideoVaeEncoder open(VaeMemorySource& source) {
    return VideoVaeEncoder::open(source, device_, read_config(source).value()).value();
  }
  std::string open_error(VaeMemorySource& source) {
    const auto encoder = VideoVaeEncoder::open(source, device_, read_config(source).value());
    return encoder ? std::string("none") : encoder.error().message;
  }
  std::vector<float> encode(VideoVaeEncoder& encoder, const RgbClip& frames,
                            const EncodeOptions& options = {}) {
    const Tensor latents = encoder.encode(ctx_, frames, options).value();
    return {latents.f32().begin(), latents.f32().end()};
  }

  CpuDevice device_;
  OpContext ctx_{device_, 2};
};

/// Frames, height and width of a case of tools/reference/video_encode.py.
struct GoldenCase {
  const char* name;
  std::int64_t frames, height, width;
};

class GoldenVideoEncoder : public VideoEncoder, public ::testing::WithParamInterface<GoldenCase> {};

TEST_P(GoldenVideoEncoder, LatentsMatchTheReferencesPipeline) {
  const auto [name, num_frames, height, width] = GetParam();
  const testing::Golden golden("golden/video_encode.safetensors");
  VaeMemorySource source = testing::micro_video_vae();
  const RgbClip frames = testing::drawn_frames(num_frames, height, width);
  const Tensor latents =
      encode_video(ctx_, source, read_config(source).value(), frames, Precision::kF32).value();
  const std::string key = name;
  EXPECT_EQ(latents.shape(), golden.shape(key + ".latents"));
  // Measured: at most 2.2e-5: values on the edge between two f16 fall on the other side. The mean,
  // which is not rounded, shows the arithmetic's own error.
  const std::vector<float> wanted = golden.floats(key + ".latents");
  EXPECT_TRUE(testing::close_to(latents.f32(), wanted, 1e-4));
  if (golden.has(key + ".mean")) {
    const auto first = golden.bytes(key + ".first_frame");
    EXPECT_TRUE(std::equal(first.begin(), first.end(), frames.pixels.begin()));
    VideoVaeEncoder encoder = open(source);
    EXPECT_TRUE(testing::close_to(encode(encoder, frames, {.posterior = PosteriorUse::kMean}),
                                  golden.floats(key + ".mean"), 1e-5));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenVideoEncoder,
                         ::testing::Values(GoldenCase{"picture_64x96", 1, 64, 96},
                                           GoldenCase{"picture_32x32", 1, 32, 32},
                                           GoldenCase{"picture_288x480", 1, 288, 480},
                                           GoldenCase{"clip_5_64x32", 5, 64, 32},
                                           GoldenCase{"clip_22_48x64", 22, 48, 64},
                                           GoldenCase{"clip_18_32x48", 18, 32, 48},
                                           GoldenCase{"clip_22_32x272", 22, 32, 272}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(VideoEncoder, DimensionsComeFromShapes) {
  VaeMemorySource source = testing::micro_video_vae();
  const VideoEncoderConfig config =
      read_encoder_config(source, read_config(source).value()).value();
  EXPECT_EQ(config.first_channels, 4);
  std::vector<std::int64_t> widths;
  std::vector<std::int64_t> time;
  std::vector<std::int64_t> space;
  for (const EncoderLevel& level : config.levels) {
    EXPECT_EQ(level.num_blocks, 2);
    widths.push_back(level.out_channels);
    time.push_back(level.stride_t);
    space.push_back(level.stride_hw);
  }
  EXPECT_EQ(widths, (std::vector<std::int64_t>{4, 8, 8, 12, 12, 16}));
  EXPECT_EQ(time, (std::vector<std::int64_t>{1, 2, 2, 1, 1, 1}));
  EXPECT_EQ(space, (std::vector<std::int64_t>{2, 2, 2, 2, 1, 1}));
}

TEST_F(VideoEncoder, LatentFramesOfAClip) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeEncoder encoder = open(source);
  const std::pair<std::int64_t, std::int64_t> wanted[] = {{1, 1},  {2, 2},  {5, 2},   {17, 2},
                                                          {18, 7}, {22, 7}, {39, 12}, {124, 37}};
  for (const auto& [frames, latents] : wanted) {
    EXPECT_EQ(encoder.num_latents(frames), latents) << frames;
  }
}

// Clips know nothing of each other, and within one time only flows forwards.
TEST_F(VideoEncoder, ClipsAreIndependentAndCausal) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeEncoder encoder = open(source);
  RgbClip frames = testing::drawn_frames(39, 12, 20);
  const auto before = encode(encoder, frames, {.posterior = PosteriorUse::kMean});
  const std::size_t frame_bytes = 12 * 20 * 3;
  for (std::size_t i = 25 * frame_bytes; i < frames.pixels.size(); ++i) {
    frames.pixels[i] = static_cast<std::uint8_t>(255 - frames.pixels[i]);
  }
  const auto after = encode(encoder, frames, {.posterior = PosteriorUse::kMean});
  // Frame 25 is the ninth of the second clip: latent 5 + 2 stands for frames 5 to 8 of it.
  const std::size_t area = 6 * 10;
  ASSERT_EQ(before.size(), 6 * 12 * area);
  for (std::size_t c = 0; c < 6; ++c) {
    for (std::size_t t = 0; t < 12; ++t) {
      const auto latent = [&](const std::vector<float>& values) {
        return std::span(values).subspan((c * 12 + t) * area, area);
      };
      const bool same = std::ranges::equal(latent(before), latent(after));
      EXPECT_EQ(same, t < 7) << c << ", " << t;
    }
  }
}

TEST_F(VideoEncoder, AShortClipIsFilledUpWithItsLastFrame) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeEncoder encoder = open(source);
  RgbClip frames = testing::drawn_frames(3, 8, 8);
  const auto filled_by_encoder = encode(encoder, frames);
  const std::vector<std::uint8_t> last(frames.pixels.end() - 8 * 8 * 3, frames.pixels.end());
  while (frames.num_frames < 17) {
    frames.pixels.insert(frames.pixels.end(), last.begin(), last.end());
    ++frames.num_frames;
  }
  EXPECT_EQ(encode(encoder, frames), filled_by_encoder);
}

TEST_F(VideoEncoder, BitsDoNotDependOnThreads) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeEncoder encoder = open(source);
  const RgbClip frames = testing::drawn_frames(22, 20, 28);
  const auto two = encode(encoder, frames);
  OpContext one{device_, 1};
  const Tensor latents = encoder.encode(one, frames).value();
  EXPECT_TRUE(testing::identical_to(latents.f32(), two));
}

TEST_F(VideoEncoder, PrecisionOfTheOthersDoesNotMatter) {
  VaeMemorySource source = testing::tiny_video_vae();
  const VideoVaeConfig config = read_config(source).value();
  const RgbClip frames = testing::drawn_frames(1, 8, 8);
  const Tensor f32 = encode_video(ctx_, source, config, frames, Precision::kF32).value();
  const Tensor i8 = encode_video(ctx_, source, config, frames, Precision::kInt8).value();
  EXPECT_TRUE(testing::identical_to(i8.f32(), f32.f32()));
}

TEST_F(VideoEncoder, ProgressRisesToOne) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeEncoder encoder = open(source);
  std::vector<double> reports;
  // Two clips of 2 x 3 tiles.
  encode(encoder, testing::drawn_frames(22, 14, 20),
         {.progress = [&](double fraction) { reports.push_back(fraction); }});
  EXPECT_EQ(reports.size(), 12U);
  EXPECT_TRUE(std::ranges::is_sorted(reports));
  EXPECT_EQ(reports.back(), 1.0);
  reports.clear();
  // A picture's tiles pass in groups of 17: 5 x 5 tiles.
  encode(encoder, testing::drawn_frames(1, 32, 32),
         {.progress = [&](double fraction) { reports.push_back(fraction); }});
  EXPECT_THAT(reports, ::testing::ElementsAre(17.0 / 25.0, 1.0));
}

TEST_F(VideoEncoder, CancelStopsBetweenTiles) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeEncoder encoder = open(source);
  CancelToken token;
  OpContext ctx{device_, 1, &token};
  int reports = 0;
  const auto cancel = [&](double) {
    ++reports;
    token.cancel();
  };
  EXPECT_THROW(static_cast<void>(
                   encoder.encode(ctx, testing::drawn_frames(22, 14, 20), {.progress = cancel})),
               ErrorException);
  EXPECT_EQ(reports, 1);
}

TEST_F(VideoEncoder, RefusesSizesItCannotHalve) {
  VaeMemorySource source = testing::micro_video_vae();
  VideoVaeEncoder encoder = open(source);
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{16, 32}, {32, 16}, {40, 32}, {32, 33}};
  for (const auto& [height, width] : sizes) {
    const auto result = encoder.encode(ctx_, testing::drawn_frames(1, height, width));
    ASSERT_FALSE(result) << height << " x " << width;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(result.error().message, HasSubstr("multiples of 16 of at least 32"));
  }
  RgbClip broken = testing::drawn_frames(1, 32, 32);
  broken.pixels.pop_back();
  EXPECT_THROW(static_cast<void>(encoder.encode(ctx_, broken)), InternalError);
}

TEST_F(VideoEncoder, ADecoderAloneSaysThatItCannotEncode) {
  VaeMemorySource source = testing::tiny_video_vae();
  source.erase("encoder.conv_in.weight");
  EXPECT_FALSE(has_encoder(source));
  EXPECT_THAT(open_error(source), HasSubstr("only the decoder"));
}

TEST_F(VideoEncoder, RefusesWhatDoesNotFit) {
  VaeMemorySource missing = testing::tiny_video_vae();
  missing.erase("encoder.down.1.block.0.norm2.bias");
  EXPECT_THAT(open_error(missing), HasSubstr("encoder.down.1.block.0.norm2.bias"));

  VaeMemorySource shape = testing::tiny_video_vae();
  shape.set("quant_conv.weight", {12, 6, 1, 1, 1}, std::vector<float>(72));
  EXPECT_THAT(open_error(shape),
              HasSubstr("quant_conv.weight is [12, 6, 1, 1, 1], wanted [12, 12"));

  VaeMemorySource no_levels = testing::tiny_video_vae();
  no_levels.erase("encoder.down.0.block.0.conv1.weight");
  EXPECT_THAT(open_error(no_levels), HasSubstr("encoder.down.0.block.0.conv1.weight is missing"));

  VaeMemorySource groups = testing::tiny_video_vae();
  groups.set_config("encoder_norm_groups", {4});
  EXPECT_THAT(open_error(groups), HasSubstr("6 channels of the encoder do not divide into 4"));

  VaeMemorySource strides = testing::tiny_video_vae();
  strides.set_config("encoder_time_down", {4, 2});
  EXPECT_THAT(open_error(strides), HasSubstr("level 1 of the encoder has no downsample.conv"));
  strides.set_config("encoder_time_down", {2, 1});
  EXPECT_THAT(open_error(strides), HasSubstr("shrinks time by 2"));
  strides.set_config("encoder_time_down", {4});
  EXPECT_THAT(open_error(strides), HasSubstr("wanted 2 whole numbers"));
  strides.set_config("encoder_time_down", {4, 1.5});
  EXPECT_THAT(open_error(strides), HasSubstr("wanted 2 whole numbers"));

  for (const char* key :
       {"encoder_padding_is_reflect", "encoder_is_causal", "encoder_norm_is_per_frame"}) {
    VaeMemorySource variant = testing::tiny_video_vae();
    variant.set_config(key, {1});
    EXPECT_EQ(open_error(variant), "none");
    variant.set_config(key, {0});
    EXPECT_THAT(open_error(variant), HasSubstr("of another kind"));
  }
}

TEST_F(VideoEncoder, NonFiniteMomentsNameTheirTile) {
  VaeMemorySource source = testing::tiny_video_vae();
  for (float& value : source.at("quant_conv.weight").values) {
    value = 3e38F;
  }
  VideoVaeEncoder encoder = open(source);
  const auto result = encoder.encode(ctx_, testing::drawn_frames(1, 8, 8));
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("tile (row 0, column 0) of 1 x 1"));
  EXPECT_THAT(result.error().message, HasSubstr("not finite"));
}

/// Two tensors of the first level, the padded frames of a convolution (all of a clip that small)
/// and what is small beside them.
TEST_F(VideoEncoder, ActivationsStayBelowFourTensorsOfTheFirstLevel) {
  VaeMemorySource source = testing::micro_video_vae();
  CpuDevice device;
  OpContext ctx{device, 1};
  auto encoder = VideoVaeEncoder::open(source, device, read_config(source).value()).value();
  const std::size_t weights = device.bytes_in_use();
  ASSERT_TRUE(encoder.encode(ctx, testing::drawn_frames(17, 256, 256)));
  const std::size_t first_level = 17UL * 256 * 256 * 4 * sizeof(float);
  EXPECT_LT(device.peak_bytes() - weights, 4 * first_level);
  EXPECT_EQ(device.bytes_in_use(), weights);
}

}  // namespace
}  // namespace miniacc::video_vae
