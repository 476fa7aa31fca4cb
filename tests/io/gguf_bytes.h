#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_util.h"

namespace miniacc::testing {

/// Puts a GGUF file together field by field, so that each can be wrong. Shares no code with src/.
struct GgufBytes {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t num_tensors = 0;
  std::uint64_t num_pairs = 0;
  std::string pairs;
  std::string infos;
  std::string data;
  std::size_t alignment = 32;

  static std::string text(std::string_view value) {
    return little_endian<std::uint64_t>(value.size()) + std::string(value);
  }
  /// `value` is the encoded value.
  GgufBytes& pair(std::string_view key, std::uint32_t type, std::string_view value) {
    pairs += text(key) + little_endian(type) + std::string(value);
    ++num_pairs;
    return *this;
  }
  /// `dims` innermost first, `type` a ggml type number.
  GgufBytes& info(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                  std::uint64_t offset) {
    infos += text(name) + little_endian(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t size : dims) {
      infos += little_endian(size);
    }
    infos += little_endian(type) + little_endian(offset);
    ++num_tensors;
    return *this;
  }
  [[nodiscard]] std::string bytes() const {
    std::string header = magic + little_endian(version) + little_endian(num_tensors) +
                         little_endian(num_pairs) + pairs + infos;
    if (!data.empty()) {
      header.append((alignment - header.size() % alignment) % alignment, '\0');
    }
    return header + data;
  }
};

}  // namespace miniacc::testing
