#include "runtime/noise.h"

#include <array>
#include <utility>

#include "core/torch_random.h"

namespace miniacc {
namespace {

constexpr std::array<std::pair<NoiseOrder, std::string_view>, 3> kNames = {
    {{NoiseOrder::kSglang, "sglang"},
     {NoiseOrder::kDiffusers, "diffusers"},
     {NoiseOrder::kComfy, "comfy"}}};

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

Noise draw_noise(Device& device, NoiseOrder order, std::uint64_t seed, const NoiseShape& size) {
  Noise noise;
  noise.video =
      empty_tensor(device, {size.video_channels, size.num_frames, size.height, size.width});
  noise.audio = empty_tensor(device, {2 * size.num_audio, size.audio_channels});
  TorchRandom generator(seed);
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

}  // namespace miniacc
