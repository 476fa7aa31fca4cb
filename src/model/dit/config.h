#pragma once

#include <cstdint>

#include "core/weight_source.h"

namespace miniacc {

/// Modalities of packed rows, in the order of the AdaLN projection's output (spec model.md §3.5).
enum class Modality : std::int32_t { kVideo = 0, kText = 1, kAudio = 2 };
constexpr std::int64_t kNumModalities = 3;
/// Modulation vectors of a block: shift, scale, gate of attention, then of the MLP.
constexpr std::int64_t kNumModulationVectors = 6;
/// A video row is a 1×2×2 patch of the latent (spec model.md §3.7).
constexpr std::int64_t kPatchArea = 4;

/// Dimensions of the diffusion transformer, named as in spec model.md §1.
struct DitConfig {
  std::int64_t hidden_size = 0;  ///< D
  std::int64_t num_layers = 0;   ///< blocks
  std::int64_t num_refiner_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;          ///< d; num_heads · d need not be D
  std::int64_t ffn_hidden_size = 0;   ///< F
  std::int64_t video_row_width = 0;   ///< latent channels · 4
  std::int64_t audio_row_width = 0;   ///< audio latent channels
  std::int64_t text_dim = 0;          ///< width of the text encoder's hidden state
  std::int64_t time_input_dim = 0;    ///< sinusoid size; 0 in the curve-table form
  std::int64_t time_hidden_size = 0;  ///< width inside the time MLP; 0 in the curve-table form
  std::int64_t time_embed_dim = 0;    ///< Dt, or the curve table's rank
  std::int64_t curve_rows = 0;        ///< rows of adaln_t_table; 0 when the file has a time MLP
  std::int64_t rope_freqs = 0;        ///< rotary frequencies per axis; 6 of them fit a head
  double rope_theta = 0.0;
  float norm_eps = 0.0F;
  float qk_norm_eps = 0.0F;
  float final_norm_eps = 0.0F;

  /// Width of q, k and v: num_heads · head_dim.
  [[nodiscard]] std::int64_t attention_size() const { return num_heads * head_dim; }
  /// Modulation values of one block and timestep: 3 modalities × 6 vectors × D.
  [[nodiscard]] std::int64_t modulation_size() const {
    return kNumModalities * kNumModulationVectors * hidden_size;
  }
  [[nodiscard]] bool has_curve_table() const { return curve_rows > 0; }
};

/// Dimensions from the tensors' shapes, what shapes do not tell from the config keys rope_theta,
/// rope_inv_freq_len, norm_eps, qk_norm_eps, final_norm_eps (absent: the released model's values).
/// Every tensor the transformer reads is checked to be there in its shape, so that loading fails
/// afterwards only on content. kInvalidInput or kNotFound names the tensor, what it is and what it
/// should be; kUnsupported names a variant of the model that has extra tensors.
[[nodiscard]] Result<DitConfig> read_dit_config(const WeightSource& weights);

}  // namespace miniacc
