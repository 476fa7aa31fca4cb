#include "model/video_vae/posterior.h"

#include <gmock/gmock.h>

#include <limits>

#include "device/cpu_device.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

using ::testing::HasSubstr;

class Posterior : public ::testing::Test {
 protected:
  /// Moments of one channel and 16 positions: a mean and a log variance everywhere.
  Tensor moments(float mean, float log_variance) {
    std::vector<float> values(16, mean);
    values.insert(values.end(), 16, log_variance);
    return testing::make_tensor(device_, {2, 1, 4, 4}, values);
  }
  std::vector<float> latents(const Tensor& moments, PosteriorUse use = PosteriorUse::kSampled) {
    const Tensor result = latents_of_moments(device_, moments.view(), statistics_, use).value();
    EXPECT_EQ(result.shape(), Shape({1, 1, 4, 4}));
    return {result.f32().begin(), result.f32().end()};
  }
  std::string error(const Tensor& moments) {
    const auto result =
        latents_of_moments(device_, moments.view(), statistics_, PosteriorUse::kSampled);
    return result ? "none" : result.error().message;
  }

  CpuDevice device_;
  vae::LatentStatistics statistics_{{0.0F}, {1.0F}};
};

// Spec vae.md example 11.13.
TEST_F(Posterior, NoiseIsTorchsOfSeed42) {
  const std::vector<double> wanted = {1.9269,  1.4873,  0.9007,  -2.1055, 0.6784,  -1.2345,
                                      -0.0431, -1.6047, -0.7521, 1.6487,  -0.3925, -1.4036,
                                      -0.7279, -0.5594, -0.7688, 0.7624};
  const auto drawn = latents(moments(0.0F, 0.0F));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(drawn[i], wanted[i], 1.1e-3) << i;  // f16 has 11 bits
  }
}

// Spec vae.md examples 11.12 and 11.1, up to the rounding to f16.
TEST_F(Posterior, WorkedExamples) {
  EXPECT_NEAR(latents(moments(0.4F, -6.0F))[0], 0.4959347, 1.3e-4);
  statistics_ = {{0.8580903F}, {1.2223774F}};
  EXPECT_NEAR(latents(moments(1.0F, 0.0F), PosteriorUse::kMean)[0], 0.1160932, 1e-6);
}

TEST_F(Posterior, SampledLatentsAreRoundedToF16BeforeTheyAreNormalised) {
  const auto drawn = latents(moments(0.1F, -30.0F));  // noise of 3e-7
  EXPECT_EQ(drawn[0], 0.0999755859375F);              // the f16 next to 0.1
  EXPECT_EQ(latents(moments(0.1F, -30.0F), PosteriorUse::kMean)[0], 0.1F);
  statistics_ = {{0.05F}, {2.0F}};
  EXPECT_EQ(latents(moments(0.1F, -30.0F))[0], (0.0999755859375F - 0.05F) / 2.0F);
}

TEST_F(Posterior, LogVarianceIsClamped) {
  EXPECT_EQ(latents(moments(0.1F, -1000.0F)), latents(moments(0.1F, -30.0F)));
  EXPECT_EQ(latents(moments(0.0F, -1000.0F)), latents(moments(0.0F, -30.0F)));
  // exp(10) = 22026 times 2.1 still is an f16; unclamped, 1000 would be infinity.
  EXPECT_NEAR(latents(moments(0.0F, 1000.0F))[0], 22026.47 * 1.9269, 32.0);
}

TEST_F(Posterior, WhatIsNotFiniteIsNamed) {
  Tensor bad = moments(0.0F, 0.0F);
  bad.f32()[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error(bad), HasSubstr("channel 1 at position 1"));
  EXPECT_THAT(error(moments(7e4F, 0.0F)), HasSubstr("in f16"));
  const Tensor few = testing::random_tensor(device_, {2, 1, 3, 5}, 1);
  EXPECT_THAT(error(few), HasSubstr("15 latent values"));
}

}  // namespace
}  // namespace miniacc::video_vae
