#include "runtime/stage_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "model/common/row_chunks.h"
#include "model/dit/block.h"
#include "model/dit/dit.h"
#include "model/text_encoder/encode_text.h"
#include "model/video_vae/tile_decoder.h"
#include "model/video_vae/tiling.h"
#include "model/video_vae/video_vae_decoder.h"
#include "model/vision/patches.h"
#include "runtime/layer_record.h"

namespace miniacc {
namespace {

constexpr std::size_t kFloat = sizeof(float);

std::size_t floats(std::int64_t count) { return static_cast<std::size_t>(count) * kFloat; }

/// Bytes of a tensor as a stage holds it: matrices in the form of the precision, the rest in f32.
std::size_t held_bytes(const Shape& shape, Precision precision) {
  const auto elements = static_cast<std::size_t>(shape.num_elements());
  if (shape.rank() < 2 || precision == Precision::kF32) {
    return elements * kFloat;
  }
  if (precision == Precision::kBF16) {
    return elements * 2;
  }
  return elements + static_cast<std::size_t>(shape[0]) * kFloat;
}

/// Bytes of all tensors whose names the predicate takes.
template <typename Predicate>
std::size_t sum_bytes(const ComponentWeights& weights, Precision precision,
                      const Predicate& is_taken) {
  std::size_t sum = 0;
  for (const std::string& name : weights.names()) {
    if (is_taken(std::string_view(name))) {
      if (const auto shape = weights.shape(name)) {
        sum += held_bytes(*shape, precision);
      }
    }
  }
  return sum;
}

/// What a CUDA device streams.
void set_stack(StagePlan& plan, const LayerStack& stack) {
  plan.num_layers = stack.count;
  plan.layer_bytes = LayerLayout::of(stack).record_bytes;
}

auto starts_with(std::string_view prefix) {
  return [prefix](std::string_view name) { return name.starts_with(prefix); };
}

/// Layers of one size under LayerCache: what is held at once, and what is read over `passes`.
struct KeptLayers {
  KeptLayers(std::int64_t count, std::size_t layer_bytes, std::size_t budget_bytes,
             std::int64_t passes) {
    const std::size_t fitting = layer_bytes == 0 ? 0 : budget_bytes / layer_bytes;
    const std::size_t kept = std::min(static_cast<std::size_t>(count), fitting);
    const std::size_t others = static_cast<std::size_t>(count) - kept;
    held = kept * layer_bytes + (others > 0 ? layer_bytes : 0);
    streamed = kept * layer_bytes + others * layer_bytes * static_cast<std::size_t>(passes);
  }
  std::size_t held = 0;
  std::size_t streamed = 0;
};

/// Scratch of the CUDA kernels of a transformer layer over `rows` rows: a linear layer's operand in
/// the form of the product (at most a rotated f32 copy and its i8 values), and q, k, v in the form
/// of the attention; small sums come on top. Both are counted, as pieces of memory are reused late.
///   input     the widest input of a linear layer
///   attended  rows of the attention that takes them from scratch: none of them where it is int8,
///             whose q, k and v are activations
///   attention heads · d
std::size_t cuda_workspace(std::int64_t rows, std::int64_t input, std::int64_t attended,
                           std::int64_t attention) {
  constexpr std::int64_t kMostRowsAtOnce = 16384;
  constexpr std::size_t kSmall = std::size_t{1} << 20;
  return static_cast<std::size_t>(std::min(rows, kMostRowsAtOnce) * (5 * input + 4) +
                                  attended * 3 * attention * 4) +
         kSmall;
}

/// Scratch of the CUDA kernels of encoders, an allowance: it is not derived op by op.
std::size_t encoder_workspace(std::size_t activation_bytes) {
  constexpr std::size_t kLeast = std::size_t{16} << 20;
  return kLeast + activation_bytes / 4;
}

/// Operations of one pass of a transformer layer over `rows` rows: two a weight and row, and the
/// two attention products against `keys` keys.
double layer_flops(double rows, double keys, double weights, double attention_size) {
  return 2.0 * rows * weights + 4.0 * rows * keys * attention_size;
}

/// Convolutions of the video encoder over `frames` frames of a tile of height × width pixels.
double video_encoder_flops(const video_vae::VideoEncoderConfig& config, std::int64_t frames,
                           double height, double width) {
  // A lone frame meets only the last of three taps in time.
  const double taps = frames == 1 ? 9.0 : 27.0;
  double pixels = static_cast<double>(frames) * height * width;
  double flops = pixels * taps * 3.0 * static_cast<double>(config.first_channels);
  for (const video_vae::EncoderLevel& level : config.levels) {
    const auto in = static_cast<double>(level.in_channels);
    const auto out = static_cast<double>(level.out_channels);
    const auto blocks = static_cast<double>(level.num_blocks);
    flops += pixels * taps * (in * out + (2.0 * blocks - 1.0) * out * out);
    if (level.downsample) {
      pixels /= static_cast<double>(level.stride_hw * level.stride_hw) *
                (frames == 1 ? 1.0 : static_cast<double>(level.stride_t));
      flops += pixels * taps * out * out;
    }
  }
  return 2.0 * flops;
}

double audio_encoder_flops(const audio_vae::AudioEncoderConfig& config, double samples) {
  double flops = samples * static_cast<double>(config.first_kernel * config.first_channels);
  for (const audio_vae::EncoderStageConfig& stage : config.stages) {
    const auto channels = static_cast<double>(stage.channels);
    flops += samples * static_cast<double>(stage.num_units) * channels * channels * 8.0;
    samples /= static_cast<double>(stage.stride);
    flops += samples * channels * static_cast<double>(stage.out_channels * 2 * stage.stride);
  }
  const auto trunk = static_cast<double>(config.latent_dim);
  return 2.0 * (flops + samples * trunk * trunk * (static_cast<double>(config.last_kernel) + 3.0));
}

}  // namespace

StagePlan plan_condition_encoding(const ComponentWeights& video_weights,
                                  const ComponentWeights& audio_weights,
                                  const EncoderConfigs& configs,
                                  std::span<const Condition> conditions) {
  StagePlan plan;
  plan.name = kConditionStage;
  std::size_t latents = 0;
  std::size_t media = 0;
  std::size_t video_work = 0;
  std::size_t audio_work = 0;
  for (const Condition& condition : conditions) {
    if (condition.is_visual()) {
      const auto& vae = configs.video_vae;
      const auto vertical = video_vae::split_axis(condition.height, vae.tile_size,
                                                  vae.tile_overlap_min, vae.spatial_patch);
      const auto horizontal = video_vae::split_axis(condition.width, vae.tile_size,
                                                    vae.tile_overlap_min, vae.spatial_patch);
      const std::int64_t tiles = vertical.count() * horizontal.count();
      const std::int64_t frames = condition.num_encoded_frames();
      const std::int64_t clips = (frames + vae.time.clip_length - 1) / vae.time.clip_length;
      const bool is_picture = frames == 1;
      plan.flops += static_cast<double>(tiles * clips) *
                    video_encoder_flops(configs.video, is_picture ? 1 : vae.time.clip_length,
                                        static_cast<double>(vertical.tile),
                                        static_cast<double>(horizontal.tile));
      // A clip of one tile, or as many tiles of a picture as a clip has frames: two tensors of the
      // first level, its pixels, and the moments of the whole.
      const std::int64_t images =
          is_picture ? std::min(tiles, vae.time.clip_length) : vae.time.clip_length;
      const LatentSize size = condition.latents();
      const std::int64_t values = vae.latent_channels * size.num_frames * size.height * size.width;
      video_work = std::max(video_work, floats(images * vertical.tile * horizontal.tile *
                                                   (2 * configs.video.first_channels + 3) +
                                               5 * values));
      latents += floats(values);
      media +=
          static_cast<std::size_t>(3 * condition.num_frames * condition.width * condition.height);
    }
    if (condition.has_sound()) {
      plan.flops +=
          2.0 * audio_encoder_flops(configs.audio, static_cast<double>(condition.num_samples));
      // Both sides, four tensors of the widest stage, which is the first.
      audio_work = std::max(audio_work,
                            floats(2 * condition.num_samples * configs.audio.first_channels * 4));
      latents += floats(2 * condition.num_audio_latents() * configs.audio.latent_channels);
      media += floats(2 * condition.num_samples);
    }
  }
  const std::size_t video =
      video_work == 0 ? 0 : sum_bytes(video_weights, Precision::kF32, [](std::string_view name) {
        return name.starts_with("encoder.") || name.starts_with("quant_conv.");
      });
  const std::size_t audio =
      audio_work == 0 ? 0 : sum_bytes(audio_weights, Precision::kF32, [](std::string_view name) {
        return !name.starts_with("decoder.") && !name.starts_with("dec_in_proj.");
      });
  const bool video_is_larger = video + video_work >= audio + audio_work;
  plan.weight_bytes = video_is_larger ? video : audio;
  plan.streamed_bytes = video + audio;
  plan.activation_bytes = (video_is_larger ? video_work : audio_work) + latents + media;
  plan.workspace_bytes = encoder_workspace(plan.activation_bytes);
  return plan;
}

StagePlan plan_vision(const ComponentWeights& weights, const VisionConfig& config,
                      const StageOptions& options, std::span<const VisionGrid> grids) {
  StagePlan plan;
  plan.name = kVisionStage;
  const Precision precision =
      options.precision == Precision::kF32 ? Precision::kF32 : Precision::kBF16;
  const auto hidden = static_cast<double>(config.hidden_size);
  const double block_weights =
      hidden * (4.0 * hidden + 2.0 * static_cast<double>(config.ffn_hidden_size));
  const double merger_weights =
      4.0 * hidden * (4.0 * hidden + static_cast<double>(config.out_size));
  const auto num_mergers = static_cast<std::int64_t>(1 + config.deepstack_blocks.size());
  std::int64_t patches = 0;
  std::int64_t largest = 0;
  for (const VisionGrid& grid : grids) {
    const auto rows = static_cast<double>(grid.num_patches());
    patches += grid.num_patches();
    largest = std::max(largest, grid.num_patches());
    plan.flops +=
        static_cast<double>(config.num_blocks) * layer_flops(rows, rows, block_weights, hidden) +
        2.0 * rows / 4.0 * merger_weights * static_cast<double>(num_mergers) +
        2.0 * rows * hidden * static_cast<double>(kPatchRowSize);
  }
  const std::size_t block = sum_bytes(weights, precision, starts_with("visual.blocks.0."));
  const std::size_t merger = sum_bytes(weights, precision, starts_with("visual.merger."));
  plan.weight_bytes = std::max(block, merger);
  plan.streamed_bytes = sum_bytes(weights, precision, starts_with("visual."));
  const std::int64_t chunk = std::min(largest, kRowChunk);
  // Residual stream and features of all grids; branch, q, k, v of one, and its patch
  // rows or MLP by chunks.
  plan.activation_bytes =
      floats(patches * config.hidden_size + patches / 4 * num_mergers * config.out_size +
             4 * largest * config.hidden_size +
             chunk * std::max({config.ffn_hidden_size, config.hidden_size * 4, kPatchRowSize}));
  plan.workspace_bytes = encoder_workspace(plan.activation_bytes);
  return plan;
}

StagePlan plan_text_encoding(const ComponentWeights& weights, const TextEncoderConfig& config,
                             const StageOptions& options, std::int64_t num_tokens,
                             std::int64_t num_vision_tokens, std::int64_t num_deepstack) {
  StagePlan plan;
  plan.name = kTextStage;
  const std::int64_t attention = config.num_heads * config.head_dim;
  const std::int64_t kv = config.num_kv_heads * config.head_dim;
  const double layer_weights =
      static_cast<double>(config.hidden_size) *
      static_cast<double>(2 * attention + 2 * kv + 3 * config.ffn_hidden_size);
  const auto tokens = static_cast<double>(num_tokens);
  plan.flops = static_cast<double>(config.num_used_layers) *
               layer_flops(tokens, tokens, layer_weights, static_cast<double>(attention));
  plan.weight_bytes = sum_bytes(weights, options.precision, starts_with("layers.0."));
  plan.streamed_bytes = plan.weight_bytes * static_cast<std::size_t>(config.num_used_layers);
  const std::int64_t chunk = std::min(num_tokens, kRowChunk);
  // Residual stream, embedding rows, branch; q, attention, k, v; angles; the MLP's three.
  plan.activation_bytes =
      floats(num_tokens * (3 * config.hidden_size + 2 * attention + 2 * kv + config.head_dim) +
             3 * chunk * config.ffn_hidden_size +
             num_vision_tokens * (1 + num_deepstack) * config.hidden_size);
  set_stack(plan, text_layer_stack(config, options.precision));
  plan.beside_layers_bytes = plan.activation_bytes;
  plan.workspace_bytes = cuda_workspace(
      num_tokens, std::max(config.ffn_hidden_size, config.hidden_size), num_tokens, attention);
  return plan;
}

StagePlan plan_denoising(const ComponentWeights& weights, const DitConfig& config,
                         const StageOptions& options, const DenoisePlan& sizes) {
  StagePlan plan;
  plan.name = kDenoiseStage;
  const auto rows = static_cast<double>(sizes.num_rows);
  const auto attention = static_cast<double>(config.attention_size());
  const double block_weights =
      static_cast<double>(config.hidden_size) *
      (4.0 * attention + 3.0 * static_cast<double>(config.ffn_hidden_size));
  plan.flops = static_cast<double>(sizes.num_forwards) * static_cast<double>(config.num_layers) *
               layer_flops(rows, rows, block_weights, attention);

  const auto is_adaln = [](std::string_view name) {
    return name.find(".adaln_proj.") != std::string_view::npos;
  };
  const Precision adaln_precision = options.precision == Precision::kF32 || config.has_curve_table()
                                        ? Precision::kF32
                                        : Precision::kBF16;
  const Precision refiner_precision =
      options.precision == Precision::kF32 ? Precision::kF32 : Precision::kBF16;
  const std::size_t islands = sum_bytes(weights, Precision::kF32, [](std::string_view name) {
    return !name.starts_with("blocks.") && !name.starts_with("token_refiner.blocks.");
  });
  const std::size_t block = sum_bytes(weights, options.precision, [&](std::string_view name) {
    return name.starts_with("blocks.0.") && !is_adaln(name);
  });
  const std::size_t adaln = sum_bytes(weights, adaln_precision, [&](std::string_view name) {
    return name.starts_with("blocks.0.") && is_adaln(name);
  });
  const std::size_t refiner =
      sum_bytes(weights, refiner_precision, starts_with("token_refiner.blocks.0."));
  const KeptLayers blocks(config.num_layers, block, options.cache_budget_bytes, sizes.num_forwards);
  plan.streamed_bytes = islands + refiner * static_cast<std::size_t>(config.num_refiner_layers) +
                        adaln * static_cast<std::size_t>(config.num_layers) + blocks.streamed;

  const std::size_t modulation = floats(
      sizes.num_times * (config.num_layers * config.modulation_size() + 2 * config.hidden_size));
  const std::size_t text = floats(sizes.num_text_rows * (config.hidden_size + config.text_dim));
  // Latents, their rows with and without conditions, noise, velocities: five of the wider stream.
  const std::size_t latents =
      5 * floats(sizes.num_rows * std::max(config.video_row_width, config.audio_row_width));
  const std::size_t table = floats(4 * config.modulation_size());
  const std::size_t refining =
      islands + refiner + text +
      BlockActivations::size_bytes(config, sizes.num_text_rows,
                                   {refiner_precision, default_attention(refiner_precision)},
                                   options.device);
  const std::size_t modulating = islands + adaln + text + modulation;
  const std::size_t stepping =
      islands + blocks.held + text + modulation + latents + table +
      Dit::activation_bytes(config, sizes.num_rows, {options.precision, options.attention},
                            options.device);
  const std::size_t peak = std::max({refining, modulating, stepping});
  plan.weight_bytes = islands + (peak == stepping     ? blocks.held
                                 : peak == modulating ? adaln
                                                      : refiner);
  plan.activation_bytes = peak - plan.weight_bytes;
  set_stack(plan, dit_block_stack(config, options.precision));
  plan.beside_layers_bytes = std::max({refining, modulating, stepping - blocks.held});
  plan.workspace_bytes =
      cuda_workspace(sizes.num_rows,
                     std::max({config.ffn_hidden_size, config.hidden_size, config.attention_size(),
                               config.text_dim}),
                     options.attention == Precision::kInt8 ? sizes.num_text_rows : sizes.num_rows,
                     config.attention_size());
  return plan;
}

StagePlan plan_audio_decoding(const ComponentWeights& weights,
                              const audio_vae::AudioVaeConfig& config, const StageOptions& options,
                              const ClipGeometry& clip) {
  StagePlan plan;
  plan.name = kAudioStage;
  const std::size_t all = sum_bytes(weights, Precision::kF32, [](std::string_view name) {
    return name.starts_with("decoder.") || name.starts_with("dec_in_proj.");
  });
  plan.streamed_bytes = all;
  plan.weight_bytes = all;
  if (options.cache_budget_bytes < all) {
    // Nearly all weights are in the stages; one of them passes through beside the kept ones.
    plan.weight_bytes = std::min(all, options.cache_budget_bytes + all / 2);
  }
  // Dominated by the residual blocks: per stage 6 convolutions a kernel, kernels 3 + 7 + 11. At the
  // widest point a stage holds its input and six tensors of its output's size.
  std::int64_t length = clip.audio_latents;
  std::int64_t input = 2 * length * config.decoder_dim;
  std::int64_t widest = 2 * length * (config.decoder_dim + config.latent_dim);
  for (const auto& stage : config.stages) {
    length *= stage.rate;
    const std::int64_t output = 2 * length * stage.out_channels;
    widest = std::max(widest, input + 6 * output);
    input = output;
    const auto channels = static_cast<double>(stage.out_channels);
    plan.flops +=
        2.0 * 2.0 * static_cast<double>(length) * channels * (6.0 * 21.0 * channels + 18.0 * 60.0);
  }
  plan.activation_bytes = floats(widest);
  return plan;
}

StagePlan plan_video_decoding(const ComponentWeights& weights,
                              const video_vae::VideoVaeConfig& config, const StageOptions& options,
                              const ClipGeometry& clip) {
  constexpr std::string_view kBlocks = "decoder.transformer_blocks.";
  StagePlan plan;
  plan.name = kVideoStage;
  const auto vertical = video_vae::split_axis(clip.height, config.tile_size,
                                              config.tile_overlap_min, config.spatial_patch);
  const auto horizontal = video_vae::split_axis(clip.width, config.tile_size,
                                                config.tile_overlap_min, config.spatial_patch);
  const video_vae::TileShape tile{.t = config.time.window(),
                                  .h = vertical.tile / config.spatial_patch,
                                  .w = horizontal.tile / config.spatial_patch};
  const std::int64_t num_tiles = vertical.count() * horizontal.count();
  const std::int64_t num_windows =
      video_vae::plan_windows(clip.latent_frames, config.time).num_windows;
  const std::int64_t tile_tokens = tile.num_tokens() + config.num_suffix_tokens();

  const video_vae::DecodeSizes sizes = video_vae::decode_sizes(
      config, clip.height, clip.width, video_vae::decode_options_for(options.device));
  const auto at_once = static_cast<std::size_t>(sizes.tiles_at_once);
  plan.activation_bytes =
      sizes.bytes +
      floats(sizes.tiles_at_once * tile.num_tokens() * config.latent_channels +
             tile_tokens * 6 * config.num_rope_frequencies +
             config.latent_channels * clip.latent_frames * clip.latent_height * clip.latent_width);
  if (options.device == DeviceKind::kCpu) {
    // The second buffer of frames; beside a CUDA device both lie in host memory.
    plan.activation_bytes +=
        static_cast<std::size_t>(3 * config.time.kept_frames() * clip.height * clip.width);
  }

  const std::size_t block =
      sum_bytes(weights, options.precision, starts_with("decoder.transformer_blocks.0."));
  const std::size_t shell = sum_bytes(weights, Precision::kF32, [&](std::string_view name) {
    return (name.starts_with("decoder.") && !name.starts_with(kBlocks)) ||
           name.starts_with("post_quant_conv.");
  });
  const auto groups =
      static_cast<std::int64_t>((static_cast<std::size_t>(num_tiles) + at_once - 1) / at_once);
  const KeptLayers blocks(config.num_layers, block, options.cache_budget_bytes,
                          num_windows * groups);
  plan.weight_bytes = shell + blocks.held;
  plan.streamed_bytes = shell + blocks.streamed;
  set_stack(plan, video_vae::block_stack(config, options.precision));
  plan.beside_layers_bytes = shell + plan.activation_bytes;
  // The output matrix in three columns a value (video_vae::split_projection) comes on top.
  plan.workspace_bytes =
      cuda_workspace(sizes.tiles_a_product * tile_tokens, config.hidden_size,
                     sizes.tiles_a_product * tile_tokens,
                     config.num_heads * std::max<std::int64_t>(32, 2 * config.head_dim)) +
      static_cast<std::size_t>(6 * config.values_per_token() * config.hidden_size);

  const auto hidden = static_cast<double>(config.hidden_size);
  const auto tokens = static_cast<double>(tile_tokens);
  plan.flops =
      static_cast<double>(num_windows * num_tiles * config.num_layers) *
      layer_flops(tokens, tokens,
                  hidden * (4.0 * hidden + 3.0 * static_cast<double>(config.ffn_hidden_size)),
                  hidden);
  return plan;
}

}  // namespace miniacc
