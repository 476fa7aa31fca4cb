#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/tensor.h"
#include "device/device.h"

namespace miniacc {

/// Order in which published engines draw the initial noise, so that a seed means what it means
/// there (spec model.md §5.5).
///   kSglang     audio from a fresh generator with the same seed, as rows [2·A, channels]
///   kDiffusers  audio continues the video's generator, as rows [2·A, channels]
///   kComfy      audio continues the video's generator, as a tensor [channels, 2, A]
/// The video's noise is the same in all three as long as nothing is conditioned on.
enum class NoiseOrder { kSglang, kDiffusers, kComfy };

std::string_view noise_order_name(NoiseOrder order);
std::optional<NoiseOrder> parse_noise_order(std::string_view name);

/// Sizes of the latents of one request.
struct NoiseShape {
  std::int64_t video_channels = 24;
  std::int64_t num_frames = 0;  ///< latent frames T
  std::int64_t height = 0;      ///< latent rows, H / 16
  std::int64_t width = 0;
  std::int64_t audio_channels = 32;
  std::int64_t num_audio = 0;  ///< audio latents A of one stereo channel

  friend bool operator==(const NoiseShape&, const NoiseShape&) = default;
};

struct Noise {
  Tensor video;  ///< [channels, T, h, w] f32
  Tensor audio;  ///< [2·A, channels] f32, all rows of the left channel first
};

/// Standard normal noise of torch's CPU generator.
Noise draw_noise(Device& device, NoiseOrder order, std::uint64_t seed, const NoiseShape& size);

}  // namespace miniacc
