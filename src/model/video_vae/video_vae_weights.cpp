#include "model/video_vae/video_vae_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"

namespace miniacc::video_vae {
namespace {

// Statistics of the released model's latents, spec vae.md §1.
constexpr std::array<float, 24> kReleasedMean = {
    0.858090341091156F,    -0.9606591463088989F, 1.0661640167236328F,   -0.5090325474739075F,
    -0.2727581858634949F,  -1.3675414323806763F, -0.2553254961967468F,  -0.26907554268836975F,
    -0.5376840829849243F,  -0.0464097298681736F, 0.6657370328903198F,   0.19690127670764923F,
    -0.5460608005523682F,  -0.4035342037677765F, -0.23683024942874908F, 0.25928452610969543F,
    -0.30133944749832153F, 0.211341992020607F,   -1.1206848621368408F,  0.3581933379173279F,
    -0.04225143790245056F, 0.2604829967021942F,  0.22864092886447906F,  0.7056031823158264F};
constexpr std::array<float, 24> kReleasedStd = {
    1.2223774194717407F, 1.2767263650894165F,  1.6831774711608887F, 1.7549455165863037F,
    1.5636216402053833F, 2.194143533706665F,   0.9653137922286987F, 1.0569885969161987F,
    0.841948926448822F,  0.7729952931404114F,  1.8955937623977661F, 0.946841835975647F,
    0.7996809482574463F, 0.44988900423049927F, 0.7197399735450745F, 0.6936293244361877F,
    2.961095094680786F,  2.7694199085235596F,  3.0496184825897217F, 2.1088054180145264F,
    3.276226282119751F,  3.1627357006073F,     2.2816812992095947F, 2.6127843856811523F};

struct NamedShape {
  std::string name;
  Shape shape;
};

std::vector<NamedShape> shell_tensors(const VideoVaeConfig& config) {
  const std::int64_t c = config.latent_channels;
  const std::int64_t d = config.hidden_size;
  const std::int64_t values = config.values_per_token();
  return {{"post_quant_conv.weight", {c, c, 1, 1, 1}},
          {"post_quant_conv.bias", {c}},
          {"decoder.x_embedder.weight", {d, c}},
          {"decoder.x_embedder.bias", {d}},
          {"decoder.register_tokens", {1, config.num_register_tokens, d}},
          {"decoder.norm_out.weight", {d}},
          {"decoder.norm_out.bias", {d}},
          {"decoder.proj_out.weight", {values, d}},
          {"decoder.proj_out.bias", {values}}};
}

}  // namespace

LayerStack block_stack(const VideoVaeConfig& config, Precision precision) {
  const std::int64_t d = config.hidden_size;
  const std::int64_t f = config.ffn_hidden_size;
  return {.prefix = "decoder.transformer_blocks.",
          .count = config.num_layers,
          .items = {{"norm1.weight", {d}, {}},
                    {"norm2.weight", {d}, {}},
                    {"scale1", {d}, {}},
                    {"scale2", {d}, {}},
                    {"attn.to_qkv.weight", {3 * d, d}, precision},
                    {"attn.to_qkv.bias", {3 * d}, {}},
                    {"attn.to_out.weight", {d, d}, precision},
                    {"attn.to_out.bias", {d}, {}},
                    {"ff.w1.weight", {2 * f, d}, precision},
                    {"ff.w1.bias", {2 * f}, {}},
                    {"ff.w2.weight", {d, f}, precision},
                    {"ff.w2.bias", {d}, {}}}};
}

Block block_weights(const LayerView& layer) {
  const std::vector<WeightMatrix>& tensors = layer.tensors;
  MINIACC_REQUIRE(tensors.size() == 12, "video VAE: layers of block_stack()");
  const auto row = [&](std::size_t item) {
    return tensors[item].values.reshape({1, tensors[item].values.num_elements()});
  };
  return {.norm1 = tensors[0].values,
          .norm2 = tensors[1].values,
          .scale1 = row(2),
          .scale2 = row(3),
          .to_qkv = tensors[4],
          .to_qkv_bias = tensors[5].values,
          .to_out = tensors[6],
          .to_out_bias = tensors[7].values,
          .w1 = tensors[8],
          .w1_bias = tensors[9].values,
          .w2 = tensors[10],
          .w2_bias = tensors[11].values};
}

Status check_weights(const WeightSource& source, const VideoVaeConfig& config) {
  for (const NamedShape& tensor : shell_tensors(config)) {
    MINIACC_RETURN_IF_ERROR(vae::check_shape(source, tensor.name, tensor.shape));
  }
  const LayerStack blocks = block_stack(config, Precision::kF32);
  for (std::int64_t index = 0; index < blocks.count; ++index) {
    for (std::size_t i = 0; i < blocks.items.size(); ++i) {
      MINIACC_RETURN_IF_ERROR(
          vae::check_shape(source, blocks.tensor_name(index, i), blocks.items[i].shape));
    }
  }
  return {};
}

Result<Shell> load_shell(WeightSource& source, const VideoVaeConfig& config, Device& device) {
  const std::int64_t c = config.latent_channels;
  const std::int64_t d = config.hidden_size;
  const std::int64_t values = config.values_per_token();
  const auto tensor = [&](const char* name, const Shape& shape) {
    return vae::load_tensor(source, name, shape, device);
  };
  const auto matrix = [&](const char* name, const Shape& shape) {
    return vae::load_matrix(source, name, shape, Precision::kF32, device);
  };
  Shell shell;
  MINIACC_ASSIGN(Tensor conv, tensor("post_quant_conv.weight", {c, c, 1, 1, 1}));
  shell.post_quant_conv.values = std::move(conv).reshaped({c, c});
  MINIACC_ASSIGN(shell.post_quant_conv_bias, tensor("post_quant_conv.bias", {c}));
  MINIACC_ASSIGN(shell.x_embedder, matrix("decoder.x_embedder.weight", {d, c}));
  MINIACC_ASSIGN(shell.x_embedder_bias, tensor("decoder.x_embedder.bias", {d}));
  MINIACC_ASSIGN(shell.register_tokens,
                 tensor("decoder.register_tokens", {1, config.num_register_tokens, d}));
  MINIACC_ASSIGN(shell.norm_out_weight, tensor("decoder.norm_out.weight", {d}));
  MINIACC_ASSIGN(shell.norm_out_bias, tensor("decoder.norm_out.bias", {d}));
  MINIACC_ASSIGN(shell.proj_out, matrix("decoder.proj_out.weight", {values, d}));
  MINIACC_ASSIGN(shell.proj_out_bias, tensor("decoder.proj_out.bias", {values}));
  return shell;
}

Result<vae::LatentStatistics> load_statistics(WeightSource& source, const VideoVaeConfig& config,
                                              Device& device) {
  return vae::latent_statistics(source, config.latent_channels, kReleasedMean, kReleasedStd,
                                device);
}

}  // namespace miniacc::video_vae
