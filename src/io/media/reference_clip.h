#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/image.h"

namespace miniacc {

struct PictureSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
};

/// What read_reference_clip() takes.
struct ReferenceClipOptions {
  std::int64_t max_frames = 362;  ///< at 24 fps; what lies behind is not decoded
  bool with_sound = true;
  /// The size of the result from the size in which the clip is shown (upright, square pixels). Each
  /// frame is brought to it by resize(kLanczos) as it is decoded, so that a 4K clip is never held
  /// whole. Without it frames keep the size in which they are stored.
  std::function<Result<PictureSize>(PictureSize)> target_size{};
  double folder_fps = 24.0;  ///< the rate of a frame folder, which states none
  std::array<std::uint8_t, 3> background{255, 255, 255};  ///< RGB behind transparent pixels
  std::int64_t max_pixels = 64'000'000;                   ///< a stored frame
  std::int64_t max_bytes = std::int64_t{4} << 30;         ///< all pixels of the result
};

/// A clip on the model's clock.
struct ReferenceClip {
  RgbClip frames;                    ///< upright, 24 fps, the first is shown at time 0
  std::optional<StereoSound> sound;  ///< 32 kHz from time 0, at most max_frames / 24 s
  std::vector<std::string> notes;    ///< what was adjusted, one sentence each, without the path
};

/// Decodes the first video stream (and sound) of MP4, MOV, MKV, WebM or AVI, or a folder of
/// numbered pictures with an optional audio.wav. Frames come to 24 fps by holding: a frame shown
/// from time t to time e fills the slots floor(24 t + 0.5) up to floor(24 e + 0.5), times taken
/// from the file's timestamps (diffusers' rule, which knows constant rates only).
/// A clip that has sound whose stream is empty, or none, gives no `sound`. Errors as of
/// read_picture(); kInvalidInput also for a file without a video stream and for a damaged one.
[[nodiscard]] Result<ReferenceClip> read_reference_clip(const std::filesystem::path& path,
                                                        const ReferenceClipOptions& options = {});

}  // namespace miniacc
