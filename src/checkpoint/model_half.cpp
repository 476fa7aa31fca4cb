#include "checkpoint/model_half.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxIndexBytes = std::uintmax_t{1} << 20;
constexpr int kFoldersAbove = 2;  // Ref2VA/transformer/model.safetensors.index.json

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// A name that speaks of both halves, or of none, tells nothing.
std::optional<ModelHalf> half_of_name(const std::string& name) {
  const std::string text = lower(name);
  const bool fl2va = text.find("fl2v") != std::string::npos;
  const bool ref2va =
      text.find("ref2v") != std::string::npos || text.starts_with("transformer_ref");
  if (fl2va == ref2va) {
    return std::nullopt;
  }
  return fl2va ? ModelHalf::kFl2va : ModelHalf::kRef2va;
}

/// The object in a small JSON file; null for anything else, because this is a hint and no input.
nlohmann::json read_hint(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error || size > kMaxIndexBytes) {
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  auto root = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return root.is_object() ? root : nlohmann::json();
}

/// What the model_index.json of a model folder says about its `transformer/`.
HalfEvidence half_of_index(const fs::path& folder) {
  for (const char* name : {"model_index.json", "modular_model_index.json"}) {
    const nlohmann::json root = read_hint(folder / name);
    if (root.is_null()) {
      continue;
    }
    const auto text_at = [&](const char* pointer) {
      const nlohmann::json::json_pointer where(pointer);
      return root.contains(where) && root.at(where).is_string() ? root.at(where).get<std::string>()
                                                                : std::string();
    };
    if (const auto half = parse_half(lower(text_at("/_minimax_h3/partition")))) {
      return {half, fmt::format("{} beside it says partition {}", name, half_name(*half))};
    }
    // The diffusers layout keeps Ref2VA in transformer_ref/.
    if (text_at("/_class_name") == "MiniMaxH3ModularPipeline") {
      return {ModelHalf::kFl2va, fmt::format("{} beside it names the diffusers layout", name)};
    }
  }
  return {};
}

}  // namespace

std::string_view half_name(ModelHalf half) {
  return half == ModelHalf::kFl2va ? "FL2VA" : "Ref2VA";
}

std::optional<ModelHalf> parse_half(std::string_view name) {
  if (name == "fl2va") {
    return ModelHalf::kFl2va;
  }
  if (name == "ref2va") {
    return ModelHalf::kRef2va;
  }
  return std::nullopt;
}

HalfEvidence detect_half(const fs::path& transformer) {
  std::error_code ignored;
  fs::path path = fs::absolute(transformer, ignored).lexically_normal();
  if (!path.has_filename()) {
    path = path.parent_path();  // "transformer/" -> "transformer"
  }
  const bool is_folder = fs::is_directory(path, ignored);
  // The index describes the folder that holds `transformer/`, not files elsewhere below it.
  if (is_folder && path.filename() == "transformer") {
    if (HalfEvidence evidence = half_of_index(path.parent_path()); evidence.half) {
      return evidence;
    }
  }
  fs::path part = path;
  for (int i = 0; i <= kFoldersAbove && part.has_filename(); ++i, part = part.parent_path()) {
    if (const auto half = half_of_name(part.filename().string())) {
      const char* what = i > 0 ? "its folder" : is_folder ? "the folder" : "the file";
      return {half, fmt::format("{} is named {}", what, part.filename().string())};
    }
  }
  if (is_folder && path.filename() == "transformer" &&
      fs::is_directory(path.parent_path() / "transformer_ref", ignored)) {
    return {ModelHalf::kFl2va, "transformer_ref lies beside it"};
  }
  return {};
}

}  // namespace miniacc
