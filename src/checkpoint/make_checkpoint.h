#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/synthetic_model.h"
#include "core/cancel_token.h"
#include "core/error.h"

namespace miniacc {

/// The public layouts of the model (docs/checkpoints.md).
enum class CheckpointFormat {
  kOfficial,     ///< transformer/, text_encoder/, tokenizer/, video_vae/, audio_vae/; sharded
  kDiffusers,    ///< transformer/, text_encoder/, tokenizer/, vae/, audio_vae/; sharded
  kComfy,        ///< one safetensors file a component, full transformer
  kComfyPruned,  ///< the same with the AdaLN curve table
  kGguf,         ///< transformer and text encoder as GGUF, VAEs as single safetensors files
};
[[nodiscard]] std::optional<CheckpointFormat> parse_checkpoint_format(std::string_view name);
[[nodiscard]] std::optional<SyntheticSize> parse_synthetic_size(std::string_view name);

/// How the large matrices of transformer and text encoder are stored.
/// kAsStored has no name and is for conversions: each tensor keeps the type it has in the source.
enum class WeightStorage {
  kBF16,
  kF32,
  kF16,
  kFp8Scaled,
  kInt8ConvRot,
  kQ8_0,
  kQ4_0,
  kQ4_K,
  kAsStored
};
/// "bf16", "f32", "f16", "fp8_scaled", "int8_convrot", "q8_0", "q4_0", "q4_k".
[[nodiscard]] std::optional<WeightStorage> parse_weight_storage(std::string_view name);

/// kInvalidArgument when the format has no such storage; `tool` starts the message.
[[nodiscard]] Status check_storage(std::string_view tool, CheckpointFormat format,
                                   WeightStorage storage);

struct MakeCheckpointOptions {
  SyntheticSize size = SyntheticSize::kTiny;
  CheckpointFormat format = CheckpointFormat::kOfficial;
  WeightStorage storage = WeightStorage::kBF16;
  std::uint64_t seed = 0;
  std::filesystem::path out;  ///< folder that does not exist yet
  const CancelToken* cancel = nullptr;
  /// Called now and then with the bytes written so far.
  std::function<void(std::size_t size_bytes)> progress;
};

/// Writes a complete random model: four components, tokenizer and configs, in the layout of the
/// format. The same size and seed give the same weights in every format (bf16 and f32: bit for bit;
/// the pruned form differs in its AdaLN layers). Streams: memory stays at a few MB. Everything goes
/// to a folder beside `out` that is renamed at the end, or removed on failure.
/// kInvalidArgument: `out` exists, or the format has no such storage. kIo: writing failed.
[[nodiscard]] Status make_checkpoint(const MakeCheckpointOptions& options);

}  // namespace miniacc
