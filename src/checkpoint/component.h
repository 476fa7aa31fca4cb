#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "io/tensor_file.h"

namespace miniacc {

/// The four networks of MiniMax-H3; each is one file, or one set of shards.
enum class Component { kTransformer, kTextEncoder, kVideoVae, kAudioVae };

/// How the tensors of a file are named (and with it how their rows are ordered).
enum class Naming {
  kOfficial,   ///< the vendor's names; for the text encoder those of the full Qwen3-VL checkpoint
  kDiffusers,  ///< the diffusers library's names
  kComfy,      ///< ComfyUI single files: official names, plain query/key/value rows
  kLlamaCpp,   ///< llama.cpp's names (text encoder only)
};

/// "transformer", "text encoder", "video VAE", "audio VAE": as messages and reports spell them.
[[nodiscard]] std::string_view component_name(Component component);
/// The same with its article: "a transformer", "an audio VAE".
[[nodiscard]] std::string component_phrase(Component component);
/// The option a user gives such a file with: "--diffusion-model", "--text-encoder", ...
[[nodiscard]] std::string_view component_option(Component component);
/// "official", "diffusers", "comfy", "llama.cpp".
[[nodiscard]] std::string_view naming_name(Naming naming);

/// What a checkpoint was recognised as.
struct CheckpointInfo {
  Component component = Component::kTransformer;
  Naming naming = Naming::kOfficial;
  ContainerFormat container = ContainerFormat::kSafetensors;
  std::filesystem::path path;    ///< the file or index that was opened
  std::string prefix;            ///< stripped from all names, e.g. "model.diffusion_model."
  bool pruned = false;           ///< transformer with an AdaLN curve table instead of the time MLP
  bool interleaved_qkv = false;  ///< fused rows are stored head by head
  std::string quantization;      ///< "", "fp8_scaled", "int8_tensorwise", "int8_tensorwise+convrot"
  std::string block_type;        ///< of block-quantised matrices (GGUF), e.g. "q8_0"; or ""
  /// Dimensions read off the shapes ("hidden_size", "num_layers", ...), for reports.
  std::map<std::string, std::int64_t> dimensions;
};

}  // namespace miniacc
