#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace miniacc::testing {

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// The value's bytes, little-endian.
template <typename T>
std::string little_endian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

/// A safetensors file: header length, header, data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return little_endian(static_cast<std::uint64_t>(header.size())) + std::string(header) +
         std::string(data);
}

}  // namespace miniacc::testing
