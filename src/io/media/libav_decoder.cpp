#include "io/media/libav_decoder.h"

#include <cstring>

#include <fmt/format.h>

namespace miniacc::libav {

std::optional<int> find_stream(const MediaInput& input, AVMediaType type) {
  const int best = av_find_best_stream(input.get(), type, -1, -1, nullptr, 0);
  const auto is_cover = [&](int index) {
    return (input->streams[index]->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0;
  };
  if (best >= 0 && !is_cover(best)) {
    return best;
  }
  for (unsigned int i = 0; i < input->nb_streams; ++i) {
    const auto index = static_cast<int>(i);
    if (input->streams[i]->codecpar->codec_type == type && !is_cover(index)) {
      return index;
    }
  }
  return std::nullopt;
}

Result<Codec> open_decoder(const AVStream& stream, std::int64_t max_pixels,
                           const std::string& path) {
  const AVCodecParameters& parameters = *stream.codecpar;
  const AVCodec* decoder = avcodec_find_decoder(parameters.codec_id);
  if (decoder == nullptr) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: this FFmpeg cannot decode {}", path,
                                                     avcodec_get_name(parameters.codec_id)));
  }
  Codec codec(avcodec_alloc_context3(decoder));
  if (!codec) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("{}: no memory for its decoder", path));
  }
  MINIACC_RETURN_IF_ERROR(check(avcodec_parameters_to_context(codec.get(), &parameters), path));
  codec->pkt_timebase = stream.time_base;  // the encoder's padding is cut by it
  codec->max_pixels = max_pixels;
  codec->thread_count = 1;
  codec->flags |= AV_CODEC_FLAG_BITEXACT;
  MINIACC_RETURN_IF_ERROR(check(avcodec_open2(codec.get(), decoder, nullptr), path));
  return codec;
}

Result<StreamDecoder> StreamDecoder::open(MediaInput& input, int stream_index,
                                          std::int64_t max_pixels) {
  for (unsigned int i = 0; i < input->nb_streams; ++i) {
    input->streams[i]->discard =
        static_cast<int>(i) == stream_index ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
  }
  StreamDecoder decoder(input, stream_index);
  MINIACC_ASSIGN(decoder.codec_,
                 open_decoder(*input->streams[stream_index], max_pixels, input.path()));
  return decoder;
}

tl::unexpected<Error> StreamDecoder::damaged(const std::string& why) const {
  const bool video = stream().codecpar->codec_type == AVMEDIA_TYPE_VIDEO;
  return fail(ErrorCode::kInvalidInput,
              fmt::format("{}: is damaged or cut short: {} {}: {}", input_->path(),
                          video ? "frame" : "sound block", num_frames_, why));
}

Status StreamDecoder::feed() {
  while (true) {
    int status = av_read_frame(input_->get(), packet_.get());
    if (status == AVERROR_EOF) {
      at_end_ = true;
      return check(avcodec_send_packet(codec_.get(), nullptr), input_->path());
    }
    if (status == AVERROR(EAGAIN)) {
      continue;
    }
    if (status < 0) {
      return failure(status, input_->path());
    }
    if (packet_->stream_index != index_) {
      av_packet_unref(packet_.get());
      continue;
    }
    const bool corrupt = (packet_->flags & AV_PKT_FLAG_CORRUPT) != 0;
    status = corrupt ? 0 : avcodec_send_packet(codec_.get(), packet_.get());
    av_packet_unref(packet_.get());
    if (corrupt) {
      return damaged("its data are not all there");
    }
    if (status == AVERROR_INVALIDDATA) {
      return damaged("it cannot be decoded");
    }
    return check(status, input_->path());
  }
}

Result<const AVFrame*> StreamDecoder::next() {
  while (true) {
    const int status = avcodec_receive_frame(codec_.get(), frame_.get());
    if (status == AVERROR_EOF) {
      return nullptr;
    }
    if (status == AVERROR(EAGAIN)) {
      if (at_end_) {
        return nullptr;
      }
      MINIACC_RETURN_IF_ERROR(feed());
      continue;
    }
    if (status == AVERROR_INVALIDDATA) {
      return damaged("it cannot be decoded");
    }
    MINIACC_RETURN_IF_ERROR(check(status, input_->path()));
    if ((frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame_->decode_error_flags != 0) {
      return damaged("the decoder had to make up parts of it");
    }
    ++num_frames_;
    return frame_.get();
  }
}

std::optional<float> sample_value(const AVFrame& frame, int channel, int index) {
  const auto format = static_cast<AVSampleFormat>(frame.format);
  const bool planar = av_sample_fmt_is_planar(format) != 0;
  const std::uint8_t* data = frame.extended_data[planar ? channel : 0];
  const std::ptrdiff_t at =
      planar ? index : std::ptrdiff_t{index} * frame.ch_layout.nb_channels + channel;
  const auto read = [&](auto zero) {
    decltype(zero) value{};
    std::memcpy(&value, data + at * static_cast<std::ptrdiff_t>(sizeof value), sizeof value);
    return value;
  };
  switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8:
      return (static_cast<float>(read(std::uint8_t{})) - 128.0F) / 128.0F;
    case AV_SAMPLE_FMT_S16:
      return static_cast<float>(read(std::int16_t{})) / 32768.0F;
    case AV_SAMPLE_FMT_S32:
      return static_cast<float>(read(std::int32_t{})) / 2147483648.0F;
    case AV_SAMPLE_FMT_FLT:
      return read(float{});
    case AV_SAMPLE_FMT_DBL:
      return static_cast<float>(read(double{}));
    default:
      return std::nullopt;
  }
}

}  // namespace miniacc::libav
