#pragma once

#include <array>
#include <cstddef>
#include <string_view>

/// The words a caption of h3-tiny's world is made of and what they stand for. The numbers are those
/// of the data generator (tools/train_tiny: scenes.py, render.py); both sides must agree.
namespace miniacc::measure {

using Rgb = std::array<double, 3>;  ///< levels, 0 to 255

struct NamedColor {
  std::string_view name;
  Rgb rgb;
};

inline constexpr std::array<NamedColor, 8> kColors = {{{"red", {222, 44, 44}},
                                                       {"orange", {244, 138, 34}},
                                                       {"yellow", {246, 220, 60}},
                                                       {"green", {52, 182, 74}},
                                                       {"cyan", {66, 212, 222}},
                                                       {"blue", {52, 100, 236}},
                                                       {"purple", {152, 64, 206}},
                                                       {"white", {240, 240, 240}}}};

inline constexpr std::array<NamedColor, 6> kBackgrounds = {{{"black", {12, 12, 14}},
                                                            {"dark blue", {18, 24, 66}},
                                                            {"dark green", {14, 48, 30}},
                                                            {"dark red", {66, 18, 24}},
                                                            {"brown", {70, 48, 30}},
                                                            {"gray", {94, 96, 102}}}};

enum class ShapeKind { kCircle, kSquare, kTriangle, kStar, kCross };
inline constexpr std::array<std::string_view, 5> kShapeNames = {"circle", "square", "triangle",
                                                                "star", "cross"};

enum class Motion {
  kLeft,
  kRight,
  kUp,
  kDown,
  kCircling,
  kBouncing,
  kGrowing,
  kSpinning,
  kStill,  ///< in no caption of the grammar, but a thing a clip can do
};
inline constexpr std::array<std::string_view, 9> kMotionNames = {
    "left", "right", "up", "down", "circling", "bouncing", "growing", "spinning", "still"};

inline constexpr std::array<std::string_view, 3> kSizeNames = {"small", "medium", "large"};
inline constexpr std::array<std::string_view, 3> kSpeedNames = {"slow", "medium", "fast"};
/// Pitch of the tone that belongs to each shape, in the order of ShapeKind.
inline constexpr std::array<std::string_view, 5> kPitchNames = {"very low", "low", "medium", "high",
                                                                "very high"};
inline constexpr std::array<double, 5> kToneHz = {240, 360, 520, 760, 1120};

// In the order of kSizeNames or kSpeedNames; lengths in picture heights.
inline constexpr std::array<double, 3> kSizeRadius = {0.09, 0.13, 0.18};
/// Picture widths a second to the sides, picture heights a second up and down.
inline constexpr std::array<double, 3> kLinearSpeed = {0.14, 0.24, 0.36};
inline constexpr std::array<double, 3> kCirclingHz = {0.5, 0.8, 1.2};
inline constexpr std::array<double, 3> kBouncePeriodS = {0.84, 0.60, 0.44};
/// Share of the full radius a growing shape gains a second; it starts at kGrowthStart.
inline constexpr std::array<double, 3> kGrowthPerS = {0.28, 0.46, 0.65};
inline constexpr double kGrowthStart = 0.5;
inline constexpr std::array<double, 3> kSpinHz = {0.25, 0.5, 0.85};
/// Below this height a bouncing scene draws its floor, lighter than the wall.
inline constexpr double kFloorY = 0.88;

template <typename Enum>
constexpr std::size_t index_of(Enum value) {
  return static_cast<std::size_t>(value);
}

}  // namespace miniacc::measure
