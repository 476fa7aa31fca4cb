#pragma once

#include <filesystem>

#include "checkpoint/model_half.h"
#include "core/error.h"

namespace miniacc {

/// Where the parts of a model lie; each path is what open_component (or Tokenizer::open) takes.
struct ModelFiles {
  std::filesystem::path transformer;
  std::filesystem::path text_encoder;
  std::filesystem::path tokenizer;  ///< a folder
  std::filesystem::path video_vae;
  std::filesystem::path audio_vae;
};

/// Finds the parts of a model below `folder`:
///   - the official folder (transformer/, text_encoder/, tokenizer/, video_vae/, audio_vae/), or
///     the folder above it with FL2VA/ and Ref2VA/;
///   - the diffusers folder (vae/ instead of video_vae/; Ref2VA in transformer_ref/);
///   - a folder of single files, ComfyUI's models folder with diffusion_models/, text_encoders/ and
///     vae/ included; files are recognised by content, whatever their names.
/// Where both halves lie there, `half` chooses; where one lies there, it is returned whichever it
/// is, and detect_half() tells. The other parts are the same for both: a Ref2VA/ without them takes
/// those of FL2VA/. kNotFound names what is not there; kInvalidInput names two files of one kind.
[[nodiscard]] Result<ModelFiles> find_components(const std::filesystem::path& folder,
                                                 ModelHalf half = ModelHalf::kFl2va);

/// The tokenizer that belongs to a text encoder: tokenizer/ or processor/ beside or above it, or
/// the files themselves. kNotFound says where was looked.
[[nodiscard]] Result<std::filesystem::path> find_tokenizer(
    const std::filesystem::path& text_encoder);

}  // namespace miniacc
