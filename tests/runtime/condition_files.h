#pragma once

#include <cstdint>
#include <filesystem>

#include "core/image.h"

namespace miniacc::testing {

/// The picture of tools/reference/conditions.py; `number` tells pictures apart.
RgbImage formula_picture(std::int64_t width, std::int64_t height, std::int64_t number);

/// Writes it as PNG; returns `path`.
std::filesystem::path write_formula_picture(const std::filesystem::path& path, std::int64_t width,
                                            std::int64_t height, std::int64_t number);

/// A 16-bit stereo WAV at 32 kHz with the sound of tools/reference/conditions.py.
std::filesystem::path write_formula_sound(const std::filesystem::path& path,
                                          std::int64_t num_samples, std::int64_t number);

/// A folder of pictures number, number + 1, ..., with audio.wav when there are samples.
std::filesystem::path write_formula_video(const std::filesystem::path& folder, std::int64_t width,
                                          std::int64_t height, std::int64_t num_frames,
                                          std::int64_t number, std::int64_t num_samples);

}  // namespace miniacc::testing
