#include "model/audio_vae/audio_vae_encoder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "device/cpu_device.h"
#include "model/support/encode_inputs.h"
#include "model/support/vae_models.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/random.h"

namespace miniacc::audio_vae {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::VaeMemorySource;

// Relative. Measured: at most 1.5e-5; the reference itself is 1.1e-5 from its float64 form, because
// random weights make the Snake's sines of large arguments.
constexpr double kBound = 1e-4;

class AudioEncoder : public ::testing::Test {
 protected:
  AudioVaeEncoder open(VaeMemorySource& source) {
    return AudioVaeEncoder::open(source, device_, read_config(source).value()).value();
  }
  std::string open_error(VaeMemorySource& source) {
    const auto encoder = AudioVaeEncoder::open(source, device_, read_config(source).value());
    return encoder ? std::string("none") : encoder.error().message;
  }
  std::string encode_error(const StereoSound& sound) {
    VaeMemorySource source = testing::tiny_audio_vae();
    const auto latents = open(source).encode(ctx_, sound);
    return latents ? std::string("none") : latents.error().message;
  }

  CpuDevice device_;
  OpContext ctx_{device_, 2};
};

class GoldenAudioEncoder : public AudioEncoder,
                           public ::testing::WithParamInterface<std::int64_t> {};

TEST_P(GoldenAudioEncoder, LatentsMatchTheReference) {
  const testing::Golden golden("golden/audio_encode.safetensors");
  const std::string key = "s" + std::to_string(GetParam()) + ".latents";
  VaeMemorySource source = testing::micro_audio_vae();
  const StereoSound sound = testing::drawn_sound(GetParam());
  const Tensor latents = encode_audio(ctx_, source, read_config(source).value(), sound).value();
  EXPECT_EQ(latents.shape(), golden.shape(key));
  const std::vector<float> wanted = golden.floats(key);
  EXPECT_TRUE(testing::close_to(latents.f32(), wanted, kBound));
  // In pieces that overlap by what the convolutions see, every bit is the same.
  const Tensor in_pieces = open(source).encode(ctx_, sound, {.piece_latents = 7}).value();
  EXPECT_TRUE(testing::identical_to(in_pieces.f32(), latents.f32()));
}

INSTANTIATE_TEST_SUITE_P(Samples, GoldenAudioEncoder,
                         ::testing::Values(1, 800, 6400, 7001, 123456));

TEST_F(AudioEncoder, StagesMatchTheReference) {
  const testing::Golden golden("golden/audio_encode.safetensors");
  VaeMemorySource source = testing::micro_audio_vae();
  const AudioEncoderConfig config =
      read_encoder_config(source, read_config(source).value()).value();
  const EncoderWeights weights = load_encoder_weights(source, config, device_).value();
  Tensor x = testing::make_tensor(device_, {2, 2, 800}, golden.floats("s800.block_0"));
  for (std::size_t unit = 0; unit < 2; ++unit) {
    run_residual_unit(ctx_, x.view(), weights.stages[0].units[unit], unit == 0 ? 1 : 3);
  }
  EXPECT_TRUE(testing::close_to(x.f32(), golden.floats("s800.unit_1"), kBound));
  x = testing::make_tensor(device_, {2, 2, 800}, golden.floats("s800.block_0"));
  for (std::size_t s = 0; s < config.stages.size(); ++s) {
    x = run_encoder_stage(ctx_, x.view(), weights.stages[s], config.stages[s]);
    if (s == 0) {
      EXPECT_TRUE(testing::close_to(x.f32(), golden.floats("s800.stage_1"), kBound));
    }
  }
  EXPECT_TRUE(testing::close_to(x.f32(), golden.floats("s800.stage_5"), kBound));

  const StereoSound sound = testing::drawn_sound(6400);
  const Tensor samples = testing::make_tensor(device_, {2, 1, 6400}, sound.samples);
  EXPECT_TRUE(testing::close_to(run_trunk(ctx_, samples.view(), weights, config).f32(),
                                golden.floats("s6400.trunk"), kBound));
}

TEST_F(AudioEncoder, DimensionsComeFromShapes) {
  VaeMemorySource source = testing::micro_audio_vae();
  const AudioEncoderConfig config =
      read_encoder_config(source, read_config(source).value()).value();
  EXPECT_EQ(config.first_channels, 2);
  EXPECT_EQ(config.latent_dim, 64);
  EXPECT_EQ(config.samples_per_latent(), 800);
  // Spec vae.md §11.18: 165600 -> 82800 -> 20700 -> 5175 -> 1035 -> 207.
  std::vector<std::int64_t> lengths;
  std::int64_t length = 165600;
  for (const EncoderStageConfig& stage : config.stages) {
    EXPECT_EQ(stage.num_units, 3);
    length = (length + 2 * stage.padding() - 2 * stage.stride) / stage.stride + 1;
    lengths.push_back(length);
  }
  EXPECT_THAT(lengths, ElementsAre(82800, 20700, 5175, 1035, 207));
  EXPECT_EQ(config.context_latents(), 14);
}

TEST_F(AudioEncoder, SidesAreIndependent) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeEncoder encoder = open(source);
  StereoSound sound = testing::drawn_sound(123);
  const Tensor both = encoder.encode(ctx_, sound).value();
  ASSERT_EQ(both.shape(), Shape({2, 4, 13}));
  std::rotate(sound.samples.begin(), sound.samples.begin() + 123, sound.samples.end());
  const Tensor swapped = encoder.encode(ctx_, sound).value();
  const std::size_t half = 4 * 13;
  EXPECT_TRUE(testing::identical_to(swapped.f32().first(half),
                                    std::span<const float>(both.f32().subspan(half))));
  EXPECT_TRUE(testing::identical_to(swapped.f32().subspan(half),
                                    std::span<const float>(both.f32().first(half))));
  EXPECT_GT(testing::relative_error(both.f32().first(half),
                                    std::span<const float>(both.f32().subspan(half))),
            0.01);
}

// 200 ms of sound, and less than one latent, become what their padded forms become.
TEST_F(AudioEncoder, ShortSoundsAreFilledUpWithZeros) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeEncoder encoder = open(source);
  const StereoSound sound = testing::drawn_sound(3);
  StereoSound padded{.sample_rate_hz = 32000, .num_samples = 10, .samples = {}};
  for (const std::size_t first : {0UL, 3UL}) {
    padded.samples.insert(padded.samples.end(), sound.samples.begin() + static_cast<long>(first),
                          sound.samples.begin() + static_cast<long>(first) + 3);
    padded.samples.insert(padded.samples.end(), 7, 0.0F);
  }
  const Tensor a = encoder.encode(ctx_, sound).value();
  EXPECT_EQ(a.shape(), Shape({2, 4, 1}));
  EXPECT_TRUE(testing::identical_to(a.f32(), encoder.encode(ctx_, padded).value().f32()));
}

TEST_F(AudioEncoder, SilenceIsEncoded) {
  VaeMemorySource source = testing::micro_audio_vae();
  const StereoSound silence{
      .sample_rate_hz = 32000, .num_samples = 6400, .samples = std::vector<float>(12800, 0.0F)};
  const Tensor latents = open(source).encode(ctx_, silence).value();
  EXPECT_EQ(latents.shape(), Shape({2, 32, 8}));
}

TEST_F(AudioEncoder, BitsDoNotDependOnThreads) {
  VaeMemorySource source = testing::micro_audio_vae();
  AudioVaeEncoder encoder = open(source);
  OpContext one{device_, 1};
  const StereoSound sound = testing::drawn_sound(20000);
  EXPECT_TRUE(testing::identical_to(encoder.encode(one, sound).value().f32(),
                                    encoder.encode(ctx_, sound).value().f32()));
}

TEST_F(AudioEncoder, RefusesWhatCannotBeEncoded) {
  StereoSound sound = testing::drawn_sound(100);
  EXPECT_EQ(encode_error(sound), "none");
  sound.sample_rate_hz = 44100;
  EXPECT_THAT(encode_error(sound), HasSubstr("44100 Hz cannot be encoded, wanted 32000 Hz"));
  sound = testing::drawn_sound(100);
  sound.samples[142] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(encode_error(sound), HasSubstr("sample 42 of channel 1 is inf"));
  EXPECT_THAT(encode_error({.sample_rate_hz = 32000, .num_samples = 0, .samples = {}}),
              HasSubstr("without samples"));
  sound = testing::drawn_sound(100);
  sound.samples.pop_back();
  EXPECT_THROW(encode_error(sound), InternalError);
}

TEST_F(AudioEncoder, ProgressRisesToOneAndCancelStops) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeEncoder encoder = open(source);
  std::vector<double> reports;
  const StereoSound sound = testing::drawn_sound(100);
  ASSERT_TRUE(encoder.encode(ctx_, sound, {.piece_latents = 5, .progress = [&](double fraction) {
                                             reports.push_back(fraction);
                                           }}));
  EXPECT_EQ(reports.size(), 8U);  // two channels, pieces and stages
  EXPECT_TRUE(std::ranges::is_sorted(reports));
  EXPECT_EQ(reports.back(), 1.0);

  CancelToken token;
  OpContext ctx{device_, 1, &token};
  int calls = 0;
  const auto cancel = [&](double) {
    ++calls;
    token.cancel();
  };
  EXPECT_THROW(static_cast<void>(encoder.encode(ctx, sound, {.progress = cancel})), ErrorException);
  EXPECT_EQ(calls, 1);
}

TEST_F(AudioEncoder, ADecoderAloneSaysThatItCannotEncode) {
  VaeMemorySource source = testing::tiny_audio_vae();
  source.erase("encoder.block.0.weight");
  EXPECT_FALSE(has_encoder(source));
  EXPECT_THAT(open_error(source), HasSubstr("only the decoder"));
}

TEST_F(AudioEncoder, RefusesWhatDoesNotFit) {
  VaeMemorySource missing = testing::tiny_audio_vae();
  missing.erase("encoder.block.2.block.1.block.2.alpha");
  EXPECT_THAT(open_error(missing), HasSubstr("encoder.block.2.block.1.block.2.alpha"));
  missing = testing::tiny_audio_vae();
  missing.erase("pre_block.attn.v_bias");
  EXPECT_THAT(open_error(missing), HasSubstr("pre_block.attn.v_bias"));

  VaeMemorySource shape = testing::tiny_audio_vae();
  shape.set("mean_proj.weight", {4, 5, 1}, std::vector<float>(20));
  EXPECT_THAT(open_error(shape), HasSubstr("mean_proj.weight is [4, 5, 1], wanted [4, 4, 1]"));

  VaeMemorySource kernel = testing::tiny_audio_vae();
  kernel.set("encoder.block.1.block.3.weight", {4, 2, 2}, std::vector<float>(16));
  EXPECT_THAT(open_error(kernel), HasSubstr("a kernel of twice the stride (2 or more)"));
  kernel.set("encoder.block.1.block.3.weight", {4, 2, 8}, std::vector<float>(64));
  EXPECT_THAT(open_error(kernel), HasSubstr("a latent of 8 samples, the decoder 10"));

  VaeMemorySource rates = testing::tiny_audio_vae();
  rates.set_config("encoder_rates", {5, 2});
  EXPECT_EQ(open_error(rates), "none");
  rates.set_config("encoder_rates", {2, 5});
  EXPECT_THAT(open_error(rates), HasSubstr("encoder_rates says otherwise"));
  rates.set_config("encoder_rates", {5, 2, 2});
  EXPECT_THAT(open_error(rates), HasSubstr("2 stages of the encoder"));

  VaeMemorySource heads = testing::tiny_audio_vae();
  heads.set_config("encoder_num_heads", {5});
  EXPECT_THAT(open_error(heads), HasSubstr("in 5 heads does not pool to 4"));
  heads.set_config("encoder_num_heads", {4});  // heads of 6 channels
  EXPECT_THAT(open_error(heads), HasSubstr("in 4 heads does not pool to 4"));
}

/// A piece holds four tensors of the first stage, whatever the length of the sound.
TEST_F(AudioEncoder, ActivationsDoNotGrowWithTheSound) {
  VaeMemorySource source = testing::micro_audio_vae();
  const auto peak = [&](std::int64_t num_samples) {
    CpuDevice device;
    OpContext ctx{device, 1};
    auto encoder = AudioVaeEncoder::open(source, device, read_config(source).value()).value();
    const std::size_t weights = device.bytes_in_use();
    EXPECT_TRUE(encoder.encode(ctx, testing::drawn_sound(num_samples), {.piece_latents = 20}));
    EXPECT_EQ(device.bytes_in_use(), weights);
    return device.peak_bytes() - weights;
  };
  const std::size_t first_stage = (20 + 2 * 14) * 800UL * 2 * sizeof(float);
  EXPECT_LT(peak(100 * 800), 5 * first_stage);
  EXPECT_LT(peak(300 * 800), 6 * first_stage);
}

}  // namespace
}  // namespace miniacc::audio_vae
