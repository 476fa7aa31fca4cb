#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numbers>
#include <string>
#include <vector>

#include "io/media/audio_samples.h"
#include "io/media/media_reader.h"
#include "io/media/video_writer.h"
#include "support/temp_dir.h"

namespace miniacc::testing {

using Rgb = std::array<int, 3>;

/// Colour bars: primaries, secondaries, greys and three pastels.
inline constexpr std::array<Rgb, 12> kBars = {{{255, 0, 0},
                                               {0, 255, 0},
                                               {0, 0, 255},
                                               {0, 255, 255},
                                               {255, 0, 255},
                                               {255, 255, 0},
                                               {0, 0, 0},
                                               {255, 255, 255},
                                               {128, 128, 128},
                                               {191, 64, 96},
                                               {40, 180, 120},
                                               {70, 90, 200}}};

/// [height, width, 3] with the bars side by side, moved by `shift` bars.
inline std::vector<std::uint8_t> bars(int width, int height, int shift = 0) {
  std::vector<std::uint8_t> rgb;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto bar = static_cast<std::size_t>(x * 12 / width + shift) % kBars.size();
      for (const int value : kBars[bar]) {
        rgb.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return rgb;
}

/// Frames in which every pixel differs from its neighbours and from the frame before.
inline std::vector<std::uint8_t> busy_frames(int width, int height, int count) {
  std::vector<std::uint8_t> rgb;
  std::uint32_t state = 12345;
  for (int i = 0; i < width * height * 3 * count; ++i) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
    rgb.push_back(static_cast<std::uint8_t>(state >> 24U));
  }
  return rgb;
}

/// [2, samples]: 440 Hz left, 1000 Hz right, at half amplitude.
inline std::vector<float> tones(std::int64_t samples, int rate = 32000) {
  std::vector<float> out;
  for (const double hertz : {440.0, 1000.0}) {
    for (std::int64_t i = 0; i < samples; ++i) {
      out.push_back(static_cast<float>(
          0.5 * std::sin(2.0 * std::numbers::pi * hertz * static_cast<double>(i) / rate)));
    }
  }
  return out;
}

inline VideoWriterOptions small_options(int width = 96, int height = 64) {
  VideoWriterOptions options;
  options.width = width;
  options.height = height;
  options.preset = "veryfast";
  return options;
}

inline ::testing::AssertionResult is_ok(const Status& status) {
  return status ? ::testing::AssertionSuccess()
                : ::testing::AssertionFailure() << status.error().message;
}

/// Writes a whole clip; the first error is returned.
inline Status write_clip(const std::filesystem::path& path, const VideoWriterOptions& options,
                         const std::vector<std::uint8_t>& frames, const std::vector<float>& audio) {
  MINIACC_ASSIGN(const auto writer, VideoWriter::create(path, options));
  if (writer->has_frames()) {
    MINIACC_RETURN_IF_ERROR(writer->write_frames(frames));
  }
  if (writer->has_audio()) {
    MINIACC_RETURN_IF_ERROR(writer->write_audio(audio));
  }
  return writer->finish();
}

inline std::size_t entries_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

}  // namespace miniacc::testing
