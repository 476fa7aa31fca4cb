#include "measure/motion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

namespace miniacc::measure {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr std::size_t kMinPoints = 6;
/// Change of vertical speed from one frame to the next, heights a second. A bounce of the world's
/// 2 heights a second shows at least 2.0 even when it falls between frames, a fast circle 0.6.
constexpr double kBounceKick = 1.3;
/// A clip that bounces once surely may have softer bounces too: a picture decoded from latents
/// rounds some of its turns.
constexpr double kSoftBounceKick = 0.9;
constexpr double kMinBounceGapS = 0.1;
constexpr double kMinCirclingTurns = 0.6;
constexpr double kMinCirclingRadius = 0.1;
constexpr double kMaxCircleResidual = 0.2;  // of the radius
constexpr double kMinGrowth = 1.35;         // end over start; the slowest of 39 frames has 1.9
constexpr double kMinPath = 0.12;
constexpr double kMinStraightness = 0.8;  // net way over travelled way
constexpr double kDiagonal = 0.5;         // smaller over larger component of a direction
constexpr double kMinSpin = 40.0 * kPi / 180.0;
constexpr double kMaxStillSpin = 10.0 * kPi / 180.0;

struct Line {
  double slope = 0.0;
  double intercept = 0.0;
};

template <typename Value>
Line fit_line(const std::vector<TrackPoint>& track, Value value) {
  const auto count = static_cast<double>(track.size());
  double mean_t = 0.0;
  double mean_v = 0.0;
  for (const TrackPoint& p : track) {
    mean_t += p.time_s / count;
    mean_v += value(p) / count;
  }
  double covariance = 0.0;
  double variance = 0.0;
  for (const TrackPoint& p : track) {
    covariance += (p.time_s - mean_t) * (value(p) - mean_v);
    variance += (p.time_s - mean_t) * (p.time_s - mean_t);
  }
  const double slope = variance > 0.0 ? covariance / variance : 0.0;
  return {slope, mean_v - slope * mean_t};
}

std::size_t nearest_in_ratio(double value, const std::array<double, 3>& table) {
  std::size_t best = 0;
  const auto distance = [&](std::size_t i) {
    return std::fabs(std::log(std::max(value, 1e-6) / table[i]));
  };
  for (std::size_t i = 1; i < table.size(); ++i) {
    best = distance(i) < distance(best) ? i : best;
  }
  return best;
}

void set_speed(MotionReport& report, double rate, const std::array<double, 3>& table) {
  report.rate = rate;
  report.speed = nearest_in_ratio(rate, table);
}

struct Circle {
  double x = 0.0;
  double y = 0.0;
  double radius = 0.0;
  double residual = 0.0;  ///< root mean square distance from the circle
};

/// Least squares on x^2 + y^2 + a x + b y + c = 0 (Kasa 1976), which also fits part of a circle.
std::optional<Circle> fit_circle(const std::vector<TrackPoint>& track) {
  const auto count = static_cast<double>(track.size());
  double mean_x = 0.0;
  double mean_y = 0.0;
  for (const TrackPoint& p : track) {
    mean_x += p.x / count;
    mean_y += p.y / count;
  }
  double uu = 0.0;
  double vv = 0.0;
  double uv = 0.0;
  double uz = 0.0;
  double vz = 0.0;
  for (const TrackPoint& p : track) {
    const double u = p.x - mean_x;
    const double v = p.y - mean_y;
    const double z = u * u + v * v;
    uu += u * u;
    vv += v * v;
    uv += u * v;
    uz += u * z;
    vz += v * z;
  }
  const double determinant = uu * vv - uv * uv;
  if (determinant <= 1e-9 * (uu + vv) * (uu + vv)) {
    return std::nullopt;  // points on a line
  }
  Circle circle;
  const double u = (uz * vv - vz * uv) / (2 * determinant);
  const double v = (vz * uu - uz * uv) / (2 * determinant);
  circle.x = mean_x + u;
  circle.y = mean_y + v;
  circle.radius = std::sqrt(u * u + v * v + (uu + vv) / count);
  double squares = 0.0;
  for (const TrackPoint& p : track) {
    const double off = std::hypot(p.x - circle.x, p.y - circle.y) - circle.radius;
    squares += off * off;
  }
  circle.residual = std::sqrt(squares / count);
  return circle;
}

/// Sum of the steps of an angle whose steps are known up to `period`; signed.
template <typename Angle>
double total_turn(const std::vector<TrackPoint>& track, double period, Angle angle) {
  double total = 0.0;
  for (std::size_t i = 1; i < track.size(); ++i) {
    const double step = angle(track[i]) - angle(track[i - 1]);
    total += step - period * std::round(step / period);
  }
  return total;
}

/// Height of the parabola through three points at a time.
double parabola_at(const TrackPoint* p, double time_s) {
  double height = 0.0;
  for (int i = 0; i < 3; ++i) {
    double weight = 1.0;
    for (int j = 0; j < 3; ++j) {
      if (i != j) {
        weight *= (time_s - p[j].time_s) / (p[i].time_s - p[j].time_s);
      }
    }
    height += weight * p[i].y;
  }
  return height;
}

/// Where the flights before and after a bounce meet: both are extended by parabolas and the
/// crossing is bisected. Without three points on each side the slopes next to it decide.
double bounce_time(const std::vector<TrackPoint>& track, std::size_t lowest) {
  const auto crossing = [&](std::size_t last_before, std::size_t first_after) {
    const TrackPoint* before = &track[last_before - 2];
    const TrackPoint* after = &track[first_after];
    const auto gap = [&](double time) {  // y points down: before rises towards the floor
      return parabola_at(before, time) - parabola_at(after, time);
    };
    double low = track[last_before].time_s;
    double high = track[first_after].time_s;
    if (gap(low) > 0 || gap(high) < 0) {
      return std::optional<double>();
    }
    for (int i = 0; i < 40; ++i) {
      const double middle = (low + high) / 2;
      (gap(middle) > 0 ? high : low) = middle;
    }
    return std::optional<double>((low + high) / 2);
  };
  const TrackPoint& a = track[lowest - 1];
  const TrackPoint& b = track[lowest];
  const TrackPoint& c = track[lowest + 1];
  const double before = (b.y - a.y) / (b.time_s - a.time_s);
  const double after = (c.y - b.y) / (c.time_s - b.time_s);
  const double slope = std::max(before, -after);
  const double by_slope = std::clamp(b.time_s + (c.y - a.y) / (2 * slope), a.time_s, c.time_s);
  // The lowest sample lies on one flight or the other; its steeper side tells on which.
  const bool sample_is_before = before > -after;
  const std::size_t last_before = sample_is_before ? lowest : lowest - 1;
  const std::size_t first_after = sample_is_before ? lowest + 1 : lowest;
  if (last_before >= 2 && first_after + 2 < track.size()) {
    return crossing(last_before, first_after).value_or(by_slope);
  }
  return by_slope;
}

void classify_bouncing(MotionReport& report) {
  report.motion = Motion::kBouncing;
  const auto& times = report.bounces_s;
  if (times.size() < 2) {
    report.speed = Measured<std::size_t>::unknown("one bounce alone has no pace");
    return;
  }
  const double period = (times.back() - times.front()) / static_cast<double>(times.size() - 1);
  set_speed(report, period, kBouncePeriodS);
  report.rate = 1.0 / period;
}

bool classify_circling(const std::vector<TrackPoint>& track, double duration_s,
                       MotionReport& report) {
  const auto circle = fit_circle(track);
  if (!circle || circle->radius < kMinCirclingRadius ||
      circle->residual > kMaxCircleResidual * circle->radius) {
    return false;
  }
  const double turn = total_turn(track, 2 * kPi, [&](const TrackPoint& p) {
    return std::atan2(p.y - circle->y, p.x - circle->x);
  });
  if (std::fabs(turn) < 2 * kPi * kMinCirclingTurns) {
    return false;
  }
  report.motion = Motion::kCircling;
  report.clockwise = turn > 0;  // y points down
  set_speed(report, std::fabs(turn) / (2 * kPi) / duration_s, kCirclingHz);
  return true;
}

void classify_direction(const std::vector<TrackPoint>& track, double aspect, MotionReport& report) {
  const double speed_x = fit_line(track, [](const TrackPoint& p) { return p.x; }).slope;
  const double speed_y = fit_line(track, [](const TrackPoint& p) { return p.y; }).slope;
  const bool horizontal = std::fabs(speed_x) > std::fabs(speed_y);
  const double across = std::min(std::fabs(speed_x), std::fabs(speed_y));
  const double along = std::max(std::fabs(speed_x), std::fabs(speed_y));
  // Travelled way over four parts, so that the jitter of single frames does not add up.
  double way = 0.0;
  std::size_t last = 0;
  for (int part = 1; part <= 4; ++part) {
    const std::size_t next = (track.size() - 1) * static_cast<std::size_t>(part) / 4;
    way += std::hypot(track[next].x - track[last].x, track[next].y - track[last].y);
    last = next;
  }
  const double net = std::hypot(track.back().x - track.front().x, track.back().y - track.front().y);
  if (net < kMinStraightness * way || net < kMinPath) {
    report.motion = Measured<Motion>::unknown("it moves, but along no path that has a name");
    return;
  }
  if (across > kDiagonal * along) {
    report.motion = Measured<Motion>::unknown("it moves diagonally");
    return;
  }
  if (horizontal) {
    report.motion = speed_x > 0 ? Motion::kRight : Motion::kLeft;
    set_speed(report, std::fabs(speed_x) / aspect, kLinearSpeed);
  } else {
    report.motion = speed_y > 0 ? Motion::kDown : Motion::kUp;
    set_speed(report, std::fabs(speed_y), kLinearSpeed);
  }
}

void classify_in_place(const std::vector<TrackPoint>& track, int symmetry, double duration_s,
                       MotionReport& report) {
  const double turn = symmetry == 0 ? 0.0
                                    : total_turn(track, 2 * kPi / symmetry,
                                                 [](const TrackPoint& p) { return p.angle; });
  if (std::fabs(turn) > kMinSpin) {
    report.motion = Motion::kSpinning;
    report.clockwise = turn > 0;
    set_speed(report, std::fabs(turn) / (2 * kPi) / duration_s, kSpinHz);
  } else if (std::fabs(turn) < kMaxStillSpin) {
    report.motion = Motion::kStill;
  } else {
    report.motion = Measured<Motion>::unknown(
        fmt::format("it turns by only {:.0f} degrees", std::fabs(turn) * 180 / kPi));
  }
}

}  // namespace

std::vector<double> find_bounces(const std::vector<TrackPoint>& track) {
  std::vector<double> found;
  double strongest = 0.0;
  for (std::size_t i = 1; i + 1 < track.size(); ++i) {
    const TrackPoint& a = track[i - 1];
    const TrackPoint& b = track[i];
    const TrackPoint& c = track[i + 1];
    const double before = (b.y - a.y) / (b.time_s - a.time_s);
    const double after = (c.y - b.y) / (c.time_s - b.time_s);
    // A shape cut by the picture's edge stops there without bouncing.
    const bool lowest = b.y >= std::max(a.y, c.y) && !b.at_edge;
    if (!lowest || before - after < kSoftBounceKick) {
      continue;
    }
    strongest = std::max(strongest, before - after);
    const double time = bounce_time(track, i);
    if (found.empty() || time - found.back() > kMinBounceGapS) {
      found.push_back(time);
    }
  }
  return strongest < kBounceKick ? std::vector<double>() : found;
}

MotionReport classify_motion(const std::vector<TrackPoint>& track, int symmetry, double aspect) {
  MotionReport report;
  report.speed = Measured<std::size_t>::unknown("no motion that has a speed");
  // A shape half outside the picture has neither its place nor its size, unless most of the clip
  // is like that.
  std::vector<TrackPoint> inside;
  std::copy_if(track.begin(), track.end(), std::back_inserter(inside),
               [](const TrackPoint& p) { return !p.at_edge; });
  const auto& points = inside.size() >= kMinPoints ? inside : track;
  if (points.size() < kMinPoints) {
    report.motion = Measured<Motion>::unknown(fmt::format(
        "the subject is seen in {} frames, a motion needs {}", points.size(), kMinPoints));
    return report;
  }
  const double duration_s = points.back().time_s - points.front().time_s;
  report.bounces_s = find_bounces(track);
  if (!report.bounces_s.empty()) {
    classify_bouncing(report);
    return report;
  }
  if (classify_circling(points, duration_s, report)) {
    return report;
  }
  const Line growth = fit_line(points, [](const TrackPoint& p) { return p.radius; });
  const double start = growth.intercept + growth.slope * points.front().time_s;
  const double end = growth.intercept + growth.slope * points.back().time_s;
  if (start > 0 && end > kMinGrowth * start) {
    report.motion = Motion::kGrowing;
    set_speed(report, growth.slope / start * kGrowthStart, kGrowthPerS);
    return report;
  }
  if (end > 0 && start > kMinGrowth * end) {
    report.motion = Measured<Motion>::unknown("it shrinks");
    return report;
  }
  const auto [left, right] =
      std::minmax_element(points.begin(), points.end(),
                          [](const TrackPoint& a, const TrackPoint& b) { return a.x < b.x; });
  const auto [top, bottom] =
      std::minmax_element(points.begin(), points.end(),
                          [](const TrackPoint& a, const TrackPoint& b) { return a.y < b.y; });
  if (std::max(right->x - left->x, bottom->y - top->y) > kMinPath) {
    classify_direction(points, aspect, report);
  } else {
    classify_in_place(points, symmetry, duration_s, report);
  }
  return report;
}

}  // namespace miniacc::measure
