#include "checkpoint/find_components.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/detect.h"
#include "checkpoint/open_component.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_tokenizer_folder(const fs::path& path) {
  return is_file(path / "tokenizer.json") || is_file(path / "vocab.json");
}

std::optional<fs::path> tokenizer_below(const fs::path& folder) {
  for (const fs::path& candidate : {folder / "tokenizer", folder / "processor", folder}) {
    if (is_tokenizer_folder(candidate)) {
      return candidate;
    }
  }
  return std::nullopt;
}

Result<ModelFiles> folder_layout(const fs::path& folder, ModelHalf half) {
  ModelFiles files;
  std::vector<std::string> missing;
  const auto pick = [&](fs::path& target, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (is_folder(folder / name)) {
        target = folder / name;
        return;
      }
    }
    missing.push_back(fmt::format("{}/", fmt::join(names, "/ or ")));
  };
  if (half == ModelHalf::kRef2va) {
    pick(files.transformer, {"transformer_ref", "transformer"});
  } else {
    pick(files.transformer, {"transformer", "transformer_ref"});
  }
  pick(files.text_encoder, {"text_encoder"});
  pick(files.video_vae, {"video_vae", "vae"});
  pick(files.audio_vae, {"audio_vae"});
  if (const auto tokenizer = tokenizer_below(folder)) {
    files.tokenizer = *tokenizer;
  } else if (is_tokenizer_folder(files.text_encoder)) {
    files.tokenizer = files.text_encoder;
  } else {
    missing.emplace_back("tokenizer/ or processor/");
  }
  if (!missing.empty()) {
    return fail(ErrorCode::kNotFound, fmt::format("{}: model folder without {}", folder.string(),
                                                  fmt::join(missing, ", ")));
  }
  return files;
}

/// Tensor files of a folder and of ComfyUI's subfolders; shards are represented by their index.
std::vector<fs::path> tensor_files(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::path& part : {folder, folder / "diffusion_models", folder / "unet",
                               folder / "text_encoders", folder / "clip", folder / "vae"}) {
    std::error_code ignored;
    for (const auto& item : fs::directory_iterator(part, ignored)) {
      const std::string name = item.path().filename().string();
      const bool is_shard = name.find("-of-") != std::string::npos;
      const bool is_tensor_file = (name.ends_with(".safetensors") && !is_shard) ||
                                  name.ends_with(".gguf") ||
                                  name.ends_with(".safetensors.index.json");
      if (is_tensor_file && item.is_regular_file(ignored)) {
        found.push_back(item.path());
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Leaves one of two transformers when its name alone says that it is the wanted half.
void keep_half(std::vector<fs::path>& transformers, ModelHalf half) {
  const auto is_wanted = [&](const fs::path& path) { return detect_half(path).half == half; };
  if (transformers.size() > 1 &&
      std::count_if(transformers.begin(), transformers.end(), is_wanted) == 1) {
    transformers = {*std::find_if(transformers.begin(), transformers.end(), is_wanted)};
  }
}

/// FL2VA/ and Ref2VA/ of the vendor's repository.
Result<ModelFiles> repository_layout(const fs::path& folder, ModelHalf half) {
  const fs::path fl2va = folder / "FL2VA";
  const fs::path ref2va = folder / "Ref2VA";
  fs::path wanted = half == ModelHalf::kRef2va ? ref2va : fl2va;
  fs::path other = half == ModelHalf::kRef2va ? fl2va : ref2va;
  if (!is_folder(wanted / "transformer")) {
    std::swap(wanted, other);
  }
  auto files = folder_layout(wanted, ModelHalf::kFl2va);
  if (!files && is_folder(other)) {
    auto shared = folder_layout(other, ModelHalf::kFl2va);
    if (shared) {
      shared->transformer = wanted / "transformer";
      return shared;
    }
  }
  return files;
}

Result<ModelFiles> flat_layout(const fs::path& folder, ModelHalf half) {
  std::map<Component, std::vector<fs::path>> found;
  std::vector<std::string> passed_over;
  for (const fs::path& path : tensor_files(folder)) {
    const auto file = TensorFile::open(path);
    const auto recognised = file ? recognise(*file) : tl::unexpected(file.error());
    if (recognised) {
      found[recognised->component].push_back(path);
    } else {
      passed_over.push_back(recognised.error().message);
    }
  }
  keep_half(found[Component::kTransformer], half);
  ModelFiles files;
  std::vector<std::string> missing;
  for (const auto& [component, target] : std::initializer_list<std::pair<Component, fs::path*>>{
           {Component::kTransformer, &files.transformer},
           {Component::kTextEncoder, &files.text_encoder},
           {Component::kVideoVae, &files.video_vae},
           {Component::kAudioVae, &files.audio_vae}}) {
    const std::vector<fs::path>& candidates = found[component];
    if (candidates.size() > 1) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} and {} are both {}; choose one with {}", folder.string(),
                              candidates[0].filename().string(), candidates[1].filename().string(),
                              component_phrase(component), component_option(component)));
    }
    if (candidates.empty()) {
      missing.emplace_back(component_name(component));
    } else {
      *target = candidates.front();
    }
  }
  if (!missing.empty()) {
    std::string text =
        fmt::format("{}: no {} found in this folder", folder.string(), fmt::join(missing, ", no "));
    if (!passed_over.empty()) {
      text += fmt::format(" (passed over: {})", passed_over.front());
    }
    return fail(ErrorCode::kNotFound, std::move(text));
  }
  if (const auto tokenizer = tokenizer_below(folder)) {
    files.tokenizer = *tokenizer;
  } else {
    MINIACC_ASSIGN(files.tokenizer, find_tokenizer(files.text_encoder));
  }
  return files;
}

}  // namespace

Result<ModelFiles> find_components(const fs::path& folder, ModelHalf half) {
  if (!is_folder(folder)) {
    return fail(is_file(folder) ? ErrorCode::kInvalidArgument : ErrorCode::kNotFound,
                folder.string() +
                    (is_file(folder) ? ": is a file, wanted a model folder" : ": no such folder"));
  }
  if (is_folder(folder / "transformer") || is_folder(folder / "transformer_ref")) {
    return folder_layout(folder, half);
  }
  if (is_folder(folder / "FL2VA" / "transformer") || is_folder(folder / "Ref2VA" / "transformer")) {
    return repository_layout(folder, half);
  }
  return flat_layout(folder, half);
}

Result<fs::path> find_tokenizer(const fs::path& text_encoder) {
  const fs::path folder = is_folder(text_encoder) ? text_encoder : text_encoder.parent_path();
  for (const fs::path& start : {folder, folder.parent_path()}) {
    if (const auto tokenizer = tokenizer_below(start.empty() ? fs::path(".") : start)) {
      return *tokenizer;
    }
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("{}: no tokenizer beside it (looked for tokenizer.json or vocab.json in "
                          "it, in tokenizer/ and in processor/, here and one folder up)",
                          text_encoder.string()));
}

}  // namespace miniacc
