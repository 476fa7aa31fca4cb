#pragma once

#include "measure/subject.h"
#include "measure/vocabulary.h"

namespace miniacc::measure {

/// Area of a shape of radius 1, as the data generator draws it.
[[nodiscard]] double unit_area(ShapeKind shape);

/// How many turns of itself bring a shape onto itself; 0 for the circle (any turn does).
[[nodiscard]] int symmetry(ShapeKind shape);

/// Radius in pixels of the shape whose area the matte has.
[[nodiscard]] double fitted_radius(const SubjectFrame& frame, ShapeKind shape);

/// Clockwise turn in radians, in [0, 2 pi / symmetry), that fits the matte best if it shows this
/// shape: the phase of the moment sum alpha (x + iy)^symmetry around the centre, which turns with
/// the shape and needs no search. 0 for the circle.
[[nodiscard]] double fitted_angle(const SubjectFrame& frame, ShapeKind shape);

/// Overlap (intersection over union of coverages, 0 to 1) of the matte with the shape at the fitted
/// centre, radius and angle.
[[nodiscard]] double shape_overlap(const SubjectFrame& frame, ShapeKind shape);

}  // namespace miniacc::measure
