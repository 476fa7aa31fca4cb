#include "checkpoint/make_checkpoint.h"

#include <fmt/format.h>

#include <system_error>
#include <vector>

#include "checkpoint/output_files.h"
#include "checkpoint/synthetic_configs.h"
#include "checkpoint/synthetic_outputs.h"
#include "checkpoint/synthetic_tokenizer.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMinShards = 2;  // so that every sharded folder exercises the index

using Metadata = std::map<std::string, std::string>;

class CheckpointWriter {
 public:
  explicit CheckpointWriter(const MakeCheckpointOptions& options)
      : options_(options),
        model_(synthetic_model(options.size, synthetic_tokenizer().vocab_size)),
        control_{"make-checkpoint", options.cancel, options.progress} {}

  Status write(const fs::path& folder) {
    switch (options_.format) {
      case CheckpointFormat::kOfficial:
      case CheckpointFormat::kDiffusers:
        return write_folders(folder);
      case CheckpointFormat::kComfy:
      case CheckpointFormat::kComfyPruned:
      case CheckpointFormat::kGguf:
        return write_single_files(folder);
    }
    return {};
  }

 private:
  Status write_folders(const fs::path& folder) {
    const bool official = options_.format == CheckpointFormat::kOfficial;
    const std::string stem = official ? "model" : "diffusion_pytorch_model";
    const auto outputs = [&](Component component) {
      return synthetic_outputs(model_, component, options_);
    };
    MINIACC_RETURN_IF_ERROR(write_synthetic_configs(model_, options_.format, folder));
    MINIACC_RETURN_IF_ERROR(write_synthetic_tokenizer(folder / "tokenizer"));
    MINIACC_RETURN_IF_ERROR(write_shards(folder / "transformer", stem,
                                         outputs(Component::kTransformer), kMinShards, control_));
    MINIACC_RETURN_IF_ERROR(write_shards(folder / "text_encoder", "model",
                                         outputs(Component::kTextEncoder), kMinShards, control_));
    const fs::path video = official ? folder / "video_vae/source" : folder / "vae";
    MINIACC_RETURN_IF_ERROR(write_file(video / (stem + ".safetensors"),
                                       outputs(Component::kVideoVae), {{"format", "pt"}}));
    return write_file(folder / "audio_vae" / (stem + ".safetensors"), outputs(Component::kAudioVae),
                      {{"format", "pt"}});
  }

  Status write_single_files(const fs::path& folder) {
    const bool gguf = options_.format == CheckpointFormat::kGguf;
    const std::string ending = gguf ? ".gguf" : ".safetensors";
    MINIACC_RETURN_IF_ERROR(write_synthetic_tokenizer(folder / "tokenizer"));
    const std::pair<Component, std::string> files[] = {
        {Component::kTransformer, "minimax_h3" + ending},
        {Component::kTextEncoder, "qwen3vl_minimax_h3" + ending},
        {Component::kVideoVae, "minimax_h3_video_vae.safetensors"},
        {Component::kAudioVae, "minimax_h3_audio_vae.safetensors"},
    };
    for (const auto& [component, name] : files) {
      MINIACC_RETURN_IF_ERROR(write_file(folder / name,
                                         synthetic_outputs(model_, component, options_),
                                         {{"config", single_file_config(model_, component)}}));
    }
    return {};
  }

  Status write_file(const fs::path& path, const std::vector<OutputTensor>& outputs,
                    const Metadata& metadata) {
    return write_tensor_file(path, outputs, metadata, control_);
  }

  const MakeCheckpointOptions& options_;
  SyntheticModel model_;
  WriteControl control_;
};

template <typename Value, std::size_t Count>
std::optional<Value> find_name(const std::pair<std::string_view, Value> (&names)[Count],
                               std::string_view name) {
  for (const auto& [known, value] : names) {
    if (known == name) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<CheckpointFormat> parse_checkpoint_format(std::string_view name) {
  constexpr std::pair<std::string_view, CheckpointFormat> kNames[] = {
      {"official", CheckpointFormat::kOfficial}, {"diffusers", CheckpointFormat::kDiffusers},
      {"comfy", CheckpointFormat::kComfy},       {"comfy-pruned", CheckpointFormat::kComfyPruned},
      {"gguf", CheckpointFormat::kGguf},
  };
  return find_name(kNames, name);
}

std::optional<SyntheticSize> parse_synthetic_size(std::string_view name) {
  constexpr std::pair<std::string_view, SyntheticSize> kNames[] = {
      {"tiny", SyntheticSize::kTiny},
      {"small", SyntheticSize::kSmall},
      {"full", SyntheticSize::kFull},
  };
  return find_name(kNames, name);
}

std::optional<WeightStorage> parse_weight_storage(std::string_view name) {
  constexpr std::pair<std::string_view, WeightStorage> kNames[] = {
      {"bf16", WeightStorage::kBF16},
      {"f32", WeightStorage::kF32},
      {"f16", WeightStorage::kF16},
      {"fp8_scaled", WeightStorage::kFp8Scaled},
      {"int8_convrot", WeightStorage::kInt8ConvRot},
      {"q8_0", WeightStorage::kQ8_0},
      {"q4_0", WeightStorage::kQ4_0},
      {"q4_k", WeightStorage::kQ4_K},
  };
  return find_name(kNames, name);
}

Status check_storage(std::string_view tool, CheckpointFormat format, WeightStorage storage) {
  const bool is_comfy =
      format == CheckpointFormat::kComfy || format == CheckpointFormat::kComfyPruned;
  const bool is_8bit =
      storage == WeightStorage::kFp8Scaled || storage == WeightStorage::kInt8ConvRot;
  const bool is_block = storage == WeightStorage::kQ8_0 || storage == WeightStorage::kQ4_0 ||
                        storage == WeightStorage::kQ4_K;
  if ((is_8bit && !is_comfy) || (is_block && format != CheckpointFormat::kGguf)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {}", tool,
                            is_8bit ? "fp8_scaled and int8_convrot exist in formats comfy and "
                                      "comfy-pruned only"
                                    : "q8_0, q4_0 and q4_k exist in format gguf only"));
  }
  return {};
}

Status make_checkpoint(const MakeCheckpointOptions& options) {
  std::error_code ignored;
  if (options.out.empty() || fs::exists(options.out, ignored)) {
    return fail(ErrorCode::kInvalidArgument,
                options.out.string() + ": exists already, wanted a new folder");
  }
  MINIACC_RETURN_IF_ERROR(check_storage("make-checkpoint", options.format, options.storage));
  StagingFolder staging(options.out);
  MINIACC_RETURN_IF_ERROR(staging.create());
  MINIACC_RETURN_IF_ERROR(CheckpointWriter(options).write(staging.path()));
  return staging.finish();
}

}  // namespace miniacc
