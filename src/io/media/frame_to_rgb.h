#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/image.h"
#include "io/media/libav.h"

namespace miniacc::libav {

/// SWS_CS_* of a frame's matrix; `fallback` where the file says nothing; empty for one that
/// libswscale cannot invert.
std::optional<int> sws_colorspace(AVColorSpace space, int fallback);

/// How frames become RGB.
struct FrameColors {
  std::array<std::uint8_t, 3> background{255, 255, 255};
  bool still = false;  ///< untagged YUV is JPEG's: BT.601, chroma centred; else a video's
  std::optional<AVColorSpace> matrix{};  ///< overrules the frame's tag
  std::optional<AVColorRange> range{};   ///< likewise
  bool opaque = false;                   ///< alpha means nothing
  bool premultiplied = false;
};

/// Converts frames of any pixel format to 8-bit RGB. RGB, grey and palette are computed here, each
/// value rounded once from its full depth; YUV goes through libswscale by the file's tags.
class FrameToRgb {
 public:
  explicit FrameToRgb(FrameColors colors) : colors_(colors) {}

  /// Messages lack the path. kUnsupported for floating-point samples and unknown matrices.
  [[nodiscard]] Result<RgbImage> convert(const AVFrame& frame);
  /// The first component of a frame as 8-bit values, [height, width]: a grey picture's light.
  [[nodiscard]] static Result<std::vector<std::uint8_t>> grey(const AVFrame& frame,
                                                              AVColorRange untagged);
  /// Lays `image` over the background where `alpha` (0 to 255) is not full.
  void lay_over_background(RgbImage& image, const std::vector<std::uint8_t>& alpha);

  /// What was adjusted so far, each once.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void note(std::string text);
  void note_background();
  RgbImage convert_components(const AVFrame& frame, bool limited_range);
  Result<RgbImage> convert_yuv(const AVFrame& frame);

  FrameColors colors_;
  std::vector<std::string> notes_;
  Scaler scaler_;
  Conversion made_for_;
};

}  // namespace miniacc::libav
