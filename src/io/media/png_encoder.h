#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "io/media/libav.h"

namespace miniacc {

/// Compresses 8-bit RGB pictures of one size as PNG, losslessly.
class PngEncoder {
 public:
  /// `name` stands for the output in messages. kUnsupported where FFmpeg has no PNG encoder.
  [[nodiscard]] static Result<PngEncoder> create(std::int64_t width, std::int64_t height,
                                                 std::string name);

  /// `rgb` is [height, width, 3]. The bytes stay valid until the next call.
  [[nodiscard]] Result<std::string_view> encode(std::span<const std::uint8_t> rgb);

 private:
  explicit PngEncoder(std::string name);

  std::string name_;
  libav::Codec encoder_;
  libav::Frame frame_;
  libav::Packet packet_;
  std::int64_t num_frames_ = 0;
};

}  // namespace miniacc
