#include "io/media/container_writer.h"

#include <algorithm>

#include <fmt/format.h>

#include "io/media/audio_samples.h"

extern "C" {
#include <libavutil/channel_layout.h>
}

namespace miniacc {
namespace {

// Transparent for AAC-LC stereo at 32 kHz, and below the 6144 bits that a frame may have.
constexpr std::int64_t kAacBitRate = 192'000;
constexpr int kSecondsBetweenKeyFrames = 2;  // seeking in browsers

Result<libav::Codec> allocate_encoder(const char* encoder_name, const std::string& output) {
  const AVCodec* encoder = avcodec_find_encoder_by_name(encoder_name);
  if (encoder == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: this FFmpeg has no {} encoder", output, encoder_name));
  }
  libav::Codec codec(avcodec_alloc_context3(encoder));
  if (!codec) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{}: no memory for the {} encoder", output, encoder_name));
  }
  // No version strings or times in the file: equal input gives equal bytes.
  codec->flags |= AV_CODEC_FLAG_BITEXACT;
  return codec;
}

}  // namespace

ContainerWriter::ContainerWriter(PartialOutput output, Container container,
                                 const VideoWriterOptions& options)
    : VideoWriter(options, /*has_frames=*/true),
      output_(std::move(output)),
      container_(container),
      picture_(libav::make_frame()),
      sound_(libav::make_frame()),
      packet_(libav::make_packet()) {}

Result<std::unique_ptr<VideoWriter>> ContainerWriter::create(const std::filesystem::path& path,
                                                             Container container,
                                                             const VideoWriterOptions& options) {
  libav::quiet();
  MINIACC_ASSIGN(PartialOutput output,
                 PartialOutput::create_file(
                     path, options.overwrite ? ExistingOutput::kReplace : ExistingOutput::kRefuse));
  std::unique_ptr<ContainerWriter> writer(
      new ContainerWriter(std::move(output), container, options));
  MINIACC_RETURN_IF_ERROR(writer->open());
  return writer;
}

Status ContainerWriter::open() {
  AVFormatContext* muxer = nullptr;
  const std::string url = libav::file_url(output_.path());
  const char* format = container_ == Container::kMp4 ? "mp4" : "matroska";
  MINIACC_RETURN_IF_ERROR(
      libav::check(avformat_alloc_output_context2(&muxer, nullptr, format, url.c_str()), name()));
  muxer_.reset(muxer);
  muxer_->flags |= AVFMT_FLAG_BITEXACT;
  // Sound usually comes after all frames: wait for it instead of writing the streams apart. What
  // waits is compressed.
  muxer_->max_interleave_delta = 0;
  for (const auto& [key, value] : options().metadata) {
    MINIACC_RETURN_IF_ERROR(
        libav::check(av_dict_set(&muxer_->metadata, key.c_str(), value.c_str(), 0), name()));
  }
  MINIACC_RETURN_IF_ERROR(open_video());
  if (has_audio()) {
    MINIACC_RETURN_IF_ERROR(open_audio());
  }
  MINIACC_RETURN_IF_ERROR(
      libav::check(avio_open(&muxer_->pb, url.c_str(), AVIO_FLAG_WRITE), name()));
  libav::Options muxer_options;
  if (container_ == Container::kMp4) {
    // faststart: the index (moov) before the data; use_metadata_tags: keep keys MP4 does not know.
    muxer_options.set("movflags", "+faststart+use_metadata_tags");
  }
  MINIACC_RETURN_IF_ERROR(
      libav::check(avformat_write_header(muxer_.get(), muxer_options.get()), name()));
  return muxer_options.check_all_used(name());
}

Status ContainerWriter::open_video() {
  const bool lossless = options().lossless;
  MINIACC_ASSIGN(video_, allocate_encoder(lossless ? "ffv1" : "libx264", name()));
  video_->width = options().width;
  video_->height = options().height;
  video_->time_base = {1, options().fps};
  video_->framerate = {options().fps, 1};
  video_->sample_aspect_ratio = {1, 1};
  video_->color_primaries = AVCOL_PRI_BT709;
  video_->color_trc = AVCOL_TRC_BT709;
  video_->thread_count = options().threads;
  libav::Options encoder_options;
  if (lossless) {
    video_->pix_fmt = AV_PIX_FMT_BGR0;
    video_->colorspace = AVCOL_SPC_RGB;
    video_->color_range = AVCOL_RANGE_JPEG;
    video_->gop_size = 1;  // FFV1 is meant to be intra only
    video_->level = 3;
    encoder_options.set("slicecrc", "1");
    encoder_options.set("slices", "4");
  } else {
    video_->pix_fmt = AV_PIX_FMT_YUV420P;
    video_->colorspace = AVCOL_SPC_BT709;
    video_->color_range = AVCOL_RANGE_MPEG;
    video_->chroma_sample_location = AVCHROMA_LOC_LEFT;
    video_->gop_size = kSecondsBetweenKeyFrames * options().fps;
    encoder_options.set("preset", options().preset);
    encoder_options.set("crf", std::to_string(options().crf));
    encoder_options.set("profile", "high");
  }
  if ((muxer_->oformat->flags & AVFMT_GLOBALHEADER) != 0) {
    video_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  }
  MINIACC_RETURN_IF_ERROR(
      libav::check(avcodec_open2(video_.get(), nullptr, encoder_options.get()), name()));
  MINIACC_RETURN_IF_ERROR(encoder_options.check_all_used(name()));
  MINIACC_RETURN_IF_ERROR(add_stream(*video_, video_stream_));
  video_stream_->avg_frame_rate = video_->framerate;
  video_stream_->sample_aspect_ratio = video_->sample_aspect_ratio;

  MINIACC_ASSIGN(scaler_, libav::make_scaler({.width = video_->width,
                                              .height = video_->height,
                                              .from = AV_PIX_FMT_RGB24,
                                              .to = video_->pix_fmt}));
  picture_->format = video_->pix_fmt;
  picture_->width = video_->width;
  picture_->height = video_->height;
  picture_->color_range = video_->color_range;
  picture_->colorspace = video_->colorspace;
  picture_->color_primaries = video_->color_primaries;
  picture_->color_trc = video_->color_trc;
  picture_->chroma_location = video_->chroma_sample_location;
  return libav::check(av_frame_get_buffer(picture_.get(), 0), name());
}

Status ContainerWriter::open_audio() {
  // AAC begins 1024 samples early. MP4 says so in an edit list; FFmpeg's Matroska writer would
  // delay the picture by them instead, so Matroska takes FLAC, which has no such start.
  const bool lossless = container_ == Container::kMatroska;
  MINIACC_ASSIGN(audio_, allocate_encoder(lossless ? "flac" : "aac", name()));
  audio_->sample_rate = options().audio_sample_rate_hz;
  audio_->sample_fmt = lossless ? AV_SAMPLE_FMT_S16 : AV_SAMPLE_FMT_FLTP;
  audio_->time_base = {1, audio_->sample_rate};
  audio_->thread_count = 1;
  av_channel_layout_default(&audio_->ch_layout, 2);
  if (!lossless) {
    audio_->bit_rate = kAacBitRate;
    audio_->profile = FF_PROFILE_AAC_LOW;
  }
  if ((muxer_->oformat->flags & AVFMT_GLOBALHEADER) != 0) {
    audio_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  }
  MINIACC_RETURN_IF_ERROR(libav::check(avcodec_open2(audio_.get(), nullptr, nullptr), name()));
  return add_stream(*audio_, audio_stream_);
}

Status ContainerWriter::add_stream(const AVCodecContext& codec, AVStream*& stream) {
  stream = avformat_new_stream(muxer_.get(), nullptr);
  if (stream == nullptr) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("{}: no memory for a stream", name()));
  }
  stream->time_base = codec.time_base;
  return libav::check(avcodec_parameters_from_context(stream->codecpar, &codec), name());
}

Status ContainerWriter::encode(AVCodecContext& codec, const AVStream& stream,
                               const AVFrame* frame) {
  MINIACC_RETURN_IF_ERROR(libav::check(avcodec_send_frame(&codec, frame), name()));
  while (true) {
    if (options().cancel != nullptr && options().cancel->cancelled()) {
      return fail(ErrorCode::kCancelled, "cancelled");
    }
    const int status = avcodec_receive_packet(&codec, packet_.get());
    if (status == AVERROR(EAGAIN) || status == AVERROR_EOF) {
      return {};
    }
    MINIACC_RETURN_IF_ERROR(libav::check(status, name()));
    if (&codec == video_.get() && packet_->duration == 0) {
      packet_->duration = 1;  // x264 leaves it open, and the last frame would last nothing
    }
    packet_->stream_index = stream.index;
    av_packet_rescale_ts(packet_.get(), codec.time_base, stream.time_base);
    MINIACC_RETURN_IF_ERROR(
        libav::check(av_interleaved_write_frame(muxer_.get(), packet_.get()), name()));
  }
}

Status ContainerWriter::write_frame(std::span<const std::uint8_t> rgb) {
  MINIACC_RETURN_IF_ERROR(libav::check(av_frame_make_writable(picture_.get()), name()));
  // swscale's vector code reads behind the last row: the caller's frames may end where memory ends.
  padded_frame_.resize(rgb.size() + AV_INPUT_BUFFER_PADDING_SIZE);
  std::copy(rgb.begin(), rgb.end(), padded_frame_.begin());
  const std::uint8_t* const source[] = {padded_frame_.data()};
  const int source_stride[] = {3 * options().width};
  MINIACC_RETURN_IF_ERROR(
      libav::check(sws_scale(scaler_.get(), source, source_stride, 0, options().height,
                             picture_->data, picture_->linesize),
                   name()));
  picture_->pts = num_frames_++;
  return encode(*video_, *video_stream_, picture_.get());
}

Status ContainerWriter::write_samples(std::span<const float> left, std::span<const float> right) {
  waiting_left_.insert(waiting_left_.end(), left.begin(), left.end());
  waiting_right_.insert(waiting_right_.end(), right.begin(), right.end());
  const auto frame_size = static_cast<std::size_t>(audio_->frame_size);
  while (waiting_left_.size() >= frame_size) {
    MINIACC_RETURN_IF_ERROR(encode_samples(audio_->frame_size));
  }
  return {};
}

Status ContainerWriter::encode_samples(int count) {
  av_frame_unref(sound_.get());
  sound_->format = audio_->sample_fmt;
  sound_->sample_rate = audio_->sample_rate;
  sound_->nb_samples = count;
  MINIACC_RETURN_IF_ERROR(
      libav::check(av_channel_layout_copy(&sound_->ch_layout, &audio_->ch_layout), name()));
  MINIACC_RETURN_IF_ERROR(libav::check(av_frame_get_buffer(sound_.get(), 0), name()));
  const auto clip = [](float sample) { return std::clamp(sample, -1.0F, 1.0F); };
  for (int i = 0; i < count; ++i) {
    const float left = waiting_left_[static_cast<std::size_t>(i)];
    const float right = waiting_right_[static_cast<std::size_t>(i)];
    if (audio_->sample_fmt == AV_SAMPLE_FMT_S16) {
      auto* samples = reinterpret_cast<std::int16_t*>(sound_->data[0]);
      samples[2 * i] = to_pcm16(left);
      samples[2 * i + 1] = to_pcm16(right);
    } else {
      reinterpret_cast<float*>(sound_->data[0])[i] = clip(left);
      reinterpret_cast<float*>(sound_->data[1])[i] = clip(right);
    }
  }
  waiting_left_.erase(waiting_left_.begin(), waiting_left_.begin() + count);
  waiting_right_.erase(waiting_right_.begin(), waiting_right_.begin() + count);
  sound_->pts = num_samples_;
  num_samples_ += count;
  return encode(*audio_, *audio_stream_, sound_.get());
}

Status ContainerWriter::complete() {
  if (!waiting_left_.empty()) {
    MINIACC_RETURN_IF_ERROR(encode_samples(static_cast<int>(waiting_left_.size())));
  }
  MINIACC_RETURN_IF_ERROR(encode(*video_, *video_stream_, nullptr));
  if (audio_) {
    MINIACC_RETURN_IF_ERROR(encode(*audio_, *audio_stream_, nullptr));
  }
  MINIACC_RETURN_IF_ERROR(libav::check(av_write_trailer(muxer_.get()), name()));
  avio_flush(muxer_->pb);
  // A full disk shows here, not in the calls that filled the buffer.
  MINIACC_RETURN_IF_ERROR(libav::check(muxer_->pb->error, name()));
  MINIACC_RETURN_IF_ERROR(libav::check(avio_closep(&muxer_->pb), name()));
  return output_.commit();
}

}  // namespace miniacc
