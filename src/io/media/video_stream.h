#pragma once

#include <string>
#include <vector>

#include "io/media/frame_clock.h"
#include "io/media/libav_input.h"
#include "io/media/orientation.h"
#include "io/media/reference_clip.h"

namespace miniacc::libav {

/// A video stream as its container describes it.
struct VideoStream {
  int index = 0;
  PictureSize stored;     ///< as it is coded
  PictureSize displayed;  ///< upright, with square pixels
  bool square_pixels = true;
  Orientation orientation = Orientation::kUpright;
  AVRational time_base{1, kModelFps};
  AVRational rate{0, 1};  ///< 0 when the container states none
  std::vector<std::string> notes;
};

/// Opens a file with a video stream. kInvalidInput names what the file is instead.
[[nodiscard]] Result<MediaInput> open_clip(InputFile file);
/// Its stream; kInvalidInput when it has none, or one over `max_pixels`.
[[nodiscard]] Result<VideoStream> find_video(const MediaInput& input, std::int64_t max_pixels);

}  // namespace miniacc::libav
