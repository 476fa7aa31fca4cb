#include "model/support/vae_models.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/float_convert.h"
#include "support/golden.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

std::string golden_path(const std::string& name) { return test_data("golden/" + name).string(); }

template <typename T>
std::vector<double> converted(std::span<const std::byte> bytes, double (*to_double)(T)) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = to_double(stored);
  }
  return values;
}

std::vector<double> stored_values(const TensorFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  if (entry == nullptr) {
    throw std::runtime_error("golden file has no " + name);
  }
  const auto bytes = file.bytes(*entry);
  if (!bytes) {
    throw std::runtime_error(bytes.error().message);
  }
  switch (entry->dtype) {
    case DType::kF16:
      return converted<std::uint16_t>(
          *bytes, [](std::uint16_t v) { return static_cast<double>(f16_to_float(v)); });
    case DType::kF32:
      return converted<float>(*bytes, [](float v) { return static_cast<double>(v); });
    case DType::kF64:
      return converted<double>(*bytes, [](double v) { return v; });
    case DType::kI32:
      return converted<std::int32_t>(*bytes, [](std::int32_t v) { return double{1.0} * v; });
    case DType::kI64:
      return converted<std::int64_t>(*bytes, [](std::int64_t v) { return static_cast<double>(v); });
    default:
      throw std::runtime_error("golden file: dtype of " + name);
  }
}

std::vector<double> json_array(const std::string& path, const std::string& key) {
  std::ifstream stream(golden_path(path));
  return nlohmann::json::parse(stream).at(key).get<std::vector<double>>();
}

/// Rows stored head by head (Q, K, V of a head together) to all Q, all K, all V.
std::vector<float> plain_thirds(const std::vector<float>& fused, std::int64_t heads,
                                std::int64_t columns) {
  const std::int64_t rows = static_cast<std::int64_t>(fused.size()) / columns;
  const std::int64_t head_dim = rows / heads / 3;
  std::vector<float> plain(fused.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / (3 * head_dim);
    const std::int64_t part = row / head_dim % 3;
    const std::int64_t target = (part * heads + head) * head_dim + row % head_dim;
    std::copy_n(fused.begin() + row * columns, columns, plain.begin() + target * columns);
  }
  return plain;
}

/// g · v / ‖v‖, the norm over all but the first dimension.
std::vector<float> folded(const std::vector<float>& g, const std::vector<float>& v) {
  const std::size_t size = v.size() / g.size();
  std::vector<float> weight(v.size());
  for (std::size_t row = 0; row < g.size(); ++row) {
    double sum = 0.0;
    for (std::size_t i = 0; i < size; ++i) {
      sum += static_cast<double>(v[row * size + i]) * static_cast<double>(v[row * size + i]);
    }
    for (std::size_t i = 0; i < size; ++i) {
      weight[row * size + i] =
          static_cast<float>(static_cast<double>(g[row]) * v[row * size + i] / std::sqrt(sum));
    }
  }
  return weight;
}

/// Sets random tensors whose seeds follow from the order of the calls.
class RandomTensors {
 public:
  explicit RandomTensors(VaeMemorySource& source) : source_(source) {}

  void add(const std::string& name, const Shape& shape, double scale, double mean = 0.0) {
    std::vector<float> values = random_normal(shape.num_elements(), ++seed_);
    for (float& value : values) {
      value = static_cast<float>(value * scale + mean);
    }
    source_.set(name, shape, std::move(values));
  }
  /// Keeps the variance of what it multiplies.
  void add_linear(const std::string& name, const Shape& shape) {
    const double fan_in = static_cast<double>(shape.num_elements()) / static_cast<double>(shape[0]);
    add(name + ".weight", shape, 1.0 / std::sqrt(fan_in));
    add(name + ".bias", Shape({shape[0]}), 0.2);
  }

 private:
  VaeMemorySource& source_;
  std::uint64_t seed_ = 100;
};

}  // namespace

std::vector<float> golden_values(const TensorFile& file, const std::string& name) {
  const std::vector<double> values = stored_values(file, name);
  return {values.begin(), values.end()};
}

std::vector<std::int64_t> golden_integers(const TensorFile& file, const std::string& name) {
  const std::vector<double> values = stored_values(file, name);
  return {values.begin(), values.end()};
}

TensorFile open_golden(const std::string& name) {
  auto file = TensorFile::open(golden_path(name));
  if (!file) {
    throw std::runtime_error(file.error().message);
  }
  return *std::move(file);
}

VaeMemorySource micro_video_vae() {
  const std::string folder = "h3-micro/video_vae/";
  const TensorFile file = open_golden(folder + "source/model.safetensors");
  std::ifstream stream(golden_path(folder + "source/config.json"));
  const auto heads =
      nlohmann::json::parse(stream).at("vit_decoder_kwargs").at("heads").get<std::int64_t>();
  VaeMemorySource source;
  for (const TensorEntry& entry : file.entries()) {
    std::vector<float> values = golden_values(file, entry.name);
    if (entry.name.find(".to_qkv.") != std::string::npos) {
      values = plain_thirds(values, heads, entry.shape.rank() == 2 ? entry.shape[1] : 1);
    }
    source.set(entry.name, entry.shape, std::move(values));
  }
  source.set_config("num_heads", {static_cast<double>(heads)});
  source.set_config("encoder_norm_groups", {2.0});
  source.set_config("latents_mean", json_array(folder + "config.json", "latents_mean"));
  source.set_config("latents_std", json_array(folder + "config.json", "latents_std"));
  return source;
}

VaeMemorySource micro_audio_vae() {
  const std::string folder = "h3-micro/audio_vae/";
  const TensorFile file = open_golden(folder + "model.safetensors");
  VaeMemorySource source;
  for (const TensorEntry& entry : file.entries()) {
    if (entry.name.ends_with(".weight_g")) {
      continue;
    }
    std::vector<float> values = golden_values(file, entry.name);
    std::string name = entry.name;
    if (name.ends_with(".weight_v")) {
      name.resize(name.size() - std::strlen("_v"));
      values = folded(golden_values(file, name + "_g"), values);
    }
    source.set(name, entry.shape, std::move(values));
  }
  source.set_config("encoder_num_heads", {2.0});
  source.set_config("latents_mean", json_array(folder + "config.json", "latents_mean"));
  source.set_config("latents_std", json_array(folder + "config.json", "latents_std"));
  return source;
}

namespace {

/// Two levels: 4 channels, shrunk by 4 in time and by the patch (2) in the picture, then 6.
void add_tiny_video_encoder(VaeMemorySource& source, RandomTensors& random,
                            const TinyVideoVae& dims) {
  const auto add_norm = [&](const std::string& name, std::int64_t channels) {
    random.add(name + ".weight", {channels}, 0.2, 1.0);
    random.add(name + ".bias", {channels}, 0.2);
  };
  const auto add_conv = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    random.add_linear(name, {out, in, 3, 3, 3});
  };
  add_conv("encoder.conv_in", 4, 3);
  for (const std::int64_t level : {0, 1}) {
    const std::string stem = fmt::format("encoder.down.{}.block.0.", level);
    const std::int64_t out = level == 0 ? 4 : 6;
    add_norm(stem + "norm1", 4);
    add_conv(stem + "conv1", out, 4);
    add_norm(stem + "norm2", out);
    add_conv(stem + "conv2", out, out);
  }
  random.add_linear("encoder.down.1.block.0.nin_shortcut", {6, 4, 1, 1, 1});
  add_conv("encoder.down.0.downsample.conv", 4, 4);
  add_norm("encoder.norm_out", 6);
  const std::int64_t moments = 2 * dims.latent_channels;
  add_conv("encoder.conv_out", moments, 6);
  random.add_linear("quant_conv", {moments, moments, 1, 1, 1});
  source.set_config("encoder_norm_groups", {2.0});
  source.set_config("encoder_time_down", {4.0, 1.0});
  source.set_config("encoder_space_down", {2.0, 1.0});
}

}  // namespace

VaeMemorySource tiny_video_vae(const TinyVideoVae& dims) {
  VaeMemorySource source;
  RandomTensors random(source);
  const std::int64_t c = dims.latent_channels;
  const std::int64_t d = dims.num_heads * dims.head_dim;
  const std::int64_t f = dims.ffn_hidden_size;
  random.add("post_quant_conv.weight", {c, c, 1, 1, 1}, 1.0 / std::sqrt(static_cast<double>(c)));
  random.add("post_quant_conv.bias", {c}, 0.2);
  random.add_linear("decoder.x_embedder", {d, c});
  random.add("decoder.register_tokens", {1, dims.num_register_tokens, d}, 1.0);
  for (std::int64_t layer = 0; layer < dims.num_layers; ++layer) {
    const std::string prefix = fmt::format("decoder.transformer_blocks.{}.", layer);
    for (const char* name : {"norm1.weight", "norm2.weight", "scale1", "scale2"}) {
      random.add(prefix + name, {d}, 0.2, 1.0);
    }
    random.add_linear(prefix + "attn.to_qkv", {3 * d, d});
    random.add_linear(prefix + "attn.to_out", {d, d});
    random.add_linear(prefix + "ff.w1", {2 * f, d});
    random.add_linear(prefix + "ff.w2", {d, f});
  }
  random.add("decoder.norm_out.weight", {d}, 0.2, 1.0);
  random.add("decoder.norm_out.bias", {d}, 0.2);
  random.add_linear("decoder.proj_out", {12 * dims.patch * dims.patch, d});
  add_tiny_video_encoder(source, random, dims);
  source.set_config("num_heads", {static_cast<double>(dims.num_heads)});
  source.set_config("tile_size", {static_cast<double>(dims.tile_size)});
  source.set_config("tile_overlap_min", {static_cast<double>(dims.tile_overlap)});
  std::vector<double> mean;
  std::vector<double> std;
  for (std::int64_t i = 0; i < c; ++i) {
    mean.push_back(0.1 * static_cast<double>(i) - 0.2);
    std.push_back(0.8 + 0.1 * static_cast<double>(i));
  }
  source.set_config("latents_mean", mean);
  source.set_config("latents_std", std);
  return source;
}

namespace {

/// Strides 5 and 2, two units a stage; 2 to 8 channels, a trunk of 24 in 3 heads of 8.
void add_tiny_audio_encoder(VaeMemorySource& source, RandomTensors& random, std::int64_t latent) {
  const auto add_norm = [&](const std::string& name, std::int64_t channels) {
    random.add(name + ".weight", {channels}, 0.2, 1.0);
    random.add(name + ".bias", {channels}, 0.2);
  };
  const auto add_alpha = [&](const std::string& name, std::int64_t channels) {
    random.add(name, {1, channels, 1}, 0.2, 1.0);
  };
  constexpr std::int64_t kTrunk = 24;
  random.add_linear("encoder.block.0", {2, 1, 7});
  std::int64_t channels = 2;
  for (const std::int64_t stage : {1, 2}) {
    const std::string stem = fmt::format("encoder.block.{}.block.", stage);
    for (const std::int64_t unit : {0, 1}) {
      const std::string name = fmt::format("{}{}.block.", stem, unit);
      add_alpha(name + "0.alpha", channels);
      random.add_linear(name + "1", {channels, channels, 7});
      add_alpha(name + "2.alpha", channels);
      random.add_linear(name + "3", {channels, channels, 1});
    }
    add_alpha(stem + "2.alpha", channels);
    random.add_linear(stem + "3", {2 * channels, channels, stage == 1 ? 10 : 4});
    channels *= 2;
  }
  add_alpha("encoder.block.3.alpha", channels);
  random.add_linear("encoder.block.4", {kTrunk, channels, 3});
  add_norm("pre_block.norm1", kTrunk);
  add_norm("pre_block.norm2", latent);
  add_norm("pre_block.norm3", kTrunk);
  random.add("pre_block.attn.qkv.weight", {3 * kTrunk, kTrunk}, 0.2);
  random.add("pre_block.attn.q_bias", {kTrunk}, 0.2);
  random.add("pre_block.attn.v_bias", {kTrunk}, 0.2);
  random.add_linear("pre_block.attn.proj", {latent, latent});
  random.add_linear("pre_block.proj", {latent, kTrunk});
  add_norm("pre_block.mlp.norm", latent);
  random.add_linear("pre_block.mlp.w0", {2 * latent, latent});
  random.add_linear("pre_block.mlp.w1", {2 * latent, latent});
  random.add_linear("pre_block.mlp.w2", {latent, 2 * latent});
  random.add_linear("mean_proj", {latent, latent, 1});
  source.set_config("encoder_num_heads", {3.0});
}

}  // namespace

VaeMemorySource tiny_audio_vae() {
  VaeMemorySource source;
  RandomTensors random(source);
  constexpr std::int64_t kLatent = 4;
  random.add_linear("dec_in_proj", {10, kLatent, 1});
  random.add_linear("decoder.conv_pre", {12, 10, 7});
  std::int64_t channels = 12;
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    const std::int64_t kernel = stage == 0 ? 9 : 4;
    const std::string up = fmt::format("decoder.ups.{}.0", stage);
    random.add(up + ".weight", {channels, channels / 2, kernel}, 0.3);
    channels /= 2;
    random.add(up + ".bias", {channels}, 0.2);
    for (std::int64_t block = 0; block < 2; ++block) {
      const std::string prefix = fmt::format("decoder.resblocks.{}.", 2 * stage + block);
      for (std::int64_t n = 0; n < 3; ++n) {
        const Shape weight({channels, channels, block == 0 ? 3 : 7});
        random.add_linear(prefix + fmt::format("convs1.{}", n), weight);
        random.add_linear(prefix + fmt::format("convs2.{}", n), weight);
      }
      for (std::int64_t a = 0; a < 6; ++a) {
        random.add(prefix + fmt::format("activations.{}.act.alpha", a), {channels}, 0.3);
        random.add(prefix + fmt::format("activations.{}.act.beta", a), {channels}, 0.3);
      }
    }
  }
  random.add("decoder.activation_post.act.alpha", {channels}, 0.3);
  random.add("decoder.activation_post.act.beta", {channels}, 0.3);
  random.add("decoder.conv_post.weight", {1, channels, 7}, 0.05);
  add_tiny_audio_encoder(source, random, kLatent);
  source.set_config("latents_mean", {0.1, -0.2, 0.3, 0.0});
  source.set_config("latents_std", {1.0, 0.5, 1.5, 2.0});
  return source;
}

}  // namespace miniacc::testing
