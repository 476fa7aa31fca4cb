#include "checkpoint/synthetic_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/float_convert.h"

namespace miniacc {
namespace {

// Latent statistics of the released VAEs (spec vae.md §1), rounded.
constexpr std::array<double, 24> kVideoMean = {0.8581,  -0.9607, 1.0662,  -0.5090, -0.2728, -1.3675,
                                               -0.2553, -0.2691, -0.5377, -0.0464, 0.6657,  0.1969,
                                               -0.5461, -0.4035, -0.2368, 0.2593,  -0.3013, 0.2113,
                                               -1.1207, 0.3582,  -0.0423, 0.2605,  0.2286,  0.7056};
constexpr std::array<double, 24> kVideoStd = {
    1.2224, 1.2767, 1.6832, 1.7549, 1.5636, 2.1941, 0.9653, 1.0570, 0.8419, 0.7730, 1.8956, 0.9468,
    0.7997, 0.4499, 0.7197, 0.6936, 2.9611, 2.7694, 3.0496, 2.1088, 3.2762, 3.1627, 2.2817, 2.6128};
constexpr std::array<double, 32> kAudioMean = {
    -0.0202, 0.3876,  -0.0440, -0.2859, 0.0818,  -0.3578, 0.0406,  -0.0155,
    -0.2234, 0.1821,  0.2942,  -0.0790, -0.0568, -0.3699, -0.3162, 0.5906,
    -0.0521, 0.0137,  -0.0369, 0.0973,  -0.3395, -0.3069, -0.2450, -0.0347,
    0.0287,  -0.2122, -0.1678, 0.3221,  -0.1223, 0.4357,  -0.0503, 0.3979};
constexpr std::array<double, 32> kAudioStd = {
    1.6896, 2.7626, 1.7945, 1.6802, 1.6390, 2.7788, 1.7659, 1.6200, 2.6337, 1.8539, 2.5056,
    1.8110, 1.9580, 1.6685, 1.4922, 3.2983, 1.9492, 1.8720, 1.8334, 1.6488, 1.6177, 1.9131,
    1.5695, 1.6944, 1.8318, 1.5541, 1.9345, 1.5992, 1.7180, 1.6307, 1.8661, 1.5614};

constexpr std::int64_t kPixelsPerToken = std::int64_t{3} * 4 * 16 * 16;
constexpr std::int64_t kPrunedRank = 8;
constexpr std::int64_t kReleasedVocab = 151936;

std::uint64_t mix(std::uint64_t x) {
  // splitmix64 (Steele, Lea & Flood 2014): a bijection, so a counter gives distinct values
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Sum of four uniform 16-bit numbers, centred, with variance 1: close to normal, never beyond
/// kNormalBound, and one multiplication-mix a value.
float near_normal(std::uint64_t bits) {
  const std::uint64_t sum =
      (bits & 0xFFFFU) + ((bits >> 16) & 0xFFFFU) + ((bits >> 32) & 0xFFFFU) + (bits >> 48);
  constexpr float kCentre = 2.0F * 65535.0F;
  constexpr float kScale = 1.7320508F / 65536.0F;
  return (static_cast<float>(sum) - kCentre) * kScale;
}
constexpr float kNormalBound = 3.4642F;

std::uint64_t hash_name(std::string_view text, std::uint64_t value) {
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return value;
}

AudioVaeDims audio_dims(std::int64_t trunk, std::int64_t decoder, std::int64_t encoder) {
  AudioVaeDims dims;
  dims.latent_channels = 32;
  dims.trunk_size = trunk;
  dims.decoder_channels = decoder;
  dims.decoder_kernel = 7;
  for (const std::int64_t kernel : {9, 9, 4, 4, 4, 4, 4}) {
    dims.upsamplers.push_back({decoder, decoder / 2, kernel});
    decoder /= 2;
  }
  dims.resblock_kernels = {3, 7, 11};
  dims.num_dilations = 3;
  dims.post_kernel = 7;
  dims.encoder_channels = encoder;
  dims.encoder_kernel = 7;
  for (const std::int64_t stride : {2, 4, 4, 5, 5}) {
    dims.encoder_stages.push_back({encoder, 3, 2 * encoder, 2 * stride});
    encoder *= 2;
  }
  dims.encoder_out_kernel = 3;
  dims.posterior_ffn = 64;
  return dims;
}

void set_video_encoder(VideoVaeDims& dims, const std::array<std::int64_t, 6>& channels) {
  dims.encoder_channels = channels[0];
  for (std::size_t i = 0; i < channels.size(); ++i) {
    dims.encoder_stages.push_back({{channels[i], channels[i]}, i < 4});
  }
}

void set_tiny(SyntheticModel& model) {
  model.transformer = {256, 3, 1, 16, 32, 512, 96, 32, 256, 64, 128, 32, 0, 3, 4};
  model.text_encoder = {0, 256, 3, 8, 2, 32, 256, VisionDims{3, 64, 128, 3, 2, 16, 36, 256, 2}};
  model.stored_text_layers = 4;
  model.mrope_section = {6, 5, 5};
  model.deepstack_blocks = {0, 1};
  model.vision_heads = 2;
  model.video_vae = {24, 128, 2, 256, kPixelsPerToken, 4, 0, {}};
  set_video_encoder(model.video_vae, {8, 16, 16, 24, 24, 32});
  model.video_vae_heads = 4;
  model.video_vae_groups = 8;
  model.audio_vae = audio_dims(64, 128, 4);
}

void set_small(SyntheticModel& model) {
  model.transformer = {2048, 24, 2, 24, 128, 5632, 96, 32, 2048, 256, 2048, 256, 0, 3, 16};
  model.text_encoder = {0, 2048, 16,   16,
                        4, 128,  6144, VisionDims{6, 512, 2048, 3, 2, 16, 2304, 2048, 3}};
  model.stored_text_layers = 18;
  model.mrope_section = {24, 20, 20};
  model.deepstack_blocks = {1, 3, 5};
  model.vision_heads = 8;
  model.video_vae = {24, 1024, 8, 4096, kPixelsPerToken, 4, 0, {}};
  set_video_encoder(model.video_vae, {32, 64, 64, 128, 128, 256});
  model.video_vae_heads = 16;
  model.video_vae_groups = 32;
  model.audio_vae = audio_dims(512, 512, 16);
}

void set_full(SyntheticModel& model) {
  model.transformer = {5376, 50, 2, 56, 128, 14336, 96, 32, 5120, 256, 5376, 2688, 0, 3, 16};
  model.text_encoder = {0, 5120, 50,    64,
                        8, 128,  25600, VisionDims{27, 1152, 4304, 3, 2, 16, 2304, 4608, 3}};
  model.stored_text_layers = 64;
  model.mrope_section = {24, 20, 20};
  model.deepstack_blocks = {8, 16, 24};
  model.vision_heads = 16;
  model.video_vae = {24, 2048, 36, 8192, kPixelsPerToken, 4, 0, {}};
  set_video_encoder(model.video_vae, {128, 256, 256, 512, 512, 1024});
  model.video_vae_heads = 32;
  model.video_vae_groups = 32;
  model.audio_vae = audio_dims(2048, 1024, 64);
}

}  // namespace

SyntheticModel synthetic_model(SyntheticSize size, std::int64_t vocab_size) {
  SyntheticModel model;
  switch (size) {
    case SyntheticSize::kTiny:
      set_tiny(model);
      break;
    case SyntheticSize::kSmall:
      set_small(model);
      break;
    case SyntheticSize::kFull:
      set_full(model);
      vocab_size = kReleasedVocab;
      break;
  }
  model.text_encoder.vocab_size = vocab_size;
  model.audio_rates = {5, 5, 2, 2, 2, 2, 2};
  model.video_latents_mean.assign(kVideoMean.begin(), kVideoMean.end());
  model.video_latents_std.assign(kVideoStd.begin(), kVideoStd.end());
  model.audio_latents_mean.assign(kAudioMean.begin(), kAudioMean.end());
  model.audio_latents_std.assign(kAudioStd.begin(), kAudioStd.end());
  return model;
}

TransformerDims pruned(const TransformerDims& dims) {
  TransformerDims result = dims;
  result.timestep_input_dim = 0;
  result.time_embed_hidden_size = 0;
  result.time_embed_dim = kPrunedRank;
  result.table_rows = 1025;  // what Comfy-Org publishes
  return result;
}

bool is_f32_island(std::string_view canonical) {
  return canonical.starts_with("video_patch_proj.") || canonical.starts_with("audio_patch_proj.") ||
         canonical.starts_with("time_embedder.") || canonical.starts_with("rope.") ||
         canonical.starts_with("final_layer.video_out.") ||
         canonical.starts_with("final_layer.audio_out.") || canonical == "adaln_t_table";
}

bool is_weight_normed(std::string_view canonical) {
  const bool is_trunk = canonical.starts_with("encoder.") || canonical.starts_with("decoder.");
  return is_trunk && canonical.ends_with(".weight");
}

SyntheticTensor::SyntheticTensor(Component component, const ExpectedTensor& tensor,
                                 std::uint64_t seed, std::string_view tag) {
  rows_ = tensor.shape.rank() == 0 ? 1 : tensor.shape[0];
  columns_ = tensor.shape.num_elements() / rows_;
  key_ = mix(seed);
  key_ = hash_name(component_name(component), key_);
  key_ = mix(hash_name(tensor.name, key_));
  key_ = mix(hash_name(tag, key_));
  switch (component) {
    case Component::kTransformer:
      choose_transformer(tensor.name);
      break;
    case Component::kTextEncoder:
      choose_text_encoder(tensor.name);
      break;
    case Component::kVideoVae:
      choose_video_vae(tensor.name);
      break;
    case Component::kAudioVae:
      choose_audio_vae(tag.empty() ? tensor.name : tensor.name + std::string(tag), tensor.shape);
      break;
  }
}

void SyntheticTensor::set_linear(float gain) {
  deviation_ = gain / std::sqrt(static_cast<float>(columns_));
}

void SyntheticTensor::choose_transformer(const std::string& name) {
  round_to_bf16_ = !is_f32_island(name);
  if (name == "rope.inv_freq") {
    kind_ = Kind::kInverseFrequencies;
  } else if (name == "adaln_t_table") {
    kind_ = Kind::kCurveTable;
  } else if (name.find("adaln_proj") != std::string::npos) {
    // Shifts, scales and gates of some 0.2: fifty gated branches then triple the residual at most.
    if (name.ends_with(".weight")) {
      set_linear(0.2F);
    } else {
      deviation_ = 0.15F;
    }
  } else if (name.find("norm") != std::string::npos) {
    mean_ = 1.0F;
    deviation_ = 0.1F;
  } else if (name.ends_with(".bias")) {
    deviation_ = 0.02F;
  } else if (name.starts_with("time_embedder.") || name.ends_with(".mlp.fc2.weight")) {
    set_linear(1.5F);  // their inputs went through SiLU, which shrinks them
  } else if (name.starts_with("final_layer.")) {
    set_linear(0.5F);  // velocities below the noise they change
  } else {
    set_linear(1.0F);
    fused_qkv_ = name.ends_with(".qkv_proj.weight");
  }
}

void SyntheticTensor::choose_text_encoder(const std::string& name) {
  round_to_bf16_ = true;
  if (name == "embed_tokens.weight") {
    deviation_ = 1.0F;
  } else if (name.find("norm") != std::string::npos && name.ends_with(".weight")) {
    mean_ = 1.0F;
    deviation_ = 0.1F;
  } else if (name.ends_with(".bias") || name.ends_with("pos_embed.weight")) {
    deviation_ = 0.02F;
  } else if (name.find("o_proj") != std::string::npos ||
             name.find("down_proj") != std::string::npos) {
    set_linear(0.7F);  // what is added to the residual
  } else {
    set_linear(1.0F);
  }
}

void SyntheticTensor::choose_video_vae(const std::string& name) {
  if (name == "decoder.mask_token") {
    kind_ = Kind::kConstant;
  } else if (name.ends_with("register_tokens")) {
    deviation_ = 0.5F;
  } else if (name.ends_with(".scale1") || name.ends_with(".scale2")) {
    mean_ = 0.3F;
    deviation_ = 0.05F;
  } else if (name.find("norm") != std::string::npos && name.ends_with(".weight")) {
    mean_ = 1.0F;
    deviation_ = 0.1F;
  } else if (name.ends_with(".bias")) {
    deviation_ = 0.02F;
  } else if (name == "decoder.proj_out.weight") {
    set_linear(0.6F);  // pixels have a deviation near 0.15 around mid grey
  } else if (name == "decoder.x_embedder.weight") {
    set_linear(0.5F);  // latents come with a deviation near 2
  } else {
    set_linear(1.0F);
  }
}

void SyntheticTensor::choose_audio_vae(const std::string& name, const Shape& shape) {
  if (name.ends_with("zero_k_bias")) {
    kind_ = Kind::kConstant;
  } else if (name.ends_with(".weight_v")) {
    deviation_ = 1.0F;
  } else if (name.ends_with(".weight_g")) {
    // The norm of a row. One keeps the variance of a white input; a transposed convolution's row
    // belongs to an input channel and spreads over out/in times stride as many outputs.
    columns_ = 1;
    mean_ = 1.0F;
    if (name.find(".ups.") != std::string::npos) {
      const double stride = shape[2] > 4 ? 5.0 : 2.0;
      mean_ = static_cast<float>(
          std::sqrt(static_cast<double>(shape[1]) / static_cast<double>(shape[0]) * stride));
    } else if (name.find(".convs2.") != std::string::npos) {
      mean_ = 0.3F;
    } else if (name.find("conv_post") != std::string::npos) {
      mean_ = 0.1F;
    }
    deviation_ = 0.05F * mean_;
  } else if (name.ends_with(".act.alpha") || name.ends_with(".act.beta")) {
    deviation_ = 0.2F;  // logarithms
  } else if (name.ends_with(".alpha") ||
             (name.find("norm") != std::string::npos && name.ends_with(".weight"))) {
    mean_ = 1.0F;
    deviation_ = 0.1F;
  } else if (name.ends_with("bias")) {
    deviation_ = 0.02F;
  } else {
    set_linear(name == "dec_in_proj.weight" ? 0.5F : 1.0F);
  }
}

float SyntheticTensor::row_gain(std::int64_t row) const {
  // Queries, keys and values of real checkpoints differ in size, and that is what tells the two
  // row orders apart where names do not. q and k are normalised, so it costs nothing.
  constexpr std::array<float, 3> kGains = {1.0F, 0.7F, 1.3F};
  return fused_qkv_ ? kGains[static_cast<std::size_t>(3 * row / rows_)] : 1.0F;
}

float SyntheticTensor::bound() const {
  switch (kind_) {
    case Kind::kConstant:
      return std::fabs(mean_);
    case Kind::kInverseFrequencies:
    case Kind::kCurveTable:
      return 1.0F;
    case Kind::kNormal:
      break;
  }
  // Rounding to bf16 can step over the bound by half a unit.
  return 1.01F * (std::fabs(mean_) + kNormalBound * deviation_ * (fused_qkv_ ? 1.3F : 1.0F));
}

void SyntheticTensor::fill(std::int64_t first, std::int64_t count, float* out) const {
  constexpr double kTwoPi = 2.0 * std::numbers::pi;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t row = first + r;
    const float deviation = deviation_ * row_gain(row);
    for (std::int64_t c = 0; c < columns_; ++c) {
      float& value = out[r * columns_ + c];
      switch (kind_) {
        case Kind::kNormal:
          value =
              mean_ +
              deviation * near_normal(mix(key_ + static_cast<std::uint64_t>(row * columns_ + c)));
          break;
        case Kind::kConstant:
          value = mean_;
          break;
        case Kind::kInverseFrequencies:
          value = static_cast<float>(
              std::pow(10000.0, -static_cast<double>(row) / static_cast<double>(rows_)));
          break;
        case Kind::kCurveTable: {
          // Smooth curves of t, as the released table's columns are.
          const double t = static_cast<double>(row) / static_cast<double>(rows_ - 1);
          const double phase =
              static_cast<double>(mix(key_ + static_cast<std::uint64_t>(c)) >> 11) * 0x1.0p-53;
          value = static_cast<float>(
              0.8 * std::sin(kTwoPi * (phase + 0.25 * static_cast<double>(c + 1) * t)));
          break;
        }
      }
      if (round_to_bf16_) {
        value = round_to_bf16(value);
      }
    }
  }
}

}  // namespace miniacc
