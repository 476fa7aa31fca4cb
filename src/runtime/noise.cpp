#include "runtime/noise.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/torch_random.h"
#include "runtime/sampler.h"

namespace miniacc {
namespace {

constexpr std::array<std::pair<NoiseOrder, std::string_view>, 3> kNames = {
    {{NoiseOrder::kSglang, "sglang"},
     {NoiseOrder::kDiffusers, "diffusers"},
     {NoiseOrder::kComfy, "comfy"}}};

/// The first frames of a [channels, T, h, w] draw.
Tensor leading_frames(Device& device, const Tensor& drawn, std::int64_t num_frames) {
  const Shape& shape = drawn.shape();
  const std::int64_t frame = shape[2] * shape[3];
  Tensor kept = empty_tensor(device, {shape[0], num_frames, shape[2], shape[3]});
  for (std::int64_t channel = 0; channel < shape[0]; ++channel) {
    std::copy_n(drawn.f32().data() + channel * shape[1] * frame, num_frames * frame,
                kept.f32().data() + channel * num_frames * frame);
  }
  return kept;
}

/// `generator` is the request's; only kDiffusers draws from it here.
Tensor draw_condition(Device& device, NoiseOrder order, std::uint64_t seed, const NoiseShape& size,
                      const LatentSize& condition, std::size_t num_conditions,
                      TorchRandom& generator) {
  const auto draw = [&](TorchRandom& source, const Shape& shape) {
    Tensor noise = empty_tensor(device, shape);
    source.fill_normal(noise.f32());
    return noise;
  };
  TorchRandom fresh(seed);
  if (order == NoiseOrder::kComfy) {
    return draw(fresh, {condition.num_rows(), size.video_channels * kPatchArea});
  }
  if (order == NoiseOrder::kDiffusers) {
    const Tensor noise = draw(
        generator, {size.video_channels, condition.num_frames, condition.height, condition.width});
    return patchify(device, noise.view());
  }
  const std::int64_t num_frames = size.num_frames + static_cast<std::int64_t>(num_conditions);
  MINIACC_REQUIRE(condition.num_frames <= num_frames,
                  "condition noise: a condition is longer than the clip");
  const Tensor noise =
      draw(fresh, {size.video_channels, num_frames, condition.height, condition.width});
  return patchify(device, leading_frames(device, noise, condition.num_frames).view());
}

}  // namespace

std::string_view noise_order_name(NoiseOrder order) {
  for (const auto& [value, name] : kNames) {
    if (value == order) {
      return name;
    }
  }
  MINIACC_REQUIRE(false, "noise order: not in the table");
  return {};
}

std::optional<NoiseOrder> parse_noise_order(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) {
      return value;
    }
  }
  return std::nullopt;
}

Noise draw_noise(Device& device, NoiseOrder order, std::uint64_t seed, const NoiseShape& size,
                 std::span<const LatentSize> conditions) {
  Noise noise;
  noise.video =
      empty_tensor(device, {size.video_channels, size.num_frames, size.height, size.width});
  noise.audio = empty_tensor(device, {2 * size.num_audio, size.audio_channels});
  TorchRandom generator(seed);
  for (const LatentSize& condition : conditions) {
    noise.conditions.push_back(
        draw_condition(device, order, seed, size, condition, conditions.size(), generator));
  }
  generator.fill_normal(noise.video.f32());
  if (order == NoiseOrder::kSglang) {
    generator = TorchRandom(seed);
  }
  if (order != NoiseOrder::kComfy) {
    generator.fill_normal(noise.audio.f32());
    return noise;
  }
  Tensor drawn = empty_tensor(device, {size.audio_channels, 2 * size.num_audio});
  generator.fill_normal(drawn.f32());
  const std::int64_t rows = 2 * size.num_audio;
  for (std::int64_t channel = 0; channel < size.audio_channels; ++channel) {
    for (std::int64_t row = 0; row < rows; ++row) {
      noise.audio.f32()[static_cast<std::size_t>(row * size.audio_channels + channel)] =
          drawn.f32()[static_cast<std::size_t>(channel * rows + row)];
    }
  }
  return noise;
}

void add_condition_noise(std::span<float> clean, std::span<const float> noise) {
  MINIACC_REQUIRE(clean.size() == noise.size(), "condition noise: sizes differ");
  constexpr float kRest = 1.0F - kVisualConditionTime;  // 0.00099998713 in f32, as the reference
  for (std::size_t i = 0; i < clean.size(); ++i) {
    clean[i] = kVisualConditionTime * clean[i] + kRest * noise[i];
  }
}

}  // namespace miniacc
