#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"

namespace miniacc {

enum class StreamKind { kVideo, kAudio, kOther };

/// One stream as its container and codec headers describe it; names as FFmpeg spells them.
struct StreamInfo {
  StreamKind kind = StreamKind::kOther;
  std::string codec;      ///< "h264", "aac", "flac", ...
  std::string codec_tag;  ///< four-character code, e.g. "avc1"; empty when there is none
  std::string profile;    ///< "High", "LC", ...; empty when unknown
  double duration_s = 0.0;
  std::int64_t num_packets = 0;  ///< frames, for video
  // Video
  int width = 0;
  int height = 0;
  std::string pixel_format;
  std::string color_range;  ///< "tv" (limited), "pc" (full)
  std::string color_space;
  std::string color_primaries;
  std::string color_transfer;
  int frame_rate_num = 0;
  int frame_rate_den = 0;
  // Audio
  int sample_rate_hz = 0;
  int channels = 0;
};

struct MediaInfo {
  std::string container;  ///< FFmpeg's name of the demuxer, e.g. "mov,mp4,m4a,3gp,3g2,mj2"
  double duration_s = 0.0;
  std::vector<StreamInfo> streams;
  std::map<std::string, std::string> metadata;  ///< keys in lower case
};

/// Opens a media file and reads all its packets (not their content), so that counts are exact.
/// Files may come from anybody: containers are limited to the common ones, and nothing but the file
/// itself is opened. kNotFound, kIo; kInvalidInput for what is no media file.
[[nodiscard]] Result<MediaInfo> probe(const std::filesystem::path& path);

/// The metadata of a file or of a frame folder (its metadata.json), keys in lower case; empty when
/// it carries none.
[[nodiscard]] Result<std::map<std::string, std::string>> read_metadata(
    const std::filesystem::path& path);

/// What read_clip() may take; a file over a limit is refused, not cut.
struct ClipLimits {
  std::int64_t max_frames = 2000;
  std::int64_t max_pixels = std::int64_t{8192} * 8192;  ///< a frame
  std::int64_t max_bytes = std::int64_t{4} << 30;       ///< all pixels and samples together
};

/// A decoded clip.
struct Clip {
  int width = 0;
  int height = 0;
  std::int64_t num_frames = 0;
  double fps = 0.0;                   ///< 0 for a frame folder
  std::vector<std::uint8_t> frames;   ///< [num_frames, height, width, 3] RGB
  std::vector<double> frame_times_s;  ///< [num_frames]; empty for a frame folder
  int sample_rate_hz = 0;             ///< 0: no sound
  int channels = 0;
  std::vector<float> audio;  ///< [channels, samples]; 16-bit values are v / 32768
  [[nodiscard]] std::int64_t num_samples() const {
    return channels == 0 ? 0 : static_cast<std::int64_t>(audio.size()) / channels;
  }
};

/// Decodes the first video and the first audio stream of a file, or a frame folder with its
/// audio.wav. YUV is converted by the file's own colour tags (BT.709 limited where there are none).
/// kInvalidInput for a damaged stream, for frames of different sizes and for a file over a limit.
[[nodiscard]] Result<Clip> read_clip(const std::filesystem::path& path,
                                     const ClipLimits& limits = {});

}  // namespace miniacc
