#include "model/video_vae/video_vae_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/copy.h"
#include "kernels/frames.h"
#include "model/video_vae/pixels.h"
#include "model/video_vae/tile_decoder.h"

namespace miniacc::video_vae {
namespace {

std::size_t bytes_of(std::int64_t floats) {
  return static_cast<std::size_t>(floats) * sizeof(float);
}

/// tile_weights() of all tiles, [tiles, tile height, tile width] on ctx.device.
Tensor blend_weights(OpContext& ctx, const AxisTiles& vertical, const AxisTiles& horizontal,
                     BlendMode mode) {
  const std::vector<PixelOwner> rows = pixel_owners(vertical);
  const std::vector<PixelOwner> columns = pixel_owners(horizontal);
  std::vector<float> all;
  for (std::int64_t row = 0; row < vertical.count(); ++row) {
    for (std::int64_t column = 0; column < horizontal.count(); ++column) {
      const std::vector<float> tile =
          tile_weights(vertical, horizontal, rows, columns, row, column, mode);
      all.insert(all.end(), tile.begin(), tile.end());
    }
  }
  return upload<float>(ctx, all,
                       {vertical.count() * horizontal.count(), vertical.tile, horizontal.tile});
}

struct Tiling {
  AxisTiles vertical;
  AxisTiles horizontal;
  TileShape tile;  // in latents

  [[nodiscard]] std::int64_t num_tiles() const { return vertical.count() * horizontal.count(); }
};

Tiling tiling_of(const VideoVaeConfig& config, std::int64_t height, std::int64_t width) {
  const std::int64_t patch = config.spatial_patch;
  Tiling tiling{split_axis(height, config.tile_size, config.tile_overlap_min, patch),
                split_axis(width, config.tile_size, config.tile_overlap_min, patch),
                {}};
  tiling.tile = {.t = config.time.window(),
                 .h = tiling.vertical.tile / patch,
                 .w = tiling.horizontal.tile / patch};
  return tiling;
}

}  // namespace

DecodeOptions decode_options_for(DeviceKind device) {
  DecodeOptions options{.rgb = true, .float_pixels = false};
  if (device == DeviceKind::kCuda) {
    options.rows_at_once = 16384;
    options.activation_budget_bytes = std::size_t{4} << 30;
  }
  return options;
}

DecodeSizes decode_sizes(const VideoVaeConfig& config, std::int64_t height, std::int64_t width,
                         const DecodeOptions& options) {
  const Tiling tiling = tiling_of(config, height, width);
  const std::int64_t num_tokens = tiling.tile.num_tokens() + config.num_suffix_tokens();
  const std::int64_t kept = config.time.kept_frames();
  const std::int64_t picture = 3 * height * width;
  const std::size_t frames =
      bytes_of((kept + config.time.frame_overlap()) * picture +
               tiling.num_tiles() * tiling.vertical.tile * tiling.horizontal.tile) +
      (options.rgb ? static_cast<std::size_t>(kept * picture) : 0);
  const std::size_t hidden = bytes_of(num_tokens * config.hidden_size);
  const std::int64_t most = options.max_tiles_at_once > 0
                                ? std::min(options.max_tiles_at_once, tiling.num_tiles())
                                : tiling.num_tiles();
  const auto bytes = [&](std::int64_t at_once, std::int64_t a_product) {
    return frames + TileWorkspace::size_bytes(config, tiling.tile, a_product) +
           static_cast<std::size_t>(at_once) * hidden;
  };
  // First the tiles of a product, which decide the speed, then those that share a pass of the
  // layers. One tile always runs.
  DecodeSizes sizes{.tiles_at_once = 1, .tiles_a_product = 1};
  const std::int64_t wanted =
      std::clamp<std::int64_t>((options.rows_at_once + num_tokens - 1) / num_tokens, 1, most);
  while (sizes.tiles_a_product < wanted &&
         bytes(sizes.tiles_a_product + 1, sizes.tiles_a_product + 1) <=
             options.activation_budget_bytes) {
    ++sizes.tiles_a_product;
  }
  const std::size_t without = bytes(0, sizes.tiles_a_product);
  const std::size_t left =
      options.activation_budget_bytes > without ? options.activation_budget_bytes - without : 0;
  sizes.tiles_at_once = std::clamp<std::int64_t>(static_cast<std::int64_t>(left / hidden),
                                                 sizes.tiles_a_product, most);
  // The same number of products, of sizes as equal as can be.
  const std::int64_t products =
      (sizes.tiles_at_once + sizes.tiles_a_product - 1) / sizes.tiles_a_product;
  sizes.tiles_a_product = (sizes.tiles_at_once + products - 1) / products;
  sizes.bytes = bytes(sizes.tiles_at_once, sizes.tiles_a_product);
  return sizes;
}

/// Everything one decode owns, and what its steps hand on.
struct VideoVaeDecoder::Job {
  ConstTensorView latents;  // [C, T, h, w]
  const FrameSink& sink;
  const DecodeOptions& options;
  TemporalPlan plan;
  ClipShape clip;
  Tiling tiling;
  DecodeSizes sizes;
  RopeTable rope;
  TileWorkspace workspace;
  Tensor projection;          // proj_out split for bf16 units, or empty
  Tensor tokens;              // [tiles at once, tokens, C], host
  Tensor hidden;              // [tiles at once, N, D]
  Tensor weights;             // [tiles, tile height, tile width], share of a tile in its pixels
  Tensor frame_index;         // [t * temporal patch] i32
  Tensor canvas;              // [kept, 3, H, W]
  Tensor tail;                // [frame_overlap, 3, H, W], the end of the previous window
  Tensor rgb;                 // [kept, H, W, 3] u8 on the device; empty where the host computes
  Tensor own_buffer;          // the same in host memory, where the caller gives none
  std::span<Tensor> buffers;  // of frames, taken in turn

  [[nodiscard]] std::int64_t num_tiles() const { return tiling.num_tiles(); }
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

Shape VideoVaeDecoder::rgb_shape(std::int64_t h, std::int64_t w) const {
  return {config_.time.kept_frames(), h * config_.spatial_patch, w * config_.spatial_patch, 3};
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

  MINIACC_REQUIRE(options.rows_at_once >= 0, "video VAE: rows_at_once is not negative");
  const std::int64_t kept = config_.time.kept_frames();
  const ClipShape clip = clip_shape(latents.dim(1), latents.dim(2), latents.dim(3));
  Tiling tiling = tiling_of(config_, clip.height, clip.width);
  const TileShape tile = tiling.tile;
  const DecodeSizes sizes = decode_sizes(config_, clip.height, clip.width, options);
  const std::int64_t num_tokens = tile.num_tokens() + config_.num_suffix_tokens();

  Device& device = ctx.device;
  Device& host = ctx.host_device();
  const bool on_cuda = device.id().kind == DeviceKind::kCuda;
  Job job{.latents = latents,
          .sink = sink,
          .options = options,
          .plan = plan_windows(latents.dim(1), config_.time),
          .clip = clip,
          .tiling = std::move(tiling),
          .sizes = sizes,
          .rope = make_rope_table(config_, tile, device),
          .workspace = TileWorkspace(ctx, config_, tile, sizes.tiles_a_product),
          .projection = {},
          .tokens =
              empty_tensor(host, {sizes.tiles_at_once, tile.num_tokens(), config_.latent_channels}),
          .hidden = empty_tensor(device, {sizes.tiles_at_once, num_tokens, config_.hidden_size}),
          .weights = {},
          .frame_index = shown_frames(ctx, tile, config_),
          .canvas = empty_tensor(device, {kept, 3, clip.height, clip.width}),
          .tail = empty_tensor(device, {config_.time.frame_overlap(), 3, clip.height, clip.width}),
          .rgb = {},
          .own_buffer = {},
          .buffers = {}};
  job.weights = blend_weights(ctx, job.tiling.vertical, job.tiling.horizontal, options.blend);
  if (on_cuda && precision_ != Precision::kF32 && config_.hidden_size % 2 == 0) {
    job.projection = split_projection(ctx, shell_);  // f32 units would take a fifth of the time
  }
  if (options.rgb) {
    const Shape shape = rgb_shape(latents.dim(2), latents.dim(3));
    if (options.rgb_buffers.empty()) {
      job.own_buffer = empty_tensor(host, shape, DType::kU8);
    }
    for (const Tensor& buffer : options.rgb_buffers) {
      MINIACC_REQUIRE(buffer.shape() == shape && buffer.dtype() == DType::kU8 &&
                          buffer.device().kind == DeviceKind::kCpu,
                      "video VAE: buffers for frames are of rgb_shape(), u8, in host memory");
    }
    job.buffers =
        options.rgb_buffers.empty() ? std::span<Tensor>(&job.own_buffer, 1) : options.rgb_buffers;
    if (on_cuda) {
      job.rgb = empty_tensor(device, shape, DType::kU8);
    }
  }
  for (std::int64_t window = 0; window < job.plan.num_windows; ++window) {
    MINIACC_RETURN_IF_ERROR(decode_window(ctx, job, window));
  }
  return clip;
}

Status VideoVaeDecoder::decode_window(OpContext& ctx, Job& job, std::int64_t window) {
  ops::fill_zero(ctx, job.canvas.view());
  for (std::int64_t first = 0; first < job.num_tiles(); first += job.sizes.tiles_at_once) {
    const std::int64_t count = std::min(job.sizes.tiles_at_once, job.num_tiles() - first);
    MINIACC_RETURN_IF_ERROR(decode_tiles(ctx, job, window, first, count));
  }
  return emit(ctx, job, window, config_);
}

Status VideoVaeDecoder::decode_tiles(OpContext& ctx, Job& job, std::int64_t window,
                                     std::int64_t first, std::int64_t count) {
  const TensorView hidden = job.hidden.view();
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

  const std::int64_t across = job.tiling.horizontal.count();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::size_t>((first + i) / across);
    const auto column = static_cast<std::size_t>((first + i) % across);
    const TensorView tokens = job.tokens.view().narrow(0, i, 1);
    gather_tokens(tokens.reshape({tokens.dim(1), tokens.dim(2)}), job.latents, statistics_,
                  {.t = window * config_.time.chunk(),
                   .h = job.tiling.vertical.starts[row] / config_.spatial_patch,
                   .w = job.tiling.horizontal.starts[column] / config_.spatial_patch},
                  job.tiling.tile);
  }
  {
    const Placed tokens = on_device(ctx, std::as_const(job.tokens).view().narrow(0, 0, count));
    for (std::int64_t i = 0; i < count; ++i) {
      const ConstTensorView tile = tokens.view.narrow(0, i, 1);
      embed_tile(ctx, hidden.narrow(0, i, 1).reshape({hidden.dim(1), hidden.dim(2)}),
                 tile.reshape({tile.dim(1), tile.dim(2)}), shell_, job.workspace);
    }
  }
  // body(first, count) for the tiles that pass a layer together. Rows do not see each other in a
  // product: the values of a tile are the same whatever the number of tiles.
  const auto for_products = [&](const auto& body) -> Status {
    for (std::int64_t begin = 0; begin < count; begin += job.sizes.tiles_a_product) {
      ctx.check_cancelled();
      MINIACC_RETURN_IF_ERROR(body(begin, std::min(job.sizes.tiles_a_product, count - begin)));
    }
    return {};
  };
  // Layers outermost: each is read once for all tiles at hand.
  for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
    ctx.check_cancelled();  // before the read of a layer too: it may take a while
    MINIACC_ASSIGN(const LayerView* weights, blocks_->acquire(layer, ctx));
    const Block block = block_weights(*weights);
    MINIACC_RETURN_IF_ERROR(for_products([&](std::int64_t begin, std::int64_t tiles) -> Status {
      const TensorView rows = hidden.narrow(0, begin, tiles);
      run_block(ctx, rows.reshape({tiles * hidden.dim(1), hidden.dim(2)}), block, job.rope, config_,
                precision_, job.workspace);
      return {};
    }));
    report(layer + 1);
  }
  return for_products([&](std::int64_t begin, std::int64_t tiles) -> Status {
    return finish_tiles(ctx, job, window, first + begin, hidden.narrow(0, begin, tiles));
  });
}

Status VideoVaeDecoder::finish_tiles(OpContext& ctx, Job& job, std::int64_t window,
                                     std::int64_t first, ConstTensorView hidden) {
  const std::int64_t tokens = job.tiling.tile.num_tokens();
  const std::int64_t across = job.tiling.horizontal.count();
  const ConstTensorView split =
      job.projection.empty() ? ConstTensorView() : std::as_const(job.projection).view();
  const TensorView values = project_tiles(ctx, hidden, shell_, split, config_, job.workspace);
  const bool finite = ops::all_finite(ctx, values);
  for (std::int64_t i = 0; i < hidden.dim(0); ++i) {
    const ConstTensorView tile = values.narrow(0, i * tokens, tokens);
    const std::int64_t row = (first + i) / across;
    const std::int64_t column = (first + i) % across;
    if (!finite && !ops::all_finite(ctx, tile)) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("video VAE: window {} of {}, tile (row {}, column {}) of {} x {} decoded "
                      "to values that are not finite",
                      window + 1, job.plan.num_windows, row, column, job.tiling.vertical.count(),
                      across));
    }
    const ConstTensorView weights = std::as_const(job.weights).view().narrow(0, first + i, 1);
    ops::add_patches(ctx, job.canvas.view(), tile,
                     {.t = job.tiling.tile.t,
                      .h = job.tiling.tile.h,
                      .w = job.tiling.tile.w,
                      .frames = config_.time.temporal_patch,
                      .patch = config_.spatial_patch,
                      .top = job.tiling.vertical.starts[static_cast<std::size_t>(row)],
                      .left = job.tiling.horizontal.starts[static_cast<std::size_t>(column)],
                      .frame_index = job.frame_index.view(),
                      .weights = weights.reshape({weights.dim(1), weights.dim(2)})});
  }
  return {};
}

Status VideoVaeDecoder::emit(OpContext& ctx, Job& job, std::int64_t window,
                             const VideoVaeConfig& config) {
  const std::int64_t clip_length = config.time.clip_length;
  const std::int64_t overlap = config.time.frame_overlap();
  const TensorView canvas = job.canvas.view();
  if (window > 0) {
    ops::cross_fade(ctx, canvas.narrow(0, 0, overlap), job.tail.view());
  }
  const bool last = window + 1 == job.plan.num_windows;
  const std::int64_t first_frame = window * clip_length;
  const std::int64_t count = last ? job.plan.num_frames - first_frame : clip_length;
  if (!last) {
    ops::copy(ctx, job.tail.view(), canvas.narrow(0, clip_length, overlap));
  }
  FrameBatch batch{.first_frame = first_frame, .pixels = {}, .rgb = {}};
  const TensorView pixels = canvas.narrow(0, 0, count);
  if (job.options.pixels == PixelSpace::kUnit) {
    to_unit_range(ctx, pixels);
  }
  if (job.options.rgb) {
    Tensor& buffer = job.buffers[static_cast<std::size_t>(window) % job.buffers.size()];
    const TensorView rgb = buffer.view().narrow(0, 0, count);
    if (job.rgb.empty()) {
      ops::to_rgb8(ctx, rgb, pixels);
    } else {
      const TensorView there = job.rgb.view().narrow(0, 0, count);
      ops::to_rgb8(ctx, there, pixels);
      ops::copy(ctx, rgb, there);
    }
    batch.rgb = rgb;
  }
  Placed host_pixels;
  if (job.options.float_pixels) {
    host_pixels = on_host(ctx, pixels);
    batch.pixels = host_pixels.view;
  }
  return job.sink(batch);
}

}  // namespace miniacc::video_vae
