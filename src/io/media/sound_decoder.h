#pragma once

#include <cstdint>
#include <optional>

#include "io/media/libav_decoder.h"
#include "io/media/sound_reader.h"

namespace miniacc::libav {

/// Which part of a sound stream to decode.
struct SoundPart {
  double max_seconds = 0.0;
  int sample_rate_hz = 32000;
  /// Time of sample 0 of the result on the container's clock; empty: the stream's first sample.
  std::optional<double> start_s;
};

struct DecodedSound {
  SoundClip clip;
  bool is_longer = false;  ///< than max_seconds
};

/// Decodes the part as stereo; the file of `input` is checked for changes by the caller. Messages
/// name the path.
[[nodiscard]] Result<DecodedSound> decode_sound(MediaInput& input, int stream_index,
                                                const SoundPart& part);

}  // namespace miniacc::libav
