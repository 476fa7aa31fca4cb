#include "checkpoint/make_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <vector>

#include "checkpoint/synthetic_configs.h"
#include "checkpoint/synthetic_outputs.h"
#include "checkpoint/synthetic_tokenizer.h"
#include "checkpoint/text_file.h"
#include "io/dequantize.h"
#include "io/tensor_writer.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSlabValues = std::int64_t{1} << 20;
constexpr std::size_t kShardBytes = std::size_t{5} << 30;
constexpr std::size_t kMinShards = 2;  // so that every sharded folder exercises the index

using Metadata = std::map<std::string, std::string>;

/// A folder that is removed unless it was renamed into place.
class StagingFolder {
 public:
  explicit StagingFolder(fs::path target) : target_(std::move(target)) {
    path_ = target_;
    path_ += ".partial";
  }
  ~StagingFolder() {
    if (!done_) {
      std::error_code ignored;
      fs::remove_all(path_, ignored);
    }
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

  [[nodiscard]] Status create() {
    std::error_code error;
    const fs::path parent = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
    if (!fs::is_directory(parent, error)) {
      return fail(ErrorCode::kNotFound, fmt::format("{}: there is no folder {} to make it in",
                                                    target_.string(), parent.string()));
    }
    fs::remove_all(path_, error);  // left over from a run that was killed
    fs::create_directory(path_, error);
    return error ? fail(ErrorCode::kIo, fmt::format("{}: cannot make this folder: {}",
                                                    path_.string(), error.message()))
                 : Status();
  }
  [[nodiscard]] Status finish() {
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) {
      return fail(ErrorCode::kIo, fmt::format("{}: cannot rename {} to it: {}", target_.string(),
                                              path_.string(), error.message()));
    }
    done_ = true;
    return {};
  }

 private:
  fs::path target_;
  fs::path path_;
  bool done_ = false;
};

std::size_t size_of(const SyntheticOutput& output) {
  return storage_bytes(output.spec.dtype, output.spec.shape.num_elements()).value_or(0);
}

class CheckpointWriter {
 public:
  explicit CheckpointWriter(const MakeCheckpointOptions& options)
      : options_(options),
        model_(synthetic_model(options.size, synthetic_tokenizer().vocab_size)) {}

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
    MINIACC_RETURN_IF_ERROR(
        write_shards(folder / "transformer", stem, outputs(Component::kTransformer)));
    MINIACC_RETURN_IF_ERROR(
        write_shards(folder / "text_encoder", "model", outputs(Component::kTextEncoder)));
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

  Status write_shards(const fs::path& folder, const std::string& stem,
                      const std::vector<SyntheticOutput>& outputs) {
    std::size_t total = 0;
    for (const SyntheticOutput& output : outputs) {
      total += size_of(output);
    }
    const std::size_t num_shards = std::max(kMinShards, (total + kShardBytes - 1) / kShardBytes);
    std::vector<std::vector<SyntheticOutput>> shards(num_shards);
    nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
    const auto shard_name = [&](std::size_t shard) {
      return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, num_shards);
    };
    std::size_t done = 0;
    for (const SyntheticOutput& output : outputs) {
      const std::size_t shard = std::min(done * num_shards / total, num_shards - 1);
      weight_map[output.spec.name] = shard_name(shard);
      shards[shard].push_back(output);
      done += size_of(output);
    }
    for (std::size_t shard = 0; shard < num_shards; ++shard) {
      MINIACC_RETURN_IF_ERROR(
          write_file(folder / shard_name(shard), shards[shard], {{"format", "pt"}}));
    }
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                          {"weight_map", weight_map}};
    return write_text_file(folder / (stem + ".safetensors.index.json"), index.dump(2) + '\n');
  }

  Status write_file(const fs::path& path, const std::vector<SyntheticOutput>& outputs,
                    const Metadata& metadata) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::vector<TensorSpec> specs;
    specs.reserve(outputs.size());
    for (const SyntheticOutput& output : outputs) {
      specs.push_back(output.spec);
    }
    MINIACC_ASSIGN(const auto writer, path.extension() == ".gguf"
                                          ? create_gguf(path, specs, metadata)
                                          : create_safetensors(path, specs, metadata));
    for (const SyntheticOutput& output : outputs) {
      MINIACC_RETURN_IF_ERROR(write_tensor(*writer, output));
    }
    return writer->finish();
  }

  Status write_tensor(TensorWriter& writer, const SyntheticOutput& output) {
    if (!output.fill) {
      return writer.append(std::as_bytes(std::span(output.bytes)));
    }
    const std::int64_t rows = output.spec.shape[0];
    const std::int64_t columns = output.spec.shape.num_elements() / rows;
    const std::int64_t slab_rows = std::clamp<std::int64_t>(kSlabValues / columns, 1, rows);
    std::vector<float> values(static_cast<std::size_t>(slab_rows * columns));
    std::vector<std::byte> bytes;
    for (std::int64_t first = 0; first < rows; first += slab_rows) {
      if (options_.cancel != nullptr && options_.cancel->cancelled()) {
        return fail(ErrorCode::kCancelled, "make-checkpoint: cancelled");
      }
      const std::int64_t count = std::min(slab_rows, rows - first);
      const auto num_values = static_cast<std::size_t>(count * columns);
      output.fill(first, count, values.data());
      bytes.resize(storage_bytes(output.spec.dtype, count * columns).value());
      quantize(output.spec.dtype, std::span(values).first(num_values), bytes);
      MINIACC_RETURN_IF_ERROR(writer.append(bytes));
      written_ += bytes.size();
    }
    if (options_.progress) {
      options_.progress(written_);
    }
    return {};
  }

  const MakeCheckpointOptions& options_;
  SyntheticModel model_;
  std::size_t written_ = 0;
};

Status check_options(const MakeCheckpointOptions& options) {
  std::error_code ignored;
  if (options.out.empty() || fs::exists(options.out, ignored)) {
    return fail(ErrorCode::kInvalidArgument,
                options.out.string() + ": exists already, wanted a new folder");
  }
  const bool is_comfy = options.format == CheckpointFormat::kComfy ||
                        options.format == CheckpointFormat::kComfyPruned;
  const bool is_gguf = options.format == CheckpointFormat::kGguf;
  const bool is_8bit = options.storage == WeightStorage::kFp8Scaled ||
                       options.storage == WeightStorage::kInt8ConvRot;
  const bool is_block = options.storage == WeightStorage::kQ8_0 ||
                        options.storage == WeightStorage::kQ4_0 ||
                        options.storage == WeightStorage::kQ4_K;
  if ((is_8bit && !is_comfy) || (is_block && !is_gguf)) {
    return fail(ErrorCode::kInvalidArgument,
                is_8bit ? "make-checkpoint: fp8_scaled and int8_convrot exist in formats comfy and "
                          "comfy-pruned only"
                        : "make-checkpoint: q8_0, q4_0 and q4_k exist in format gguf only");
  }
  return {};
}

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

Status make_checkpoint(const MakeCheckpointOptions& options) {
  MINIACC_RETURN_IF_ERROR(check_options(options));
  StagingFolder staging(options.out);
  MINIACC_RETURN_IF_ERROR(staging.create());
  MINIACC_RETURN_IF_ERROR(CheckpointWriter(options).write(staging.path()));
  return staging.finish();
}

}  // namespace miniacc
