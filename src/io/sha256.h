#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/error.h"

namespace miniacc {

/// SHA-256 of a stream of bytes. Source: FIPS 180-4, §6.2.
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  /// 64 lower-case hex digits; called once, last.
  [[nodiscard]] std::string hex();

 private:
  void add_block(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                         0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
  std::array<std::byte, 64> pending_{};
  std::uint64_t num_bytes_ = 0;
};

/// The digest of a whole file; kIo when it cannot be read to its end.
[[nodiscard]] Result<std::string> sha256_of_file(const std::filesystem::path& path);

}  // namespace miniacc
