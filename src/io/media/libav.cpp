#include "io/media/libav.h"

#include <array>

#include <fmt/format.h>

extern "C" {
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
}

namespace miniacc::libav {
namespace {

template <typename T>
T* require_memory(T* object, const char* what) {
  if (object == nullptr) {
    throw ErrorException({ErrorCode::kOutOfMemory, fmt::format("no memory for {}", what)});
  }
  return object;
}

ErrorCode code_of(int status) {
  switch (status) {
    case AVERROR(ENOMEM):
      return ErrorCode::kOutOfMemory;
    case AVERROR(ENOENT):
      return ErrorCode::kNotFound;
    case AVERROR_INVALIDDATA:
    case AVERROR_EOF:
    case AVERROR(EINVAL):
    case AVERROR_STREAM_NOT_FOUND:
      return ErrorCode::kInvalidInput;
    case AVERROR_DECODER_NOT_FOUND:
    case AVERROR_DEMUXER_NOT_FOUND:
    case AVERROR_ENCODER_NOT_FOUND:
    case AVERROR_MUXER_NOT_FOUND:
    case AVERROR_PATCHWELCOME:
    case AVERROR(ENOSYS):
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

void FreeOutput::operator()(AVFormatContext* context) const noexcept {
  avio_closep(&context->pb);
  avformat_free_context(context);
}
void CloseInput::operator()(AVFormatContext* context) const noexcept {
  avformat_close_input(&context);
}
void FreeIo::operator()(AVIOContext* context) const noexcept {
  av_freep(&context->buffer);  // libav may have replaced the one it was given
  avio_context_free(&context);
}
void FreeCodec::operator()(AVCodecContext* context) const noexcept {
  avcodec_free_context(&context);
}
void FreeFrame::operator()(AVFrame* frame) const noexcept { av_frame_free(&frame); }
void FreePacket::operator()(AVPacket* packet) const noexcept { av_packet_free(&packet); }
void FreeScaler::operator()(SwsContext* context) const noexcept { sws_freeContext(context); }

Options::~Options() { av_dict_free(&dictionary_); }

void Options::set(const char* key, const std::string& value) {
  if (av_dict_set(&dictionary_, key, value.c_str(), 0) < 0) {
    throw ErrorException({ErrorCode::kOutOfMemory, "no memory for a media option"});
  }
}

Status Options::check_all_used(const std::string& what) const {
  const AVDictionaryEntry* left = av_dict_get(dictionary_, "", nullptr, AV_DICT_IGNORE_SUFFIX);
  if (left != nullptr) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: does not know the option {}={}", what, left->key, left->value));
  }
  return {};
}

Frame make_frame() { return Frame(require_memory(av_frame_alloc(), "a frame")); }
Packet make_packet() { return Packet(require_memory(av_packet_alloc(), "a packet")); }

tl::unexpected<Error> failure(int status, const std::string& what) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(status, text.data(), text.size());
  return fail(code_of(status), fmt::format("{}: {}", what, text.data()));
}

Status check(int status, const std::string& what) {
  if (status < 0) {
    return failure(status, what);
  }
  return {};
}

std::string file_url(const std::filesystem::path& path) { return "file:" + path.string(); }

void quiet() { av_log_set_level(AV_LOG_FATAL); }

Result<Scaler> make_scaler(const Conversion& conversion) {
  Scaler scaler(sws_alloc_context());
  if (!scaler) {
    return fail(ErrorCode::kOutOfMemory, "no memory for a colour conversion");
  }
  const auto is_rgb = [](AVPixelFormat format) {
    const AVPixFmtDescriptor* description = av_pix_fmt_desc_get(format);
    return description != nullptr && (description->flags & AV_PIX_FMT_FLAG_RGB) != 0;
  };
  const bool from_rgb = is_rgb(conversion.from);
  const bool to_rgb = is_rgb(conversion.to);
  // Chroma is filtered at full horizontal resolution.
  const std::array<std::pair<const char*, std::int64_t>, 9> options = {{
      {"srcw", conversion.width},
      {"srch", conversion.height},
      {"dstw", conversion.width},
      {"dsth", conversion.height},
      {"src_format", conversion.from},
      {"dst_format", conversion.to},
      {"src_range", from_rgb || conversion.full_range ? 1 : 0},
      {"dst_range", to_rgb || conversion.full_range ? 1 : 0},
      {"sws_flags",
       SWS_BICUBIC | SWS_ACCURATE_RND | SWS_BITEXACT | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP},
  }};
  for (const auto& [key, value] : options) {
    MINIACC_RETURN_IF_ERROR(check(av_opt_set_int(scaler.get(), key, value, 0), key));
  }
  if (from_rgb != to_rgb) {
    const char* side = from_rgb ? "dst" : "src";
    MINIACC_RETURN_IF_ERROR(
        check(av_opt_set_int(scaler.get(), fmt::format("{}_h_chr_pos", side).c_str(),
                             conversion.chroma_x, 0),
              "chroma position"));
    MINIACC_RETURN_IF_ERROR(
        check(av_opt_set_int(scaler.get(), fmt::format("{}_v_chr_pos", side).c_str(),
                             conversion.chroma_y, 0),
              "chroma position"));
    const int* coefficients = sws_getCoefficients(conversion.colorspace);
    // Contrast and saturation 1.0 in 16.16 fixed point, brightness 0.
    sws_setColorspaceDetails(scaler.get(), coefficients, from_rgb || conversion.full_range ? 1 : 0,
                             coefficients, to_rgb || conversion.full_range ? 1 : 0, 0, 1 << 16,
                             1 << 16);
  }
  const int status = sws_init_context(scaler.get(), nullptr, nullptr);
  if (status < 0) {
    return failure(status, "colour conversion");
  }
  return scaler;
}

}  // namespace miniacc::libav
