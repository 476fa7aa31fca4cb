#include "measure/shape_fit.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

namespace miniacc::measure {
namespace {

constexpr double kPi = std::numbers::pi;

struct Point {
  double x;
  double y;
};
using Polygon = std::vector<Point>;

/// Corners of an upright shape of radius 1, y down; empty for the circle. Dimensions: render.py.
Polygon make_polygon(ShapeKind shape) {
  constexpr double kSquareHalfSide = 0.88;
  constexpr double kTriangleRadius = 1.45;
  constexpr double kStarOuter = 1.45;
  constexpr double kStarInner = 0.65;
  constexpr double kCrossArm = 1.15;
  constexpr double kCrossHalfWidth = 0.41;
  Polygon corners;
  const auto add_polar = [&](double radius, double turn) {
    corners.push_back({radius * std::sin(2 * kPi * turn), -radius * std::cos(2 * kPi * turn)});
  };
  switch (shape) {
    case ShapeKind::kCircle:
      break;
    case ShapeKind::kSquare:
      for (int i = 0; i < 4; ++i) {
        add_polar(kSquareHalfSide * std::numbers::sqrt2, (i + 0.5) / 4);
      }
      break;
    case ShapeKind::kTriangle:
      for (int i = 0; i < 3; ++i) {
        add_polar(kTriangleRadius, i / 3.0);
      }
      break;
    case ShapeKind::kStar:
      for (int i = 0; i < 5; ++i) {
        add_polar(kStarOuter, i / 5.0);
        add_polar(kStarInner, (i + 0.5) / 5);
      }
      break;
    case ShapeKind::kCross:
      for (int i = 0; i < 4; ++i) {  // one arm's two corners and the notch after it, turned
        const double cosine = std::cos(i * kPi / 2);
        const double sine = std::sin(i * kPi / 2);
        for (const Point p :
             {Point{-kCrossHalfWidth, -kCrossArm}, Point{kCrossHalfWidth, -kCrossArm},
              Point{kCrossHalfWidth, -kCrossHalfWidth}}) {
          corners.push_back({p.x * cosine - p.y * sine, p.x * sine + p.y * cosine});
        }
      }
      break;
  }
  return corners;
}

double polygon_area(const Polygon& corners) {
  double twice = 0.0;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const Point& a = corners[i];
    const Point& b = corners[(i + 1) % corners.size()];
    twice += a.x * b.y - b.x * a.y;
  }
  return std::fabs(twice) / 2;
}

/// Distance to the outline, negative inside.
double signed_distance(const Polygon& corners, double x, double y) {
  if (corners.empty()) {
    return std::hypot(x, y) - 1;
  }
  double nearest_squared = 1e300;
  bool inside = false;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const Point& a = corners[i];
    const Point& b = corners[(i + 1) % corners.size()];
    const double edge_x = b.x - a.x;
    const double edge_y = b.y - a.y;
    const double along = std::clamp(
        ((x - a.x) * edge_x + (y - a.y) * edge_y) / (edge_x * edge_x + edge_y * edge_y), 0.0, 1.0);
    const double dx = x - a.x - along * edge_x;
    const double dy = y - a.y - along * edge_y;
    nearest_squared = std::min(nearest_squared, dx * dx + dy * dy);
    if ((a.y > y) != (b.y > y) && x < a.x + (y - a.y) / edge_y * edge_x) {
      inside = !inside;
    }
  }
  const double distance = std::sqrt(nearest_squared);
  return inside ? -distance : distance;
}

/// Phase of sum (x + iy)^symmetry of the upright shape.
double upright_phase(ShapeKind shape) {
  switch (shape) {
    case ShapeKind::kSquare:
      return kPi;  // corners at 45 degrees
    case ShapeKind::kTriangle:
      return kPi / 2;  // a corner at -90 degrees, times 3
    case ShapeKind::kStar:
      return -kPi / 2;  // a corner at -90 degrees, times 5
    case ShapeKind::kCircle:
    case ShapeKind::kCross:
      return 0.0;  // arms at 0 degrees
  }
  return 0.0;
}

/// How far a shape of radius 1 reaches from its centre.
double reach(const Polygon& corners) {
  double farthest = corners.empty() ? 1.0 : 0.0;
  for (const Point& corner : corners) {
    farthest = std::max(farthest, std::hypot(corner.x, corner.y));
  }
  return farthest;
}

}  // namespace

double unit_area(ShapeKind shape) {
  return shape == ShapeKind::kCircle ? kPi : polygon_area(make_polygon(shape));
}

int symmetry(ShapeKind shape) {
  switch (shape) {
    case ShapeKind::kCircle:
      return 0;
    case ShapeKind::kTriangle:
      return 3;
    case ShapeKind::kStar:
      return 5;
    case ShapeKind::kSquare:
    case ShapeKind::kCross:
      return 4;
  }
  return 0;
}

double fitted_radius(const SubjectFrame& frame, ShapeKind shape) {
  return std::sqrt(frame.area / unit_area(shape));
}

double fitted_angle(const SubjectFrame& frame, ShapeKind shape) {
  const int turns = symmetry(shape);
  if (turns == 0 || frame.area <= 0.0) {
    return 0.0;
  }
  const double scale = 1.0 / std::sqrt(frame.area);
  std::complex<double> moment = 0.0;
  for (int row = 0; row < frame.height; ++row) {
    for (int column = 0; column < frame.width; ++column) {
      const double alpha = frame.alpha_at(column, row);
      if (alpha > 0.0) {
        const std::complex<double> z((frame.left + column + 0.5 - frame.x) * scale,
                                     (frame.top + row + 0.5 - frame.y) * scale);
        std::complex<double> power = z;
        for (int i = 1; i < turns; ++i) {
          power *= z;
        }
        moment += alpha * power;
      }
    }
  }
  const double period = 2 * kPi / turns;
  const double angle = (std::arg(moment) - upright_phase(shape)) / turns;
  return angle - period * std::floor(angle / period);
}

double shape_overlap(const SubjectFrame& frame, ShapeKind shape) {
  const Polygon corners = make_polygon(shape);
  const double radius = fitted_radius(frame, shape);
  if (radius <= 0.0) {
    return 0.0;
  }
  const double angle = fitted_angle(frame, shape);
  const double cosine = std::cos(angle);
  const double sine = std::sin(angle);
  const double extent = reach(corners) * radius + 1;
  const int left = std::min(frame.left, static_cast<int>(std::floor(frame.x - extent)));
  const int top = std::min(frame.top, static_cast<int>(std::floor(frame.y - extent)));
  const int right = std::max(frame.left + frame.width, static_cast<int>(frame.x + extent) + 1);
  const int bottom = std::max(frame.top + frame.height, static_cast<int>(frame.y + extent) + 1);
  double both = 0.0;
  double either = 0.0;
  for (int row = top; row < bottom; ++row) {
    for (int column = left; column < right; ++column) {
      const double dx = (column + 0.5 - frame.x) / radius;
      const double dy = (row + 0.5 - frame.y) / radius;
      const double distance =
          signed_distance(corners, dx * cosine + dy * sine, dy * cosine - dx * sine);
      const double drawn = std::clamp(0.5 - distance * radius, 0.0, 1.0);
      const double seen = frame.alpha_at(column - frame.left, row - frame.top);
      both += std::min(drawn, seen);
      either += std::max(drawn, seen);
    }
  }
  return either > 0.0 ? both / either : 0.0;
}

}  // namespace miniacc::measure
