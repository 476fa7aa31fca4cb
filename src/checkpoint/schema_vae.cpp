#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "checkpoint/schema.h"
#include "checkpoint/shape_reader.h"

// Shapes of the two autoencoders: spec vae.md §7.1 and §7.3.
namespace miniacc {
namespace {

constexpr std::int64_t kConvKernel = 3;

using TensorList = std::vector<ExpectedTensor>;

void add_weight_and_bias(TensorList& list, const std::string& stem, const Shape& weight,
                         const std::string& group = "") {
  list.push_back({stem + ".weight", weight, false, group});
  list.push_back({stem + ".bias", {weight[0]}, false, group});
}

void add_conv3d(TensorList& list, const std::string& stem, std::int64_t out, std::int64_t in,
                std::int64_t kernel, const std::string& group) {
  add_weight_and_bias(list, stem, {out, in, kernel, kernel, kernel}, group);
}

void add_video_encoder(TensorList& list, const VideoVaeDims& dims) {
  const std::string group(kEncoderGroup);
  add_conv3d(list, "encoder.conv_in", dims.encoder_channels, 3, kConvKernel, group);
  std::int64_t channels = dims.encoder_channels;
  for (std::size_t i = 0; i < dims.encoder_stages.size(); ++i) {
    const VideoEncoderStage& stage = dims.encoder_stages[i];
    for (std::size_t j = 0; j < stage.block_channels.size(); ++j) {
      const std::string stem = fmt::format("encoder.down.{}.block.{}.", i, j);
      const std::int64_t out = stage.block_channels[j];
      add_weight_and_bias(list, stem + "norm1", {channels}, group);
      add_conv3d(list, stem + "conv1", out, channels, kConvKernel, group);
      add_weight_and_bias(list, stem + "norm2", {out}, group);
      add_conv3d(list, stem + "conv2", out, out, kConvKernel, group);
      if (out != channels) {
        add_conv3d(list, stem + "nin_shortcut", out, channels, 1, group);
      }
      channels = out;
    }
    if (stage.downsample) {
      add_conv3d(list, fmt::format("encoder.down.{}.downsample.conv", i), channels, channels,
                 kConvKernel, group);
    }
  }
  const std::int64_t moments = 2 * dims.latent_channels;
  add_weight_and_bias(list, "encoder.norm_out", {channels}, group);
  add_conv3d(list, "encoder.conv_out", moments, channels, kConvKernel, group);
  add_conv3d(list, "quant_conv", moments, moments, 1, group);
}

void add_audio_encoder(TensorList& list, const AudioVaeDims& dims) {
  const std::string group(kEncoderGroup);
  const std::int64_t latent = dims.latent_channels;
  const std::int64_t trunk = dims.trunk_size;
  const auto add_alpha = [&](const std::string& name, std::int64_t channels) {
    list.push_back({name, {1, channels, 1}, false, group});
  };
  add_weight_and_bias(list, "encoder.block.0", {dims.encoder_channels, 1, dims.encoder_kernel},
                      group);
  for (std::size_t s = 0; s < dims.encoder_stages.size(); ++s) {
    const AudioEncoderStage& stage = dims.encoder_stages[s];
    const std::string stem = fmt::format("encoder.block.{}.block.", s + 1);
    const std::int64_t c = stage.channels;
    for (std::int64_t u = 0; u < stage.num_units; ++u) {
      const std::string unit = fmt::format("{}{}.block.", stem, u);
      add_alpha(unit + "0.alpha", c);
      add_weight_and_bias(list, unit + "1", {c, c, 7}, group);
      add_alpha(unit + "2.alpha", c);
      add_weight_and_bias(list, unit + "3", {c, c, 1}, group);
    }
    add_alpha(fmt::format("{}{}.alpha", stem, stage.num_units), c);
    add_weight_and_bias(list, fmt::format("{}{}", stem, stage.num_units + 1),
                        {stage.out_channels, c, stage.kernel}, group);
  }
  const std::size_t last = dims.encoder_stages.size() + 1;
  const std::int64_t width = dims.encoder_stages.back().out_channels;
  add_alpha(fmt::format("encoder.block.{}.alpha", last), width);
  add_weight_and_bias(list, fmt::format("encoder.block.{}", last + 1),
                      {trunk, width, dims.encoder_out_kernel}, group);

  add_weight_and_bias(list, "pre_block.norm1", {trunk}, group);
  add_weight_and_bias(list, "pre_block.norm2", {latent}, group);
  add_weight_and_bias(list, "pre_block.norm3", {trunk}, group);
  list.push_back({"pre_block.attn.qkv.weight", {3 * trunk, trunk}, false, group});
  list.push_back({"pre_block.attn.q_bias", {trunk}, false, group});
  list.push_back({"pre_block.attn.v_bias", {trunk}, false, group});
  add_weight_and_bias(list, "pre_block.attn.proj", {latent, latent}, group);
  add_weight_and_bias(list, "pre_block.proj", {latent, trunk}, group);
  add_weight_and_bias(list, "pre_block.mlp.norm", {latent}, group);
  add_weight_and_bias(list, "pre_block.mlp.w0", {dims.posterior_ffn, latent}, group);
  add_weight_and_bias(list, "pre_block.mlp.w1", {dims.posterior_ffn, latent}, group);
  add_weight_and_bias(list, "pre_block.mlp.w2", {latent, dims.posterior_ffn}, group);
  add_weight_and_bias(list, "mean_proj", {latent, latent, 1}, group);
  // Posterior widths: sampling reads them, the mean does not, and some files leave them out.
  list.push_back({"logs_proj.weight", {latent, latent, 1}, true});
  list.push_back({"logs_proj.bias", {latent}, true});
}

void add_activation(TensorList& list, const std::string& stem, std::int64_t channels,
                    std::int64_t taps) {
  list.push_back({stem + ".act.alpha", {channels}});
  list.push_back({stem + ".act.beta", {channels}});
  list.push_back({stem + ".upsample.filter", {1, 1, taps}, true});
  list.push_back({stem + ".downsample.lowpass.filter", {1, 1, taps}, true});
}

}  // namespace

bool is_encoder_tensor(Component component, std::string_view canonical) {
  const auto starts_with_any = [&](std::initializer_list<std::string_view> stems) {
    return std::ranges::any_of(stems,
                               [&](std::string_view stem) { return canonical.starts_with(stem); });
  };
  switch (component) {
    case Component::kVideoVae:
      return starts_with_any({"encoder.", "quant_conv."});
    case Component::kAudioVae:
      return starts_with_any({"encoder.", "pre_block.", "mean_proj.", "logs_proj."});
    case Component::kTransformer:
    case Component::kTextEncoder:
      return false;
  }
  return false;
}

std::string_view encoder_entry(Component component) {
  switch (component) {
    case Component::kVideoVae:
      return "encoder.conv_in.weight";
    case Component::kAudioVae:
      return "encoder.block.0.weight";
    case Component::kTransformer:
    case Component::kTextEncoder:
      return "";
  }
  return "";
}

std::vector<ExpectedTensor> video_vae_tensors(const VideoVaeDims& dims) {
  TensorList list;
  const std::int64_t hidden = dims.hidden_size;
  add_weight_and_bias(list, "post_quant_conv",
                      {dims.latent_channels, dims.latent_channels, 1, 1, 1});
  add_weight_and_bias(list, "decoder.x_embedder", {hidden, dims.latent_channels});
  list.push_back({"decoder.register_tokens", {1, dims.num_register_tokens, hidden}});
  for (std::int64_t i = 0; i < dims.num_layers; ++i) {
    const std::string stem = fmt::format("decoder.transformer_blocks.{}.", i);
    for (const char* vector : {"norm1.weight", "norm2.weight", "scale1", "scale2"}) {
      list.push_back({stem + vector, {hidden}});
    }
    add_weight_and_bias(list, stem + "attn.to_qkv", {3 * hidden, hidden});
    add_weight_and_bias(list, stem + "attn.to_out", {hidden, hidden});
    add_weight_and_bias(list, stem + "ff.w1", {2 * dims.ffn_hidden_size, hidden});
    add_weight_and_bias(list, stem + "ff.w2", {hidden, dims.ffn_hidden_size});
  }
  add_weight_and_bias(list, "decoder.norm_out", {hidden});
  add_weight_and_bias(list, "decoder.proj_out", {dims.patch_outputs, hidden});
  if (dims.encoder_channels > 0) {
    add_video_encoder(list, dims);
  }
  return list;
}

namespace {

Status read_video_encoder_dims(const ShapeReader& shapes, VideoVaeDims& dims) {
  MINIACC_ASSIGN(dims.encoder_channels, shapes.dim("encoder.conv_in.weight", 0, 5));
  const std::int64_t num_stages = shapes.count(
      [](std::int64_t i) { return fmt::format("encoder.down.{}.block.0.conv1.weight", i); });
  for (std::int64_t i = 0; i < num_stages; ++i) {
    VideoEncoderStage stage;
    const auto conv1 = [i](std::int64_t j) {
      return fmt::format("encoder.down.{}.block.{}.conv1.weight", i, j);
    };
    const std::int64_t num_blocks = shapes.count(conv1);
    for (std::int64_t j = 0; j < num_blocks; ++j) {
      MINIACC_ASSIGN(const std::int64_t channels, shapes.dim(conv1(j), 0, 5));
      stage.block_channels.push_back(channels);
    }
    stage.downsample = shapes.has(fmt::format("encoder.down.{}.downsample.conv.weight", i));
    dims.encoder_stages.push_back(std::move(stage));
  }
  return {};
}

}  // namespace

Result<VideoVaeDims> read_video_vae_dims(const ShapeLookup& lookup, const std::string& where) {
  const ShapeReader shapes(lookup, where);
  VideoVaeDims dims;
  MINIACC_ASSIGN(dims.hidden_size, shapes.dim("decoder.x_embedder.weight", 0, 2));
  MINIACC_ASSIGN(dims.latent_channels, shapes.dim("decoder.x_embedder.weight", 1, 2));
  MINIACC_ASSIGN(dims.num_register_tokens, shapes.dim("decoder.register_tokens", 1, 3));
  dims.num_layers = shapes.count_stems(
      [](std::int64_t i) { return fmt::format("decoder.transformer_blocks.{}.", i); },
      {"norm1.weight", "attn.to_qkv.weight", "ff.w1.weight"});
  MINIACC_ASSIGN(const std::int64_t w1_rows,
                 shapes.dim("decoder.transformer_blocks.0.ff.w1.weight", 0, 2));
  MINIACC_ASSIGN(
      dims.ffn_hidden_size,
      shapes.divide(w1_rows, 2, "number of decoder.transformer_blocks.0.ff.w1.weight rows"));
  MINIACC_ASSIGN(dims.patch_outputs, shapes.dim("decoder.proj_out.weight", 0, 2));
  if (shapes.has("encoder.conv_in.weight")) {
    if (const Status read = read_video_encoder_dims(shapes, dims); !read) {
      dims.encoder_problem = read.error().message;
      dims.encoder_channels = 0;
      dims.encoder_stages.clear();
    }
  }
  return dims;
}

std::vector<ExpectedTensor> audio_vae_tensors(const AudioVaeDims& dims) {
  TensorList list;
  add_weight_and_bias(list, "dec_in_proj", {dims.trunk_size, dims.latent_channels, 1});
  add_weight_and_bias(list, "decoder.conv_pre",
                      {dims.decoder_channels, dims.trunk_size, dims.decoder_kernel});
  for (std::size_t i = 0; i < dims.upsamplers.size(); ++i) {
    const AudioUpsampler& up = dims.upsamplers[i];
    const std::string stem = fmt::format("decoder.ups.{}.0", i);
    // A transposed convolution: input channels come first.
    list.push_back({stem + ".weight", {up.in_channels, up.out_channels, up.kernel}});
    list.push_back({stem + ".bias", {up.out_channels}});
    for (std::size_t k = 0; k < dims.resblock_kernels.size(); ++k) {
      const std::string block =
          fmt::format("decoder.resblocks.{}.", i * dims.resblock_kernels.size() + k);
      const std::int64_t c = up.out_channels;
      for (std::int64_t n = 0; n < dims.num_dilations; ++n) {
        add_weight_and_bias(list, fmt::format("{}convs1.{}", block, n),
                            {c, c, dims.resblock_kernels[k]});
        add_weight_and_bias(list, fmt::format("{}convs2.{}", block, n),
                            {c, c, dims.resblock_kernels[k]});
      }
      for (std::int64_t a = 0; a < 2 * dims.num_dilations; ++a) {
        add_activation(list, fmt::format("{}activations.{}", block, a), c, dims.filter_taps);
      }
    }
  }
  const std::int64_t last = dims.upsamplers.back().out_channels;
  add_activation(list, "decoder.activation_post", last, dims.filter_taps);
  list.push_back({"decoder.conv_post.weight", {1, last, dims.post_kernel}});
  if (dims.encoder_channels > 0) {
    add_audio_encoder(list, dims);
  }
  return list;
}

namespace {

Status read_audio_encoder_dims(const ShapeReader& shapes, AudioVaeDims& dims) {
  MINIACC_ASSIGN(dims.encoder_channels, shapes.dim("encoder.block.0.weight", 0, 3));
  MINIACC_ASSIGN(dims.encoder_kernel, shapes.dim("encoder.block.0.weight", 2, 3));
  const std::int64_t num_stages = shapes.count(
      [](std::int64_t s) { return fmt::format("encoder.block.{}.block.0.block.1.weight", s + 1); });
  if (num_stages == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: tensor encoder.block.1.block.0.block.1.weight is missing",
                            shapes.where()));
  }
  for (std::int64_t s = 1; s <= num_stages; ++s) {
    AudioEncoderStage stage;
    stage.num_units = shapes.count([s](std::int64_t u) {
      return fmt::format("encoder.block.{}.block.{}.block.1.weight", s, u);
    });
    const std::string strided =
        fmt::format("encoder.block.{}.block.{}.weight", s, stage.num_units + 1);
    MINIACC_ASSIGN(stage.out_channels, shapes.dim(strided, 0, 3));
    MINIACC_ASSIGN(stage.channels, shapes.dim(strided, 1, 3));
    MINIACC_ASSIGN(stage.kernel, shapes.dim(strided, 2, 3));
    dims.encoder_stages.push_back(stage);
  }
  MINIACC_ASSIGN(dims.encoder_out_kernel,
                 shapes.dim(fmt::format("encoder.block.{}.weight", num_stages + 2), 2, 3));
  MINIACC_ASSIGN(dims.posterior_ffn, shapes.dim("pre_block.mlp.w0.weight", 0, 2));
  return {};
}

}  // namespace

Result<AudioVaeDims> read_audio_vae_dims(const ShapeLookup& lookup, const std::string& where) {
  const ShapeReader shapes(lookup, where);
  AudioVaeDims dims;
  MINIACC_ASSIGN(dims.trunk_size, shapes.dim("dec_in_proj.weight", 0, 3));
  MINIACC_ASSIGN(dims.latent_channels, shapes.dim("dec_in_proj.weight", 1, 3));
  MINIACC_ASSIGN(dims.decoder_channels, shapes.dim("decoder.conv_pre.weight", 0, 3));
  MINIACC_ASSIGN(dims.decoder_kernel, shapes.dim("decoder.conv_pre.weight", 2, 3));
  const auto up_name = [](std::int64_t i) { return fmt::format("decoder.ups.{}.0.weight", i); };
  const std::int64_t num_ups = shapes.count(up_name);
  if (num_ups == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: tensor {} is missing", where, up_name(0)));
  }
  for (std::int64_t i = 0; i < num_ups; ++i) {
    AudioUpsampler up;
    MINIACC_ASSIGN(up.in_channels, shapes.dim(up_name(i), 0, 3));
    MINIACC_ASSIGN(up.out_channels, shapes.dim(up_name(i), 1, 3));
    MINIACC_ASSIGN(up.kernel, shapes.dim(up_name(i), 2, 3));
    dims.upsamplers.push_back(up);
  }
  const std::int64_t num_blocks =
      shapes.count_stems([](std::int64_t r) { return fmt::format("decoder.resblocks.{}.", r); },
                         {"convs1.0.weight", "convs2.0.weight", "activations.0.act.alpha"});
  if (num_blocks == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: tensor decoder.resblocks.0.convs1.0.weight is missing", where));
  }
  MINIACC_ASSIGN(const std::int64_t blocks_per_stage,
                 shapes.divide(num_blocks, num_ups, "number of decoder.resblocks"));
  for (std::int64_t k = 0; k < blocks_per_stage; ++k) {
    MINIACC_ASSIGN(const std::int64_t kernel,
                   shapes.dim(fmt::format("decoder.resblocks.{}.convs1.0.weight", k), 2, 3));
    dims.resblock_kernels.push_back(kernel);
  }
  dims.num_dilations = shapes.count(
      [](std::int64_t n) { return fmt::format("decoder.resblocks.0.convs1.{}.weight", n); });
  if (const std::string filter = "decoder.activation_post.upsample.filter"; shapes.has(filter)) {
    MINIACC_ASSIGN(dims.filter_taps, shapes.dim(filter, 2, 3));
  }
  MINIACC_ASSIGN(dims.post_kernel, shapes.dim("decoder.conv_post.weight", 2, 3));
  if (shapes.has("encoder.block.0.weight")) {
    if (const Status read = read_audio_encoder_dims(shapes, dims); !read) {
      dims.encoder_problem = read.error().message;
      dims.encoder_channels = 0;
      dims.encoder_stages.clear();
    }
  }
  return dims;
}

}  // namespace miniacc
