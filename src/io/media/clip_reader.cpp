#include <algorithm>
#include <cstring>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "io/media/frame_to_rgb.h"
#include "io/media/libav_decoder.h"
#include "io/media/media_reader.h"
#include "io/media/partial_output.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

/// Decodes the streams of one file and appends to a clip.
class ClipDecoder {
 public:
  ClipDecoder(fs::path path, const ClipLimits& limits, Clip& clip)
      : path_(std::move(path)), limits_(limits), clip_(clip), frame_(libav::make_frame()) {}

  Status decode() {
    MINIACC_ASSIGN(input_, libav::open_input(path_));
    MINIACC_RETURN_IF_ERROR(open_decoder(AVMEDIA_TYPE_VIDEO, video_, video_index_));
    MINIACC_RETURN_IF_ERROR(open_decoder(AVMEDIA_TYPE_AUDIO, audio_, audio_index_));
    if (!video_ && !audio_) {
      return refuse("has neither pictures nor sound");
    }
    const libav::Packet packet = libav::make_packet();
    while (true) {
      const int status = av_read_frame(input_.get(), packet.get());
      if (status == AVERROR_EOF) {
        break;
      }
      MINIACC_RETURN_IF_ERROR(libav::check(status, path_.string()));
      if (video_ && packet->stream_index == video_index_) {
        MINIACC_RETURN_IF_ERROR(decode_packet(*video_, packet.get()));
      } else if (audio_ && packet->stream_index == audio_index_) {
        MINIACC_RETURN_IF_ERROR(decode_packet(*audio_, packet.get()));
      }
      av_packet_unref(packet.get());
    }
    for (const libav::Codec* codec : {&video_, &audio_}) {
      if (*codec) {
        MINIACC_RETURN_IF_ERROR(decode_packet(**codec, nullptr));
      }
    }
    MINIACC_RETURN_IF_ERROR(input_.file().check_unchanged());
    return finish_audio();
  }

 private:
  [[nodiscard]] tl::unexpected<Error> refuse(const std::string& what) const {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: {}", path_.string(), what));
  }

  Status open_decoder(AVMediaType type, libav::Codec& codec, int& index) {
    index = av_find_best_stream(input_.get(), type, -1, -1, nullptr, 0);
    if (index == AVERROR_STREAM_NOT_FOUND) {
      return {};
    }
    MINIACC_RETURN_IF_ERROR(libav::check(index, path_.string()));
    const AVStream& stream = *input_->streams[index];
    MINIACC_ASSIGN(codec, libav::open_decoder(stream, limits_.max_pixels, path_.string()));
    if (type == AVMEDIA_TYPE_VIDEO && stream.avg_frame_rate.den > 0) {
      clip_.fps = av_q2d(stream.avg_frame_rate);
    }
    return {};
  }

  Status decode_packet(AVCodecContext& codec, const AVPacket* packet) {
    MINIACC_RETURN_IF_ERROR(libav::check(avcodec_send_packet(&codec, packet), path_.string()));
    while (true) {
      const int status = avcodec_receive_frame(&codec, frame_.get());
      if (status == AVERROR(EAGAIN) || status == AVERROR_EOF) {
        return {};
      }
      MINIACC_RETURN_IF_ERROR(libav::check(status, path_.string()));
      // A decoder hides damage by repeating what it has; a measurement must not take it for truth.
      if ((frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame_->decode_error_flags != 0) {
        return refuse(fmt::format("frame {} is damaged", clip_.num_frames));
      }
      MINIACC_RETURN_IF_ERROR(&codec == video_.get() ? take_picture() : take_sound());
      av_frame_unref(frame_.get());
    }
  }

  Status take_bytes(std::size_t bytes) {
    used_bytes_ += static_cast<std::int64_t>(bytes);
    if (used_bytes_ > limits_.max_bytes) {
      return refuse(fmt::format("decodes to more than {} bytes", limits_.max_bytes));
    }
    return {};
  }

  Status take_picture() {
    if (clip_.num_frames >= limits_.max_frames) {
      return refuse(fmt::format("has more than {} frames", limits_.max_frames));
    }
    if (clip_.num_frames == 0) {
      clip_.width = frame_->width;
      clip_.height = frame_->height;
    }
    if (frame_->width != clip_.width || frame_->height != clip_.height) {
      return refuse(fmt::format("frame {} is {}x{}, the first is {}x{}", clip_.num_frames,
                                frame_->width, frame_->height, clip_.width, clip_.height));
    }
    const auto format = static_cast<AVPixelFormat>(frame_->format);
    if (!scaler_ || format != scaler_format_) {
      MINIACC_ASSIGN(
          scaler_,
          libav::make_scaler(
              {.width = clip_.width,
               .height = clip_.height,
               .from = format,
               .to = AV_PIX_FMT_RGB24,
               .colorspace =
                   libav::sws_colorspace(frame_->colorspace, SWS_CS_ITU709).value_or(SWS_CS_ITU709),
               .full_range = frame_->color_range == AVCOL_RANGE_JPEG}));
      scaler_format_ = format;
    }
    const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(clip_.width);
    const std::size_t bytes = row_bytes * static_cast<std::size_t>(clip_.height);
    MINIACC_RETURN_IF_ERROR(take_bytes(bytes));
    // swscale may write a few bytes past a row that is not aligned, so not into the clip itself.
    const libav::Frame rgb = libav::make_frame();
    rgb->format = AV_PIX_FMT_RGB24;
    rgb->width = clip_.width;
    rgb->height = clip_.height;
    MINIACC_RETURN_IF_ERROR(libav::check(av_frame_get_buffer(rgb.get(), 0), path_.string()));
    MINIACC_RETURN_IF_ERROR(libav::check(sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0,
                                                   clip_.height, rgb->data, rgb->linesize),
                                         path_.string()));
    for (int row = 0; row < clip_.height; ++row) {
      const std::uint8_t* begin =
          rgb->data[0] + static_cast<std::ptrdiff_t>(row) * rgb->linesize[0];
      clip_.frames.insert(clip_.frames.end(), begin, begin + row_bytes);
    }
    const std::int64_t time = frame_->best_effort_timestamp;
    clip_.frame_times_s.push_back(
        time == AV_NOPTS_VALUE ? 0.0 : static_cast<double>(time) * av_q2d(video_->pkt_timebase));
    ++clip_.num_frames;
    return {};
  }

  Status take_sound() {
    const int channels = frame_->ch_layout.nb_channels;
    if (channels_.empty()) {
      channels_.resize(static_cast<std::size_t>(channels));
      clip_.sample_rate_hz = frame_->sample_rate;
    }
    if (static_cast<std::size_t>(channels) != channels_.size() ||
        frame_->sample_rate != clip_.sample_rate_hz) {
      return refuse("sound changes its channels or rate");
    }
    MINIACC_RETURN_IF_ERROR(take_bytes(static_cast<std::size_t>(frame_->nb_samples) *
                                       channels_.size() * sizeof(float)));
    for (int channel = 0; channel < channels; ++channel) {
      for (int i = 0; i < frame_->nb_samples; ++i) {
        const auto value = libav::sample_value(*frame_, channel, i);
        if (!value) {
          return refuse("sound has a sample format that is not supported");
        }
        channels_[static_cast<std::size_t>(channel)].push_back(*value);
      }
    }
    return {};
  }

  Status finish_audio() {
    clip_.channels = static_cast<int>(channels_.size());
    for (const auto& channel : channels_) {
      clip_.audio.insert(clip_.audio.end(), channel.begin(), channel.end());
    }
    return {};
  }

  fs::path path_;
  ClipLimits limits_;
  Clip& clip_;
  libav::MediaInput input_;
  libav::Codec video_;
  libav::Codec audio_;
  int video_index_ = -1;
  int audio_index_ = -1;
  libav::Scaler scaler_;
  AVPixelFormat scaler_format_ = AV_PIX_FMT_NONE;
  libav::Frame frame_;
  std::vector<std::vector<float>> channels_;
  std::int64_t used_bytes_ = 0;
};

Result<Clip> read_frame_folder(const fs::path& folder, const ClipLimits& limits) {
  std::vector<fs::path> pictures;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == ".png" && is_frame_folder_entry(path.filename())) {
      pictures.push_back(path);
      if (static_cast<std::int64_t>(pictures.size()) > limits.max_frames) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: has more than {} frames", folder.string(), limits.max_frames));
      }
    }
  }
  if (error) {
    return fail(ErrorCode::kIo, fmt::format("{}: {}", folder.string(), error.message()));
  }
  if (pictures.empty()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: holds no frame 00001.png", folder.string()));
  }
  std::sort(pictures.begin(), pictures.end());
  Clip clip;
  for (const fs::path& path : pictures) {
    ClipLimits left = limits;
    left.max_bytes -= static_cast<std::int64_t>(clip.frames.size());
    Clip picture;
    MINIACC_RETURN_IF_ERROR(ClipDecoder(path, left, picture).decode());
    if (picture.num_frames != 1) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{}: is not one picture", path.string()));
    }
    if (clip.num_frames > 0 && (picture.width != clip.width || picture.height != clip.height)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: is {}x{}, the first frame is {}x{}", path.string(),
                              picture.width, picture.height, clip.width, clip.height));
    }
    clip.width = picture.width;
    clip.height = picture.height;
    ++clip.num_frames;
    clip.frames.insert(clip.frames.end(), picture.frames.begin(), picture.frames.end());
  }
  if (fs::exists(folder / "audio.wav", error)) {
    Clip sound;
    MINIACC_RETURN_IF_ERROR(ClipDecoder(folder / "audio.wav", limits, sound).decode());
    clip.sample_rate_hz = sound.sample_rate_hz;
    clip.channels = sound.channels;
    clip.audio = std::move(sound.audio);
  }
  return clip;
}

}  // namespace

Result<Clip> read_clip(const fs::path& path, const ClipLimits& limits) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return read_frame_folder(path, limits);
  }
  Clip clip;
  MINIACC_RETURN_IF_ERROR(ClipDecoder(path, limits, clip).decode());
  return clip;
}

}  // namespace miniacc
