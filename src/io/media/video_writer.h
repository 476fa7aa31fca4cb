#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/cancel_token.h"
#include "core/error.h"

namespace miniacc {

struct VideoWriterOptions {
  int width = 0;  ///< pixels, even
  int height = 0;
  int fps = 24;
  int audio_sample_rate_hz = 32000;  ///< 0: no sound
  int crf = 18;                      ///< x264 constant rate factor, 1 (best) to 51
  std::string preset = "medium";     ///< x264 preset
  bool lossless = false;             ///< .mkv only: FFV1 in RGB, bit-exact
  bool overwrite = false;            ///< an existing output is refused unless set
  /// Encoder threads. x264's output depends on their number, so it is fixed, not the machine's.
  int threads = 4;
  /// Looked at before every packet; a cancelled writer fails with kCancelled.
  const CancelToken* cancel = nullptr;
  /// UTF-8 keys and values written into the file; `miniacc` holds the request as JSON.
  std::map<std::string, std::string> metadata;
};

/// Writes a clip front to back. The path decides the kind:
///   .mp4  H.264 High, yuv420p, limited range, BT.709 converted and tagged; AAC-LC; index first
///   .mkv  the same picture, or lossless; FLAC of the 16-bit values that a .wav would hold
///   .wav  sound only, 16-bit PCM (see to_pcm16); metadata: miniacc, title, comment
///   dir/ or dir/%05d.png   frames 00001.png..., audio.wav, metadata.json (if any metadata)
/// Data goes to a temporary name beside the target and is renamed by finish(); an object destroyed
/// before that removes it. Equal calls give equal bytes.
class VideoWriter {
 public:
  /// kInvalidArgument for options that the kind cannot do, an existing output or an unknown ending;
  /// kUnsupported when FFmpeg lacks the encoder; kNotFound or kIo when the folder is missing or
  /// cannot be written.
  [[nodiscard]] static Result<std::unique_ptr<VideoWriter>> create(
      const std::filesystem::path& path, const VideoWriterOptions& options);
  /// Whether an ending names a kind that has pictures: false for .wav, so that the caller can leave
  /// out making them. kInvalidArgument for an unknown ending.
  [[nodiscard]] static Result<bool> path_has_frames(const std::filesystem::path& path);

  virtual ~VideoWriter() = default;
  VideoWriter(const VideoWriter&) = delete;
  VideoWriter& operator=(const VideoWriter&) = delete;

  /// Whether write_frames() / write_audio() must be called before finish().
  [[nodiscard]] bool has_frames() const { return has_frames_; }
  [[nodiscard]] bool has_audio() const { return options_.audio_sample_rate_hz > 0; }

  /// Appends frames, [n, height, width, 3] RGB; each lasts 1/fps s. kIo when the disk is full.
  [[nodiscard]] Status write_frames(std::span<const std::uint8_t> rgb);
  /// Appends sound, [2, n] float (left, then right); values are clipped to [-1, 1]. kInvalidInput
  /// for NaN or infinity. fit_audio() gives the length that belongs to the frames.
  [[nodiscard]] Status write_audio(std::span<const float> stereo);
  /// Completes, syncs and renames. kInternal when frames or sound that were announced are missing.
  /// After an error the object can only be destroyed.
  [[nodiscard]] Status finish();

 protected:
  VideoWriter(VideoWriterOptions options, bool has_frames)
      : options_(std::move(options)), has_frames_(has_frames) {}
  [[nodiscard]] const VideoWriterOptions& options() const { return options_; }
  [[nodiscard]] std::size_t frame_bytes() const {
    return std::size_t{3} * static_cast<std::size_t>(options_.width) *
           static_cast<std::size_t>(options_.height);
  }

 private:
  /// One frame, [height, width, 3].
  virtual Status write_frame(std::span<const std::uint8_t> rgb) = 0;
  virtual Status write_samples(std::span<const float> left, std::span<const float> right) = 0;
  virtual Status complete() = 0;

  VideoWriterOptions options_;
  bool has_frames_ = true;
  bool wrote_frames_ = false;
  bool wrote_audio_ = false;
  bool failed_ = false;
  bool finished_ = false;
};

}  // namespace miniacc
