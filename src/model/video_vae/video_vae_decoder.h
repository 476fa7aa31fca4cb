#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/op_context.h"
#include "model/common/layer_source.h"
#include "model/video_vae/tiling.h"
#include "model/video_vae/video_vae_weights.h"

namespace miniacc::video_vae {

/// Finished frames in order, in host memory.
struct FrameBatch {
  std::int64_t first_frame = 0;
  /// [n, 3, H, W] f32 RGB: in [0, 1], or the network's own space where the options ask for that.
  /// Valid during the call; empty where the options say that nobody reads it.
  ConstTensorView pixels;
  /// [n, H, W, 3] u8 RGB, round_half_even(255 · pixels); empty unless asked for. Valid during the
  /// call; of DecodeOptions::rgb_buffers, until as many more calls have returned as there are
  /// buffers besides this one, so that a batch can be encoded while the next window is decoded.
  ConstTensorView rgb;
};
using FrameSink = std::function<Status(const FrameBatch&)>;

/// How far a decode is. Windows follow each other; the tiles of a window pass the layers in groups.
struct Progress {
  std::int64_t window = 0;
  std::int64_t num_windows = 0;
  std::int64_t first_tile = 0;  ///< of the group at work
  std::int64_t tiles = 0;       ///< in the group
  std::int64_t num_tiles = 0;   ///< of the window
  std::int64_t layers_done = 0;
  std::int64_t num_layers = 0;
  double fraction = 0.0;  ///< of the whole decode, 1 at the end
};
using ProgressCallback = std::function<void(const Progress&)>;

enum class PixelSpace {
  kUnit,     ///< RGB in [0, 1], clamped
  kNetwork,  ///< ImageNet-normalised decoder output, not clamped: for comparison with references
};

struct DecodeOptions {
  BlendMode blend = BlendMode::kRawNeighbours;
  PixelSpace pixels = PixelSpace::kUnit;
  /// Fill FrameBatch::rgb; needs PixelSpace::kUnit.
  bool rgb = false;
  bool float_pixels = true;  ///< fill FrameBatch::pixels
  /// Where FrameBatch::rgb lies, taken in turn: tensors of rgb_shape() in host memory (pinned is
  /// faster where a CUDA device decodes). Empty: the decode makes one for itself.
  std::span<Tensor> rgb_buffers = {};
  /// Rows that a matrix product should have: as many tiles as that takes pass the layers together.
  /// 0: a tile at a time. The result does not depend on it.
  std::int64_t rows_at_once = 0;
  /// Bounds hidden states, scratch, canvas and output of a decode. Fewer tiles run at once when it
  /// is small (never smaller tiles), and every group of tiles reads the weights again; one tile
  /// always runs. The result does not depend on it.
  std::size_t activation_budget_bytes = std::size_t{1} << 30;
  /// Upper bound on tiles at once; 0 leaves it to the budget.
  std::int64_t max_tiles_at_once = 0;
  ProgressCallback progress = {};
};

/// What suits decoding clips to 8-bit frames on a device of this kind. On CUDA: products of 16384
/// rows, at least one wave of 128 x 256 tiles on 132 multiprocessors for every matrix of the
/// released decoder, and 4 GiB, of which its hidden states, scratch and frames take 3 at 1344 x
/// 768.
[[nodiscard]] DecodeOptions decode_options_for(DeviceKind device);

/// How a decode divides its activation budget.
struct DecodeSizes {
  std::int64_t tiles_at_once = 0;    ///< whose hidden states are kept while the layers pass
  std::int64_t tiles_a_product = 0;  ///< that pass a layer together
  std::size_t bytes = 0;             ///< of hidden states, scratch, canvas and frames
};
/// Of a clip of height x width pixels cut into tiles of one shape. Not in the bytes: what ops take
/// for a moment.
DecodeSizes decode_sizes(const VideoVaeConfig& config, std::int64_t height, std::int64_t width,
                         const DecodeOptions& options);

/// Size of a decoded clip.
struct ClipShape {
  std::int64_t num_frames = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// The ViT decoder of the video VAE. Weights are read from the source as layers are needed and kept
/// up to the cache budget; source and device outlive the decoder. Not thread-safe.
class VideoVaeDecoder {
 public:
  /// Reads dimensions and small weights and checks the shapes of all others. kInvalidInput or
  /// kNotFound names the tensor or configuration key at fault.
  /// Layers come from `blocks`, a source of block_stack()'s layers that outlives the decoder;
  /// without one they are read when needed and kept up to the cache budget.
  static Result<VideoVaeDecoder> open(WeightSource& source, Device& device, Precision precision,
                                      std::size_t cache_budget_bytes,
                                      LayerSource* blocks = nullptr);

  [[nodiscard]] const VideoVaeConfig& config() const { return config_; }
  /// What decode makes of latents [C, num_latents, h, w].
  [[nodiscard]] ClipShape clip_shape(std::int64_t num_latents, std::int64_t h,
                                     std::int64_t w) const;
  /// Of the buffers for frames, u8.
  [[nodiscard]] Shape rgb_shape(std::int64_t h, std::int64_t w) const;
  /// Layers read from the source so far.
  [[nodiscard]] std::int64_t layer_loads() const { return blocks_->loads(); }

  /// Decodes one clip and hands its frames to the sink as soon as they are final: a clip_length a
  /// window, the rest with the last one.
  ///   latents  [C, T, h, w] f32, contiguous, in the diffusion's normalised space; T, h, w >= 1
  /// kInvalidInput for latents that are not finite and for a tile that decodes to values that are
  /// not (naming window and tile); the sink's error as it is. Throws ErrorException(kCancelled)
  /// when ctx.cancel is set (looked at before every layer of every tile), kOutOfMemory beyond the
  /// device's ceiling. Source: spec vae.md §2.
  Result<ClipShape> decode(OpContext& ctx, ConstTensorView latents, const FrameSink& sink,
                           const DecodeOptions& options = {});

 private:
  VideoVaeDecoder(VideoVaeConfig config, Precision precision, Shell shell,
                  vae::LatentStatistics statistics, std::unique_ptr<LayerSource> own_blocks,
                  LayerSource* blocks);

  struct Job;
  Status decode_window(OpContext& ctx, Job& job, std::int64_t window);
  Status decode_tiles(OpContext& ctx, Job& job, std::int64_t window, std::int64_t first,
                      std::int64_t count);
  Status finish_tiles(OpContext& ctx, Job& job, std::int64_t window, std::int64_t first,
                      ConstTensorView hidden);
  static Status emit(OpContext& ctx, Job& job, std::int64_t window, const VideoVaeConfig& config);

  VideoVaeConfig config_;
  Precision precision_;
  Shell shell_;
  vae::LatentStatistics statistics_;
  std::unique_ptr<LayerSource> own_blocks_;
  LayerSource* blocks_;  ///< own_blocks_, or the caller's
};

}  // namespace miniacc::video_vae
