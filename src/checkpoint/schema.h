#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/component.h"
#include "checkpoint/config_claims.h"
#include "core/error.h"
#include "core/shape.h"

namespace miniacc {

/// Sizes of the transformer; names of the fields are those of its config. Spec model.md §1, §2.1.
struct TransformerDims {
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_refiner_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_hidden_size = 0;
  std::int64_t patch_features = 0;  ///< values of a video row: 4 x latent channels
  std::int64_t audio_channels = 0;
  std::int64_t text_dim = 0;
  std::int64_t timestep_input_dim = 0;      ///< 0 in the pruned form
  std::int64_t time_embed_hidden_size = 0;  ///< 0 in the pruned form
  std::int64_t time_embed_dim = 0;          ///< columns of the AdaLN layers
  std::int64_t table_rows = 0;              ///< pruned form: rows of adaln_t_table
  std::int64_t num_modalities = 0;
  std::int64_t rope_inv_freq_len = 0;  ///< 0 when the file has no rope.inv_freq
};

/// Sizes of the vision tower inside the text encoder. Spec text_encoder.md §5.
struct VisionDims {
  std::int64_t depth = 0;
  std::int64_t hidden_size = 0;
  std::int64_t ffn_hidden_size = 0;
  std::int64_t in_channels = 0;
  std::int64_t temporal_patch_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t num_positions = 0;
  std::int64_t merged_size = 0;  ///< hidden_size x merge area
  std::int64_t num_deepstack = 0;
};

/// Sizes of the text encoder; num_layers counts the layers that are used.
struct TextEncoderDims {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_hidden_size = 0;
  std::optional<VisionDims> vision;
  std::int64_t num_stored_layers = 0;  ///< of the file, at least num_layers
};

/// One resolution of the video VAE's encoder: output channels of its blocks, and whether a strided
/// convolution follows.
struct VideoEncoderStage {
  std::vector<std::int64_t> block_channels;
  bool downsample = false;
};
struct VideoVaeDims {
  std::int64_t latent_channels = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t ffn_hidden_size = 0;
  std::int64_t patch_outputs = 0;  ///< 3 x time x height x width of a token
  std::int64_t num_register_tokens = 0;
  std::int64_t encoder_channels = 0;  ///< of encoder.conv_in; 0 when the file has no encoder
  std::vector<VideoEncoderStage> encoder_stages;
  std::string encoder_problem = {};  ///< why the encoder's sizes cannot be read; "" where they can
};

struct AudioUpsampler {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 0;
};
struct AudioEncoderStage {
  std::int64_t channels = 0;
  std::int64_t num_units = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 0;
};
struct AudioVaeDims {
  std::int64_t latent_channels = 0;
  std::int64_t trunk_size = 0;  ///< channels between latents and either half (2048)
  std::int64_t decoder_channels = 0;
  std::int64_t decoder_kernel = 0;
  std::vector<AudioUpsampler> upsamplers;
  std::vector<std::int64_t> resblock_kernels;  ///< one a residual block of a stage
  std::int64_t num_dilations = 0;
  std::int64_t filter_taps = 12;
  std::int64_t post_kernel = 0;
  std::int64_t encoder_channels = 0;  ///< 0 when the file has no encoder
  std::int64_t encoder_kernel = 0;
  std::vector<AudioEncoderStage> encoder_stages;
  std::int64_t encoder_out_kernel = 0;
  std::int64_t posterior_ffn = 0;    ///< rows of pre_block.mlp.w0
  std::string encoder_problem = {};  ///< why the encoder's sizes cannot be read; "" where they can
};

/// A tensor a component consists of.
struct ExpectedTensor {
  std::string name;
  Shape shape;
  bool optional = false;
  std::string group = {};  ///< tensors of one named group are all there or all absent; "": required
};

/// Group of the tensors that only encode: a VAE that lacks them, or some of them, still decodes.
inline constexpr std::string_view kEncoderGroup = "encoder";
/// Facts about that group start with this, so that a configuration that contradicts them does not
/// keep the decoder from being used.
inline constexpr std::string_view kEncoderFacts = "encoder_";
/// Whether a canonical tensor of this component is one of them, whatever the sizes.
[[nodiscard]] bool is_encoder_tensor(Component component, std::string_view canonical);
/// The tensor whose presence says that a VAE has an encoder; "" for other components.
[[nodiscard]] std::string_view encoder_entry(Component component);

[[nodiscard]] std::vector<ExpectedTensor> transformer_tensors(const TransformerDims& dims);
[[nodiscard]] std::vector<ExpectedTensor> text_encoder_tensors(const TextEncoderDims& dims);
[[nodiscard]] std::vector<ExpectedTensor> video_vae_tensors(const VideoVaeDims& dims);
[[nodiscard]] std::vector<ExpectedTensor> audio_vae_tensors(const AudioVaeDims& dims);

/// Shapes by canonical name, null for an absent tensor.
using ShapeLookup = std::function<const Shape*(std::string_view name)>;

/// Sizes read off the shapes; kInvalidInput names the tensor that is missing or of wrong rank.
/// `where` (a path) starts each message.
[[nodiscard]] Result<TransformerDims> read_transformer_dims(const ShapeLookup& shapes,
                                                            const std::string& where);
/// `wanted_layers`: how many layers the checkpoint says are used, otherwise 50; no more than are
/// stored are counted, which the caller has to compare.
[[nodiscard]] Result<TextEncoderDims> read_text_encoder_dims(
    const ShapeLookup& shapes, std::optional<std::int64_t> wanted_layers, const std::string& where);
[[nodiscard]] Result<VideoVaeDims> read_video_vae_dims(const ShapeLookup& shapes,
                                                       const std::string& where);
[[nodiscard]] Result<AudioVaeDims> read_audio_vae_dims(const ShapeLookup& shapes,
                                                       const std::string& where);

/// What a component consists of: its tensors, and its sizes.
struct Schema {
  std::vector<ExpectedTensor> tensors;
  std::map<std::string, std::int64_t> dimensions;
  Facts facts;                       ///< what a configuration is compared with
  std::string encoder_problem = {};  ///< of the VAEs, see their sizes
};
[[nodiscard]] Result<Schema> read_schema(Component component, const ShapeLookup& shapes,
                                         std::optional<std::int64_t> wanted_layers,
                                         const std::string& where);

/// Layers of the released text encoder whose output conditions the transformer (spec
/// text_encoder.md §1).
inline constexpr std::int64_t kReleasedTextLayers = 50;

}  // namespace miniacc
