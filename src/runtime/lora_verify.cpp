#include "runtime/lora_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "adapters/delta_values.h"
#include "core/torch_random.h"
#include "kernels/linear.h"
#include "model/dit/dit.h"
#include "runtime/pdd.h"
#include "runtime/sampler.h"

namespace miniacc {
namespace {

constexpr std::int64_t kProbeRows = 16;
constexpr std::uint64_t kSeed = 20260909;
// A clip as small as the layout allows: weights, not rows, are what a step costs then.
constexpr std::int64_t kTextRows = 8;
constexpr LatentSize kClip = {.num_frames = 2, .height = 4, .width = 4};
constexpr std::int64_t kAudioLatents = 4;

using Changes = std::vector<std::pair<const Lora*, const LoraDelta*>>;

/// How far a product may be from the exact change: a share of the change, and a share of the
/// product itself, which the rounding of merged weights moves (spec adapters.md §8, step 2).
struct Bound {
  double of_change = 0.0;
  double of_product = 0.0;
};
Bound bound_for(Precision precision, bool side) {
  if (precision == Precision::kF32) {
    return {1e-5, 2e-6};
  }
  if (side) {
    return {2e-2, 2e-6};  // the base's product is the same in both
  }
  return precision == Precision::kBF16 ? Bound{2e-2, 4e-3} : Bound{2e-2, 3e-2};
}

/// The arithmetic that the transformer reads a matrix for (model/dit/weights.h).
Precision precision_of(const std::string& tensor, Precision precision, bool pruned) {
  if (tensor.starts_with("blocks.") && tensor.find("adaln_proj") != std::string::npos) {
    return precision == Precision::kF32 || pruned ? Precision::kF32 : Precision::kBF16;
  }
  if (tensor.starts_with("token_refiner.blocks.")) {
    return precision == Precision::kInt8 ? Precision::kBF16 : precision;
  }
  return tensor.starts_with("blocks.") ? precision : Precision::kF32;
}

double norm(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

Tensor random_rows(Device& device, const Shape& shape, std::uint64_t seed) {
  Tensor rows = empty_tensor(device, shape);
  TorchRandom(seed).fill_normal(rows.f32());
  return rows;
}

/// Σ s · x·(B·A)ᵀ and dense changes, in double: [rows, n].
Result<std::vector<double>> exact_change(const Changes& changes, const Tensor& x, std::int64_t n,
                                         Device& device) {
  const std::int64_t k = x.shape()[1];
  std::vector<double> out(static_cast<std::size_t>(kProbeRows * n));
  const auto dot = [](const float* a, const float* b, std::int64_t size) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return sum;
  };
  for (const auto& [lora, delta] : changes) {
    const auto factor = static_cast<double>(delta->factor);
    const std::int64_t first_row = delta->first_row;
    const auto add = [&](std::int64_t row, std::int64_t local, double value) {
      out[static_cast<std::size_t>(row * n + first_row + local)] += factor * value;
    };
    if (delta->is_dense()) {
      for (std::int64_t local = 0; local < delta->num_rows; ++local) {
        MINIACC_ASSIGN(const Tensor values,
                       load_dense_rows(lora->file(), *delta, local, 1, k, device));
        for (std::int64_t row = 0; row < kProbeRows; ++row) {
          add(row, local, dot(values.f32().data(), x.f32().data() + row * k, k));
        }
      }
      continue;
    }
    MINIACC_ASSIGN(const Tensor down, load_down(lora->file(), *delta, device));
    MINIACC_ASSIGN(const Tensor up, load_up(lora->file(), *delta, device));
    const std::int64_t rank = delta->rank();
    std::vector<double> inner(static_cast<std::size_t>(rank));
    for (std::int64_t row = 0; row < kProbeRows; ++row) {
      for (std::int64_t r = 0; r < rank; ++r) {
        inner[static_cast<std::size_t>(r)] =
            dot(x.f32().data() + row * k, down.f32().data() + r * k, k);
      }
      for (std::int64_t local = 0; local < delta->num_rows; ++local) {
        double sum = 0.0;
        for (std::int64_t r = 0; r < rank; ++r) {
          sum += inner[static_cast<std::size_t>(r)] *
                 static_cast<double>(up.f32()[static_cast<std::size_t>(local * rank + r)]);
        }
        add(row, local, sum);
      }
    }
  }
  return out;
}

void judge(ModuleProbe& probe, std::span<const float> without, std::span<const float> with,
           std::span<const double> exact, const Bound& bound) {
  std::vector<double> before(without.begin(), without.end());
  std::vector<double> rest(without.size());
  for (std::size_t i = 0; i < rest.size(); ++i) {
    probe.attached = probe.attached || with[i] != without[i];
    rest[i] = static_cast<double>(with[i]) - before[i] - exact[i];
  }
  const double size = norm(before);
  const double change = norm(exact);
  const double allowed = bound.of_change * change + bound.of_product * size;
  probe.change = size > 0.0 ? change / size : 0.0;
  probe.error = change > 0.0 ? norm(rest) / change : norm(rest);
  probe.bound = change > 0.0 ? allowed / change : allowed;
  probe.passed = norm(rest) <= allowed;
  probe.below_resolution = change <= bound.of_product * size;
}

Result<ModuleProbe> probe_matrix(OpContext& ctx, ComponentWeights& base, AdaptedWeights& adapted,
                                 const std::string& tensor, const Changes& changes,
                                 Precision precision) {
  ModuleProbe probe{.tensor = tensor};
  const Precision used = precision_of(tensor, precision, base.has("adaln_t_table"));
  MINIACC_ASSIGN(const Shape shape, base.shape(tensor));
  const Tensor x = random_rows(ctx.device, {kProbeRows, shape[1]}, kSeed);
  MINIACC_ASSIGN(const auto exact, exact_change(changes, x, shape[0], ctx.device));
  const auto product = [&](WeightSource& weights, bool& side) -> Result<Tensor> {
    MINIACC_ASSIGN(const OwnedWeightMatrix matrix, weights.load_matrix(tensor, used, ctx.device));
    side = !matrix.low_rank.empty();
    Tensor y = empty_tensor(ctx.device, {kProbeRows, shape[0]});
    ops::linear(ctx, y.view(), x.view(), matrix.view());
    return y;
  };
  bool side = false;
  MINIACC_ASSIGN(const Tensor without, product(base, side));
  MINIACC_ASSIGN(const Tensor with, product(adapted, side));
  judge(probe, without.f32(), with.f32(), exact, bound_for(used, side));
  return probe;
}

Result<ModuleProbe> probe_vector(OpContext& ctx, ComponentWeights& base, AdaptedWeights& adapted,
                                 const std::string& tensor, const Changes& changes) {
  ModuleProbe probe{.tensor = tensor};
  MINIACC_ASSIGN(const Tensor without, base.load(tensor, ctx.device));
  MINIACC_ASSIGN(const Tensor with, adapted.load(tensor, ctx.device));
  std::vector<double> exact(without.f32().size());
  for (const auto& [lora, delta] : changes) {
    MINIACC_ASSIGN(const Tensor values,
                   load_dense_rows(lora->file(), *delta, 0, delta->num_rows, 1, ctx.device));
    for (std::int64_t row = 0; row < delta->num_rows; ++row) {
      exact[static_cast<std::size_t>(delta->first_row + row)] +=
          static_cast<double>(delta->factor) *
          static_cast<double>(values.f32()[static_cast<std::size_t>(row)]);
    }
  }
  judge(probe, without.f32(), with.f32(), exact, bound_for(Precision::kF32, false));
  return probe;
}

/// Latents after the first step of the schedule, from seeded noise and seeded text features.
Result<LatentRows> run_step(OpContext& ctx, WeightSource& weights, const AdaptedWeights* adapted,
                            Precision precision, const SigmaSchedule& schedule) {
  MINIACC_ASSIGN(Dit dit, Dit::open(weights, ctx.device, precision, 0));
  const DitConfig& config = dit.config();
  const Tensor features = random_rows(ctx.device, {kTextRows, config.text_dim}, kSeed + 1);
  MINIACC_ASSIGN(const Tensor text, dit.refine_text(ctx, features.view()));
  const PackedSequence sequence = pack_t2va(kTextRows, kClip, kAudioLatents);
  LatentRows rows{
      random_rows(ctx.device, {sequence.target_video().count, config.video_row_width}, kSeed + 2),
      random_rows(ctx.device, {sequence.target_audio().count, config.audio_row_width}, kSeed + 3)};
  MINIACC_ASSIGN(const auto heads, fuse_heads(adapted, schedule, ctx.device));
  ModulationCache modulation;
  const DitInput input{.video_rows = rows.video.view(),
                       .audio_rows = rows.audio.view(),
                       .refined_text = text.view(),
                       .video_time = 1.0F - schedule.video[0],
                       .audio_time = 1.0F - schedule.audio[0],
                       .sequence = sequence,
                       .heads = heads.empty() ? nullptr : &heads.front()};
  MINIACC_ASSIGN(const DitOutput velocity, dit.forward(ctx, input, modulation));
  euler_step(rows.video.f32(), velocity.video.f32(), schedule.video[0], schedule.video[1]);
  euler_step(rows.audio.f32(), velocity.audio.f32(), schedule.audio[0], schedule.audio[1]);
  return rows;
}

double relative_difference(std::span<const float> with, std::span<const float> without,
                           double& largest) {
  std::vector<double> difference(with.size());
  std::vector<double> before(without.begin(), without.end());
  for (std::size_t i = 0; i < with.size(); ++i) {
    difference[i] = static_cast<double>(with[i]) - before[i];
    largest = std::max(largest, std::fabs(difference[i]));
  }
  return norm(difference) / norm(before);
}

void find_failures(LoraVerification& result) {
  std::size_t attached = 0;
  std::size_t lost = 0;
  for (const ModuleProbe& probe : result.modules) {
    attached += probe.attached ? 1 : 0;
    lost += probe.below_resolution ? 1 : 0;
    if (!probe.passed) {
      result.failures.push_back(
          fmt::format("{}: the layer's output changes by something else than the adapter says: "
                      "relative error {:.2g}, at most {:.2g} is rounding",
                      probe.tensor, probe.error, probe.bound));
    }
  }
  if (attached != result.modules.size()) {
    result.failures.push_back(
        fmt::format("{} of {} tensors that the adapter is for do not change by a bit",
                    result.modules.size() - attached, result.modules.size()));
  }
  if (lost > 0) {
    result.warnings.push_back(fmt::format(
        "{} of {} changes are smaller than the rounding of the weights they are merged into; "
        "--lora-mode side keeps them",
        lost, result.modules.size()));
  }
  if (result.largest_difference == 0.0) {
    result.failures.emplace_back("one step gives the same latents with the adapter and without");
  }
}

}  // namespace

Result<LoraVerification> verify_loras(OpContext& ctx, ComponentWeights& transformer,
                                      const LoraSetup& setup, Precision precision,
                                      const SigmaSchedule& schedule) {
  MINIACC_ASSIGN(AdaptedTransformer adapted, adapt_transformer(transformer, setup, precision));
  LoraVerification result;
  result.reports = adapted.reports;
  result.warnings = adapted.warnings;
  std::map<std::string, Changes> changes;
  for (const Lora& lora : adapted.weights->loras()) {
    for (const LoraDelta& delta : lora.deltas()) {
      changes[delta.tensor].emplace_back(&lora, &delta);
    }
  }
  for (const auto& [tensor, list] : changes) {
    ctx.check_cancelled();
    MINIACC_ASSIGN(const Shape shape, transformer.shape(tensor));
    if (shape.rank() == 2) {
      MINIACC_ASSIGN(result.modules.emplace_back(),
                     probe_matrix(ctx, transformer, *adapted.weights, tensor, list, precision));
    } else {
      MINIACC_ASSIGN(result.modules.emplace_back(),
                     probe_vector(ctx, transformer, *adapted.weights, tensor, list));
    }
  }
  MINIACC_ASSIGN(const LatentRows without,
                 run_step(ctx, transformer, nullptr, precision, schedule));
  MINIACC_ASSIGN(const LatentRows with,
                 run_step(ctx, *adapted.weights, adapted.weights.get(), precision, schedule));
  result.video_difference =
      relative_difference(with.video.f32(), without.video.f32(), result.largest_difference);
  result.audio_difference =
      relative_difference(with.audio.f32(), without.audio.f32(), result.largest_difference);
  find_failures(result);
  return result;
}

}  // namespace miniacc
