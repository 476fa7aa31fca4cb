#include "io/media/frame_to_rgb.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

extern "C" {
#include <libavutil/pixdesc.h>
}

namespace miniacc::libav {
namespace {

bool has_flag(const AVPixFmtDescriptor& format, std::uint64_t flag) {
  return (format.flags & flag) != 0;
}

/// The same planes under a name whose range is told apart from it.
AVPixelFormat without_range(AVPixelFormat format) {
  switch (format) {
    case AV_PIX_FMT_YUVJ411P:
      return AV_PIX_FMT_YUV411P;
    case AV_PIX_FMT_YUVJ420P:
      return AV_PIX_FMT_YUV420P;
    case AV_PIX_FMT_YUVJ422P:
      return AV_PIX_FMT_YUV422P;
    case AV_PIX_FMT_YUVJ440P:
      return AV_PIX_FMT_YUV440P;
    case AV_PIX_FMT_YUVJ444P:
      return AV_PIX_FMT_YUV444P;
    default:
      return format;
  }
}

/// Reads rows of one component at its own depth.
class ComponentReader {
 public:
  ComponentReader(const AVFrame& frame, const AVPixFmtDescriptor& format)
      : frame_(frame), format_(format) {
    for (std::size_t i = 0; i < 4; ++i) {
      data_[i] = frame.data[i];
    }
  }
  /// `row` has room for the frame's width (a chroma row is shorter).
  void read(int component, int y, std::vector<std::uint16_t>& row) {
    av_read_image_line2(row.data(), data_.data(), frame_.linesize, &format_, 0, y, component,
                        static_cast<int>(row.size()), 0, sizeof(std::uint16_t));
  }
  [[nodiscard]] std::int64_t max(int component) const {
    return (std::int64_t{1} << format_.comp[component].depth) - 1;
  }

 private:
  const AVFrame& frame_;
  const AVPixFmtDescriptor& format_;
  std::array<const std::uint8_t*, 4> data_{};
};

/// value / max in 8 bits, rounded to nearest.
std::uint8_t to_8_bits(std::int64_t value, std::int64_t max) {
  return static_cast<std::uint8_t>(max == 255 ? value : (value * 255 + max / 2) / max);
}

/// Grey of a video: black is 16 and white 235 at 8 bits.
std::uint8_t widen_range(std::uint8_t value) {
  return static_cast<std::uint8_t>(
      std::clamp(((static_cast<int>(value) - 16) * 2 * 255 + 219) / (2 * 219), 0, 255));
}

/// (colour over background) with both at full depth, rounded once.
std::uint8_t over(std::int64_t value, std::int64_t max, std::int64_t alpha, std::int64_t max_alpha,
                  std::int64_t background, bool premultiplied) {
  const std::int64_t weight = premultiplied ? max_alpha : alpha;
  const std::int64_t sum = value * 255 * weight + background * max * (max_alpha - alpha);
  const std::int64_t whole = max * max_alpha;
  return static_cast<std::uint8_t>(std::min<std::int64_t>((sum + whole / 2) / whole, 255));
}

}  // namespace

std::optional<int> sws_colorspace(AVColorSpace space, int fallback) {
  switch (space) {
    case AVCOL_SPC_BT709:
      return SWS_CS_ITU709;
    case AVCOL_SPC_BT470BG:
    case AVCOL_SPC_SMPTE170M:
      return SWS_CS_ITU601;
    case AVCOL_SPC_FCC:
      return SWS_CS_FCC;
    case AVCOL_SPC_SMPTE240M:
      return SWS_CS_SMPTE240M;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL:
      return SWS_CS_BT2020;
    case AVCOL_SPC_UNSPECIFIED:
    case AVCOL_SPC_RESERVED:
      return fallback;
    default:
      return std::nullopt;
  }
}

void FrameToRgb::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
    notes_.push_back(std::move(text));
  }
}

void FrameToRgb::note_background() {
  note(fmt::format("its transparent parts are laid over the colour ({}, {}, {})",
                   colors_.background[0], colors_.background[1], colors_.background[2]));
}

Result<RgbImage> FrameToRgb::convert(const AVFrame& frame) {
  const auto pixel_format = static_cast<AVPixelFormat>(frame.format);
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(pixel_format);
  if (format == nullptr || frame.width < 1 || frame.height < 1) {
    return fail(ErrorCode::kInternal, "the decoder gave a frame without a picture");
  }
  if (has_flag(*format, AV_PIX_FMT_FLAG_FLOAT) || has_flag(*format, AV_PIX_FMT_FLAG_HWACCEL) ||
      has_flag(*format, AV_PIX_FMT_FLAG_BAYER)) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("stores its pixels as {}, which is not read; save it as PNG", format->name));
  }
  if (frame.color_trc == AVCOL_TRC_SMPTE2084 || frame.color_trc == AVCOL_TRC_ARIB_STD_B67) {
    note("is HDR; its values are taken as they are, without tone mapping");
  }
  const bool grey_only = format->nb_components <= 2;
  if (has_flag(*format, AV_PIX_FMT_FLAG_RGB) || has_flag(*format, AV_PIX_FMT_FLAG_PAL) ||
      grey_only) {
    const AVColorRange range = colors_.range.value_or(frame.color_range);
    return convert_components(frame, grey_only && range == AVCOL_RANGE_MPEG);
  }
  return convert_yuv(frame);
}

RgbImage FrameToRgb::convert_components(const AVFrame& frame, bool limited_range) {
  const AVPixFmtDescriptor& format = *av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  const auto width = static_cast<std::size_t>(frame.width);
  RgbImage image{frame.width, frame.height, {}};
  image.pixels.resize(width * static_cast<std::size_t>(frame.height) * 3);
  std::uint8_t* out = image.pixels.data();
  const std::array<std::uint8_t, 3>& background = colors_.background;
  bool shows_background = false;
  if (has_flag(format, AV_PIX_FMT_FLAG_PAL)) {
    for (int y = 0; y < frame.height; ++y) {
      const std::uint8_t* row = frame.data[0] + std::ptrdiff_t{y} * frame.linesize[0];
      for (std::size_t x = 0; x < width; ++x) {
        std::uint32_t argb = 0;
        std::memcpy(&argb, frame.data[1] + std::size_t{row[x]} * 4, sizeof argb);
        const std::int64_t alpha = argb >> 24U;
        shows_background = shows_background || alpha != 255;
        for (std::size_t c = 0; c < 3; ++c) {
          *out++ = over(argb >> (16 - 8 * c) & 0xFFU, 255, alpha, 255, background[c], false);
        }
      }
    }
  } else {
    ComponentReader reader(frame, format);
    const bool has_alpha = has_flag(format, AV_PIX_FMT_FLAG_ALPHA);
    const int num_colors = format.nb_components - (has_alpha ? 1 : 0);
    const bool inverted = frame.format == AV_PIX_FMT_MONOWHITE;
    std::array<std::vector<std::uint16_t>, 3> colors;
    colors.fill(std::vector<std::uint16_t>(width));
    std::vector<std::uint16_t> alpha(width);
    const std::int64_t max_alpha = has_alpha ? reader.max(num_colors) : 1;
    for (int y = 0; y < frame.height; ++y) {
      for (int c = 0; c < num_colors; ++c) {
        reader.read(c, y, colors[static_cast<std::size_t>(c)]);
      }
      if (has_alpha) {
        reader.read(num_colors, y, alpha);
      }
      for (std::size_t x = 0; x < width; ++x) {
        const bool opaque = !has_alpha || colors_.opaque || alpha[x] == max_alpha;
        shows_background = shows_background || !opaque;
        for (int c = 0; c < 3; ++c) {
          const auto from = static_cast<std::size_t>(num_colors == 1 ? 0 : c);
          const std::int64_t max = reader.max(static_cast<int>(from));
          std::int64_t value = colors[from][x];
          if (inverted) {
            value = max - value;
          }
          if (opaque) {
            *out++ = to_8_bits(value, max);
          } else {
            *out++ = over(value, max, alpha[x], max_alpha, background[static_cast<std::size_t>(c)],
                          colors_.premultiplied);
          }
        }
      }
    }
    if (limited_range) {
      std::transform(image.pixels.begin(), image.pixels.end(), image.pixels.begin(), widen_range);
    }
  }
  if (shows_background) {
    note_background();
  }
  return image;
}

Result<RgbImage> FrameToRgb::convert_yuv(const AVFrame& frame) {
  const auto pixel_format = static_cast<AVPixelFormat>(frame.format);
  const AVPixFmtDescriptor& format = *av_pix_fmt_desc_get(pixel_format);
  Conversion conversion;
  conversion.width = frame.width;
  conversion.height = frame.height;
  conversion.from = without_range(pixel_format);
  conversion.to = AV_PIX_FMT_RGB24;
  const AVColorRange range = colors_.range.value_or(frame.color_range);
  conversion.full_range = range == AVCOL_RANGE_JPEG || conversion.from != pixel_format;
  // What players do with untagged video: television's matrix by the picture's size.
  constexpr int kLargestSdWidth = 1024;
  constexpr int kLargestSdHeight = 576;
  const bool hd = frame.width > kLargestSdWidth || frame.height > kLargestSdHeight;
  const AVColorSpace space = colors_.matrix.value_or(frame.colorspace);
  const auto matrix = sws_colorspace(space, hd && !colors_.still ? SWS_CS_ITU709 : SWS_CS_ITU601);
  if (!matrix) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("uses the colour matrix {}, which is not read",
                    av_color_space_name(space) == nullptr ? "?" : av_color_space_name(space)));
  }
  conversion.colorspace = *matrix;
  if (space == AVCOL_SPC_UNSPECIFIED && !colors_.still) {
    note(fmt::format("does not state its colour matrix; {} is taken for {}x{}",
                     hd ? "BT.709" : "BT.601", frame.width, frame.height));
  }
  switch (frame.chroma_location) {
    case AVCHROMA_LOC_CENTER:
      conversion.chroma_x = 128;
      break;
    case AVCHROMA_LOC_TOPLEFT:
      conversion.chroma_y = 0;
      break;
    case AVCHROMA_LOC_TOP:
      conversion.chroma_x = 128;
      conversion.chroma_y = 0;
      break;
    case AVCHROMA_LOC_UNSPECIFIED:
      conversion.chroma_x = colors_.still ? 128 : 0;
      break;
    default:
      break;
  }
  // Where an axis is not subsampled there is nothing to site.
  conversion.chroma_x = format.log2_chroma_w == 0 ? 0 : conversion.chroma_x;
  conversion.chroma_y = format.log2_chroma_h == 0 ? 0 : conversion.chroma_y;
  if (!scaler_ || !(conversion == made_for_)) {
    MINIACC_ASSIGN(scaler_, make_scaler(conversion));
    made_for_ = conversion;
  }
  const Frame rgb = make_frame();
  rgb->format = AV_PIX_FMT_RGB24;
  rgb->width = frame.width;
  rgb->height = frame.height;
  MINIACC_RETURN_IF_ERROR(check(av_frame_get_buffer(rgb.get(), 0), "no memory for its pixels"));
  MINIACC_RETURN_IF_ERROR(check(sws_scale(scaler_.get(), frame.data, frame.linesize, 0,
                                          frame.height, rgb->data, rgb->linesize),
                                "colour conversion"));
  RgbImage image{frame.width, frame.height, {}};
  const std::size_t row_bytes = static_cast<std::size_t>(frame.width) * 3;
  image.pixels.reserve(row_bytes * static_cast<std::size_t>(frame.height));
  for (int y = 0; y < frame.height; ++y) {
    const std::uint8_t* row = rgb->data[0] + std::ptrdiff_t{y} * rgb->linesize[0];
    image.pixels.insert(image.pixels.end(), row, row + row_bytes);
  }
  if (has_flag(format, AV_PIX_FMT_FLAG_ALPHA)) {
    ComponentReader reader(frame, format);
    const std::int64_t max = reader.max(3);
    std::vector<std::uint16_t> row(static_cast<std::size_t>(frame.width));
    std::vector<std::uint8_t> alpha;
    alpha.reserve(row.size() * static_cast<std::size_t>(frame.height));
    for (int y = 0; y < frame.height; ++y) {
      reader.read(3, y, row);
      for (const std::uint16_t value : row) {
        alpha.push_back(to_8_bits(value, max));
      }
    }
    lay_over_background(image, alpha);
  }
  return image;
}

Result<std::vector<std::uint8_t>> FrameToRgb::grey(const AVFrame& frame, AVColorRange untagged) {
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  if (format == nullptr || has_flag(*format, AV_PIX_FMT_FLAG_FLOAT) ||
      has_flag(*format, AV_PIX_FMT_FLAG_HWACCEL)) {
    return fail(ErrorCode::kUnsupported, "stores its transparency in a form that is not read");
  }
  ComponentReader reader(frame, *format);
  const AVColorRange range =
      frame.color_range == AVCOL_RANGE_UNSPECIFIED ? untagged : frame.color_range;
  std::vector<std::uint16_t> row(static_cast<std::size_t>(frame.width));
  std::vector<std::uint8_t> values;
  values.reserve(row.size() * static_cast<std::size_t>(frame.height));
  for (int y = 0; y < frame.height; ++y) {
    reader.read(0, y, row);
    for (const std::uint16_t value : row) {
      const std::uint8_t byte = to_8_bits(value, reader.max(0));
      values.push_back(range == AVCOL_RANGE_MPEG ? widen_range(byte) : byte);
    }
  }
  return values;
}

void FrameToRgb::lay_over_background(RgbImage& image, const std::vector<std::uint8_t>& alpha) {
  bool shows_background = false;
  for (std::size_t i = 0; i < alpha.size(); ++i) {
    if (alpha[i] == 255) {
      continue;
    }
    shows_background = true;
    for (std::size_t c = 0; c < 3; ++c) {
      std::uint8_t& value = image.pixels[3 * i + c];
      value = over(value, 255, alpha[i], 255, colors_.background[c], colors_.premultiplied);
    }
  }
  if (shows_background) {
    note_background();
  }
}

}  // namespace miniacc::libav
