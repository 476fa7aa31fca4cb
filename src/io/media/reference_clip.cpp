#include "io/media/reference_clip.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "io/media/frame_folder.h"
#include "io/media/frame_to_rgb.h"
#include "io/media/picture_reader.h"
#include "io/media/resize.h"
#include "io/media/sound_decoder.h"
#include "io/media/video_stream.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxFrames = 100'000;
constexpr std::int64_t kMaxSide = 16'384;

/// Puts frames on the grid of 24 a second: each is held until the slot of the next one.
class FrameHolder {
 public:
  FrameHolder(std::string path, const ReferenceClipOptions& options, ReferenceClip& clip)
      : path_(std::move(path)), options_(options), clip_(clip) {}

  [[nodiscard]] bool full() const { return clip_.frames.num_frames >= options_.max_frames; }

  /// Appends a picture for the slots up to `end_slot`. It was shown as `displayed`.
  Status hold(RgbImage image, PictureSize displayed, std::int64_t end_slot) {
    RgbClip& frames = clip_.frames;
    const std::int64_t count = std::min(end_slot, options_.max_frames) - frames.num_frames;
    if (frames.num_frames == 0) {
      MINIACC_RETURN_IF_ERROR(choose_size(image, displayed));
    }
    if (image.width != frames.width || image.height != frames.height) {
      image = resize(image, frames.width, frames.height, ResizeFilter::kLanczos);
    }
    const std::int64_t frame_bytes = frames.width * frames.height * 3;
    if (count > options_.max_bytes / frame_bytes - frames.num_frames) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} frames of {}x{} take {} bytes, at most {} are accepted",
                              path_, frames.num_frames + count, frames.width, frames.height,
                              (frames.num_frames + count) * frame_bytes, options_.max_bytes));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      frames.pixels.insert(frames.pixels.end(), image.pixels.begin(), image.pixels.end());
    }
    frames.num_frames += count;
    return {};
  }

  /// Room for what is expected, so that growing does not copy; no more than the limits allow.
  void expect(std::int64_t num_frames) { expected_frames_ = num_frames; }

 private:
  Status choose_size(const RgbImage& image, PictureSize displayed) {
    PictureSize size{image.width, image.height};
    if (options_.target_size) {
      auto target = options_.target_size(displayed);
      if (!target) {
        return fail(target.error().code, fmt::format("{}: {}", path_, target.error().message));
      }
      size = *target;
    }
    if (size.width < 1 || size.height < 1 || size.width > kMaxSide || size.height > kMaxSide) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: frames of {}x{} are wanted, from 1x1 to {}x{} can be made",
                              path_, size.width, size.height, kMaxSide, kMaxSide));
    }
    clip_.frames.width = size.width;
    clip_.frames.height = size.height;
    const std::int64_t frame_bytes = size.width * size.height * 3;
    const std::int64_t num_frames =
        std::min({expected_frames_, options_.max_frames, options_.max_bytes / frame_bytes});
    clip_.frames.pixels.reserve(static_cast<std::size_t>(num_frames * frame_bytes));
    return {};
  }

  std::string path_;
  const ReferenceClipOptions& options_;
  ReferenceClip& clip_;
  std::int64_t expected_frames_ = 0;
};

/// Decodes the video of a file onto the grid.
class ClipVideo {
 public:
  ClipVideo(libav::MediaInput& input, libav::VideoStream video, const ReferenceClipOptions& options,
            ReferenceClip& clip)
      : input_(input),
        video_(std::move(video)),
        options_(options),
        clip_(clip),
        holder_(input.path(), options, clip),
        clock_(video_.time_base, video_.rate),
        converter_({.background = options.background}) {}

  Status decode() {
    const double seconds = input_->duration == AV_NOPTS_VALUE
                               ? 0.0
                               : static_cast<double>(input_->duration) / AV_TIME_BASE;
    holder_.expect(static_cast<std::int64_t>(
        std::clamp(seconds * libav::kModelFps + 2.0, 0.0, static_cast<double>(kMaxFrames))));
    MINIACC_ASSIGN(libav::StreamDecoder decoder,
                   libav::StreamDecoder::open(input_, video_.index, padded_pixels()));
    while (!holder_.full()) {
      MINIACC_ASSIGN(const AVFrame* frame, decoder.next());
      if (frame == nullptr) {
        ended_ = true;
        break;
      }
      MINIACC_RETURN_IF_ERROR(take(*frame));
    }
    if (ended_ && held_) {
      MINIACC_RETURN_IF_ERROR(show_held(clock_.slot(num_frames_, end_ticks_)));
    }
    return finish();
  }

  /// Time of the first frame on the container's clock; empty when there are no timestamps.
  [[nodiscard]] std::optional<double> start_s() const { return start_s_; }

 private:
  /// libav counts pixels of its own padded buffers; the size itself was checked.
  [[nodiscard]] std::int64_t padded_pixels() const {
    constexpr std::int64_t kPadding = 128;
    return (video_.stored.width + kPadding) * (video_.stored.height + kPadding);
  }

  Status take(const AVFrame& frame) {
    if (num_frames_ == 0) {
      first_width_ = frame.width;
      first_height_ = frame.height;
    }
    if (frame.width != first_width_ || frame.height != first_height_) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: frame {} is {}x{}, the first is {}x{}", input_.path(),
                              num_frames_, frame.width, frame.height, first_width_, first_height_));
    }
    interlaced_ = interlaced_ || frame.interlaced_frame != 0;
    const std::int64_t ticks = ticks_of(frame);
    if (held_) {
      // Timestamps that run back (a damaged file) hold nothing.
      MINIACC_RETURN_IF_ERROR(show_held(clock_.slot(num_frames_, ticks)));
    }
    held_.reset(av_frame_clone(&frame));
    if (!held_) {
      return fail(ErrorCode::kOutOfMemory, fmt::format("{}: no memory for a frame", input_.path()));
    }
    const std::int64_t duration =
        frame.pkt_duration > 0 ? frame.pkt_duration : clock_.frame_ticks();
    end_ticks_ =
        ticks > std::numeric_limits<std::int64_t>::max() - duration ? ticks : ticks + duration;
    ++num_frames_;
    return {};
  }

  /// Ticks since the first frame.
  std::int64_t ticks_of(const AVFrame& frame) {
    const std::int64_t time = frame.best_effort_timestamp;
    if (time == AV_NOPTS_VALUE) {
      return num_frames_ == 0 ? 0 : end_ticks_;
    }
    if (!first_ticks_) {
      first_ticks_ = time;
      start_s_ = static_cast<double>(time) * av_q2d(video_.time_base);
    }
    // A difference of hostile timestamps may not overflow.
    const auto difference = static_cast<std::int64_t>(static_cast<std::uint64_t>(time) -
                                                      static_cast<std::uint64_t>(*first_ticks_));
    return time >= *first_ticks_ && difference < 0 ? std::numeric_limits<std::int64_t>::max()
                                                   : difference;
  }

  /// Shows the frame that waits up to a slot. One that is never seen is not converted.
  Status show_held(std::int64_t end_slot) {
    if (end_slot <= clip_.frames.num_frames) {
      return {};
    }
    auto image = converter_.convert(*held_);
    if (!image) {
      return fail(image.error().code, fmt::format("{}: {}", input_.path(), image.error().message));
    }
    return holder_.hold(turned(*std::move(image), video_.orientation), video_.displayed, end_slot);
  }

  Status finish() {
    if (clip_.frames.num_frames == 0) {
      return fail(ErrorCode::kInvalidInput,
                  num_frames_ == 0 ? fmt::format("{}: its video has no frame", input_.path())
                                   : fmt::format("{}: its {} frames last less than half of 1/{} s",
                                                 input_.path(), num_frames_, libav::kModelFps));
    }
    std::vector<std::string>& notes = clip_.notes;
    notes.insert(notes.end(), video_.notes.begin(), video_.notes.end());
    notes.insert(notes.end(), converter_.notes().begin(), converter_.notes().end());
    if (!video_.square_pixels && !options_.target_size) {
      notes.emplace_back("keeps its stored size, as none was asked for");
    }
    if (interlaced_) {
      notes.emplace_back("is interlaced; its half-frames are not separated");
    }
    if (!ended_) {
      notes.push_back(fmt::format("is longer than {} frames at {} fps; the rest is not used",
                                  options_.max_frames, libav::kModelFps));
    }
    const double fps = video_.rate.num > 0 ? av_q2d(video_.rate) : 0.0;
    if (av_cmp_q(video_.rate, {libav::kModelFps, 1}) != 0) {
      notes.push_back(fmt::format("runs at {:.3f} fps; frames are held or dropped for {}", fps,
                                  libav::kModelFps));
    }
    return {};
  }

  libav::MediaInput& input_;
  libav::VideoStream video_;
  const ReferenceClipOptions& options_;
  ReferenceClip& clip_;
  FrameHolder holder_;
  libav::FrameClock clock_;
  libav::FrameToRgb converter_;
  libav::Frame held_;
  int first_width_ = 0;
  int first_height_ = 0;
  std::int64_t num_frames_ = 0;  ///< decoded
  std::optional<std::int64_t> first_ticks_;
  std::int64_t end_ticks_ = 0;  ///< of the frame that is held
  std::optional<double> start_s_;
  bool interlaced_ = false;
  bool ended_ = false;
};

Status add_sound(ReferenceClip& clip, SoundClip sound) {
  if (sound.sound.num_samples > 0) {
    clip.sound = std::move(sound.sound);
  }
  clip.notes.insert(clip.notes.end(), sound.notes.begin(), sound.notes.end());
  return {};
}

constexpr int kSoundRateHz = 32'000;

Result<ReferenceClip> read_clip_file(const fs::path& path, const ReferenceClipOptions& options) {
  MINIACC_ASSIGN(InputFile file,
                 InputFile::open(path, "a clip: MP4, MOV, MKV, WebM, AVI or a folder of pictures"));
  MINIACC_ASSIGN(InputFile again, file.again());
  MINIACC_ASSIGN(libav::MediaInput input, libav::open_clip(std::move(file)));
  MINIACC_ASSIGN(libav::VideoStream video, libav::find_video(input, options.max_pixels));
  ReferenceClip clip;
  ClipVideo decoder(input, std::move(video), options, clip);
  MINIACC_RETURN_IF_ERROR(decoder.decode());
  const auto sound_index = libav::find_stream(input, AVMEDIA_TYPE_AUDIO);
  if (options.with_sound && sound_index) {
    // A second demuxer over the same open file: the first one has read past the sound.
    MINIACC_ASSIGN(libav::MediaInput second, libav::open_clip(std::move(again)));
    const double max_seconds = static_cast<double>(options.max_frames) / libav::kModelFps;
    MINIACC_ASSIGN(
        libav::DecodedSound sound,
        libav::decode_sound(second, *sound_index, {max_seconds, kSoundRateHz, decoder.start_s()}));
    MINIACC_RETURN_IF_ERROR(add_sound(clip, std::move(sound.clip)));
  }
  MINIACC_RETURN_IF_ERROR(input.file().check_unchanged());
  return clip;
}

Result<ReferenceClip> read_frame_folder(const fs::path& folder,
                                        const ReferenceClipOptions& options) {
  MINIACC_ASSIGN(const std::vector<fs::path> paths, list_frames(folder));
  ReferenceClip clip;
  FrameHolder holder(folder.string(), options, clip);
  holder.expect(
      libav::constant_rate_slot(static_cast<std::int64_t>(paths.size()), options.folder_fps));
  std::optional<PictureSize> first;
  PictureOptions picture_options;
  picture_options.background = options.background;
  picture_options.max_pixels = options.max_pixels;
  for (std::size_t i = 0; i < paths.size() && !holder.full(); ++i) {
    const auto end_slot =
        libav::constant_rate_slot(static_cast<std::int64_t>(i) + 1, options.folder_fps);
    if (end_slot <= clip.frames.num_frames) {
      continue;
    }
    MINIACC_ASSIGN(Picture picture, read_picture(paths[i], picture_options));
    const PictureSize size{picture.image.width, picture.image.height};
    if (!first) {
      first = size;
    }
    if (size.width != first->width || size.height != first->height) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: is {}x{}, the first frame is {}x{}", paths[i].string(),
                              size.width, size.height, first->width, first->height));
    }
    for (const std::string& note : picture.notes) {
      if (std::find(clip.notes.begin(), clip.notes.end(), note) == clip.notes.end()) {
        clip.notes.push_back(note);
      }
    }
    MINIACC_RETURN_IF_ERROR(holder.hold(std::move(picture.image), size, end_slot));
  }
  if (libav::constant_rate_slot(static_cast<std::int64_t>(paths.size()), options.folder_fps) >
      options.max_frames) {
    clip.notes.push_back(fmt::format("is longer than {} frames at {} fps; the rest is not used",
                                     options.max_frames, libav::kModelFps));
  }
  if (clip.frames.num_frames == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: its {} frames last less than half of 1/{} s", folder.string(),
                            paths.size(), libav::kModelFps));
  }
  const fs::path sound_path = frame_folder_sound(folder);
  if (options.with_sound && !sound_path.empty()) {
    SoundOptions sound_options;
    sound_options.max_seconds = static_cast<double>(options.max_frames) / libav::kModelFps;
    MINIACC_ASSIGN(SoundClip sound, read_sound(sound_path, sound_options));
    MINIACC_RETURN_IF_ERROR(add_sound(clip, std::move(sound)));
  }
  return clip;
}

}  // namespace

Result<ReferenceClip> read_reference_clip(const fs::path& path,
                                          const ReferenceClipOptions& options) {
  constexpr std::int64_t kLongestSound = 14'400;  // 600 s, what a sound reader takes
  if (options.max_frames < 1 || options.max_frames > kLongestSound || options.max_pixels < 1 ||
      options.max_bytes < 1 || !(options.folder_fps >= 1.0 && options.folder_fps <= 1000.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("clip: wants 1 to {} frames, limits of at least 1 and 1 to 1000 fps "
                            "for a folder; got {} frames and {} fps",
                            kLongestSound, options.max_frames, options.folder_fps));
  }
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? read_frame_folder(path, options)
                                         : read_clip_file(path, options);
}

}  // namespace miniacc
