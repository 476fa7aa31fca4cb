#include "model/video_vae/video_vae_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/copy.h"
#include "model/video_vae/pixels.h"
#include "model/video_vae/tile_encoder.h"
#include "model/video_vae/video_vae_weights.h"

namespace miniacc::video_vae {
namespace {

/// The same tiles counted in latents.
AxisTiles in_latents(AxisTiles axis, std::int64_t patch) {
  axis.length /= patch;
  axis.tile /= patch;
  for (std::vector<std::int64_t>* values : {&axis.starts, &axis.overlaps}) {
    for (std::int64_t& value : *values) {
      value /= patch;
    }
  }
  return axis;
}

}  // namespace

/// What one encode owns and its steps hand on.
struct VideoVaeEncoder::Job {
  const RgbClip& frames;
  const EncodeOptions& options;
  std::int64_t num_clips;
  std::int64_t clip_frames;   // of one clip
  std::int64_t clip_latents;  // of one clip
  AxisTiles vertical;         // in pixels
  AxisTiles horizontal;
  AxisTiles latent_rows;  // the same tiles in latents
  AxisTiles latent_columns;
  Tensor canvas;   // [2·C·clip_latents, h, w], moments of one clip
  Tensor moments;  // [2·C, T, h, w], of all clips

  [[nodiscard]] std::int64_t num_tiles() const { return vertical.count() * horizontal.count(); }
  [[nodiscard]] TileCorner corner(std::int64_t tile) const {
    return {.top = vertical.starts[static_cast<std::size_t>(tile / horizontal.count())],
            .left = horizontal.starts[static_cast<std::size_t>(tile % horizontal.count())]};
  }
};

VideoVaeEncoder::VideoVaeEncoder(const VideoVaeConfig& config, VideoEncoderConfig encoder,
                                 EncoderWeights weights, vae::LatentStatistics statistics)
    : config_(config),
      encoder_(std::move(encoder)),
      weights_(std::move(weights)),
      statistics_(std::move(statistics)) {}

Result<VideoVaeEncoder> VideoVaeEncoder::open(WeightSource& source, Device& device,
                                              const VideoVaeConfig& config) {
  MINIACC_ASSIGN(VideoEncoderConfig encoder, read_encoder_config(source, config));
  MINIACC_RETURN_IF_ERROR(check_encoder_weights(source, encoder));
  MINIACC_ASSIGN(vae::LatentStatistics statistics, load_statistics(source, config, device));
  MINIACC_ASSIGN(EncoderWeights weights, load_encoder_weights(source, encoder, device));
  return VideoVaeEncoder(config, std::move(encoder), std::move(weights), std::move(statistics));
}

std::int64_t VideoVaeEncoder::num_latents(std::int64_t num_frames) const {
  MINIACC_REQUIRE(num_frames > 0, "num_latents: at least one frame");
  if (num_frames == 1) {
    return 1;
  }
  const std::int64_t clip_length = config_.time.clip_length;
  const std::int64_t num_clips = (num_frames + clip_length - 1) / clip_length;
  return num_clips * config_.time.chunk() - config_.time.token_drop;
}

Status VideoVaeEncoder::check_frames(const RgbClip& frames) const {
  MINIACC_REQUIRE(frames.num_frames > 0 && frames.width > 0 && frames.height > 0,
                  "encode: at least one frame");
  MINIACC_REQUIRE(static_cast<std::int64_t>(frames.pixels.size()) ==
                      Shape({frames.num_frames, frames.height, frames.width, 3}).num_elements(),
                  "encode: pixels are [num_frames, height, width, 3]");
  const std::int64_t patch = config_.spatial_patch;
  if (frames.width % patch != 0 || frames.height % patch != 0 || frames.width < 2 * patch ||
      frames.height < 2 * patch) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("video VAE: a picture of {} x {} pixels cannot be encoded, wanted "
                            "multiples of {} of at least {}",
                            frames.width, frames.height, patch, 2 * patch));
  }
  return {};
}

Result<Tensor> VideoVaeEncoder::encode(OpContext& ctx, const RgbClip& frames,
                                       const EncodeOptions& options) {
  MINIACC_RETURN_IF_ERROR(check_frames(frames));
  const std::int64_t patch = config_.spatial_patch;
  const std::int64_t moments = 2 * config_.latent_channels;
  const std::int64_t h = frames.height / patch;
  const std::int64_t w = frames.width / patch;
  const bool picture = frames.num_frames == 1;
  const std::int64_t clip_frames = picture ? 1 : config_.time.clip_length;
  const std::int64_t clip_latents = picture ? 1 : config_.time.chunk();
  const AxisTiles vertical =
      split_axis(frames.height, config_.tile_size, config_.tile_overlap_min, patch);
  const AxisTiles horizontal =
      split_axis(frames.width, config_.tile_size, config_.tile_overlap_min, patch);
  Job job{
      .frames = frames,
      .options = options,
      .num_clips = (frames.num_frames + clip_frames - 1) / clip_frames,
      .clip_frames = clip_frames,
      .clip_latents = clip_latents,
      .vertical = vertical,
      .horizontal = horizontal,
      .latent_rows = in_latents(vertical, patch),
      .latent_columns = in_latents(horizontal, patch),
      .canvas = empty_tensor(ctx.host_device(), {moments * clip_latents, h, w}),
      .moments = empty_tensor(ctx.host_device(), {moments, num_latents(frames.num_frames), h, w})};
  for (std::int64_t clip = 0; clip < job.num_clips; ++clip) {
    MINIACC_RETURN_IF_ERROR(encode_clip(ctx, job, clip));
  }
  return latents_of_moments(ctx.host_device(), job.moments.view(), statistics_, options.posterior);
}

Tensor VideoVaeEncoder::encode_on_device(OpContext& ctx, ConstTensorView pixels) const {
  const Placed placed = on_device(ctx, pixels);
  return to_host(ctx, encode_tiles(ctx, placed.view, weights_, encoder_));
}

Status VideoVaeEncoder::encode_clip(OpContext& ctx, Job& job, std::int64_t clip) const {
  std::fill(job.canvas.f32().begin(), job.canvas.f32().end(), 0.0F);
  const std::vector<PixelOwner> rows = pixel_owners(job.latent_rows);
  const std::vector<PixelOwner> columns = pixel_owners(job.latent_columns);
  // A picture's tiles share the packed weights of every convolution, as the frames of a clip do.
  const std::int64_t at_once =
      std::max<std::int64_t>(1, config_.time.clip_length / job.clip_frames);
  const std::int64_t moments = 2 * config_.latent_channels;
  const std::int64_t positions = job.clip_latents * job.latent_rows.tile * job.latent_columns.tile;
  Tensor planes = empty_tensor(ctx.host_device(), {moments * job.clip_latents, job.latent_rows.tile,
                                                   job.latent_columns.tile});
  for (std::int64_t first = 0; first < job.num_tiles(); first += at_once) {
    ctx.check_cancelled();
    const std::int64_t count = std::min(at_once, job.num_tiles() - first);
    Tensor pixels = empty_tensor(
        ctx.host_device(), {count, job.clip_frames, job.vertical.tile, job.horizontal.tile, 3});
    for (std::int64_t i = 0; i < count; ++i) {
      gather_pixels(pixels.view().narrow(0, i, 1).reshape(
                        Shape({job.clip_frames, job.vertical.tile, job.horizontal.tile, 3})),
                    job.frames, clip * job.clip_frames, job.corner(first + i));
    }
    const Tensor encoded = encode_on_device(ctx, pixels.view());
    MINIACC_REQUIRE(encoded.shape() == Shape({count, job.clip_latents, job.latent_rows.tile,
                                              job.latent_columns.tile, moments}),
                    "encode: moments of the tiles");
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = (first + i) / job.horizontal.count();
      const std::int64_t column = (first + i) % job.horizontal.count();
      const float* source = encoded.f32().data() + i * positions * moments;
      if (!std::all_of(source, source + positions * moments,
                       [](float value) { return std::isfinite(value); })) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("video VAE: clip {} of {}, tile (row {}, column {}) of {} x {} "
                                "encoded to values that are not finite",
                                clip + 1, job.num_clips, row, column, job.vertical.count(),
                                job.horizontal.count()));
      }
      for (std::int64_t m = 0; m < moments; ++m) {
        float* target = planes.f32().data() + m * positions;
        for (std::int64_t p = 0; p < positions; ++p) {
          target[p] = source[p * moments + m];
        }
      }
      add_tile(job.canvas.view(), planes.view(), job.latent_rows, job.latent_columns, rows, columns,
               row, column, job.options.blend);
    }
    if (job.options.progress) {
      const double done = static_cast<double>(clip * job.num_tiles() + first + count);
      job.options.progress(done / static_cast<double>(job.num_clips * job.num_tiles()));
    }
  }
  // Of the last clip token_drop latents are left out.
  const std::int64_t total = job.moments.shape()[1];
  const std::int64_t start = clip * job.clip_latents;
  const std::int64_t area = job.latent_rows.length * job.latent_columns.length;
  const std::int64_t kept = std::clamp<std::int64_t>(total - start, 0, job.clip_latents);
  for (std::int64_t m = 0; m < moments; ++m) {
    std::copy_n(job.canvas.f32().data() + m * job.clip_latents * area, kept * area,
                job.moments.f32().data() + (m * total + start) * area);
  }
  return {};
}

Result<Tensor> encode_video(OpContext& ctx, WeightSource& source, const VideoVaeConfig& config,
                            const RgbClip& frames, Precision /*precision*/,
                            const EncodeProgress& progress) {
  MINIACC_ASSIGN(VideoVaeEncoder encoder, VideoVaeEncoder::open(source, ctx.device, config));
  return encoder.encode(ctx, frames, {.progress = progress});
}

}  // namespace miniacc::video_vae
