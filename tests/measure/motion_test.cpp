#include "measure/motion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

namespace miniacc::measure {
namespace {

constexpr double kAspect = 1.5;

std::vector<TrackPoint> make_track(const std::function<void(double, TrackPoint&)>& place,
                                   int count = 39, double fps = 24) {
  std::vector<TrackPoint> track;
  for (int i = 0; i < count; ++i) {
    TrackPoint point{.time_s = i / fps, .x = 0.75, .y = 0.5, .radius = 0.13};
    place(point.time_s, point);
    track.push_back(point);
  }
  return track;
}

double bouncing_height(double time_s, double first_s, double period_s, double height) {
  const double turn = (time_s - first_s) / period_s;
  const double arc = turn - std::floor(turn);
  return 0.75 - 4 * height * arc * (1 - arc);
}

TEST(Motion, BounceTimesAreFoundBetweenFrames) {
  for (int step = 0; step < 40; ++step) {
    const double first_s = 0.2 + step * 0.0105;
    const auto track =
        make_track([&](double t, TrackPoint& p) { p.y = bouncing_height(t, first_s, 0.6, 0.32); });
    const auto bounces = find_bounces(track);
    ASSERT_GE(bounces.size(), 2U) << first_s;
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(bounces[i], first_s + 0.6 * static_cast<double>(i), 0.003) << first_s;
    }
  }
}

/// Three bounces, 0.6 s apart; the picture's lowest points of the middle one are smoothed away.
std::vector<TrackPoint> track_with_soft_bounce(double strength) {
  auto track = make_track(
      [&](double t, TrackPoint& p) { p.y = bouncing_height(t, 0.2, 0.6, strength * 0.32); });
  const auto heights = track;
  for (std::size_t i = 1; i + 1 < track.size(); ++i) {
    if (std::fabs(track[i].time_s - 0.8) < 0.1) {
      track[i].y = (heights[i - 1].y + 2 * heights[i].y + heights[i + 1].y) / 4;
    }
  }
  return track;
}

TEST(Motion, ASoftBounceCountsBesideAHardOne) {
  const auto bounces = find_bounces(track_with_soft_bounce(1.0));
  ASSERT_EQ(bounces.size(), 3U);
  EXPECT_NEAR(bounces[1], 0.8, 0.03);
  EXPECT_EQ(classify_motion(track_with_soft_bounce(1.0), 4, kAspect).speed.value, 1U);
  // The same track with no turn that is hard enough is no bouncing.
  EXPECT_TRUE(find_bounces(track_with_soft_bounce(0.25)).empty());
}

TEST(Motion, DirectionOfTurningIsTold) {
  for (const double sign : {1.0, -1.0}) {
    const auto circle = make_track([&](double t, TrackPoint& p) {
      p.x += 0.24 * std::cos(sign * 2 * std::numbers::pi * 0.8 * t);
      p.y += 0.24 * std::sin(sign * 2 * std::numbers::pi * 0.8 * t);
    });
    const MotionReport circling = classify_motion(circle, 0, kAspect);
    EXPECT_EQ(circling.motion.value, Motion::kCircling);
    EXPECT_EQ(circling.clockwise, sign > 0);
    EXPECT_NEAR(circling.rate.value_or(0), 0.8, 0.01);
    const auto spin = make_track([&](double t, TrackPoint& p) {
      p.angle = std::fmod(10 + sign * 2 * std::numbers::pi * 0.5 * t, std::numbers::pi / 2);
    });
    const MotionReport spinning = classify_motion(spin, 4, kAspect);
    EXPECT_EQ(spinning.motion.value, Motion::kSpinning);
    EXPECT_EQ(spinning.clockwise, sign > 0);
    EXPECT_NEAR(spinning.rate.value_or(0), 0.5, 0.01);
  }
}

TEST(Motion, PathsWithoutANameStayUnknown) {
  const std::pair<const char*, std::function<void(double, TrackPoint&)>> paths[] = {
      {"it shrinks", [](double t, TrackPoint& p) { p.radius = 0.2 - 0.08 * t; }},
      {"it moves diagonally",
       [](double t, TrackPoint& p) {
         p.x += 0.3 * t;
         p.y -= 0.25 * t;
       }},
      {"it moves, but along no path that has a name",
       [](double t, TrackPoint& p) { p.x += 0.3 * std::sin(4 * t); }},
  };
  for (const auto& [reason, place] : paths) {
    const MotionReport report = classify_motion(make_track(place), 4, kAspect);
    EXPECT_FALSE(report.motion.value) << reason;
    EXPECT_EQ(report.motion.reason, reason);
    EXPECT_FALSE(report.speed.value);
  }
  const MotionReport brief =
      classify_motion(make_track([](double t, TrackPoint& p) { p.x += t; }, 3), 4, kAspect);
  EXPECT_FALSE(brief.motion.value);
  EXPECT_EQ(classify_motion({}, 4, kAspect).motion.value, std::nullopt);
}

TEST(Motion, AFallThatEndsAtTheEdgeIsNoBounce) {
  auto track = make_track([](double t, TrackPoint& p) { p.y = std::min(0.3 + 2.0 * t, 0.95); });
  for (TrackPoint& point : track) {
    point.at_edge = point.y > 0.87;
  }
  EXPECT_TRUE(find_bounces(track).empty());
}

TEST(Motion, JitterOfAStillSubjectIsStill) {
  const auto track = make_track([](double t, TrackPoint& p) {
    p.x += 0.004 * std::sin(91 * t);
    p.y += 0.004 * std::cos(57 * t);
    p.radius += 0.001 * std::sin(33 * t);
  });
  EXPECT_EQ(classify_motion(track, 4, kAspect).motion.value, Motion::kStill);
}

}  // namespace
}  // namespace miniacc::measure
