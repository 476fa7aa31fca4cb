#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/schema.h"

namespace miniacc {

/// How large a made-up model is. `tiny` (about 23 MB) is what tests and demos run; `small` has
/// about 6 GB in bf16 with layers below 300 MB in f32; `full` has the released model's sizes.
enum class SyntheticSize { kTiny, kSmall, kFull };

/// A complete model without weights: sizes, and the hyper-parameters that shapes do not tell.
struct SyntheticModel {
  TransformerDims transformer;  ///< the full form; pruned() derives the other
  TextEncoderDims text_encoder;
  std::int64_t stored_text_layers = 0;  ///< official folders hold layers beyond those used
  std::vector<std::int64_t> mrope_section;
  std::vector<std::int64_t> deepstack_blocks;
  std::int64_t vision_heads = 0;
  VideoVaeDims video_vae;
  std::int64_t video_vae_heads = 0;
  std::int64_t video_vae_groups = 0;  ///< of the encoder's group norms
  AudioVaeDims audio_vae;
  std::vector<std::int64_t> audio_rates;
  std::vector<double> video_latents_mean;
  std::vector<double> video_latents_std;
  std::vector<double> audio_latents_mean;
  std::vector<double> audio_latents_std;
};
/// `vocab_size`: rows of the embedding (the released number for kFull).
[[nodiscard]] SyntheticModel synthetic_model(SyntheticSize size, std::int64_t vocab_size);

/// The same transformer with a curve table of 8 columns in place of the time MLP.
[[nodiscard]] TransformerDims pruned(const TransformerDims& dims);

/// Values of one canonical tensor, a function of component, name, shape and seed alone, so that
/// every file format holds the same weights and any row can be made without the others.
/// Statistics keep activations in a healthy range: matrices scale with their fan-in, norm weights
/// are near one, gates and biases are small, heads give outputs that do not saturate.
class SyntheticTensor {
 public:
  /// `tag` distinguishes variants of a tensor (weight_v and weight_g of one convolution).
  SyntheticTensor(Component component, const ExpectedTensor& tensor, std::uint64_t seed,
                  std::string_view tag = {});

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  /// Rows [first, first + count) into out [count * columns].
  void fill(std::int64_t first, std::int64_t count, float* out) const;
  /// No value is larger in magnitude.
  [[nodiscard]] float bound() const;

 private:
  enum class Kind { kNormal, kConstant, kInverseFrequencies, kCurveTable };
  void choose_transformer(const std::string& name);
  void choose_text_encoder(const std::string& name);
  void choose_video_vae(const std::string& name);
  void choose_audio_vae(const std::string& name, const Shape& shape);
  void set_linear(float gain);
  [[nodiscard]] float row_gain(std::int64_t row) const;

  Kind kind_ = Kind::kNormal;
  std::int64_t rows_ = 1;
  std::int64_t columns_ = 1;
  std::uint64_t key_ = 0;
  float mean_ = 0.0F;
  float deviation_ = 0.0F;
  bool fused_qkv_ = false;
  bool round_to_bf16_ = false;
};

/// True for the transformer's tensors that are f32 in every unquantised file (spec model.md §2.1).
[[nodiscard]] bool is_f32_island(std::string_view canonical);
/// True for the audio VAE's convolutions that official files store as weight_g and weight_v.
[[nodiscard]] bool is_weight_normed(std::string_view canonical);

}  // namespace miniacc
