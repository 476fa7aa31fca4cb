#pragma once

#include <span>

#include "core/error.h"
#include "core/image.h"
#include "io/media/media_reader.h"

namespace miniacc::measure {

struct ContactSheetOptions {
  std::int64_t num_frames = 5;    ///< of each clip, evenly spaced, the first and the last included
  std::int64_t gap = 4;           ///< pixels between parts
  std::int64_t wave_height = 36;  ///< of each channel's waveform
  std::int64_t max_pixels = 64'000'000;
};

/// One picture of several clips, a band each, from top to bottom: frames in a row and under them
/// the waveforms, left channel above right, time from the band's left to its right end, full scale
/// at the strip's edges. A clip without sound has no waveforms, one without pictures no frames; a
/// clip with fewer frames than asked for shows each once. kInvalidInput for a sheet over max_pixels
/// and for a clip with neither frames nor sound.
[[nodiscard]] Result<RgbImage> contact_sheet(std::span<const Clip> clips,
                                             const ContactSheetOptions& options = {});

}  // namespace miniacc::measure
