#include "measure/shape_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "measure/drawn_clip.h"

namespace miniacc::measure {
namespace {

/// The matte of the first frame of a drawn scene.
SubjectFrame matte_of(const testing::DrawnScene& scene) {
  const Pictures pictures = reduce(testing::draw_clip(scene));
  auto subject = find_subject(pictures, estimate_background(pictures));
  return subject.value.value().frames.front();
}

TEST(ShapeFit, AreaCenterAndRadiusAreThoseDrawn) {
  for (const char* shape : {"circle", "square", "triangle", "star", "cross"}) {
    SCOPED_TRACE(shape);
    testing::DrawnScene scene;
    scene.shape = shape;
    scene.motion = "still";
    scene.num_frames = 1;
    const SubjectFrame frame = matte_of(scene);
    ShapeKind kind = ShapeKind::kCircle;
    while (kShapeNames[index_of(kind)] != shape) {
      kind = static_cast<ShapeKind>(index_of(kind) + 1);
    }
    EXPECT_NEAR(fitted_radius(frame, kind) / 128, 0.13, 0.002);
    EXPECT_NEAR(frame.x, 96, 0.1);
    EXPECT_NEAR(frame.y, 64, 0.1);
    EXPECT_GT(shape_overlap(frame, kind), 0.97);
    for (std::size_t other = 0; other < kShapeNames.size(); ++other) {
      if (other != index_of(kind)) {
        EXPECT_LT(shape_overlap(frame, static_cast<ShapeKind>(other)), 0.93) << other;
      }
    }
  }
}

TEST(ShapeFit, AnglesAreThoseDrawn) {
  const std::pair<const char*, ShapeKind> shapes[] = {{"square", ShapeKind::kSquare},
                                                      {"triangle", ShapeKind::kTriangle},
                                                      {"star", ShapeKind::kStar},
                                                      {"cross", ShapeKind::kCross}};
  for (const auto& [name, kind] : shapes) {
    for (const double start : {0.0, 0.04, 0.11, 0.47, 0.83}) {
      testing::DrawnScene scene;
      scene.shape = name;
      scene.motion = "spinning";
      scene.start = start;
      scene.num_frames = 1;
      const double period = 2 * std::numbers::pi / symmetry(kind);
      const double off = fitted_angle(matte_of(scene), kind) - 2 * std::numbers::pi * start;
      EXPECT_NEAR(off - period * std::round(off / period), 0.0, 0.03) << name << ' ' << start;
    }
  }
}

TEST(ShapeFit, UnitAreasAreThoseOfTheGenerator) {
  EXPECT_NEAR(unit_area(ShapeKind::kCircle), std::numbers::pi, 1e-12);
  EXPECT_NEAR(unit_area(ShapeKind::kSquare), 1.76 * 1.76, 1e-12);
  EXPECT_NEAR(unit_area(ShapeKind::kTriangle), 0.75 * std::sqrt(3.0) * 1.45 * 1.45, 1e-12);
  EXPECT_NEAR(unit_area(ShapeKind::kStar), 5 * 1.45 * 0.65 * std::sin(std::numbers::pi / 5), 1e-12);
  EXPECT_NEAR(unit_area(ShapeKind::kCross), 4 * (2 * 1.15 * 0.41 - 0.41 * 0.41), 1e-12);
}

}  // namespace
}  // namespace miniacc::measure
