#pragma once

#include <cstdint>
#include <functional>

#include "core/image.h"
#include "kernels/op_context.h"
#include "model/video_vae/posterior.h"
#include "model/video_vae/tiling.h"
#include "model/video_vae/video_encoder_weights.h"

namespace miniacc::video_vae {

/// Part of an encode that is done, from 0 to 1; called after every group of tiles.
using EncodeProgress = std::function<void(double fraction)>;

struct EncodeOptions {
  PosteriorUse posterior = PosteriorUse::kSampled;
  BlendMode blend = BlendMode::kRawNeighbours;
  EncodeProgress progress = {};
};

/// The causal 3-D convolutional encoder of the video VAE, for keyframes, reference pictures and
/// reference clips. Always f32, as the reference keeps it whatever the precision of the rest. All
/// weights stay in memory while the encoder lives (0.72 GB for the released model). Not
/// thread-safe; the device outlives it.
class VideoVaeEncoder {
 public:
  /// Checks dimensions and all shapes, then reads the weights. kInvalidInput or kNotFound names the
  /// tensor or configuration key at fault, or says that the file has no encoder. `config`: of
  /// read_config on the same source.
  static Result<VideoVaeEncoder> open(WeightSource& source, Device& device,
                                      const VideoVaeConfig& config);

  [[nodiscard]] const VideoEncoderConfig& config() const { return encoder_; }
  /// Latent frames of `num_frames` >= 1 frames: 1 for a single one; otherwise one chunk for each
  /// clip of clip_length frames, the last of which may be short, less token_drop. 17·n + 5 frames
  /// become 5·n + 2.
  [[nodiscard]] std::int64_t num_latents(std::int64_t num_frames) const;

  /// Encodes one picture, or a clip of two frames and more: cut into clips of clip_length frames
  /// that know nothing of each other, the last one filled up with copies of the last frame, each
  /// cut into the decoder's spatial tiles, whose moments are blended.
  ///   frames  width and height multiples of spatial_patch, at least two of it (a border is
  ///           reflected at every resolution): kInvalidInput otherwise
  ///   result  [C, T, height / spatial_patch, width / spatial_patch] f32, in the diffusion's
  ///           normalised space and in host memory
  /// Convolutions run on ctx.device; tiles are put together and the posterior is drawn on the host.
  /// kInvalidInput for moments that are not finite, naming clip and tile. Throws
  /// ErrorException(kCancelled) when ctx.cancel is set (looked at before every tile, block and
  /// group of frames), kOutOfMemory beyond the device's ceiling: activations are those of one tile
  /// of a clip, or of as many tiles of a picture as a clip has frames. Source: spec vae.md §3.
  Result<Tensor> encode(OpContext& ctx, const RgbClip& frames, const EncodeOptions& options = {});

 private:
  struct Job;
  VideoVaeEncoder(const VideoVaeConfig& config, VideoEncoderConfig encoder, EncoderWeights weights,
                  vae::LatentStatistics statistics);

  [[nodiscard]] Status check_frames(const RgbClip& frames) const;
  Status encode_clip(OpContext& ctx, Job& job, std::int64_t clip) const;
  /// encode_tiles(), from and to host memory.
  [[nodiscard]] Tensor encode_on_device(OpContext& ctx, ConstTensorView pixels) const;

  VideoVaeConfig config_;
  VideoEncoderConfig encoder_;
  EncoderWeights weights_;
  vae::LatentStatistics statistics_;
};

/// open and encode in one: for a caller with a single condition. `precision` is that of the other
/// components; the encoder computes in f32 for each of them.
Result<Tensor> encode_video(OpContext& ctx, WeightSource& source, const VideoVaeConfig& config,
                            const RgbClip& frames, Precision precision,
                            const EncodeProgress& progress = {});

}  // namespace miniacc::video_vae
