#include "io/file_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>

namespace miniacc {
namespace {

struct Foreign {
  std::string_view start;
  std::string_view meaning;
};
constexpr std::array<Foreign, 7> kForeign = {{
    {"version https://git-lfs.github.com/spec/",
     "is a git-lfs pointer, not the file itself: fetch it with `git lfs pull`"},
    {"<!DOCTYPE", "is a web page, not a checkpoint: the download failed"},
    {"<!doctype", "is a web page, not a checkpoint: the download failed"},
    {"<html", "is a web page, not a checkpoint: the download failed"},
    {"PK\x03\x04", "is a zip archive (a PyTorch .pt or .pth file?), wanted safetensors or GGUF"},
    {"\x80\x02",
     "is a Python pickle (an old PyTorch .pt or .bin file?), wanted safetensors or GGUF"},
    {"\x1F\x8B", "is compressed with gzip, wanted safetensors or GGUF"},
}};

bool is_json_text(std::string_view start) {
  const auto is_text = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  };
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (start[first] == '{' || start[first] == '[') &&
         std::all_of(start.begin(), start.end(), is_text);
}

}  // namespace

Result<FileContent> recognise_content(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) {
    return FileContent::kGguf;
  }
  const std::string_view start = text.substr(0, 8);
  // Seen before the signatures: a header length may begin with any two bytes.
  if (text.size() > 8 && text[8] == '{' && text.substr(5, 3) == std::string_view("\0\0\0", 3)) {
    return FileContent::kSafetensors;
  }
  // Eight text characters read as a header length would mean 2^60 bytes and more.
  if (is_json_text(start)) {
    return FileContent::kSafetensorsIndex;
  }
  for (const Foreign& foreign : kForeign) {
    if (text.starts_with(foreign.start)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {}", file.path().string(), foreign.meaning));
    }
  }
  if (start.size() == 8 && start == std::string_view("\0\0\0\0\0\0\0\0", 8)) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("{}: begins with zeros: an incomplete download?", file.path().string()));
  }
  // A short file or one whose header does not begin with '{' may be a broken safetensors file or
  // anything else.
  const bool like_safetensors =
      file.path().extension() == ".safetensors" || (text.size() > 8 && text[8] == '{');
  if (like_safetensors) {
    return FileContent::kSafetensors;
  }
  return fail(ErrorCode::kInvalidInput,
              fmt::format("{}: is neither a safetensors file, nor a safetensors index, nor GGUF",
                          file.path().string()));
}

}  // namespace miniacc
