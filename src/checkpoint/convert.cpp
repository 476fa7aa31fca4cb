#include "checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "checkpoint/component_conversion.h"
#include "checkpoint/detect.h"
#include "checkpoint/find_components.h"
#include "checkpoint/model_half.h"
#include "checkpoint/text_file.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCopyBytes = std::size_t{8} << 20;
constexpr std::array<const char*, 8> kTokenizerFiles = {
    "tokenizer.json",    "tokenizer_config.json",   "vocab.json",         "merges.txt",
    "added_tokens.json", "special_tokens_map.json", "chat_template.json", "chat_template.jinja"};

std::string single_file_name(Component component, bool gguf) {
  const char* ending = gguf ? ".gguf" : ".safetensors";
  switch (component) {
    case Component::kTransformer:
      return std::string("minimax_h3") + ending;
    case Component::kTextEncoder:
      return std::string("qwen3vl_minimax_h3") + ending;
    case Component::kVideoVae:
      return "minimax_h3_video_vae.safetensors";
    case Component::kAudioVae:
      return "minimax_h3_audio_vae.safetensors";
  }
  return {};
}

class Converter {
 public:
  explicit Converter(const ConvertOptions& options)
      : options_(options), control_{"convert", options.cancel, {}, 0} {}

  Result<std::vector<ConvertedComponent>> run() {
    MINIACC_ASSIGN(const bool is_model, open_source());
    std::size_t total = 0;
    for (const auto& part : parts_) {
      total += part->report().size_bytes;
    }
    control_.progress = [this, total](std::size_t done) {
      if (options_.progress) {
        options_.progress(done, total);
      }
    };
    MINIACC_RETURN_IF_ERROR(check_target(is_model));
    StagingFolder staging(options_.out);
    MINIACC_RETURN_IF_ERROR(staging.create());
    const bool folder = is_folder_format(options_.format);
    for (const auto& part : parts_) {
      const Component component = part->component();
      fs::path place = staging.path();
      if (folder) {
        place = is_model ? place / component_folder(component, options_.format) : place;
        MINIACC_RETURN_IF_ERROR(write_folder(*part, place));
      } else {
        place /= single_file_name(component, part->is_gguf());
        MINIACC_RETURN_IF_ERROR(write_single(*part, place));
      }
      MINIACC_RETURN_IF_ERROR(part->finish());
      part->report().out =
          is_model || folder ? options_.out / fs::relative(place, staging.path()) : options_.out;
    }
    if (is_model) {
      MINIACC_RETURN_IF_ERROR(copy_tokenizer(staging.path() / "tokenizer"));
      if (folder) {
        MINIACC_RETURN_IF_ERROR(
            write_text_file(staging.path() / "model_index.json",
                            model_index(options_.format, half_).dump(2) + '\n'));
      }
    }
    if (is_model || folder) {
      MINIACC_RETURN_IF_ERROR(staging.finish());
    } else {
      const auto& part = parts_.front();
      const fs::path from = staging.path() / single_file_name(part->component(), part->is_gguf());
      std::error_code error;
      fs::rename(from, options_.out, error);
      if (error) {
        return fail(ErrorCode::kIo,
                    fmt::format("{}: cannot rename {} to it: {}", options_.out.string(),
                                from.string(), error.message()));
      }
    }
    std::vector<ConvertedComponent> done;
    for (const auto& part : parts_) {
      done.push_back(std::move(part->report()));
    }
    return done;
  }

 private:
  /// Opens what `in` is: every component of a model, or one. True for a model.
  Result<bool> open_source() {
    std::error_code ignored;
    const fs::path& in = options_.in;
    const bool is_folder = fs::is_directory(in, ignored);
    bool is_model = is_folder && (fs::is_directory(in / "transformer", ignored) ||
                                  fs::is_directory(in / "transformer_ref", ignored) ||
                                  fs::is_directory(in / "FL2VA", ignored) ||
                                  fs::is_directory(in / "Ref2VA", ignored));
    if (is_folder && !is_model) {
      is_model = !component_file(in);
    }
    if (!is_model) {
      MINIACC_RETURN_IF_ERROR(open_part(in));
      if (options_.component && *options_.component != parts_.front()->component()) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: is {}, --component asks for {}", in.string(),
                                component_phrase(parts_.front()->component()),
                                component_phrase(*options_.component)));
      }
      return false;
    }
    MINIACC_ASSIGN(const ModelFiles files, find_components(in));
    tokenizer_ = files.tokenizer;
    half_ = detect_half(files.transformer).half;
    const std::pair<Component, const fs::path*> all[] = {
        {Component::kTransformer, &files.transformer},
        {Component::kTextEncoder, &files.text_encoder},
        {Component::kVideoVae, &files.video_vae},
        {Component::kAudioVae, &files.audio_vae}};
    for (const auto& [component, path] : all) {
      if (!options_.component || *options_.component == component) {
        MINIACC_RETURN_IF_ERROR(open_part(*path));
      }
    }
    return !options_.component;
  }

  Status open_part(const fs::path& path) {
    MINIACC_ASSIGN(auto part, ComponentConversion::open(path, options_));
    parts_.push_back(std::move(part));
    return {};
  }

  [[nodiscard]] Status check_target(bool is_model) const {
    const fs::path& out = options_.out;
    if (is_model || is_folder_format(options_.format)) {
      std::error_code ignored;
      return out.empty() || fs::exists(out, ignored)
                 ? fail(ErrorCode::kInvalidArgument,
                        out.string() + ": exists already, wanted a new folder")
                 : Status();
    }
    const char* ending = parts_.front()->is_gguf() ? ".gguf" : ".safetensors";
    return out.extension() == ending
               ? Status()
               : fail(ErrorCode::kInvalidArgument,
                      fmt::format("{}: {} is written into one file, whose name ends in {}",
                                  out.string(), component_phrase(parts_.front()->component()),
                                  ending));
  }

  Status write_single(ComponentConversion& part, const fs::path& path) {
    if (!part.copies().empty()) {
      return copy(part.copies().front(), path);
    }
    std::map<std::string, std::string> metadata = {{"config", part.single_config()}};
    if (part.component() == Component::kTransformer && !part.is_gguf()) {
      metadata[kQkvRowsKey] = kPlainQkvRows;
    }
    return write_tensor_file(path, part.outputs(), metadata, control_);
  }

  Status write_folder(ComponentConversion& part, const fs::path& folder) {
    if (!part.copies().empty()) {
      for (const fs::path& path : part.copies()) {
        MINIACC_RETURN_IF_ERROR(copy(path, folder / path.filename()));
      }
      return {};
    }
    const bool official = options_.format == CheckpointFormat::kOfficial;
    const Component component = part.component();
    const std::string stem =
        official || component == Component::kTextEncoder ? "model" : "diffusion_pytorch_model";
    if (component == Component::kTransformer || component == Component::kTextEncoder) {
      MINIACC_RETURN_IF_ERROR(write_shards(folder, stem, part.outputs(), 1, control_));
    } else {
      const fs::path place =
          official && component == Component::kVideoVae ? folder / "source" : folder;
      MINIACC_RETURN_IF_ERROR(write_tensor_file(place / (stem + ".safetensors"), part.outputs(),
                                                {{"format", "pt"}}, control_));
    }
    for (const ConfigFile& file : part.configs()) {
      MINIACC_RETURN_IF_ERROR(write_text_file(folder / file.path, file.content.dump(2) + '\n'));
    }
    return {};
  }

  Status copy(const fs::path& from, const fs::path& to) {
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    errno = 0;
    std::ifstream in(from, std::ios::binary);
    std::ofstream out(to, std::ios::binary | std::ios::trunc);
    std::vector<char> buffer(kCopyBytes);
    while (in && out) {
      if (options_.cancel != nullptr && options_.cancel->cancelled()) {
        return fail(ErrorCode::kCancelled, "convert: cancelled");
      }
      in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
      out.write(buffer.data(), in.gcount());
      control_.written += static_cast<std::size_t>(in.gcount());
      control_.progress(control_.written);
    }
    out.close();
    if (!in.eof() || !out) {
      return fail(ErrorCode::kIo,
                  fmt::format("{}: cannot copy {} to it: {}", to.string(), from.string(),
                              std::generic_category().message(errno)));
    }
    return {};
  }

  Status copy_tokenizer(const fs::path& folder) {
    for (const char* name : kTokenizerFiles) {
      std::error_code ignored;
      if (fs::is_regular_file(tokenizer_ / name, ignored)) {
        MINIACC_RETURN_IF_ERROR(copy(tokenizer_ / name, folder / name));
      }
    }
    return {};
  }

  const ConvertOptions& options_;
  WriteControl control_;
  std::vector<std::unique_ptr<ComponentConversion>> parts_;
  fs::path tokenizer_;
  std::optional<ModelHalf> half_;  ///< of the source's transformer, where something tells
};

}  // namespace

Result<std::vector<ConvertedComponent>> convert_checkpoint(const ConvertOptions& options) {
  if (options.storage != WeightStorage::kAsStored) {
    MINIACC_RETURN_IF_ERROR(check_storage("convert", options.format, options.storage));
  }
  const std::int64_t group = options.rotation_group;
  if (group != 0 && group != 4 && group != 16 && group != 64 && group != 256 && group != 1024 &&
      group != 4096) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--rotation-group is {}, wanted a power of 4 up to 4096, or 0 for none",
                            group));
  }
  return Converter(options).run();
}

}  // namespace miniacc
