#include "checkpoint/synthetic_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "checkpoint/name_rules.h"
#include "checkpoint/row_transforms.h"
#include "device/cpu_device.h"
#include "kernels/kaiser_filter.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

using Fill = std::function<void(std::int64_t, std::int64_t, float*)>;

Fill drawn_values(Component component, const ExpectedTensor& tensor, std::uint64_t seed,
                  std::string_view tag) {
  const SyntheticTensor synthetic(component, tensor, seed, tag);
  return [synthetic](std::int64_t first, std::int64_t count, float* out) {
    synthetic.fill(first, count, out);
  };
}

constexpr std::int64_t kRotationGroup = 256;
constexpr float kF8Max = 448.0F;
constexpr std::string_view kComfyPrefix = "model.diffusion_model.";

Naming naming_of(Component component, CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kOfficial:
      return Naming::kOfficial;
    case CheckpointFormat::kDiffusers:
      return component == Component::kTextEncoder ? Naming::kOfficial : Naming::kDiffusers;
    case CheckpointFormat::kComfy:
    case CheckpointFormat::kComfyPruned:
      return Naming::kComfy;
    case CheckpointFormat::kGguf:
      return component == Component::kTextEncoder ? Naming::kLlamaCpp : Naming::kComfy;
  }
  return Naming::kOfficial;
}

bool is_official_folder(CheckpointFormat format) {
  return format == CheckpointFormat::kOfficial || format == CheckpointFormat::kDiffusers;
}

/// The linear layers that quantised files quantise: attention and MLP of the main stack.
bool is_quantised_matrix(Component component, const ExpectedTensor& tensor) {
  const std::string& name = tensor.name;
  if (tensor.shape.rank() != 2 || name.find("norm") != std::string::npos) {
    return false;
  }
  if (component == Component::kTransformer) {
    return name.starts_with("blocks.") && name.find("adaln") == std::string::npos;
  }
  return component == Component::kTextEncoder && name.starts_with("layers.");
}

DType gguf_type(WeightStorage storage, std::int64_t columns) {
  const DType wanted = storage == WeightStorage::kQ4_K   ? DType::kQ4_K
                       : storage == WeightStorage::kQ4_0 ? DType::kQ4_0
                                                         : DType::kQ8_0;
  return columns % block_elements(wanted) == 0 ? wanted : DType::kF16;
}

/// The stored type of a tensor that is no 8-bit safetensors matrix.
DType plain_type(Component component, const ExpectedTensor& tensor,
                 const MakeCheckpointOptions& options) {
  if (component == Component::kVideoVae || component == Component::kAudioVae) {
    return DType::kF32;
  }
  if (component == Component::kTransformer) {
    if (is_f32_island(tensor.name)) {
      return DType::kF32;
    }
    if (options.format == CheckpointFormat::kComfyPruned &&
        tensor.name.find("adaln_proj") != std::string::npos) {
      return DType::kF16;
    }
  }
  const std::int64_t columns = tensor.shape.rank() == 2 ? tensor.shape[1] : 1;
  switch (options.storage) {
    case WeightStorage::kF32:
      return DType::kF32;
    case WeightStorage::kF16:
      return DType::kF16;
    case WeightStorage::kQ8_0:
    case WeightStorage::kQ4_0:
    case WeightStorage::kQ4_K:
      if (is_quantised_matrix(component, tensor)) {
        return gguf_type(options.storage, columns);
      }
      return tensor.shape.rank() >= 2 ? DType::kBF16 : DType::kF32;
    default:
      return DType::kBF16;
  }
}

/// Canonical rows of a fused qkv tensor that stored (interleaved) rows come from.
Fill interleaved(const Fill& canonical, std::int64_t rows, std::int64_t columns,
                 std::int64_t head_dim) {
  return [=](std::int64_t first, std::int64_t count, float* out) {
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t stored = first + r;
      const std::int64_t head = stored / (3 * head_dim);
      const std::int64_t projection = stored / head_dim % 3;
      canonical(projection * (rows / 3) + head * head_dim + stored % head_dim, 1,
                out + r * columns);
    }
  };
}

Fill swapped(const Fill& canonical, std::int64_t rows, std::int64_t columns) {
  return [=](std::int64_t first, std::int64_t count, float* out) {
    for (std::int64_t r = 0; r < count; ++r) {
      canonical((first + r + rows / 2) % rows, 1, out + r * columns);
    }
  };
}

/// ConvRot and per-row int8: rows rotated, with the scale of each.
class RotatedRows {
 public:
  RotatedRows(Fill canonical, std::int64_t columns, std::int64_t group)
      : canonical_(std::move(canonical)), columns_(columns), group_(group) {}

  void values(std::int64_t first, std::int64_t count, float* out) const {
    rotate(first, count, out);
    for (std::int64_t r = 0; r < count; ++r) {
      const float step = scale_of(out + r * columns_);
      for (std::int64_t c = 0; c < columns_; ++c) {
        out[r * columns_ + c] /= step;
      }
    }
  }
  void scales(std::int64_t first, std::int64_t count, float* out) const {
    std::vector<float> row(static_cast<std::size_t>(columns_));
    for (std::int64_t r = 0; r < count; ++r) {
      rotate(first + r, 1, row.data());
      out[r] = scale_of(row.data());
    }
  }

 private:
  void rotate(std::int64_t first, std::int64_t count, float* out) const {
    canonical_(first, count, out);
    if (group_ > 0) {
      CpuDevice device;
      OpContext ctx{device};
      ops::rotate_rows(ctx, TensorView(out, {count, columns_}, DType::kF32), group_);
    }
  }
  [[nodiscard]] float scale_of(const float* row) const {
    float peak = 0.0F;
    for (std::int64_t c = 0; c < columns_; ++c) {
      peak = std::max(peak, std::fabs(row[c]));
    }
    return peak > 0.0F ? peak / 127.0F : 1.0F;
  }

  Fill canonical_;
  std::int64_t columns_;
  std::int64_t group_;
};

class OutputBuilder {
 public:
  OutputBuilder(const SyntheticModel& model, Component component,
                const MakeCheckpointOptions& options)
      : model_(model),
        component_(component),
        options_(options),
        naming_(naming_of(component, options.format)) {}

  std::vector<SyntheticOutput> build() {
    for (const ExpectedTensor& tensor : canonical_tensors()) {
      add(tensor);
    }
    add_extras();
    return std::move(outputs_);
  }

 private:
  [[nodiscard]] std::vector<ExpectedTensor> canonical_tensors() const {
    switch (component_) {
      case Component::kTransformer:
        return transformer_tensors(options_.format == CheckpointFormat::kComfyPruned
                                       ? pruned(model_.transformer)
                                       : model_.transformer);
      case Component::kTextEncoder: {
        TextEncoderDims dims = model_.text_encoder;
        if (is_official_folder(options_.format)) {
          dims.num_layers = model_.stored_text_layers;
        }
        return text_encoder_tensors(dims);
      }
      case Component::kVideoVae:
        return video_vae_tensors(model_.video_vae);
      case Component::kAudioVae:
        return audio_vae_tensors(model_.audio_vae);
    }
    return {};
  }

  [[nodiscard]] Fill values_of(const ExpectedTensor& tensor, std::string_view tag = {}) const {
    return drawn_values(component_, tensor, options_.seed, tag);
  }

  [[nodiscard]] Fill canonical_values(const ExpectedTensor& tensor) const {
    return synthetic_values(component_, tensor, options_.seed);
  }

  void push(const std::string& name, DType dtype, const Shape& shape, Fill fill) {
    outputs_.push_back({{prefix() + name, dtype, shape}, {}, std::move(fill)});
  }

  [[nodiscard]] std::string prefix() const {
    const bool comfy = options_.format == CheckpointFormat::kComfy ||
                       options_.format == CheckpointFormat::kComfyPruned;
    return component_ == Component::kTransformer && comfy ? std::string(kComfyPrefix) : "";
  }

  void add(const ExpectedTensor& tensor) {
    const Shape& shape = tensor.shape;
    if (component_ == Component::kTransformer && tensor.name == "rope.inv_freq" &&
        naming_ == Naming::kDiffusers) {
      return;  // that layout computes it
    }
    if (component_ == Component::kAudioVae && is_official_folder(options_.format) &&
        is_weight_normed(tensor.name)) {
      const std::string stem = tensor.name.substr(0, tensor.name.size() - 7);
      push(stem + ".weight_v", DType::kF32, shape, values_of(tensor, ".weight_v"));
      push(stem + ".weight_g", DType::kF32, {shape[0], 1, 1}, values_of(tensor, ".weight_g"));
      return;
    }
    const Fill canonical = canonical_values(tensor);
    const std::int64_t rows = shape[0];
    const std::int64_t columns = shape.num_elements() / rows;
    for (const StoredName& stored : to_stored(component_, naming_, renumbered(tensor.name))) {
      switch (stored.layout) {
        case RowLayout::kConcatenated: {
          Shape part = shape;
          part.set(0, rows / 3);
          add_values(stored.stored, tensor, part,
                     [=](std::int64_t first, std::int64_t count, float* out) {
                       canonical(stored.part * (rows / 3) + first, count, out);
                     });
          break;
        }
        case RowLayout::kInterleavedQkv:
          // ComfyUI's transformer files hold the rows plain; the video VAE has one order only.
          add_values(stored.stored, tensor, shape,
                     component_ == Component::kTransformer && naming_ == Naming::kComfy
                         ? canonical
                         : interleaved(canonical, rows, columns, head_dim()));
          break;
        case RowLayout::kSwappedHalves:
          add_values(stored.stored, tensor, shape, swapped(canonical, rows, columns));
          break;
        case RowLayout::kPatchSlots:
          add_patch_slot(stored, tensor, canonical);
          break;
        default:
          add_values(stored.stored, tensor, shape, canonical);
      }
    }
  }

  /// llama.cpp numbers the DeepStack mergers by vision block.
  [[nodiscard]] std::string renumbered(const std::string& name) const {
    if (naming_ != Naming::kLlamaCpp) {
      return name;
    }
    for (std::size_t j = 0; j < model_.deepstack_blocks.size(); ++j) {
      if (const auto renamed = rewrite(
              name, fmt::format("visual.deepstack_merger_list.{}.*", j),
              fmt::format("visual.deepstack_merger_list.{}.*", model_.deepstack_blocks[j]))) {
        return *renamed;
      }
    }
    return name;
  }

  [[nodiscard]] std::int64_t head_dim() const {
    return component_ == Component::kTransformer
               ? model_.transformer.head_dim
               : model_.video_vae.hidden_size / model_.video_vae_heads;
  }

  void add_patch_slot(const StoredName& stored, const ExpectedTensor& tensor,
                      const Fill& canonical) {
    const Shape& shape = tensor.shape;  // [n, c, 2, p, p]
    const std::int64_t columns = shape.num_elements() / shape[0];
    const std::int64_t plane = shape[3] * shape[4];
    push(stored.stored, plain_type(component_, tensor, options_),
         {shape[0], shape[1], shape[3], shape[4]},
         [=](std::int64_t first, std::int64_t count, float* out) {
           std::vector<float> row(static_cast<std::size_t>(columns));
           for (std::int64_t r = 0; r < count; ++r) {
             canonical(first + r, 1, row.data());
             for (std::int64_t c = 0; c < shape[1]; ++c) {
               std::copy_n(row.data() + (2 * c + stored.part) * plane, plane,
                           out + (r * shape[1] + c) * plane);
             }
           }
         });
  }

  void add_values(const std::string& name, const ExpectedTensor& tensor, const Shape& shape,
                  const Fill& fill) {
    const bool quantised = is_quantised_matrix(component_, tensor);
    if (quantised && options_.storage == WeightStorage::kFp8Scaled) {
      add_fp8(name, tensor, shape, fill);
    } else if (quantised && options_.storage == WeightStorage::kInt8ConvRot) {
      add_int8(name, shape, fill);
    } else {
      push(name, plain_type(component_, tensor, options_), shape, fill);
    }
  }

  void add_fp8(const std::string& name, const ExpectedTensor& tensor, const Shape& shape,
               const Fill& fill) {
    const float scale = SyntheticTensor(component_, tensor, options_.seed).bound() / kF8Max;
    const std::int64_t columns = shape[1];
    push(name, DType::kF8E4M3, shape, [=](std::int64_t first, std::int64_t count, float* out) {
      fill(first, count, out);
      for (std::int64_t i = 0; i < count * columns; ++i) {
        out[i] /= scale;
      }
    });
    push(name.substr(0, name.size() - 7) + ".scale_weight", DType::kF32, {1},
         [=](std::int64_t, std::int64_t, float* out) { *out = scale; });
    has_fp8_ = true;
  }

  void add_int8(const std::string& name, const Shape& shape, const Fill& fill) {
    const std::int64_t group = shape[1] % kRotationGroup == 0 ? kRotationGroup : 0;
    const auto rows = std::make_shared<const RotatedRows>(fill, shape[1], group);
    const std::string stem = name.substr(0, name.size() - 7);
    push(name, DType::kI8, shape, [rows](std::int64_t first, std::int64_t count, float* out) {
      rows->values(first, count, out);
    });
    push(stem + ".weight_scale", DType::kF32, {shape[0], 1},
         [rows](std::int64_t first, std::int64_t count, float* out) {
           rows->scales(first, count, out);
         });
    const std::string record =
        group > 0 ? fmt::format(R"({{"format": "int8_tensorwise", "convrot": true, )"
                                R"("convrot_groupsize": {}}})",
                                group)
                  : R"({"format": "int8_tensorwise"})";
    outputs_.push_back(
        {{prefix() + stem + ".comfy_quant", DType::kU8, {static_cast<std::int64_t>(record.size())}},
         record,
         {}});
  }

  void push_constant(const std::string& name, const Shape& shape, std::vector<float> values) {
    const std::int64_t columns = shape.num_elements() / shape[0];
    push(name, DType::kF32, shape,
         [columns, values = std::move(values)](std::int64_t first, std::int64_t count, float* out) {
           std::copy_n(values.begin() + first * columns, count * columns, out);
         });
  }

  /// What files carry beside the canonical tensors.
  void add_extras() {
    const bool single_file = !is_official_folder(options_.format);
    if (has_fp8_) {
      outputs_.push_back(
          {{prefix() + "scaled_fp8", DType::kF8E4M3, {2}}, std::string(2, '\0'), {}});
    }
    if (component_ == Component::kTextEncoder && !single_file) {
      const std::int64_t hidden = model_.text_encoder.hidden_size;
      add({"norm.weight", {hidden}});
      add({"lm_head.weight", {model_.text_encoder.vocab_size, hidden}});
    }
    if (component_ == Component::kVideoVae && naming_ != Naming::kDiffusers) {
      const std::int64_t hidden = model_.video_vae.hidden_size;
      push_constant("decoder.mask_token", {1, 1, hidden},
                    std::vector<float>(static_cast<std::size_t>(hidden)));
    }
    if (component_ == Component::kAudioVae) {
      const std::int64_t trunk = model_.audio_vae.trunk_size;
      push_constant("pre_block.attn.zero_k_bias", {trunk},
                    std::vector<float>(static_cast<std::size_t>(trunk)));
    }
    const bool is_vae = component_ == Component::kVideoVae || component_ == Component::kAudioVae;
    if (is_vae && single_file) {
      const bool video = component_ == Component::kVideoVae;
      const auto& mean = video ? model_.video_latents_mean : model_.audio_latents_mean;
      const auto& std = video ? model_.video_latents_std : model_.audio_latents_std;
      const Shape shape = {static_cast<std::int64_t>(mean.size())};
      push_constant("latents_mean", shape, {mean.begin(), mean.end()});
      push_constant("latents_std", shape, {std.begin(), std.end()});
    }
  }

  const SyntheticModel& model_;
  Component component_;
  const MakeCheckpointOptions& options_;
  Naming naming_;
  std::vector<SyntheticOutput> outputs_;
  bool has_fp8_ = false;
};

}  // namespace

std::function<void(std::int64_t first, std::int64_t count, float* out)> synthetic_values(
    Component component, const ExpectedTensor& tensor, std::uint64_t seed) {
  if (tensor.name.ends_with(".filter")) {
    const std::vector<float> filter = antialiasing_filter(tensor.shape.back());
    return [filter](std::int64_t, std::int64_t, float* out) {
      std::copy(filter.begin(), filter.end(), out);
    };
  }
  if (component != Component::kAudioVae || !is_weight_normed(tensor.name)) {
    return drawn_values(component, tensor, seed, {});
  }
  const Fill direction = drawn_values(component, tensor, seed, ".weight_v");
  const Fill magnitude = drawn_values(component, tensor, seed, ".weight_g");
  const std::int64_t columns = tensor.shape.num_elements() / tensor.shape[0];
  return [=](std::int64_t first, std::int64_t count, float* out) {
    direction(first, count, out);
    for (std::int64_t r = 0; r < count; ++r) {
      float length = 0.0F;
      magnitude(first + r, 1, &length);
      fold_weight_norm({out + r * columns, static_cast<std::size_t>(columns)}, length);
    }
  };
}

std::vector<SyntheticOutput> synthetic_outputs(const SyntheticModel& model, Component component,
                                               const MakeCheckpointOptions& options) {
  return OutputBuilder(model, component, options).build();
}

}  // namespace miniacc
