#include "model/video_vae/video_vae_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/copy.h"
#include "model/video_vae/pixels.h"
#include "model/video_vae/tile_decoder.h"

namespace miniacc::video_vae {
namespace {

std::size_t bytes_of(std::int64_t floats) {
  return static_cast<std::size_t>(floats) * sizeof(float);
}

}  // namespace

/// Everything one decode owns, and what its steps hand on.
struct VideoVaeDecoder::Job {
  ConstTensorView latents;  // [C, T, h, w]
  const FrameSink& sink;
  const DecodeOptions& options;
  TemporalPlan plan;
  ClipShape clip;
  AxisTiles vertical;
  AxisTiles horizontal;
  std::vector<PixelOwner> rows;
  std::vector<PixelOwner> columns;
  TileShape tile;  // in latents
  RopeTable rope;
  TileWorkspace workspace;
  Tensor tokens;  // [tokens, C]
  Tensor hidden;  // [tiles at once, N, D]
  Tensor pixels;  // [kept, 3, tile height, tile width]
  Tensor canvas;  // [kept, 3, H, W]
  Tensor tail;    // [frame_overlap, 3, H, W], the end of the previous window
  Tensor rgb;     // [kept, H, W, 3] u8

  [[nodiscard]] std::int64_t num_tiles() const { return vertical.count() * horizontal.count(); }
  [[nodiscard]] std::int64_t tiles_at_once() const { return hidden.shape()[0]; }
};

VideoVaeDecoder::VideoVaeDecoder(VideoVaeConfig config, Precision precision, Shell shell,
                                 vae::LatentStatistics statistics,
                                 std::unique_ptr<LayerSource> own_blocks, LayerSource* blocks)
    : config_(config),
      precision_(precision),
      shell_(std::move(shell)),
      statistics_(std::move(statistics)),
      own_blocks_(std::move(own_blocks)),
      blocks_(blocks != nullptr ? blocks : own_blocks_.get()) {}

Result<VideoVaeDecoder> VideoVaeDecoder::open(WeightSource& source, Device& device,
                                              Precision precision, std::size_t cache_budget_bytes,
                                              LayerSource* blocks) {
  MINIACC_ASSIGN(const VideoVaeConfig config, read_config(source));
  MINIACC_RETURN_IF_ERROR(check_weights(source, config));
  MINIACC_ASSIGN(vae::LatentStatistics statistics, load_statistics(source, config, device));
  MINIACC_ASSIGN(Shell shell, load_shell(source, config, device));
  std::unique_ptr<LayerSource> own;
  if (blocks == nullptr) {
    own = std::make_unique<CachedLayers>(source, block_stack(config, precision), device,
                                         cache_budget_bytes);
  }
  return VideoVaeDecoder(config, precision, std::move(shell), std::move(statistics), std::move(own),
                         blocks);
}

ClipShape VideoVaeDecoder::clip_shape(std::int64_t num_latents, std::int64_t h,
                                      std::int64_t w) const {
  return {.num_frames = plan_windows(num_latents, config_.time).num_frames,
          .height = h * config_.spatial_patch,
          .width = w * config_.spatial_patch};
}

Result<ClipShape> VideoVaeDecoder::decode(OpContext& ctx, ConstTensorView latents,
                                          const FrameSink& sink, const DecodeOptions& options) {
  MINIACC_REQUIRE(latents.shape.rank() == 4 && latents.dim(0) == config_.latent_channels &&
                      latents.is_contiguous() && latents.num_elements() > 0,
                  "video VAE: latents are [C, T, h, w], contiguous and not empty");
  MINIACC_REQUIRE(latents.device.kind == DeviceKind::kCpu, "video VAE: latents in host memory");
  MINIACC_REQUIRE(!options.rgb || options.pixels == PixelSpace::kUnit,
                  "video VAE: 8-bit pixels come from the unit range");
  MINIACC_REQUIRE(options.max_tiles_at_once >= 0, "video VAE: max_tiles_at_once is not negative");
  MINIACC_RETURN_IF_ERROR(vae::check_finite_latents("video latents", latents, 0));

  const std::int64_t patch = config_.spatial_patch;
  const std::int64_t kept = config_.time.kept_frames();
  const ClipShape clip = clip_shape(latents.dim(1), latents.dim(2), latents.dim(3));
  AxisTiles vertical = split_axis(clip.height, config_.tile_size, config_.tile_overlap_min, patch);
  AxisTiles horizontal = split_axis(clip.width, config_.tile_size, config_.tile_overlap_min, patch);
  const TileShape tile{
      .t = config_.time.window(), .h = vertical.tile / patch, .w = horizontal.tile / patch};
  const std::int64_t num_tokens = tile.num_tokens() + config_.num_suffix_tokens();
  const std::int64_t tail_frames = config_.time.frame_overlap();
  const std::int64_t picture = 3 * clip.height * clip.width;
  const std::int64_t tile_picture = 3 * vertical.tile * horizontal.tile;

  const std::size_t fixed_bytes = TileWorkspace::size_bytes(config_, tile) +
                                  bytes_of((kept + tail_frames) * picture + kept * tile_picture) +
                                  (options.rgb ? static_cast<std::size_t>(kept * picture) : 0);
  const std::size_t tile_bytes = bytes_of(num_tokens * config_.hidden_size);
  const std::size_t left = options.activation_budget_bytes > fixed_bytes
                               ? options.activation_budget_bytes - fixed_bytes
                               : 0;
  std::int64_t at_once = std::clamp<std::int64_t>(static_cast<std::int64_t>(left / tile_bytes), 1,
                                                  vertical.count() * horizontal.count());
  if (options.max_tiles_at_once > 0) {
    at_once = std::min(at_once, options.max_tiles_at_once);
  }

  Device& device = ctx.device;
  Device& host = ctx.host_device();
  std::vector<PixelOwner> rows = pixel_owners(vertical);
  std::vector<PixelOwner> columns = pixel_owners(horizontal);
  Job job{.latents = latents,
          .sink = sink,
          .options = options,
          .plan = plan_windows(latents.dim(1), config_.time),
          .clip = clip,
          .vertical = std::move(vertical),
          .horizontal = std::move(horizontal),
          .rows = std::move(rows),
          .columns = std::move(columns),
          .tile = tile,
          .rope = make_rope_table(config_, tile, device),
          .workspace = TileWorkspace(config_, tile, device),
          .tokens = empty_tensor(host, {tile.num_tokens(), config_.latent_channels}),
          .hidden = empty_tensor(device, {at_once, num_tokens, config_.hidden_size}),
          .pixels = {},
          .canvas = empty_tensor(host, {kept, 3, clip.height, clip.width}),
          .tail = empty_tensor(host, {tail_frames, 3, clip.height, clip.width}),
          .rgb = {}};
  job.pixels = empty_tensor(host, {kept, 3, job.vertical.tile, job.horizontal.tile});
  if (options.rgb) {
    job.rgb = empty_tensor(host, {kept, clip.height, clip.width, 3}, DType::kU8);
  }
  for (std::int64_t window = 0; window < job.plan.num_windows; ++window) {
    MINIACC_RETURN_IF_ERROR(decode_window(ctx, job, window));
  }
  return clip;
}

Status VideoVaeDecoder::decode_window(OpContext& ctx, Job& job, std::int64_t window) {
  std::fill(job.canvas.f32().begin(), job.canvas.f32().end(), 0.0F);
  for (std::int64_t first = 0; first < job.num_tiles(); first += job.tiles_at_once()) {
    const std::int64_t count = std::min(job.tiles_at_once(), job.num_tiles() - first);
    MINIACC_RETURN_IF_ERROR(decode_tiles(ctx, job, window, first, count));
  }
  return emit(job, window, config_);
}

Status VideoVaeDecoder::decode_tiles(OpContext& ctx, Job& job, std::int64_t window,
                                     std::int64_t first, std::int64_t count) {
  const TensorView hidden = job.hidden.view();
  const auto hidden_of = [&](std::int64_t i) {
    return hidden.narrow(0, i, 1).reshape(Shape({hidden.dim(1), hidden.dim(2)}));
  };
  const auto report = [&](std::int64_t layers_done) {
    if (!job.options.progress) {
      return;
    }
    const auto layers = static_cast<double>(config_.num_layers);
    const auto tiles = static_cast<double>(job.num_tiles());
    const double done = static_cast<double>(first) +
                        static_cast<double>(count) * static_cast<double>(layers_done) / layers;
    job.options.progress({.window = window,
                          .num_windows = job.plan.num_windows,
                          .first_tile = first,
                          .tiles = count,
                          .num_tiles = job.num_tiles(),
                          .layers_done = layers_done,
                          .num_layers = config_.num_layers,
                          .fraction = (static_cast<double>(window) + done / tiles) /
                                      static_cast<double>(job.plan.num_windows)});
  };

  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t tile = first + i;
    const auto row = static_cast<std::size_t>(tile / job.horizontal.count());
    const auto column = static_cast<std::size_t>(tile % job.horizontal.count());
    gather_tokens(job.tokens.view(), job.latents, statistics_,
                  {.t = window * config_.time.chunk(),
                   .h = job.vertical.starts[row] / config_.spatial_patch,
                   .w = job.horizontal.starts[column] / config_.spatial_patch},
                  job.tile);
    const Placed tokens = on_device(ctx, std::as_const(job.tokens).view());
    embed_tile(ctx, hidden_of(i), tokens.view, shell_, job.workspace);
  }
  // Layers outermost: each is read once for all tiles at hand. Tile by tile within a layer: the
  // products of a tile are the same whatever the number of tiles.
  for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
    ctx.check_cancelled();  // before the read of a layer too: it may take a while
    MINIACC_ASSIGN(const LayerView* weights, blocks_->acquire(layer, ctx));
    const Block block = block_weights(*weights);
    for (std::int64_t i = 0; i < count; ++i) {
      ctx.check_cancelled();
      run_block(ctx, hidden_of(i), block, job.rope, config_, precision_, job.workspace);
    }
    report(layer + 1);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    MINIACC_RETURN_IF_ERROR(finish_tile(ctx, job, window, first + i, hidden_of(i)));
  }
  return {};
}

Status VideoVaeDecoder::finish_tile(OpContext& ctx, Job& job, std::int64_t window,
                                    std::int64_t tile, ConstTensorView hidden) {
  ctx.check_cancelled();
  const std::int64_t row = tile / job.horizontal.count();
  const std::int64_t column = tile % job.horizontal.count();
  const Placed values = on_host(ctx, project_tile(ctx, hidden, shell_, config_, job.workspace));
  const float* begin = values.view.f32();
  if (!std::all_of(begin, begin + values.view.num_elements(),
                   [](float v) { return std::isfinite(v); })) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("video VAE: window {} of {}, tile (row {}, column {}) of {} x {} decoded "
                    "to values that are not finite",
                    window + 1, job.plan.num_windows, row, column, job.vertical.count(),
                    job.horizontal.count()));
  }
  unpatchify(job.pixels.view(), values.view, job.tile, config_);
  const std::int64_t planes = 3 * config_.time.kept_frames();
  add_tile(job.canvas.view().reshape(Shape({planes, job.clip.height, job.clip.width})),
           job.pixels.view().reshape(Shape({planes, job.vertical.tile, job.horizontal.tile})),
           job.vertical, job.horizontal, job.rows, job.columns, row, column, job.options.blend);
  return {};
}

Status VideoVaeDecoder::emit(Job& job, std::int64_t window, const VideoVaeConfig& config) {
  const std::int64_t clip_length = config.time.clip_length;
  const std::int64_t overlap = config.time.frame_overlap();
  const TensorView canvas = job.canvas.view();
  if (window > 0) {
    cross_fade(canvas.narrow(0, 0, overlap), job.tail.view());
  }
  const bool last = window + 1 == job.plan.num_windows;
  const std::int64_t first_frame = window * clip_length;
  const std::int64_t count = last ? job.plan.num_frames - first_frame : clip_length;
  if (!last) {
    const TensorView tail = canvas.narrow(0, clip_length, overlap);
    std::copy_n(tail.f32(), tail.num_elements(), job.tail.f32().data());
  }
  FrameBatch batch{.first_frame = first_frame, .pixels = {}, .rgb = {}};
  const TensorView pixels = canvas.narrow(0, 0, count);
  if (job.options.pixels == PixelSpace::kUnit) {
    to_unit_range(pixels);
  }
  batch.pixels = pixels;
  if (job.options.rgb) {
    const TensorView rgb = job.rgb.view().narrow(0, 0, count);
    to_rgb8(rgb, pixels);
    batch.rgb = rgb;
  }
  return job.sink(batch);
}

}  // namespace miniacc::video_vae
