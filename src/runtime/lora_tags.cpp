#include "runtime/lora_tags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

namespace miniacc {
namespace {

constexpr std::string_view kOpen = "<lora:";
constexpr std::string_view kEnding = ".safetensors";
constexpr std::size_t kMaxTags = 64;
constexpr std::size_t kMaxNameBytes = 255;  // of a file's name on every common file system
constexpr std::size_t kNamesInMessage = 8;

Result<TaggedPrompt::Tag> parse_tag(std::string_view tag) {
  const auto refuse = [&](std::string_view what) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the prompt's '{}' {}; a tag is <lora:NAME> or <lora:NAME:WEIGHT>",
                            tag.substr(0, 300), what));
  };
  std::string_view inner = tag.substr(kOpen.size());
  inner.remove_suffix(1);
  TaggedPrompt::Tag result;
  if (const std::size_t colon = inner.rfind(':'); colon != std::string_view::npos) {
    const std::string_view text = inner.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), result.weight);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(result.weight)) {
      return refuse("has a weight that is no finite number");
    }
    inner = inner.substr(0, colon);
  }
  if (inner.empty() || inner.size() > kMaxNameBytes) {
    return refuse("names no file");
  }
  result.name = std::string(inner);
  return result;
}

/// Edits (insert, delete, replace) from one name to another, case apart.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  const auto lower = [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min(
          {above + 1, row[j - 1] + 1, diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row.back();
}

std::string list_candidates(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::pair<std::size_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == kEnding) {
      const std::string stem = entry.path().stem().string();
      found.emplace_back(edit_distance(name, stem), stem);
    }
  }
  if (found.empty()) {
    return "it holds no .safetensors file";
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [distance, stem] : found) {
    if (names.size() < kNamesInMessage) {
      names.push_back(stem);
    }
  }
  return fmt::format(
      "it holds {}{}", fmt::join(names, ", "),
      found.size() > names.size() ? fmt::format(" and {} more", found.size() - names.size()) : "");
}

}  // namespace

Result<TaggedPrompt> split_lora_tags(const std::string& prompt) {
  TaggedPrompt result;
  std::size_t position = 0;
  while (true) {
    const std::size_t begin = prompt.find(kOpen, position);
    if (begin == std::string::npos) {
      result.prompt += prompt.substr(position);
      return result;
    }
    const std::size_t end = prompt.find('>', begin);
    if (end == std::string::npos) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the prompt's '{}' has no '>'; a tag is <lora:NAME:WEIGHT>",
                              prompt.substr(begin, 80)));
    }
    MINIACC_ASSIGN(result.tags.emplace_back(), parse_tag(prompt.substr(begin, end + 1 - begin)));
    if (result.tags.size() > kMaxTags) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the prompt has more than {} <lora:…> tags", kMaxTags));
    }
    result.prompt += prompt.substr(position, begin - position);
    position = end + 1;
    const bool space_before = result.prompt.empty() || result.prompt.back() == ' ';
    if (space_before && position < prompt.size() && prompt[position] == ' ') {
      ++position;
    } else if (position == prompt.size() && !result.prompt.empty() && result.prompt.back() == ' ') {
      result.prompt.pop_back();
    }
  }
}

Result<std::filesystem::path> find_lora_file(const std::filesystem::path& folder,
                                             const std::string& name) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("--lora-dir {}: there is no such folder", folder.string()));
  }
  const bool plain = name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
                     name != "." && name != ".." && !name.empty();
  if (!plain) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("<lora:{}> must name a file of --lora-dir {}, not a path", name,
                            folder.string()));
  }
  for (const std::string& candidate : {name + std::string(kEnding), name}) {
    const std::filesystem::path path = folder / candidate;
    if (!std::filesystem::is_regular_file(path, error)) {
      continue;
    }
    // A link in the folder may point elsewhere in it, and nowhere else.
    const auto real = std::filesystem::canonical(path, error);
    const auto root = std::filesystem::canonical(folder, error);
    const auto [root_end, rest] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
    if (error || root_end != root.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("<lora:{}>: {} leads out of --lora-dir", name, path.string()));
    }
    return path;
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("<lora:{}>: there is no {}{} in {}; {}", name, name, kEnding,
                          folder.string(), list_candidates(folder, name)));
}

}  // namespace miniacc
