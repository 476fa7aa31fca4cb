#include "io/media/sound_reader.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "io/media/audio_samples.h"
#include "io/media/input_probe.h"
#include "io/media/resampler.h"
#include "io/media/sound_decoder.h"
#include "io/media/stereo_mix.h"

namespace miniacc {
namespace {

constexpr std::string_view kWanted = "a sound: WAV, MP3, FLAC, AAC, Ogg, or a video with sound";
constexpr double kMaxSeconds = 600.0;
constexpr int kMaxRateHz = 768'000;
// Timestamps wander by rounding; a gap is longer than any frame of sound.
constexpr double kGapSeconds = 0.1;
// Declared and decoded lengths differ by padding and by rounding, not by more than this.
constexpr double kMissingSeconds = 0.25;

/// Collects decoded frames as stereo at the stream's own rate.
class StereoCollector {
 public:
  StereoCollector(libav::StreamDecoder& decoder, const libav::SoundPart& part, std::string path)
      : decoder_(decoder), part_(part), path_(std::move(path)) {}

  /// Decodes until the part is full or the stream ends.
  Status collect() {
    while (!full()) {
      MINIACC_ASSIGN(const AVFrame* frame, decoder_.next());
      if (frame == nullptr) {
        ended_ = true;
        return {};
      }
      MINIACC_RETURN_IF_ERROR(take(*frame));
    }
    if (!has_rest_) {  // is this the very end? What lies behind need not be sound.
      const auto frame = decoder_.next();
      ended_ = frame && *frame == nullptr;
    }
    return {};
  }

  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] int rate() const { return rate_; }
  [[nodiscard]] std::vector<std::string>& notes() { return notes_; }
  /// Samples a channel that the stream had, up to where decoding ended.
  [[nodiscard]] std::int64_t num_decoded() const { return num_decoded_; }

  /// Cuts what an encoder added behind the stream's stated end to fill its last block.
  void cut_padding(double stated_seconds) {
    constexpr std::int64_t kLongestBlock = 4096;
    const auto stated = std::llround(stated_seconds * rate_);
    const std::int64_t excess = num_decoded_ - stated;
    if (ended_ && excess > 0 && excess <= kLongestBlock &&
        excess < static_cast<std::int64_t>(sides_[0].size())) {
      for (std::vector<float>& side : sides_) {
        side.resize(side.size() - static_cast<std::size_t>(excess));
      }
    }
  }

  StereoSound finish() {
    if (limit_ >= 0) {
      for (std::vector<float>& side : sides_) {
        side.resize(std::min(side.size(), static_cast<std::size_t>(limit_)));
      }
    }
    StereoSound sound{rate_, static_cast<std::int64_t>(sides_[0].size()), std::move(sides_[0])};
    sound.samples.insert(sound.samples.end(), sides_[1].begin(), sides_[1].end());
    return sound;
  }

 private:
  [[nodiscard]] bool full() const {
    return limit_ >= 0 && static_cast<std::int64_t>(sides_[0].size()) >= limit_;
  }

  Status start(const AVFrame& frame) {
    rate_ = frame.sample_rate;
    num_channels_ = frame.ch_layout.nb_channels;
    if (rate_ < 1 || rate_ > kMaxRateHz || num_channels_ < 1) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: its sound has {} channels at {} Hz, rates up to {} Hz are read",
                              path_, num_channels_, rate_, kMaxRateHz));
    }
    // Cut at the native rate, as the reference does; a tiny excess of the product is rounding.
    limit_ = static_cast<std::int64_t>(std::floor(part_.max_seconds * rate_ + 1e-6));
    libav::StereoMix mix = libav::stereo_mix(frame.ch_layout);
    weights_ = std::move(mix.weights);
    if (!mix.note.empty()) {
      notes_.push_back(std::move(mix.note));
    }
    const auto time = time_of(frame);
    if (part_.start_s && time) {
      start_at(*time - *part_.start_s);
    }
    return {};
  }

  /// Lets the sound begin `offset_s` after sample 0 of the result: with silence, or cut.
  void start_at(double offset_s) {
    // A container's clock may tick in milliseconds; less than a tick is no offset.
    const double tolerance_s = 1.01 * av_q2d(decoder_.time_base());
    const AVCodecParameters& codec = *decoder_.stream().codecpar;
    // FFmpeg's Matroska writer delays the pictures by Opus' start-up time, which the reader of such
    // files takes off the sound once more: both begin together.
    const double delay_s = codec.codec_id == AV_CODEC_ID_OPUS
                               ? static_cast<double>(codec.initial_padding) / rate_
                               : 0.0;
    if (std::abs(offset_s) <= tolerance_s || std::abs(offset_s + delay_s) <= tolerance_s) {
      return;
    }
    const auto offset =
        std::llround(std::clamp(offset_s * rate_, -1e15, static_cast<double>(limit_)));
    if (offset > 0) {
      append_silence(offset);
    }
    to_drop_ = std::max<std::int64_t>(-offset, 0);
  }

  /// Time of the first sample that the decoder kept; only `pts` knows what it skipped.
  [[nodiscard]] std::optional<double> time_of(const AVFrame& frame) const {
    if (frame.pts == AV_NOPTS_VALUE) {
      return std::nullopt;
    }
    return static_cast<double>(frame.pts) * av_q2d(decoder_.time_base());
  }

  void append_silence(std::int64_t count) {
    const auto have = static_cast<std::int64_t>(sides_[0].size());
    const auto size = static_cast<std::size_t>(have + std::min(count, limit_ - have));
    for (std::vector<float>& side : sides_) {
      side.resize(size, 0.0F);
    }
  }

  Status take(const AVFrame& frame) {
    if (rate_ == 0) {
      MINIACC_RETURN_IF_ERROR(start(frame));
    }
    if (frame.sample_rate != rate_ || frame.ch_layout.nb_channels != num_channels_) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{}: its sound changes from {} channels at {} Hz to {} at {} Hz", path_,
                      num_channels_, rate_, frame.ch_layout.nb_channels, frame.sample_rate));
    }
    fill_gap(frame);
    for (int i = 0; i < frame.nb_samples; ++i) {
      if (full()) {
        has_rest_ = true;
        break;
      }
      ++num_decoded_;
      float left = 0.0F;
      float right = 0.0F;
      for (int channel = 0; channel < num_channels_; ++channel) {
        const auto value = libav::sample_value(frame, channel, i);
        if (!value) {
          return fail(ErrorCode::kUnsupported,
                      fmt::format("{}: its sound has a sample format that is not read", path_));
        }
        if (!std::isfinite(*value)) {
          return fail(ErrorCode::kInvalidInput,
                      fmt::format("{}: sample {} of channel {} is {}, wanted a number", path_,
                                  num_decoded_ - 1, channel, *value));
        }
        const auto& weight = weights_[static_cast<std::size_t>(channel)];
        left += weight[0] * *value;
        right += weight[1] * *value;
      }
      if (to_drop_ > 0) {
        --to_drop_;
        continue;
      }
      sides_[0].push_back(left);
      sides_[1].push_back(right);
    }
    return {};
  }

  /// Keeps the clock where the stream leaves something out.
  void fill_gap(const AVFrame& frame) {
    const auto frame_time = time_of(frame);
    if (!frame_time) {
      return;
    }
    const double time = *frame_time;
    if (expected_s_ && time - *expected_s_ > kGapSeconds) {
      notes_.emplace_back(
          fmt::format("its sound has a gap of {:.2f} s at {:.2f} s, filled with "
                      "silence",
                      time - *expected_s_, *expected_s_));
      append_silence(static_cast<std::int64_t>(
          std::min((time - *expected_s_) * rate_, static_cast<double>(limit_))));
    }
    expected_s_ = time + static_cast<double>(frame.nb_samples) / rate_;
  }

  libav::StreamDecoder& decoder_;
  libav::SoundPart part_;
  std::string path_;
  int rate_ = 0;
  int num_channels_ = 0;
  std::int64_t limit_ = -1;  ///< samples a channel; -1: no frame was seen
  std::int64_t to_drop_ = 0;
  std::int64_t num_decoded_ = 0;
  std::vector<std::array<float, 2>> weights_;
  std::array<std::vector<float>, 2> sides_;
  std::optional<double> expected_s_;
  std::vector<std::string> notes_;
  bool has_rest_ = false;  ///< a frame held more than was wanted
  bool ended_ = false;
};

/// Length that the headers declare for a stream, where it is more than an estimate.
std::optional<double> declared_seconds(const libav::MediaInput& input, const AVStream& stream) {
  const std::string_view format = input->iformat->name;
  if (format != "flac" && format != "mp3") {
    return std::nullopt;  // containers were checked by their sizes
  }
  if (input->duration_estimation_method == AVFMT_DURATION_FROM_BITRATE ||
      stream.duration == AV_NOPTS_VALUE) {
    return std::nullopt;
  }
  return static_cast<double>(stream.duration) * av_q2d(stream.time_base);
}

Result<libav::MediaInput> open(const std::filesystem::path& path) {
  MINIACC_ASSIGN(InputFile file, InputFile::open(path, kWanted));
  MINIACC_ASSIGN(libav::MediaInput input,
                 libav::MediaInput::open(std::move(file), libav::kSoundFormats, kWanted));
  MINIACC_RETURN_IF_ERROR(input.check_complete());
  return input;
}

Result<int> find_sound(const libav::MediaInput& input) {
  const auto index = libav::find_stream(input, AVMEDIA_TYPE_AUDIO);
  if (!index) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: has no sound, wanted {}", input.path(), kWanted));
  }
  return *index;
}

}  // namespace

Result<libav::DecodedSound> libav::decode_sound(MediaInput& input, int stream_index,
                                                const SoundPart& part) {
  MINIACC_ASSIGN(StreamDecoder decoder, StreamDecoder::open(input, stream_index, /*max_pixels=*/1));
  StereoCollector collector(decoder, part, input.path());
  MINIACC_RETURN_IF_ERROR(collector.collect());
  const auto declared = declared_seconds(input, decoder.stream());
  if (declared && collector.ended() && collector.rate() > 0) {
    const double decoded = static_cast<double>(collector.num_decoded()) / collector.rate();
    if (decoded + kMissingSeconds < *declared) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{}: is cut short: its sound should last {:.2f} s, {:.2f} s are there",
                      input.path(), *declared, decoded));
    }
  }
  const AVStream& stream = decoder.stream();
  if (std::string_view(input->iformat->name).starts_with("mov") && collector.rate() > 0 &&
      stream.duration != AV_NOPTS_VALUE) {
    collector.cut_padding(static_cast<double>(stream.duration) * av_q2d(stream.time_base));
  }
  DecodedSound decoded_sound;
  decoded_sound.is_longer = !collector.ended();
  SoundClip& clip = decoded_sound.clip;
  clip.notes = std::move(collector.notes());
  StereoSound sound = collector.finish();
  const std::int64_t rate = sound.sample_rate_hz;
  if (sound.num_samples > 0 &&
      std::all_of(sound.samples.begin(), sound.samples.end(), [](float v) { return v == 0.0F; })) {
    clip.notes.emplace_back("its sound is silent");
  }
  MINIACC_ASSIGN(Resampled resampled, resample(std::move(sound), part.sample_rate_hz));
  if (!resampled.name.empty()) {
    clip.notes.push_back(fmt::format("its sound is resampled from {} Hz to {} Hz ({})", rate,
                                     part.sample_rate_hz, resampled.name));
  }
  clip.sound = std::move(resampled.sound);
  return decoded_sound;
}

Result<SoundClip> read_sound(const std::filesystem::path& path, const SoundOptions& options) {
  if (!(options.max_seconds > 0.0 && options.max_seconds <= kMaxSeconds) ||
      options.sample_rate_hz < 1 || options.sample_rate_hz > kMaxRateHz) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sound: wants up to {} s at a rate up to {} Hz, got {} s at {} Hz",
                            kMaxSeconds, kMaxRateHz, options.max_seconds, options.sample_rate_hz));
  }
  MINIACC_ASSIGN(libav::MediaInput input, open(path));
  MINIACC_ASSIGN(const int index, find_sound(input));
  MINIACC_ASSIGN(libav::DecodedSound decoded,
                 libav::decode_sound(input, index,
                                     {options.max_seconds, options.sample_rate_hz, std::nullopt}));
  MINIACC_RETURN_IF_ERROR(input.file().check_unchanged());
  SoundClip clip = std::move(decoded.clip);
  if (decoded.is_longer) {
    clip.notes.insert(
        clip.notes.begin(),
        fmt::format("is longer than {:.3f} s; the rest is not used", options.max_seconds));
  }
  if (clip.sound.num_samples == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: its sound stream is empty", input.path()));
  }
  return clip;
}

Result<SoundInfo> probe_sound(const std::filesystem::path& path) {
  MINIACC_ASSIGN(const libav::MediaInput input, open(path));
  MINIACC_ASSIGN(const int index, find_sound(input));
  const AVStream& stream = *input->streams[index];
  SoundInfo info;
  info.channels = stream.codecpar->ch_layout.nb_channels;
  info.sample_rate_hz = stream.codecpar->sample_rate;
  if (stream.duration != AV_NOPTS_VALUE) {
    info.seconds = static_cast<double>(stream.duration) * av_q2d(stream.time_base);
  } else if (input->duration != AV_NOPTS_VALUE) {
    info.seconds = static_cast<double>(input->duration) / AV_TIME_BASE;
  }
  if (info.channels < 1 || info.sample_rate_hz < 1) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: its sound states no channels or no rate", input.path()));
  }
  MINIACC_RETURN_IF_ERROR(input.file().check_unchanged());
  return info;
}

}  // namespace miniacc
