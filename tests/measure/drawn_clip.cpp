#include "measure/drawn_clip.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <random>
#include <stdexcept>
#include <utility>

namespace miniacc::testing {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kFps = 24.0;
constexpr int kRateHz = 32000;
constexpr double kFloor = 0.88;
constexpr int kSamples = 5;

using Color = std::array<double, 3>;
using Corners = std::vector<std::pair<double, double>>;

Color color_of(const std::string& name) {
  static const std::map<std::string, Color> colors = {
      {"red", {222, 44, 44}},      {"orange", {244, 138, 34}},   {"yellow", {246, 220, 60}},
      {"green", {52, 182, 74}},    {"cyan", {66, 212, 222}},     {"blue", {52, 100, 236}},
      {"purple", {152, 64, 206}},  {"white", {240, 240, 240}},   {"black", {12, 12, 14}},
      {"dark blue", {18, 24, 66}}, {"dark green", {14, 48, 30}}, {"dark red", {66, 18, 24}},
      {"brown", {70, 48, 30}},     {"gray", {94, 96, 102}}};
  return colors.at(name);
}

double radius_of(const DrawnScene& scene) {
  return std::array{0.09, 0.13, 0.18}.at(static_cast<std::size_t>(scene.size));
}

double of_speed(const DrawnScene& scene, double slow, double medium, double fast) {
  return std::array{slow, medium, fast}.at(static_cast<std::size_t>(scene.speed));
}

double bounce_period_s(const DrawnScene& scene) { return of_speed(scene, 0.84, 0.60, 0.44); }

/// Corners at radius 1, y down; a circle has none.
Corners corners_of(const std::string& shape) {
  Corners corners;
  if (shape == "square") {
    corners = {{-0.88, -0.88}, {0.88, -0.88}, {0.88, 0.88}, {-0.88, 0.88}};
  } else if (shape == "triangle") {
    corners = {{0, -1.45}, {1.45 * std::sqrt(0.75), 0.725}, {-1.45 * std::sqrt(0.75), 0.725}};
  } else if (shape == "star") {
    for (int i = 0; i < 10; ++i) {
      const double radius = i % 2 == 0 ? 1.45 : 0.65;
      corners.emplace_back(radius * std::sin(i * kPi / 5), -radius * std::cos(i * kPi / 5));
    }
  } else if (shape == "cross") {
    corners = {{-0.41, -1.15}, {0.41, -1.15}, {0.41, -0.41},  {1.15, -0.41},
               {1.15, 0.41},   {0.41, 0.41},  {0.41, 1.15},   {-0.41, 1.15},
               {-0.41, 0.41},  {-1.15, 0.41}, {-1.15, -0.41}, {-0.41, -0.41}};
  } else if (shape != "circle") {
    throw std::logic_error("no shape " + shape);
  }
  return corners;
}

/// Even-odd rule.
bool is_inside(const Corners& corners, double x, double y) {
  if (corners.empty()) {
    return x * x + y * y < 1;
  }
  bool inside = false;
  for (std::size_t i = 0, j = corners.size() - 1; i < corners.size(); j = i++) {
    const auto& [ax, ay] = corners[i];
    const auto& [bx, by] = corners[j];
    if ((ay > y) != (by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax) {
      inside = !inside;
    }
  }
  return inside;
}

struct Place {
  double x;
  double y;
  double radius;
  double angle = 0.0;
};

/// Where the shape is at a time.
Place place_at(const DrawnScene& scene, double time_s) {
  const double aspect = static_cast<double>(scene.width) / scene.height;
  const double middle_s = scene.num_frames / kFps / 2;
  const double radius = radius_of(scene);
  const double speed = of_speed(scene, 0.14, 0.24, 0.36);
  const double way = speed * (time_s - middle_s);
  // A path is centred, with what freedom its length leaves inside the middle 70 %.
  const double freedom = std::max(0.0, (0.7 - speed * 2 * middle_s) / 2);
  const bool sideways = scene.motion == "left" || scene.motion == "right";
  const bool upright = scene.motion == "up" || scene.motion == "down";
  const double free_x = sideways ? freedom : upright ? 0.25 : 0.15;
  const double free_y = sideways ? 0.15 : upright ? freedom : 0.08;
  Place place{(0.5 + free_x * scene.offset_x) * aspect, 0.5 + free_y * scene.offset_y, radius};
  if (scene.motion == "left") {
    place.x -= way * aspect;
  } else if (scene.motion == "right") {
    place.x += way * aspect;
  } else if (scene.motion == "up") {
    place.y -= way;
  } else if (scene.motion == "down") {
    place.y += way;
  } else if (scene.motion == "circling") {
    const double angle = 2 * kPi * (scene.start + of_speed(scene, 0.5, 0.8, 1.2) * time_s);
    place.x = aspect / 2 + 0.24 * std::cos(angle);
    place.y = 0.5 + 0.24 * std::sin(angle);
  } else if (scene.motion == "bouncing") {
    static const std::map<std::string, double> bottom = {
        {"circle", 1.0}, {"square", 0.88}, {"triangle", 0.725}, {"star", 1.173}, {"cross", 1.15}};
    const double turn = time_s / bounce_period_s(scene) - scene.start;
    const double arc = turn - std::floor(turn);
    const double height = of_speed(scene, 0.42, 0.32, 0.22);
    place.x = aspect * (0.5 + 0.2 * scene.offset_x + scene.drift * (time_s - middle_s));
    place.y = kFloor - radius * bottom.at(scene.shape) - height * 4 * arc * (1 - arc);
  } else if (scene.motion == "growing") {
    place.radius = radius * (0.5 + of_speed(scene, 0.28, 0.46, 0.65) * time_s);
  } else if (scene.motion == "spinning") {
    place.angle = 2 * kPi * (scene.start + of_speed(scene, 0.25, 0.5, 0.85) * time_s);
  } else if (scene.motion != "still") {
    throw std::logic_error("no motion " + scene.motion);
  }
  return place;
}

/// Paints a shape over a frame, [height, width] colours.
void paint(std::vector<Color>& frame, const DrawnScene& scene, const std::string& shape,
           const Place& place, const Color& color) {
  const Corners corners = corners_of(shape);
  const double cosine = std::cos(place.angle);
  const double sine = std::sin(place.angle);
  const double unit = scene.height;
  const int reach = static_cast<int>(1.5 * place.radius * unit) + 2;
  const int center_x = static_cast<int>(place.x * unit);
  const int center_y = static_cast<int>(place.y * unit);
  for (int y = std::max(0, center_y - reach); y < std::min(scene.height, center_y + reach); ++y) {
    for (int x = std::max(0, center_x - reach); x < std::min(scene.width, center_x + reach); ++x) {
      int hits = 0;
      for (int sample = 0; sample < kSamples * kSamples; ++sample) {
        const int sample_row = sample / kSamples;
        const int sample_column = sample % kSamples;
        const double dx = ((x + (sample_column + 0.5) / kSamples) / unit - place.x) / place.radius;
        const double dy = ((y + (sample_row + 0.5) / kSamples) / unit - place.y) / place.radius;
        hits += is_inside(corners, dx * cosine + dy * sine, dy * cosine - dx * sine) ? 1 : 0;
      }
      const double share = static_cast<double>(hits) / (kSamples * kSamples);
      Color& pixel = frame[static_cast<std::size_t>(y) * static_cast<std::size_t>(scene.width) +
                           static_cast<std::size_t>(x)];
      for (std::size_t i = 0; i < 3; ++i) {
        pixel[i] += share * (color[i] - pixel[i]);
      }
    }
  }
}

std::vector<Color> empty_frame(const DrawnScene& scene) {
  const Color top = color_of(scene.background);
  const Color bottom = scene.background_bottom.empty() ? top : color_of(scene.background_bottom);
  std::vector<Color> frame;
  for (int y = 0; y < scene.height; ++y) {
    const double share = (y + 0.5) / scene.height;
    Color color = {};
    for (std::size_t i = 0; i < 3; ++i) {
      color[i] = top[i] + share * (bottom[i] - top[i]) - (i == 2 ? scene.tint : 0.0);
      if (scene.motion == "bouncing" && share > kFloor) {
        color[i] = 0.8 * color[i] + 33;
      }
    }
    frame.insert(frame.end(), static_cast<std::size_t>(scene.width), color);
  }
  if (scene.second_shape) {
    const double aspect = static_cast<double>(scene.width) / scene.height;
    paint(frame, scene, "square", {0.1 * aspect, 0.15, 0.07}, color_of("cyan"));
  }
  return frame;
}

/// Loudness of the tone at a time.
double envelope_at(const DrawnScene& scene, double time_s) {
  if (scene.motion == "bouncing") {
    const double since_first = time_s - scene.beep_delay_s - scene.start * bounce_period_s(scene);
    if (since_first < 0) {
      return 0.0;
    }
    const double since = std::fmod(since_first, bounce_period_s(scene));
    return (1 - std::exp(-since / 0.002)) * std::exp(-since / 0.05);
  }
  double level = std::min(1.0, time_s / 0.01);
  if (scene.motion == "growing") {
    level *= 0.3 + 0.7 * time_s * kFps / scene.num_frames;
  } else if (scene.motion == "spinning") {
    level *= 0.7 + 0.3 * std::cos(4 * kPi * of_speed(scene, 0.25, 0.5, 0.85) * time_s);
  }
  return level;
}

}  // namespace

std::vector<double> true_bounces(const DrawnScene& scene) {
  std::vector<double> times;
  if (scene.motion == "bouncing") {
    for (double time = scene.start * bounce_period_s(scene); time < scene.num_frames / kFps;
         time += bounce_period_s(scene)) {
      times.push_back(time);
    }
  }
  return times;
}

double true_tone_hz(const DrawnScene& scene) {
  const std::map<std::string, double> tones = {
      {"circle", 240}, {"square", 360}, {"triangle", 520}, {"star", 760}, {"cross", 1120}};
  return tones.at(scene.shape);
}

std::string describe(const DrawnScene& scene) {
  const std::map<std::string, std::string> motions = {{"left", "moves to the left"},
                                                      {"right", "moves to the right"},
                                                      {"up", "moves upwards"},
                                                      {"down", "moves downwards"},
                                                      {"circling", "moves in a circular path"},
                                                      {"bouncing", "bounces"},
                                                      {"growing", "grows"},
                                                      {"spinning", "spins"},
                                                      {"still", "rests"}};
  const std::map<std::string, std::string> pitches = {{"circle", "very low"},
                                                      {"square", "low"},
                                                      {"triangle", "medium"},
                                                      {"star", "high"},
                                                      {"cross", "very high"}};
  const auto size = std::array{"small", "medium-sized", "large"};
  const auto speed = std::array{"slowly", "steadily", "quickly"};
  const std::string place =
      scene.background_bottom.empty()
          ? "on a " + scene.background + " background"
          : "on a gradient from " + scene.background + " to " + scene.background_bottom;
  return std::string("a ") + size.at(static_cast<std::size_t>(scene.size)) + " " + scene.color +
         " " + scene.shape + " " + motions.at(scene.motion) + " " +
         speed.at(static_cast<std::size_t>(scene.speed)) + " " + place + ", with a " +
         pitches.at(scene.shape) + " tone";
}

Clip draw_clip(const DrawnScene& scene) {
  Clip clip;
  clip.width = scene.width;
  clip.height = scene.height;
  clip.num_frames = scene.num_frames;
  clip.fps = kFps;
  const std::vector<Color> still = empty_frame(scene);
  std::mt19937 generator(scene.seed);
  // Sum of three uniform values: near enough to a normal one, and the same on every platform.
  const auto noise = [&] {
    double sum = -1.5;
    for (int i = 0; i < 3; ++i) {
      sum += static_cast<double>(generator()) / 4294967296.0;
    }
    return 2 * sum * scene.picture_noise;
  };
  for (int number = 0; number < scene.num_frames; ++number) {
    std::vector<Color> frame = still;
    Color tinted = color_of(scene.color);
    tinted[0] += scene.tint;
    paint(frame, scene, scene.shape, place_at(scene, number / kFps), tinted);
    clip.frame_times_s.push_back(number / kFps);
    for (const Color& color : frame) {
      for (const double value : color) {
        const double noisy = scene.picture_noise > 0 ? value + noise() : value;
        clip.frames.push_back(static_cast<std::uint8_t>(std::clamp(std::lround(noisy), 0L, 255L)));
      }
    }
  }
  clip.sample_rate_hz = kRateHz;
  clip.channels = 2;
  const auto samples = static_cast<std::size_t>(std::lround(scene.num_frames / kFps * kRateHz));
  clip.audio.assign(2 * samples, 0.0F);
  const double aspect = static_cast<double>(scene.width) / scene.height;
  for (std::size_t i = 0; i < samples && !scene.silent; ++i) {
    const double time_s = static_cast<double>(i) / kRateHz;
    const double tone = 0.35 * envelope_at(scene, time_s) *
                        std::sin(2 * kPi * std::fmod(true_tone_hz(scene) * time_s, 1.0));
    const double pan = std::clamp(place_at(scene, time_s).x / aspect, 0.0, 1.0) * kPi / 2;
    clip.audio[scene.swap_channels ? samples + i : i] = static_cast<float>(tone * std::cos(pan));
    clip.audio[scene.swap_channels ? i : samples + i] = static_cast<float>(tone * std::sin(pan));
  }
  return clip;
}

}  // namespace miniacc::testing
