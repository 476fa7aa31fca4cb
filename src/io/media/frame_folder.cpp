#include "io/media/frame_folder.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxEntries = 100'000;
constexpr std::string_view kPictureEndings =
    " .png .jpg .jpeg .webp .heic .heif .avif .bmp .tif .tiff .gif ";

bool is_picture_name(const fs::path& name) {
  std::string ending = " ";
  for (const char c : name.extension().string()) {
    ending += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  ending += ' ';
  return ending.size() > 2 && kPictureEndings.find(ending) != std::string_view::npos &&
         name.string().front() != '.';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The run of digits that begins at `i`, without its leading zeros; moves `i` behind it.
std::string_view number_at(std::string_view text, std::size_t& i) {
  std::size_t begin = i;
  while (i < text.size() && is_digit(text[i])) {
    ++i;
  }
  while (begin + 1 < i && text[begin] == '0') {
    ++begin;
  }
  return text.substr(begin, i - begin);
}

/// Below, equal or above zero as `a` comes before, with or after `b`.
int compare_naturally(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = number_at(a, i);
      const std::string_view y = number_at(b, j);
      if (x.size() != y.size()) {
        return x.size() < y.size() ? -1 : 1;
      }
      if (const int order = x.compare(y); order != 0) {
        return order;
      }
      continue;
    }
    if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]) ? -1 : 1;
    }
    ++i;
    ++j;
  }
  return static_cast<int>(j == b.size()) - static_cast<int>(i == a.size());
}

}  // namespace

Result<std::vector<fs::path>> list_frames(const fs::path& folder) {
  std::vector<fs::path> frames;
  std::error_code error;
  std::size_t num_entries = 0;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (++num_entries > kMaxEntries) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: has more than {} entries", folder.string(), kMaxEntries));
    }
    std::error_code ignored;
    if (is_picture_name(entry->path().filename()) && !entry->is_directory(ignored)) {
      frames.push_back(entry->path());
    }
  }
  if (error) {
    return fail(ErrorCode::kIo, fmt::format("{}: {}", folder.string(), error.message()));
  }
  if (frames.empty()) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("{}: holds no pictures, wanted frames such as 00001.png", folder.string()));
  }
  std::sort(frames.begin(), frames.end(), [](const fs::path& a, const fs::path& b) {
    return compare_naturally(a.filename().string(), b.filename().string()) < 0;
  });
  for (std::size_t i = 1; i < frames.size(); ++i) {
    if (compare_naturally(frames[i - 1].stem().string(), frames[i].stem().string()) == 0) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} and {} have the same number; remove one", folder.string(),
                              frames[i - 1].filename().string(), frames[i].filename().string()));
    }
  }
  return frames;
}

fs::path frame_folder_sound(const fs::path& folder) {
  const fs::path path = folder / "audio.wav";
  std::error_code ignored;
  return fs::exists(path, ignored) ? path : fs::path();
}

}  // namespace miniacc
