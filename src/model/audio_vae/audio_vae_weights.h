#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/audio_vae/audio_vae_config.h"

namespace miniacc::audio_vae {

/// A convolution with its weight norm folded; everything here is f32 whatever the precision of the
/// other components (spec vae.md §4: bf16 is audibly broken).
struct Convolution {
  Tensor weight;  ///< [out, in, kernel]; of a transposed one [in, out, kernel]
  Tensor bias;    ///< [out], or empty

  [[nodiscard]] ConstTensorView bias_view() const {
    return bias.empty() ? ConstTensorView{} : bias.view();
  }
  [[nodiscard]] std::size_t size_bytes() const { return weight.size_bytes() + bias.size_bytes(); }
};

/// Anti-aliased SnakeBeta.
struct Activation {
  Tensor alpha;        ///< [channels], logarithm
  Tensor beta;         ///< [channels], logarithm
  Tensor up_filter;    ///< [12]
  Tensor down_filter;  ///< [12]

  [[nodiscard]] std::size_t size_bytes() const {
    return alpha.size_bytes() + beta.size_bytes() + up_filter.size_bytes() +
           down_filter.size_bytes();
  }
};

/// A residual block: for every n, act[2n], convs1[n], act[2n+1], convs2[n], added to the input.
struct ResBlock {
  std::vector<Convolution> convs1;
  std::vector<Convolution> convs2;
  std::vector<Activation> activations;
};

struct Stage {
  Convolution up;  ///< transposed
  std::vector<ResBlock> resblocks;

  [[nodiscard]] std::size_t size_bytes() const;
};

/// What surrounds the stages.
struct Ends {
  Convolution dec_in_proj;
  Convolution conv_pre;
  Activation activation_post;
  Convolution conv_post;
};

/// Checks the shapes of all tensors the decoder reads, without reading values.
Status check_weights(const WeightSource& source, const AudioVaeConfig& config);

Result<Stage> load_stage(WeightSource& source, const AudioVaeConfig& config, std::int64_t index,
                         Device& device);
Result<Ends> load_ends(WeightSource& source, const AudioVaeConfig& config, Device& device);
/// What maps the diffusion's latents to the VAE's and back, of both halves.
Result<vae::LatentStatistics> load_statistics(WeightSource& source, const AudioVaeConfig& config,
                                              Device& device);

}  // namespace miniacc::audio_vae
