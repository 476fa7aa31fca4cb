#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/image.h"

namespace miniacc {

/// What read_sound() takes.
struct SoundOptions {
  double max_seconds = 362.0 / 24.0;  ///< the rest is neither decoded nor kept
  int sample_rate_hz = 32000;         ///< of the result
};

/// A decoded sound.
struct SoundClip {
  StereoSound sound;
  std::vector<std::string> notes;  ///< what was adjusted, one sentence each, without the path
};

/// The first sound stream of a sound or video file (WAV, MP3, FLAC, AAC, Ogg, M4A, MP4, MOV, MKV,
/// WebM) as stereo: mono is doubled, more channels are mixed down. Sample 0 of the result is sample
/// 0 of what was recorded: an encoder's delay is cut where the file states it, nothing else is.
/// Cut to max_seconds at the file's own rate, then resampled once; `n` samples at rate `r` become
/// ceil(n * sample_rate_hz / r).
/// kNotFound, kIo; kInvalidInput for a file without sound, damage, NaN or infinite samples, a file
/// that is cut short or changes while it is read; kInvalidArgument for options out of range.
[[nodiscard]] Result<SoundClip> read_sound(const std::filesystem::path& path,
                                           const SoundOptions& options = {});

}  // namespace miniacc
