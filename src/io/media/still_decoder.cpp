#include "io/media/still_decoder.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "io/media/frame_to_rgb.h"
#include "io/media/resize.h"

namespace miniacc {
namespace {

AVCodecID codec_of(MediaKind kind, const CodedPicture& coded) {
  switch (kind) {
    case MediaKind::kPng:
      return AV_CODEC_ID_PNG;
    case MediaKind::kJpeg:
      return AV_CODEC_ID_MJPEG;
    case MediaKind::kWebp:
      return AV_CODEC_ID_WEBP;
    case MediaKind::kGif:
      return AV_CODEC_ID_GIF;
    case MediaKind::kBmp:
      return AV_CODEC_ID_BMP;
    case MediaKind::kTiff:
      return AV_CODEC_ID_TIFF;
    default:
      return coded.av1 ? AV_CODEC_ID_AV1 : AV_CODEC_ID_HEVC;
  }
}

Result<libav::Codec> open_codec(const StillPicture& still, const CodedPicture& coded,
                                std::int64_t max_pixels) {
  const AVCodecID id = codec_of(still.kind, coded);
  const AVCodec* decoder = avcodec_find_decoder(id);
  if (decoder == nullptr) {
    return fail(ErrorCode::kUnsupported, fmt::format("is {}, and this FFmpeg has no decoder for {}",
                                                     describe(still.kind), avcodec_get_name(id)));
  }
  libav::Codec codec(avcodec_alloc_context3(decoder));
  if (!codec) {
    return fail(ErrorCode::kOutOfMemory, "no memory for its decoder");
  }
  if (!coded.extradata.empty()) {
    // libav frees it with the context.
    const std::size_t size = coded.extradata.size();
    codec->extradata = static_cast<std::uint8_t*>(av_mallocz(size + AV_INPUT_BUFFER_PADDING_SIZE));
    if (codec->extradata == nullptr) {
      return fail(ErrorCode::kOutOfMemory, "no memory for its decoder");
    }
    std::memcpy(codec->extradata, coded.extradata.data(), size);
    codec->extradata_size = static_cast<int>(size);
  }
  codec->max_pixels = max_pixels;
  codec->thread_count = 1;
  codec->flags |= AV_CODEC_FLAG_BITEXACT;
  // A picture is whole or refused: check sums are checked, the first fault ends decoding.
  codec->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE | AV_EF_BUFFER;
  MINIACC_RETURN_IF_ERROR(
      libav::check(avcodec_open2(codec.get(), decoder, nullptr), "its decoder"));
  return codec;
}

Result<libav::Frame> decode(const StillPicture& still, const CodedPicture& coded,
                            std::int64_t max_pixels) {
  MINIACC_ASSIGN(const libav::Codec codec, open_codec(still, coded, max_pixels));
  const libav::Packet packet = libav::make_packet();
  MINIACC_RETURN_IF_ERROR(libav::check(
      av_new_packet(packet.get(), static_cast<int>(coded.data.size())), "no memory for it"));
  std::memcpy(packet->data, coded.data.data(), coded.data.size());
  packet->flags |= AV_PKT_FLAG_KEY;
  libav::Frame frame = libav::make_frame();
  int status = avcodec_send_packet(codec.get(), packet.get());
  if (status >= 0) {
    status = avcodec_receive_frame(codec.get(), frame.get());
  }
  if (status == AVERROR(EAGAIN)) {  // decoders of video want to hear that no more comes
    status = avcodec_send_packet(codec.get(), nullptr);
    if (status >= 0) {
      status = avcodec_receive_frame(codec.get(), frame.get());
    }
  }
  if (status == AVERROR_PATCHWELCOME || status == AVERROR(ENOSYS)) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("is {} of a variant that is not read; save it as PNG", describe(still.kind)));
  }
  if (status == AVERROR(ENOMEM)) {
    return fail(ErrorCode::kOutOfMemory, "no memory to decode it");
  }
  if (status < 0 || frame->width < 1 || frame->height < 1 ||
      (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame->decode_error_flags != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("is {} that is damaged or cut short", describe(still.kind)));
  }
  return frame;
}

/// What libav may take for a picture of this size. It counts pixels of its own padded buffers, so
/// the limit is that of the header, padded, which is below the caller's by then.
std::int64_t padded_pixels(std::int64_t width, std::int64_t height) {
  constexpr std::int64_t kPadding = 128;
  return (width + kPadding) * (height + kPadding);
}

/// Copies a tile to its place, without what hangs over the right and lower side.
void paste(RgbImage& canvas, const RgbImage& tile, std::int64_t x, std::int64_t y) {
  const std::int64_t width = std::min(tile.width, canvas.width - x);
  const std::int64_t height = std::min(tile.height, canvas.height - y);
  for (std::int64_t row = 0; row < height; ++row) {
    const auto from = tile.pixels.begin() + row * tile.width * 3;
    std::copy(from, from + width * 3, canvas.pixels.begin() + ((y + row) * canvas.width + x) * 3);
  }
}

libav::FrameColors colors_of(const StillPicture& still, const PictureOptions& options) {
  libav::FrameColors colors;
  colors.background = options.background;
  colors.still = true;
  colors.opaque = still.opaque;
  colors.premultiplied = still.premultiplied;
  if (still.kind == MediaKind::kWebp) {
    // The format knows nothing else (RFC 9649, 2.5); its decoder reads the clamping bit as a range.
    colors.matrix = AVCOL_SPC_SMPTE170M;
    colors.range = AVCOL_RANGE_MPEG;
  } else if (still.color) {
    colors.matrix = static_cast<AVColorSpace>(still.color->matrix);
    colors.range = still.color->full_range ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
  }
  return colors;
}

}  // namespace

Status check_pixels(std::int64_t width, std::int64_t height, std::int64_t max_pixels) {
  if (width > max_pixels / height) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("has {}x{} pixels, at most {} in all are accepted", width, height, max_pixels));
  }
  return {};
}

Result<Picture> decode_still(const StillPicture& still, const PictureOptions& options) {
  libav::quiet();
  MINIACC_RETURN_IF_ERROR(check_pixels(still.width, still.height, options.max_pixels));
  libav::FrameToRgb converter(colors_of(still, options));
  RgbImage image;
  if (still.tiles.size() == 1 && still.tile_width == 0) {
    MINIACC_ASSIGN(const libav::Frame frame,
                   decode(still, still.tiles.front(), padded_pixels(still.width, still.height)));
    if (frame->width != still.width || frame->height != still.height) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("is damaged: its header says {}x{} pixels, its data are {}x{}",
                              still.width, still.height, frame->width, frame->height));
    }
    MINIACC_ASSIGN(image, converter.convert(*frame));
  } else {
    MINIACC_RETURN_IF_ERROR(check_pixels(still.tile_width, still.tile_height, options.max_pixels));
    image = {still.width, still.height, {}};
    image.pixels.resize(static_cast<std::size_t>(still.width * still.height * 3));
    for (std::size_t i = 0; i < still.tiles.size(); ++i) {
      MINIACC_ASSIGN(
          const libav::Frame frame,
          decode(still, still.tiles[i], padded_pixels(still.tile_width, still.tile_height)));
      if (frame->width != still.tile_width || frame->height != still.tile_height) {
        return fail(ErrorCode::kInvalidInput, "is damaged: a tile has another size than it says");
      }
      MINIACC_ASSIGN(const RgbImage tile, converter.convert(*frame));
      const auto index = static_cast<std::int64_t>(i);
      paste(image, tile, index % still.tile_columns * still.tile_width,
            index / still.tile_columns * still.tile_height);
    }
  }
  if (still.alpha) {
    MINIACC_ASSIGN(const libav::Frame frame,
                   decode(still, *still.alpha, padded_pixels(still.width, still.height)));
    if (frame->width != still.width || frame->height != still.height) {
      return fail(ErrorCode::kInvalidInput, "is damaged: its transparency has another size");
    }
    MINIACC_ASSIGN(const std::vector<std::uint8_t> alpha,
                   libav::FrameToRgb::grey(*frame, AVCOL_RANGE_JPEG));
    converter.lay_over_background(image, alpha);
  }
  if (still.shown) {
    image = crop(image, still.shown->x, still.shown->y, still.shown->width, still.shown->height);
  }
  Picture picture;
  picture.notes = still.notes;
  picture.notes.insert(picture.notes.end(), converter.notes().begin(), converter.notes().end());
  if (still.orientation != Orientation::kUpright) {
    picture.notes.emplace_back(fmt::format("is {}, as it says", describe(still.orientation)));
  }
  picture.image = turned(std::move(image), still.orientation);
  return picture;
}

}  // namespace miniacc
