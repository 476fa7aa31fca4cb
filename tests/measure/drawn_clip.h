#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/media/media_reader.h"

namespace miniacc::testing {

/// A scene of h3-tiny's world, drawn for tests without any code of src/measure: shapes are corner
/// lists filled by 5x5 samples a pixel, names are plain strings. Lengths in picture heights.
struct DrawnScene {
  std::string shape = "circle";
  std::string color = "red";
  std::string background = "dark blue";
  std::string background_bottom;  ///< empty: plain
  std::string motion = "right";   ///< a motion of the grammar, or "still"
  int size = 1;                   ///< 0 small, 1 medium, 2 large
  int speed = 1;                  ///< 0 slow, 1 medium, 2 fast
  double start = 0.3;             ///< 0 to 1: where in its cycle the motion begins
  double offset_x = 0.0;          ///< -1 to 1: place within the freedom the motion leaves
  double offset_y = 0.0;
  double drift = 0.08;  ///< sideways, of a bouncing shape, picture widths a second
  double tint = 0.0;    ///< levels added to the shape's red, taken from the background's blue
  int width = 192;
  int height = 128;
  int num_frames = 39;
  bool second_shape = false;  ///< a small cyan square rests in the upper left corner
  // Deliberate faults
  double beep_delay_s = 0.0;
  bool swap_channels = false;
  bool silent = false;
  double picture_noise = 0.0;  ///< standard deviation in levels, new in every frame
  std::uint32_t seed = 1;
};

/// Times at which a bouncing scene touches its floor.
std::vector<double> true_bounces(const DrawnScene& scene);
/// Frequency of the scene's tone.
double true_tone_hz(const DrawnScene& scene);
/// A caption in the grammar that names every attribute of the scene.
std::string describe(const DrawnScene& scene);

/// 24 frames a second, stereo sound at 32 kHz.
Clip draw_clip(const DrawnScene& scene);

}  // namespace miniacc::testing
