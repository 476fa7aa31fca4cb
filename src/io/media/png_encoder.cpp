#include "io/media/png_encoder.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

namespace miniacc {

PngEncoder::PngEncoder(std::string name)
    : name_(std::move(name)), frame_(libav::make_frame()), packet_(libav::make_packet()) {}

Result<PngEncoder> PngEncoder::create(std::int64_t width, std::int64_t height, std::string name) {
  libav::quiet();
  PngEncoder png(std::move(name));
  const AVCodec* encoder = avcodec_find_encoder(AV_CODEC_ID_PNG);
  if (encoder == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: this FFmpeg has no PNG encoder", png.name_));
  }
  png.encoder_.reset(avcodec_alloc_context3(encoder));
  if (!png.encoder_) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{}: no memory for the PNG encoder", png.name_));
  }
  MINIACC_REQUIRE(width > 0 && height > 0 && width <= std::numeric_limits<int>::max() &&
                      height <= std::numeric_limits<int>::max(),
                  "PngEncoder: the size must be positive and fit an int");
  png.encoder_->width = static_cast<int>(width);
  png.encoder_->height = static_cast<int>(height);
  png.encoder_->pix_fmt = AV_PIX_FMT_RGB24;
  png.encoder_->time_base = {1, 1};  // asked for, and without meaning in a still picture
  png.encoder_->thread_count = 1;    // one packet out for each frame in
  png.encoder_->flags |= AV_CODEC_FLAG_BITEXACT;
  MINIACC_RETURN_IF_ERROR(
      libav::check(avcodec_open2(png.encoder_.get(), nullptr, nullptr), png.name_));
  png.frame_->format = AV_PIX_FMT_RGB24;
  png.frame_->width = png.encoder_->width;
  png.frame_->height = png.encoder_->height;
  MINIACC_RETURN_IF_ERROR(libav::check(av_frame_get_buffer(png.frame_.get(), 0), png.name_));
  return png;
}

Result<std::string_view> PngEncoder::encode(std::span<const std::uint8_t> rgb) {
  const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(frame_->width);
  MINIACC_REQUIRE(rgb.size() == row_bytes * static_cast<std::size_t>(frame_->height),
                  "PngEncoder: the picture has another size");
  av_packet_unref(packet_.get());
  MINIACC_RETURN_IF_ERROR(libav::check(av_frame_make_writable(frame_.get()), name_));
  for (int row = 0; row < frame_->height; ++row) {
    std::memcpy(frame_->data[0] + static_cast<std::ptrdiff_t>(row) * frame_->linesize[0],
                rgb.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
  }
  frame_->pts = num_frames_++;
  MINIACC_RETURN_IF_ERROR(libav::check(avcodec_send_frame(encoder_.get(), frame_.get()), name_));
  MINIACC_RETURN_IF_ERROR(
      libav::check(avcodec_receive_packet(encoder_.get(), packet_.get()), name_));
  return std::string_view(reinterpret_cast<const char*>(packet_->data),
                          static_cast<std::size_t>(packet_->size));
}

}  // namespace miniacc
