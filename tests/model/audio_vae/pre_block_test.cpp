#include "model/audio_vae/pre_block.h"

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "model/support/vae_models.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::audio_vae {
namespace {

// Spec vae.md example 11.19.
TEST(PreBlock, PoolsTheWorkedExample) {
  CpuDevice device;
  const Tensor attended = testing::make_tensor(device, {1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  Tensor pooled = empty_tensor(device, {1, 2});
  pool_heads(pooled.view(), attended.view());
  EXPECT_EQ(pooled.f32()[0], 3.5F);
  EXPECT_EQ(pooled.f32()[1], 5.5F);
  Tensor uneven = empty_tensor(device, {1, 3});
  EXPECT_THROW(pool_heads(uneven.view(), attended.view()), InternalError);
}

// Spec vae.md example 11.7.
TEST(PreBlock, GegluOfTheWorkedExample) {
  CpuDevice device;
  const Tensor gate = testing::make_tensor(device, {1, 1}, {0.9F});
  const Tensor value = testing::make_tensor(device, {1, 1}, {-0.4F});
  Tensor out = empty_tensor(device, {1, 1});
  geglu(out.view(), gate.view(), value.view());
  EXPECT_NEAR(out.f32()[0], -0.2936914, 1e-6);
}

class GoldenPreBlock : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenPreBlock, MatchesTheReference) {
  const std::string name = GetParam();
  CpuDevice device;
  OpContext ctx{device, 1};
  const TensorFile golden = testing::open_golden("audio_encode.safetensors");
  testing::VaeMemorySource source = testing::micro_audio_vae();
  const AudioEncoderConfig config =
      read_encoder_config(source, read_config(source).value()).value();
  const EncoderWeights weights = load_encoder_weights(source, config, device).value();
  const auto trunk = testing::golden_values(golden, name + ".trunk");  // [2, latent_dim, latents]
  const std::int64_t rows = golden.find(name + ".trunk")->shape[2];
  const auto wanted = testing::golden_values(golden, name + ".pre_block");  // [2, latents, C]
  const std::int64_t d = config.latent_dim;
  for (std::int64_t channel = 0; channel < 2; ++channel) {
    Tensor x = empty_tensor(device, {rows, d});
    for (std::int64_t i = 0; i < rows * d; ++i) {
      x.f32()[static_cast<std::size_t>(i)] =
          trunk[static_cast<std::size_t>((channel * d + i % d) * rows + i / d)];
    }
    const Tensor y = run_pre_block(ctx, x.view(), weights.pre_block, config);
    const auto half = std::span(wanted).subspan(
        static_cast<std::size_t>(channel * rows * config.latent_channels), y.f32().size());
    EXPECT_TRUE(testing::close_to(y.f32(), half, 1e-5));  // measured: 5e-7
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenPreBlock, ::testing::Values("s800", "s6400"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace miniacc::audio_vae
