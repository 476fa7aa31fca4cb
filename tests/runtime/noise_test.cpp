#include "runtime/noise.h"

#include <gtest/gtest.h>

#include "core/torch_random.h"
#include "device/cpu_device.h"
#include "support/compare.h"
#include "support/golden.h"

namespace miniacc {
namespace {

using testing::Golden;
using testing::identical_to;

std::vector<float> normal(std::uint64_t seed, std::size_t count) {
  TorchRandom generator(seed);
  std::vector<float> values(count);
  generator.fill_normal(values);
  return values;
}

TEST(TorchRandom, FirstOutputsOfTheTwister) {
  TorchRandom generator(0);  // spec model.md §9 example 8
  EXPECT_EQ(generator.next(), 2357136044U);
  EXPECT_EQ(generator.next(), 2546248239U);
  EXPECT_EQ(generator.next(), 3071714933U);
}

TEST(TorchRandom, MatchesTorchBitForBit) {
  const Golden golden("golden/noise_avx2.safetensors");
  for (const std::uint64_t seed : {0ULL, 1ULL, 42ULL, 12345678901ULL, ~0ULL}) {
    for (const std::size_t count : {16U, 17U, 31U, 40U, 100U, 1000U}) {
      const std::string name = "randn.seed_" + std::to_string(seed) + ".n_" + std::to_string(count);
      EXPECT_TRUE(identical_to(normal(seed, count), golden.floats(name))) << name;
    }
  }
}

TEST(TorchRandom, StaysWithinFewUlpsOfTheScalarPath) {
  const Golden golden("golden/noise_scalar.safetensors");
  // 4e-6 is what the two paths of torch differ by at most (values reach 5).
  EXPECT_LE(testing::max_abs_error(normal(42, 1000), golden.floats("randn.seed_42.n_1000")), 4e-6);
}

TEST(TorchRandom, SecondDrawContinuesWhereTheFirstStopped) {
  const Golden golden("golden/noise_avx2.safetensors");
  TorchRandom generator(42);
  std::vector<float> first(24);
  std::vector<float> second(50);
  generator.fill_normal(first);
  generator.fill_normal(second);
  EXPECT_TRUE(identical_to(first, golden.floats("continued.seed_42.first_24")));
  EXPECT_TRUE(identical_to(second, golden.floats("continued.seed_42.second_50")));
}

TEST(TorchRandom, RefusesDrawsBelowSixteenValues) {
  TorchRandom generator(0);
  std::vector<float> values(15);
  EXPECT_THROW(generator.fill_normal(values), InternalError);
}

TEST(Noise, ThreeDrawOrdersMatchTheirRecipes) {
  const Golden golden("golden/noise_avx2.safetensors");
  CpuDevice device;
  const NoiseShape micro{24, 7, 4, 6, 32, 37};
  const NoiseShape released{24, 37, 48, 84, 32, 207};
  for (const auto& [request, size] : {std::pair{"micro", micro}, std::pair{"released", released}}) {
    for (const NoiseOrder order :
         {NoiseOrder::kSglang, NoiseOrder::kDiffusers, NoiseOrder::kComfy}) {
      const std::string prefix = std::string(request) + ".seed_42.";
      const Noise noise = draw_noise(device, order, 42, size);
      const auto positions = golden.integers(prefix + "all.video.positions");
      std::vector<float> sampled;
      for (const std::int64_t position : positions) {
        sampled.push_back(noise.video.f32()[static_cast<std::size_t>(position)]);
      }
      EXPECT_TRUE(identical_to(sampled, golden.floats(prefix + "all.video.values")));

      const std::string audio = prefix + std::string(noise_order_name(order)) + ".audio.";
      sampled.clear();
      // The reference keeps audio as [2, channels, A]; ours are rows [2·A, channels].
      for (const std::int64_t position : golden.integers(audio + "positions")) {
        const std::int64_t latent = position % size.num_audio;
        const std::int64_t channel = position / size.num_audio % size.audio_channels;
        const std::int64_t side = position / (size.num_audio * size.audio_channels);
        sampled.push_back(noise.audio.f32()[static_cast<std::size_t>(
            (side * size.num_audio + latent) * size.audio_channels + channel)]);
      }
      EXPECT_TRUE(identical_to(sampled, golden.floats(audio + "values"))) << audio;
    }
  }
}

// Spec model.md §9, example 9: one keyframe of 4 x 4 latents, a clip of 2 latent frames, seed 0.
TEST(Noise, ConditionsFollowTheirRecipes) {
  CpuDevice device;
  const NoiseShape clip{24, 2, 4, 4, 32, 2};
  const LatentSize keyframe{1, 4, 4};
  const auto row = [&](NoiseOrder order) {
    const Noise noise = draw_noise(device, order, 0, clip, {&keyframe, 1});
    EXPECT_EQ(noise.conditions.size(), 1U);
    EXPECT_EQ(noise.conditions[0].shape(), Shape({4, 96}));
    const auto values = noise.conditions[0].f32();
    return std::vector<float>(values.begin(), values.begin() + 8);
  };
  const auto expect_near = [](const std::vector<float>& got, const std::vector<float>& wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(got[i], wanted[i], 5e-5) << i;
    }
  };
  expect_near(row(NoiseOrder::kSglang),
              {-1.1258F, -1.1524F, 0.8487F, 0.6920F, -0.6731F, 0.8728F, -0.2303F, -0.3918F});
  expect_near(row(NoiseOrder::kDiffusers),
              {-1.1258F, -1.1524F, 0.8487F, 0.6920F, -1.3527F, -1.6959F, 0.5988F, -1.5551F});
  expect_near(row(NoiseOrder::kComfy), {-1.1258F, -1.1524F, -0.2506F, -0.4339F, 0.8487F, 0.6920F});
}

TEST(Noise, OnlyTheDiffusersOrderMovesTheClipsOwnNoise) {
  CpuDevice device;
  const NoiseShape clip{24, 2, 4, 4, 32, 8};
  const std::vector<LatentSize> conditions = {{1, 4, 4}, {2, 6, 4}};
  for (const NoiseOrder order : {NoiseOrder::kSglang, NoiseOrder::kDiffusers, NoiseOrder::kComfy}) {
    const Noise plain = draw_noise(device, order, 7, clip);
    const Noise conditioned = draw_noise(device, order, 7, clip, conditions);
    const bool same = order != NoiseOrder::kDiffusers;
    EXPECT_EQ(static_cast<bool>(identical_to(plain.video.f32(), conditioned.video.f32())), same);
    EXPECT_EQ(conditioned.conditions.at(1).shape(), Shape({12, 96}));
    // Fresh generators begin alike; the request's own goes on.
    const float first = conditioned.conditions[0].f32()[0];
    EXPECT_EQ(conditioned.conditions[1].f32()[0] == first, same);
  }
}

// Spec model.md §9, example 13.
TEST(Noise, ConditionsCarryATenthOfAPercent) {
  std::vector<float> rows = {0.5F};
  const std::vector<float> noise = {-1.1258398F};
  add_condition_noise(rows, noise);
  EXPECT_NEAR(rows[0], 0.4983741939F, 1e-9);
}

// torch seeds its generator with the low 32 bits.
TEST(Noise, SeedsCountModulo32Bits) {
  CpuDevice device;
  const NoiseShape clip{24, 2, 4, 4, 32, 8};
  const std::uint64_t low = 123;
  const Noise a = draw_noise(device, NoiseOrder::kSglang, low, clip);
  const Noise b = draw_noise(device, NoiseOrder::kSglang, low + (std::uint64_t{5} << 32), clip);
  EXPECT_TRUE(identical_to(a.video.f32(), b.video.f32()));
}

TEST(Noise, OrderNamesRoundTrip) {
  for (const std::string_view name : {"sglang", "diffusers", "comfy"}) {
    EXPECT_EQ(noise_order_name(parse_noise_order(name).value()), name);
  }
  EXPECT_FALSE(parse_noise_order("SGLang"));
}

}  // namespace
}  // namespace miniacc
