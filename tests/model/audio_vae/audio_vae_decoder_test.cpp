#include "model/audio_vae/audio_vae_decoder.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "device/cpu_device.h"
#include "kernels/snake.h"
#include "model/audio_vae/sound_check.h"
#include "model/support/vae_models.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::audio_vae {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::VaeMemorySource;

class AudioVae : public ::testing::Test {
 protected:
  AudioVaeDecoder open(VaeMemorySource& source,
                       std::size_t cache = std::numeric_limits<std::size_t>::max()) {
    return AudioVaeDecoder::open(source, device_, cache).value();
  }
  std::string open_error(VaeMemorySource& source) {
    const auto decoder = AudioVaeDecoder::open(source, device_, 0);
    return decoder ? std::string("none") : decoder.error().message;
  }

  CpuDevice device_;
  OpContext ctx_{device_, 1};
};

class GoldenAudio : public AudioVae, public ::testing::WithParamInterface<const char*> {};

TEST_P(GoldenAudio, MatchesTheReference) {
  const std::string name = GetParam();
  const TensorFile golden = testing::open_golden("audio_vae.safetensors");
  VaeMemorySource source = testing::micro_audio_vae();
  AudioVaeDecoder decoder = open(source);
  const Tensor latents = testing::make_tensor(device_, golden.find(name + ".latents")->shape,
                                              testing::golden_values(golden, name + ".latents"));
  const Tensor waveform = decoder.decode(ctx_, latents.view()).value();
  ASSERT_EQ(waveform.shape(), Shape({2, 800 * latents.shape()[2]}));
  const auto positions = testing::golden_integers(golden, name + ".positions");
  std::vector<float> sampled;
  for (std::int64_t channel = 0; channel < 2; ++channel) {
    for (const std::int64_t position : positions) {
      sampled.push_back(
          waveform.f32()[static_cast<std::size_t>(channel * waveform.shape()[1] + position)]);
    }
  }
  const auto wanted = testing::golden_values(golden, name + ".samples");
  EXPECT_TRUE(testing::close_to(sampled, wanted, 1e-4));  // measured: 2e-6
  EXPECT_EQ(check_sound(waveform.view()).state, SoundState::kSound);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenAudio, ::testing::Values("a1", "a8", "a37"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(AudioVae, ResidualBlocksMatchTheReference) {
  const TensorFile golden = testing::open_golden("audio_vae.safetensors");
  VaeMemorySource source = testing::micro_audio_vae();
  const AudioVaeConfig config = read_config(source).value();
  const Stage stage = load_stage(source, config, 0, device_).value();
  for (const std::size_t block : {std::size_t{0}, std::size_t{2}}) {
    Tensor x =
        testing::make_tensor(device_, {2, 64, 5}, testing::golden_values(golden, "a1.ups_0"));
    run_resblock(ctx_, x.view(), stage.resblocks[block], config.resblock_dilations[block]);
    EXPECT_TRUE(testing::close_to(
        x.f32(), testing::golden_values(golden, "a1.resblock_" + std::to_string(block)), 1e-5));
  }
}

TEST_F(AudioVae, ActivationMatchesTheReferenceWithItsStoredFilter) {
  const TensorFile golden = testing::open_golden("audio_vae.safetensors");
  VaeMemorySource source = testing::micro_audio_vae();
  const AudioVaeConfig config = read_config(source).value();
  const Stage stage = load_stage(source, config, 0, device_).value();
  const Activation& activation = stage.resblocks[0].activations[0];
  EXPECT_TRUE(testing::identical_to(activation.up_filter.f32(),
                                    testing::golden_values(golden, "activation.filter")));
  const Tensor x =
      testing::make_tensor(device_, {2, 64, 9}, testing::golden_values(golden, "activation.input"));
  Tensor out = empty_tensor(device_, x.shape());
  ops::antialiased_snake_beta(ctx_, out.view(), x.view(), activation.alpha.view(),
                              activation.beta.view(), activation.up_filter.view(),
                              activation.down_filter.view());
  EXPECT_TRUE(
      testing::close_to(out.f32(), testing::golden_values(golden, "activation.output"), 1e-5));
}

TEST_F(AudioVae, AbsentFiltersAreComputed) {
  VaeMemorySource stored = testing::micro_audio_vae();
  VaeMemorySource without = testing::micro_audio_vae();
  const TensorFile file = testing::open_golden("h3-micro/audio_vae/model.safetensors");
  int erased = 0;
  for (const TensorEntry& entry : file.entries()) {
    if (entry.name.ends_with(".filter")) {
      without.erase(entry.name);
      ++erased;
    }
  }
  ASSERT_EQ(erased, 2 * 127);
  const Tensor latents = testing::random_tensor(device_, {2, 32, 5}, 4);
  AudioVaeDecoder first = open(stored);
  AudioVaeDecoder second = open(without);
  EXPECT_TRUE(testing::close_to(second.decode(ctx_, latents.view()).value().f32(),
                                first.decode(ctx_, latents.view()).value().f32(), 1e-5));
}

TEST_F(AudioVae, DimensionsComeFromShapes) {
  VaeMemorySource source = testing::micro_audio_vae();
  const AudioVaeConfig config = read_config(source).value();
  EXPECT_EQ(config.latent_channels, 32);
  EXPECT_EQ(config.latent_dim, 64);
  EXPECT_EQ(config.decoder_dim, 128);
  EXPECT_EQ(config.samples_per_latent(), 800);
  EXPECT_EQ(config.sample_rate_hz, 32000);
  EXPECT_THAT(config.resblock_kernels, ElementsAre(3, 7, 11));
  for (const auto& row : config.resblock_dilations) {
    EXPECT_THAT(row, ElementsAre(1, 3, 5));
  }
  // 1 -> 5 -> 25 -> 50 -> 100 -> 200 -> 400 -> 800, spec vae.md §11.18.
  std::vector<std::int64_t> lengths;
  std::int64_t length = 1;
  for (const StageConfig& stage : config.stages) {
    length = (length - 1) * stage.rate - 2 * stage.padding() + stage.kernel;
    lengths.push_back(length);
  }
  EXPECT_THAT(lengths, ElementsAre(5, 25, 50, 100, 200, 400, 800));
}

TEST_F(AudioVae, SidesAreIndependent) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeDecoder decoder = open(source);
  const Tensor latents = testing::random_tensor(device_, {2, 4, 6}, 9);
  const Tensor stereo = decoder.decode(ctx_, latents.view()).value();
  ASSERT_EQ(stereo.shape(), Shape({2, 60}));
  for (std::int64_t side = 0; side < 2; ++side) {
    const Tensor mono = decoder.decode(ctx_, latents.view().narrow(0, side, 1)).value();
    EXPECT_TRUE(testing::close_to(stereo.f32().subspan(static_cast<std::size_t>(60 * side), 60),
                                  mono.f32(), 1e-6));
  }
  EXPECT_GT(testing::relative_error(stereo.f32().first(60),
                                    std::span<const float>(stereo.f32().subspan(60))),
            0.1);
}

TEST_F(AudioVae, LoudSoundIsClamped) {
  VaeMemorySource source = testing::tiny_audio_vae();
  for (float& value : source.at("decoder.conv_post.weight").values) {
    value *= 1000.0F;
  }
  AudioVaeDecoder decoder = open(source);
  const Tensor latents = testing::random_tensor(device_, {2, 4, 6}, 9);
  const Tensor waveform = decoder.decode(ctx_, latents.view()).value();
  EXPECT_EQ(check_sound(waveform.view()).peak, 1.0F);
}

TEST_F(AudioVae, NonFiniteLatentsAreNamed) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeDecoder decoder = open(source);
  Tensor latents = testing::random_tensor(device_, {2, 4, 6}, 9);
  latents.f32()[(4 + 1) * 6 + 2] = std::numeric_limits<float>::infinity();
  const auto waveform = decoder.decode(ctx_, latents.view());
  ASSERT_FALSE(waveform);
  EXPECT_EQ(waveform.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(waveform.error().message, HasSubstr("channel 1 at position 2"));
}

TEST_F(AudioVae, NonFiniteWaveformIsAnError) {
  VaeMemorySource source = testing::tiny_audio_vae();
  for (float& value : source.at("decoder.conv_post.weight").values) {
    value = 3e38F;
  }
  AudioVaeDecoder decoder = open(source);
  const Tensor latents = testing::random_tensor(device_, {2, 4, 6}, 9, 4.0F);
  const auto waveform = decoder.decode(ctx_, latents.view());
  ASSERT_FALSE(waveform);
  EXPECT_THAT(waveform.error().message, HasSubstr("not finite"));
}

TEST_F(AudioVae, CacheBudgetDoesNotChangeTheSound) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeDecoder resident = open(source);
  AudioVaeDecoder streamed = open(source, 0);
  const Tensor latents = testing::random_tensor(device_, {2, 4, 6}, 9);
  const Tensor first = resident.decode(ctx_, latents.view()).value();
  const Tensor again = resident.decode(ctx_, latents.view()).value();
  const Tensor other = streamed.decode(ctx_, latents.view()).value();
  EXPECT_TRUE(testing::identical_to(again.f32(), first.f32()));
  EXPECT_TRUE(testing::identical_to(other.f32(), first.f32()));
}

TEST_F(AudioVae, CancelStopsBetweenSteps) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeDecoder decoder = open(source);
  CancelToken token;
  OpContext ctx{device_, 1, &token};
  const Tensor latents = testing::random_tensor(device_, {2, 4, 6}, 9);
  int reports = 0;
  EXPECT_THROW(static_cast<void>(decoder.decode(ctx, latents.view(),
                                                [&](double fraction) {
                                                  EXPECT_DOUBLE_EQ(fraction, 0.5);
                                                  ++reports;
                                                  token.cancel();
                                                })),
               ErrorException);
  EXPECT_EQ(reports, 1);
}

TEST_F(AudioVae, RefusesWhatDoesNotFit) {
  VaeMemorySource missing = testing::tiny_audio_vae();
  missing.erase("decoder.resblocks.3.convs2.1.bias");
  EXPECT_THAT(open_error(missing), HasSubstr("decoder.resblocks.3.convs2.1.bias"));

  VaeMemorySource odd_number = testing::tiny_audio_vae();
  odd_number.erase("decoder.resblocks.3.convs1.0.weight");
  EXPECT_THAT(open_error(odd_number), HasSubstr("3 residual blocks for 2 stages"));

  VaeMemorySource kernel = testing::tiny_audio_vae();
  kernel.set("decoder.ups.0.0.weight", {12, 6, 8}, std::vector<float>(12 * 6 * 8));
  EXPECT_THAT(open_error(kernel), HasSubstr("decoder_rates must tell the rate"));
  kernel.set_config("decoder_rates", {4, 2});
  EXPECT_EQ(open_error(kernel), "none");
  kernel.set_config("decoder_rates", {5, 2});
  EXPECT_THAT(open_error(kernel), HasSubstr("does not go with rate 5"));
  kernel.set_config("decoder_rates", {4.5, 2});
  EXPECT_THAT(open_error(kernel), HasSubstr("decoder_rates[0] is 4.5"));
  kernel.set_config("decoder_rates", {4, 2, 2});
  EXPECT_THAT(open_error(kernel), HasSubstr("2 upsamplers"));

  VaeMemorySource dilations = testing::tiny_audio_vae();
  dilations.set_config("resblock_dilation_sizes", {1, 3, 5, 1, 3});
  EXPECT_THAT(open_error(dilations), HasSubstr("resblock_dilation_sizes gives 0"));
  dilations.set_config("resblock_dilation_sizes", {1, 3, 5, 1, 3, 5, 1});
  EXPECT_THAT(open_error(dilations), HasSubstr("has 7 values, wanted 6"));
  dilations.set_config("resblock_dilation_sizes", {1, 3, 5, 1, 2, 4});
  EXPECT_EQ(open_error(dilations), "none");

  VaeMemorySource shape = testing::tiny_audio_vae();
  shape.set("decoder.conv_post.weight", {2, 3, 7}, std::vector<float>(42));
  EXPECT_THAT(open_error(shape),
              HasSubstr("decoder.conv_post.weight is [2, 3, 7], wanted [1, 3, 7]"));

  VaeMemorySource empty;
  EXPECT_THAT(open_error(empty), HasSubstr("dec_in_proj.weight"));
}

TEST_F(AudioVae, BrokenContractsAreRefused) {
  VaeMemorySource source = testing::tiny_audio_vae();
  AudioVaeDecoder decoder = open(source);
  const Tensor wrong = testing::random_tensor(device_, {2, 5, 6}, 9);
  EXPECT_THROW(static_cast<void>(decoder.decode(ctx_, wrong.view())), InternalError);
}

/// The micro model's widest tensors are as large as its result (the released model's are 8 times
/// that); a residual block needs eight of them, the doubled activation included.
TEST_F(AudioVae, ActivationsStayBelowTenWidestTensors) {
  VaeMemorySource source = testing::micro_audio_vae();
  CpuDevice device;
  OpContext ctx{device, 1};
  auto decoder =
      AudioVaeDecoder::open(source, device, std::numeric_limits<std::size_t>::max()).value();
  const Tensor latents = testing::random_tensor(device_, {2, 32, 12}, 9);
  ASSERT_TRUE(decoder.decode(ctx, latents.view().narrow(0, 0, 1)));  // makes all weights resident
  const std::size_t weights = device.bytes_in_use();
  const Tensor waveform = decoder.decode(ctx, latents.view()).value();
  ASSERT_GT(device.peak_bytes(), weights);
  EXPECT_LT(device.peak_bytes() - weights, 10 * waveform.size_bytes());
}

}  // namespace
}  // namespace miniacc::audio_vae
