// What a pipeline keeps between requests and on disk: encoded prompts and modulation.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "io/sha256.h"
#include "kernels/copy.h"
#include "runtime/pipeline.h"

namespace miniacc {
namespace {

/// Modulation kept in memory; the released model takes 19 MB a time.
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 30;

const char* precision_name(Precision precision) {
  return precision == Precision::kF32 ? "f32" : precision == Precision::kBF16 ? "bf16" : "int8";
}

template <typename Value>
void add_values(Sha256& hash, const std::vector<Value>& values) {
  hash.add(std::as_bytes(std::span(values)));
}

}  // namespace

void Pipeline::set_cache(TensorCache cache, std::string compute) {
  cache_.emplace(std::move(cache));
  cache_compute_ = std::move(compute);
}

std::string Pipeline::text_key(const Presentation& presentation,
                               std::span<const ConditionMedia> media) const {
  if (!cache_) {
    return {};
  }
  Sha256 hash;
  add_values(hash, presentation.ids);
  add_values(hash, presentation.tags);
  if (!presentation.blocks.empty()) {
    for (const ConditionMedia& each : media) {
      const std::vector<std::int64_t> sizes = {each.frames.width, each.frames.height,
                                               each.frames.num_frames};
      add_values(hash, sizes);
      add_values(hash, each.frames.pixels);
    }
  }
  return fmt::format("text 1 | {} | {}| {} | {} | {} ids {}", text_encoder_->identity(),
                     text_encoder_->stamp(), precision_name(precision_), cache_compute_,
                     presentation.ids.size(), hash.hex());
}

std::optional<Tensor> Pipeline::cached_text(const std::string& key, JobProgress& progress) {
  if (!cache_ || key.empty()) {
    return std::nullopt;
  }
  std::string warning;
  auto found = cache_->find(key, *device_, warning);
  if (!warning.empty()) {
    progress.warning(warning);
  }
  if (!found || found->size() != 1 || found->front().shape().rank() != 2 ||
      found->front().shape()[1] != text_config_.hidden_size) {
    return std::nullopt;
  }
  cache_hits_.emplace_back("text");
  return std::move(found->front());
}

void Pipeline::keep_text(const std::string& key, const Tensor& hidden, JobProgress& progress) {
  if (!cache_ || key.empty()) {
    return;
  }
  if (const Status stored = cache_->store(key, {hidden.view()}); !stored) {
    progress.warning(fmt::format("the encoded prompt was not kept: {}", stored.error().message));
  }
}

std::string Pipeline::modulation_key(float time) const {
  return fmt::format("modulation 1 | {} | {}| {} | {} | t {:08x}", transformer().identity(),
                     transformer_->stamp(), precision_name(precision_), cache_compute_,
                     std::bit_cast<std::uint32_t>(time));
}

Status Pipeline::prepare_modulation(OpContext& ctx, Dit& dit, std::span<const float> times,
                                    ModulationCache& modulation, JobProgress& progress) {
  const bool on_gpu = ctx.device.id().kind == DeviceKind::kCuda;
  const Shape blocks_shape = {dit_config_.num_layers, kNumModalities,
                              kNumModulationVectors * dit_config_.hidden_size};
  const Shape final_shape = {2 * dit_config_.hidden_size};
  const std::size_t entry_bytes =
      static_cast<std::size_t>(blocks_shape.num_elements()) * sizeof(float);
  // A curve table is read and looked up faster than its outputs are read back.
  const bool on_disk = cache_.has_value() && !dit_config_.has_curve_table();
  std::vector<float> missing;
  bool from_disk = false;
  for (const float time : times) {
    if (modulation.has(time) || std::ranges::find(missing, time) != missing.end()) {
      continue;
    }
    const auto kept = kept_modulation_.find(std::bit_cast<std::uint32_t>(time));
    if (on_gpu && kept != kept_modulation_.end()) {
      modulation.insert(time, on_device(ctx, std::as_const(kept->second[0]).view()).storage,
                        on_device(ctx, std::as_const(kept->second[1]).view()).storage);
      continue;
    }
    std::optional<std::vector<Tensor>> found;
    if (on_disk) {
      std::string warning;
      found = cache_->find(modulation_key(time), *device_, warning);
      if (!warning.empty()) {
        progress.warning(warning);
      }
    }
    if (!found || found->size() != 2 || (*found)[0].shape() != blocks_shape ||
        (*found)[1].shape() != final_shape) {
      missing.push_back(time);
      continue;
    }
    from_disk = true;
    if (on_gpu) {
      modulation.insert(time, on_device(ctx, std::as_const((*found)[0]).view()).storage,
                        on_device(ctx, std::as_const((*found)[1]).view()).storage);
      kept_modulation_.emplace(std::bit_cast<std::uint32_t>(time), *std::move(found));
    } else {
      modulation.insert(time, std::move((*found)[0]), std::move((*found)[1]));
    }
  }
  if (from_disk) {
    cache_hits_.emplace_back("modulation");
  }
  MINIACC_RETURN_IF_ERROR(dit.prepare_modulation(ctx, missing, modulation));
  for (const float time : missing) {
    if (!on_disk && !on_gpu) {
      break;
    }
    std::vector<Tensor> entry;
    const Placed blocks = on_host(ctx, modulation.blocks(time));
    const Placed final_layer = on_host(ctx, modulation.final_layer(time));
    if (on_disk) {
      if (const Status stored =
              cache_->store(modulation_key(time), {blocks.view, final_layer.view});
          !stored) {
        progress.warning(fmt::format("modulation was not kept: {}", stored.error().message));
        break;
      }
    }
    if (on_gpu) {
      if ((kept_modulation_.size() + 1) * entry_bytes > kMostKeptBytes) {
        kept_modulation_.clear();
      }
      OpContext host{.device = *device_};
      for (const ConstTensorView& view : {blocks.view, final_layer.view}) {
        Tensor copy = empty_tensor(*device_, view.shape);
        ops::copy(host, copy.view(), view);
        entry.push_back(std::move(copy));
      }
      kept_modulation_.emplace(std::bit_cast<std::uint32_t>(time), std::move(entry));
    }
  }
  return {};
}

}  // namespace miniacc
