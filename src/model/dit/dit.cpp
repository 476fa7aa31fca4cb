#include "model/dit/dit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "device/cpu_device.h"
#include "kernels/copy.h"
#include "kernels/norm.h"
#include "model/common/finite.h"
#include "model/common/row_chunks.h"
#include "model/dit/rope_table.h"

namespace miniacc {
namespace {

/// The frequencies are computed from rope_theta, because a file may hold them in 16 bits, which is
/// too coarse at positions in the hundreds. Stored ones must agree within that coarseness: others
/// mean that rope_theta is not this checkpoint's.
Status check_inv_freq(WeightSource& weights, std::span<const float> computed) {
  constexpr float kTolerance = 0.01F;
  if (!weights.has("rope.inv_freq")) {
    return {};
  }
  CpuDevice host;
  MINIACC_ASSIGN(const Tensor stored, weights.load("rope.inv_freq", host));
  const std::span<const float> values = stored.f32();
  bool same = values.size() == computed.size();
  for (std::size_t i = 0; same && i < values.size(); ++i) {
    same = std::fabs(values[i] - computed[i]) <= kTolerance * computed[i];
  }
  if (!same) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("transformer: rope.inv_freq is [{}], wanted [{}] from rope_theta",
                            fmt::join(values, ", "), fmt::join(computed, ", ")));
  }
  return {};
}

Tensor index_tensor(OpContext& ctx, std::span<const std::int32_t> values) {
  return upload(ctx, values, {static_cast<std::int64_t>(values.size())});
}

/// table [M · 3, 6D] ← the modulation of every distinct timestep, in their order.
void gather_block(OpContext& ctx, TensorView table, const ModulationCache& modulation,
                  std::span<const float> times, std::int64_t layer) {
  std::int64_t row = 0;
  for (const float time : times) {
    const ConstTensorView values = modulation.block(time, layer);
    ops::copy(ctx, table.narrow(0, row, values.dim(0)), values);
    row += values.dim(0);
  }
}

tl::unexpected<Error> non_finite(const DitInput& input, const std::string& where) {
  return fail(ErrorCode::kInternal,
              fmt::format("non-finite velocity: NaN or infinity {} at video time {} and audio time "
                          "{}",
                          where, input.video_time, input.audio_time));
}

void require_rows(ConstTensorView rows, std::int64_t count, std::int64_t width, const char* what) {
  MINIACC_REQUIRE(
      rows.dtype == DType::kF32 && rows.is_contiguous() && rows.shape == Shape({count, width}),
      what);
}

}  // namespace

Dit::Dit(WeightSource& weights, Precision precision, Precision attention, const DitConfig& config,
         DitIslands islands, std::unique_ptr<LayerSource> own_blocks, LayerSource* blocks)
    : weights_(&weights),
      precision_(precision),
      attention_(attention),
      config_(config),
      islands_(std::move(islands)),
      inv_freq_(rope_inv_freq(config.rope_freqs, config.rope_theta)),
      own_blocks_(std::move(own_blocks)),
      blocks_(blocks != nullptr ? blocks : own_blocks_.get()) {}

Result<Dit> Dit::open(WeightSource& weights, Device& device, Precision precision,
                      std::size_t cache_budget_bytes, LayerSource* blocks,
                      std::optional<Precision> attention) {
  MINIACC_ASSIGN(const DitConfig config, read_dit_config(weights));
  MINIACC_RETURN_IF_ERROR(
      check_inv_freq(weights, rope_inv_freq(config.rope_freqs, config.rope_theta)));
  MINIACC_ASSIGN(DitIslands islands, load_dit_islands(weights, config, device));
  std::unique_ptr<LayerSource> own;
  if (blocks == nullptr) {
    own = std::make_unique<CachedLayers>(weights, dit_block_stack(config, precision), device,
                                         cache_budget_bytes);
  }
  return Dit(weights, precision, attention.value_or(default_attention(precision)), config,
             std::move(islands), std::move(own), blocks);
}

std::size_t Dit::activation_bytes(const DitConfig& config, std::int64_t num_rows,
                                  BlockPrecision precision, DeviceKind device) {
  const std::int64_t values = num_rows * (config.hidden_size + 6 * config.rope_freqs +
                                          std::max(config.video_row_width, config.audio_row_width));
  return BlockActivations::size_bytes(config, num_rows, precision, device) +
         static_cast<std::size_t>(values) * sizeof(float) +
         static_cast<std::size_t>(num_rows) * 2 * sizeof(std::int32_t);
}

Result<Tensor> Dit::refine_text(OpContext& ctx, ConstTensorView text_hidden) {
  MINIACC_REQUIRE(text_hidden.shape.rank() == 2 && text_hidden.dim(0) > 0,
                  "refine_text: there is at least one text row");
  const std::int64_t rows = text_hidden.dim(0);
  require_rows(text_hidden, rows, config_.text_dim, "refine_text: text_hidden is [L, text_dim]");
  Tensor h = empty_tensor(ctx.device, {rows, config_.hidden_size});
  const Placed text = on_device(ctx, text_hidden);
  linear_by_rows(ctx, h.view(), text.view, islands_.condition_proj.weight.view(),
                 islands_.condition_proj.bias.view());
  // Int8 files leave the refiner unquantised.
  const Precision linear = precision_ == Precision::kInt8 ? Precision::kBF16 : precision_;
  BlockActivations activations(ctx.device, config_, rows, {linear, default_attention(linear)});
  const LayerStack refiner = refiner_block_stack(config_, precision_);
  for (std::int64_t i = 0; i < config_.num_refiner_layers; ++i) {
    ctx.check_cancelled();
    MINIACC_ASSIGN(const OwnedLayer layer, load_layer(*weights_, refiner, i, ctx.device));
    refiner_block(ctx, h.view(), dit_block_weights(layer.view()), config_, activations);
  }
  ops::rms_norm(ctx, h.view(), h.view(), islands_.refiner_final_norm.view(), config_.norm_eps);
  if (!all_finite(ctx, h.view())) {
    return fail(ErrorCode::kInternal, "non-finite text: NaN or infinity in the refined text rows");
  }
  return h;
}

Status Dit::prepare_modulation(OpContext& ctx, std::span<const float> times,
                               ModulationCache& modulation) {
  return modulation.prepare(ctx, *weights_, config_, islands_, precision_, times);
}

void Dit::embed_rows(OpContext& ctx, const DitInput& input, TensorView h) const {
  const Placed video_rows = on_device(ctx, input.video_rows);
  const Placed audio_rows = on_device(ctx, input.audio_rows);
  std::int64_t video_row = 0;
  std::int64_t audio_row = 0;
  for (const Segment& segment : input.sequence.segments) {
    const std::int64_t count = segment.rows.count;
    const TensorView target = h.narrow(0, segment.rows.first, count);
    switch (segment.kind) {
      case SegmentKind::kText:
        ops::copy(ctx, target, input.refined_text);
        break;
      case SegmentKind::kVideoCondition:
      case SegmentKind::kTargetVideo:
        linear_by_rows(ctx, target, video_rows.view.narrow(0, video_row, count),
                       islands_.video_patch_proj.weight.view(),
                       islands_.video_patch_proj.bias.view());
        video_row += count;
        break;
      case SegmentKind::kAudioCondition:
      case SegmentKind::kTargetAudio:
        linear_by_rows(ctx, target, audio_rows.view.narrow(0, audio_row, count),
                       islands_.audio_patch_proj.weight.view(),
                       islands_.audio_patch_proj.bias.view());
        audio_row += count;
        break;
    }
  }
}

DitOutput Dit::run_heads(OpContext& ctx, const DitInput& input, ConstTensorView h,
                         const RowTimesteps& timesteps, const ModulationCache& modulation,
                         TensorView z) const {
  const std::int64_t hidden = config_.hidden_size;
  const auto num_times = static_cast<std::int64_t>(timesteps.distinct.size());
  Tensor table = empty_tensor(ctx.device, {num_times, 2 * hidden});
  for (std::int64_t i = 0; i < num_times; ++i) {
    ops::copy(ctx, table.view().narrow(0, i, 1).reshape({2 * hidden}),
              modulation.final_layer(timesteps.distinct[static_cast<std::size_t>(i)]));
  }
  const Tensor index = index_tensor(ctx, timesteps.timestep_index);
  const auto head = [&](RowRange rows, const BiasedLinear& layer) {
    Tensor velocity = empty_tensor(ctx.device, {rows.count, layer.bias.shape()[0]});
    for_row_chunks(rows.count, z.dim(0), [&](std::int64_t start, std::int64_t count) {
      const std::int64_t first = rows.first + start;
      const TensorView normed = z.narrow(0, 0, count);
      ops::modulated_rms_norm(ctx, normed, h.narrow(0, first, count), islands_.final_norm.view(),
                              table.view().narrow(1, 0, hidden),
                              table.view().narrow(1, hidden, hidden),
                              index.view().narrow(0, first, count), config_.final_norm_eps);
      ops::linear(ctx, velocity.view().narrow(0, start, count), normed, layer.weight.view(),
                  layer.bias.view());
    });
    return velocity;
  };
  const bool own = input.heads == nullptr;
  return {head(input.sequence.target_video(), own ? islands_.video_out : input.heads->video_out),
          head(input.sequence.target_audio(), own ? islands_.audio_out : input.heads->audio_out)};
}

Result<DitOutput> Dit::forward(OpContext& ctx, const DitInput& input, ModulationCache& modulation,
                               const BlockProgress& progress) {
  const PackedSequence& sequence = input.sequence;
  require_rows(input.video_rows, sequence.num_video_rows(), config_.video_row_width,
               "dit: video_rows holds every video row of the sequence");
  require_rows(input.audio_rows, sequence.num_audio_rows(), config_.audio_row_width,
               "dit: audio_rows holds every audio row of the sequence");
  require_rows(input.refined_text, sequence.text().count, config_.hidden_size,
               "dit: refined_text is [L, D]");
  const std::int64_t rows = sequence.num_rows();
  const RowTimesteps timesteps = sequence.timesteps(input.video_time, input.audio_time);
  MINIACC_RETURN_IF_ERROR(prepare_modulation(ctx, timesteps.distinct, modulation));

  Tensor h = empty_tensor(ctx.device, {rows, config_.hidden_size});
  embed_rows(ctx, input, h.view());
  if (!all_finite(ctx, h.view())) {
    return non_finite(input, "in the input rows");
  }
  const RopeTable rope = make_rope_table(ctx.device, sequence.position_ids, inv_freq_);
  const Tensor index = index_tensor(ctx, timesteps.adaln_row);
  const auto num_times = static_cast<std::int64_t>(timesteps.distinct.size());
  Tensor table = empty_tensor(
      ctx.device, {num_times * kNumModalities, kNumModulationVectors * config_.hidden_size});
  BlockActivations activations(ctx.device, config_, rows, {precision_, attention_});
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    ctx.check_cancelled();
    MINIACC_ASSIGN(const LayerView* layer, blocks_->acquire(i, ctx));
    gather_block(ctx, table.view(), modulation, timesteps.distinct, i);
    dit_block(ctx, h.view(), dit_block_weights(*layer), config_, {table.view(), index.view()}, rope,
              activations);
    // One read of h, against the dozens that a block makes: naming the block is worth it.
    if (!all_finite(ctx, h.view())) {
      return non_finite(input, fmt::format("after block {} of {}", i, config_.num_layers));
    }
    if (progress) {
      progress(i + 1, config_.num_layers);
    }
  }
  DitOutput output = run_heads(ctx, input, h.view(), timesteps, modulation, activations.y.view());
  if (!all_finite(ctx, output.video.view()) || !all_finite(ctx, output.audio.view())) {
    return non_finite(input, "behind the final layer");
  }
  return output;
}

}  // namespace miniacc
