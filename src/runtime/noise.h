#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "model/dit/packed_sequence.h"

namespace miniacc {

/// Order in which published engines draw the initial noise, so that a seed means what it means
/// there (spec model.md §5.5).
///   kSglang     audio from a fresh generator with the same seed, as rows [2·A, channels]
///   kDiffusers  audio continues the video's generator, as rows [2·A, channels]
///   kComfy      audio continues the video's generator, as a tensor [channels, 2, A]
/// Noise of visual conditions (a keyframe, a reference image or video of t latent frames):
///   kSglang     each from a fresh generator with the same seed, as [channels, T + K, h, w] of
///               which the first t frames count; T latent frames of the clip, K visual conditions
///   kDiffusers  one after the other as [channels, t, h, w], before the clip's own draws, all from
///               one generator: the clip's noise differs from that without conditions
///   kComfy      each from a fresh generator, as rows [rows, channels · 4]
/// Only in kDiffusers does the clip's noise depend on what is conditioned on.
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
  /// Of each visual condition [t · h/2 · w/2, channels · 4] f32, a row a patch.
  std::vector<Tensor> conditions;
};

/// Standard normal noise of torch's CPU generator. `conditions` are the latents of the visual
/// conditions in packed order.
Noise draw_noise(Device& device, NoiseOrder order, std::uint64_t seed, const NoiseShape& size,
                 std::span<const LatentSize> conditions = {});

/// Condition rows as the transformer gets them: 0.999 · clean + (1 - 0.999) · noise in f32, in
/// place on `clean`. Source: spec model.md §4.5.
void add_condition_noise(std::span<float> clean, std::span<const float> noise);

}  // namespace miniacc
