#include "checkpoint/synthetic_outputs.h"

#include <algorithm>

#include "checkpoint/component_layout.h"
#include "checkpoint/row_transforms.h"
#include "kernels/kaiser_filter.h"

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

RowFill as_rows(Fill fill) {
  return [fill = std::move(fill)](std::int64_t first, std::int64_t count, float* out) -> Status {
    fill(first, count, out);
    return {};
  };
}

std::vector<ExpectedTensor> canonical_tensors(const SyntheticModel& model, Component component,
                                              CheckpointFormat format) {
  switch (component) {
    case Component::kTransformer:
      return transformer_tensors(
          format == CheckpointFormat::kComfyPruned ? pruned(model.transformer) : model.transformer);
    case Component::kTextEncoder: {
      TextEncoderDims dims = model.text_encoder;
      if (is_folder_format(format)) {
        dims.num_layers = model.stored_text_layers;
      }
      return text_encoder_tensors(dims);
    }
    case Component::kVideoVae:
      return video_vae_tensors(model.video_vae);
    case Component::kAudioVae:
      return audio_vae_tensors(model.audio_vae);
  }
  return {};
}

CanonicalSource synthetic_source(Component component, const ExpectedTensor& tensor,
                                 std::uint64_t seed) {
  CanonicalSource source{tensor, as_rows(synthetic_values(component, tensor, seed))};
  const bool vae = component == Component::kVideoVae || component == Component::kAudioVae;
  source.stored = vae ? DType::kF32 : DType::kBF16;
  if (component == Component::kAudioVae && is_weight_normed(tensor.name)) {
    source.direction = as_rows(drawn_values(component, tensor, seed, ".weight_v"));
    source.magnitude = as_rows(drawn_values(component, tensor, seed, ".weight_g"));
  }
  source.peak = [bound = SyntheticTensor(component, tensor, seed).bound()]() -> Result<float> {
    return bound;
  };
  return source;
}

RowFill constant(std::vector<float> values, std::int64_t columns) {
  return as_rows(
      [columns, values = std::move(values)](std::int64_t first, std::int64_t count, float* out) {
        std::copy_n(values.begin() + first * columns, count * columns, out);
      });
}

/// What files carry beside the canonical tensors.
void add_extras(LayoutBuilder& builder, const SyntheticModel& model, Component component,
                const MakeCheckpointOptions& options) {
  const bool single_file = !is_folder_format(options.format);
  if (component == Component::kTextEncoder && !single_file) {
    const std::int64_t hidden = model.text_encoder.hidden_size;
    const std::int64_t vocab = model.text_encoder.vocab_size;
    builder.add(synthetic_source(component, {"norm.weight", {hidden}}, options.seed));
    builder.add(synthetic_source(component, {"lm_head.weight", {vocab, hidden}}, options.seed));
  }
  const auto zeros = [](std::int64_t count) {
    return std::vector<float>(static_cast<std::size_t>(count));
  };
  if (component == Component::kVideoVae && builder.naming() != Naming::kDiffusers) {
    const std::int64_t hidden = model.video_vae.hidden_size;
    builder.add_stored("decoder.mask_token", DType::kF32, {1, 1, hidden},
                       constant(zeros(hidden), hidden));
  }
  if (component == Component::kAudioVae) {
    const std::int64_t trunk = model.audio_vae.trunk_size;
    builder.add_stored("pre_block.attn.zero_k_bias", DType::kF32, {trunk},
                       constant(zeros(trunk), 1));
  }
  const bool is_vae = component == Component::kVideoVae || component == Component::kAudioVae;
  if (is_vae && single_file) {
    const bool video = component == Component::kVideoVae;
    add_latent_statistics(builder, video ? model.video_latents_mean : model.audio_latents_mean,
                          video ? model.video_latents_std : model.audio_latents_std);
  }
}

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
  LayoutOptions layout;
  layout.component = component;
  layout.format = options.format;
  layout.storage = options.storage;
  layout.head_dim = component == Component::kTransformer
                        ? model.transformer.head_dim
                        : model.video_vae.hidden_size / model.video_vae_heads;
  layout.deepstack_blocks = model.deepstack_blocks;
  LayoutBuilder builder(std::move(layout));
  for (const ExpectedTensor& tensor : canonical_tensors(model, component, options.format)) {
    builder.add(synthetic_source(component, tensor, options.seed));
  }
  add_extras(builder, model, component, options);
  return builder.finish();
}

}  // namespace miniacc
