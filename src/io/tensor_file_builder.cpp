#include "io/tensor_file_builder.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

namespace miniacc {
namespace {

constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxPrintedBytes = 128;

/// One character at the front of `text`: its code point (negative: no valid UTF-8) and bytes.
struct Character {
  std::int32_t code_point = 0;
  std::size_t bytes = 0;
};
Character first_character(std::string_view text) {
  Character character;
  const auto bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &character.code_point);
  return bytes > 0 ? Character{character.code_point, static_cast<std::size_t>(bytes)}
                   : Character{-1, 1};
}

bool is_control(std::int32_t code_point) {
  return utf8proc_category(code_point) == UTF8PROC_CATEGORY_CC;
}

/// `position` rounded up to a multiple of `alignment`, counted from `origin`.
std::size_t align_up(std::size_t position, std::size_t origin, std::size_t alignment) {
  const std::size_t past = (position - origin) % alignment;
  return past == 0 ? position : position + (alignment - past);
}

}  // namespace

TensorFileBuilder::TensorFileBuilder(ContainerFormat format, std::filesystem::path path) {
  result_.format_ = format;
  result_.path_ = std::move(path);
}

void TensorFileBuilder::add(MappedFile file, TensorFileHeader header) {
  for (TensorEntry& entry : header.entries) {
    entry.file = result_.files_.size();
  }
  result_.files_.push_back(std::move(file));
  result_.entries_.insert(result_.entries_.end(), std::make_move_iterator(header.entries.begin()),
                          std::make_move_iterator(header.entries.end()));
  result_.metadata_.merge(header.metadata);  // of equal keys, the first file's stays
}

Result<TensorFile> TensorFileBuilder::finish() && {
  std::vector<TensorEntry>& entries = result_.entries_;
  std::sort(entries.begin(), entries.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  const auto twin = std::adjacent_find(
      entries.begin(), entries.end(),
      [](const TensorEntry& a, const TensorEntry& b) { return a.name == b.name; });
  if (twin != entries.end()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: tensor {} is present twice, in {} and {}", result_.path_.string(),
                            printable(twin->name), result_.files_[twin->file].path().string(),
                            result_.files_[std::next(twin)->file].path().string()));
  }
  return std::move(result_);
}

std::optional<std::string> tensor_name_problem(std::string_view name) {
  if (name.empty()) {
    return "is empty";
  }
  if (name.size() > kMaxNameBytes) {
    return fmt::format("is {} bytes long, at most {} are allowed", name.size(), kMaxNameBytes);
  }
  while (!name.empty()) {
    const Character character = first_character(name);
    if (character.code_point < 0) {
      return "is not UTF-8";
    }
    if (is_control(character.code_point)) {
      return "holds control characters";
    }
    name.remove_prefix(character.bytes);
  }
  return std::nullopt;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.code_point < 0) {
      return false;
    }
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (result.size() + character.bytes > kMaxPrintedBytes) {
      return result + "...";
    }
    if (character.code_point < 0 || is_control(character.code_point)) {
      result += '?';
    } else {
      result += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

tl::expected<Shape, std::string> checked_shape(std::span<const std::uint64_t> dims) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (dims.size() > Shape::kMaxRank) {
    return tl::unexpected(
        fmt::format("has {} dimensions, at most {} are supported", dims.size(), Shape::kMaxRank));
  }
  Shape shape;
  std::uint64_t product = 1;
  for (const std::uint64_t size : dims) {
    // Zeros are left out of the product so that no partial product can overflow either.
    const std::uint64_t factor = std::max<std::uint64_t>(size, 1);
    if (factor > kMax || product > kMax / factor) {
      return tl::unexpected(std::string("has dimensions whose product overflows 63 bits"));
    }
    product *= factor;
    shape.push_back(static_cast<std::int64_t>(size));
  }
  return shape;
}

Status check_layout(const MappedFile& file, std::vector<TensorEntry>& entries,
                    std::size_t data_begin, std::size_t alignment) {
  const std::size_t file_size = file.bytes().size();
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.offset, a.size_bytes) < std::tie(b.offset, b.size_bytes);
  });
  std::size_t wanted_size = data_begin;
  for (const TensorEntry& entry : entries) {
    wanted_size = std::max(wanted_size, entry.offset + entry.size_bytes);
  }
  if (wanted_size > file_size) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is truncated: its header describes {} bytes, the file has {} "
                            "(an incomplete download?)",
                            file.path().string(), wanted_size, file_size));
  }
  std::size_t position = data_begin;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.offset < position) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: tensors {} and {} overlap at byte {}", file.path().string(),
                              printable(before->name), printable(entry.name), entry.offset));
    }
    if (entry.offset != align_up(position, data_begin, alignment)) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{}: {} bytes before tensor {} belong to no tensor", file.path().string(),
                      entry.offset - position, printable(entry.name)));
    }
    position = entry.offset + entry.size_bytes;
    before = &entry;
  }
  if (file_size - position >= alignment) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} bytes after the last tensor belong to no tensor",
                            file.path().string(), file_size - position));
  }
  return {};
}

}  // namespace miniacc
