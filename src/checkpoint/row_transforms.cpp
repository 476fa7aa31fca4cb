#include "checkpoint/row_transforms.h"

#include <cmath>

namespace miniacc {
void fold_weight_norm(std::span<float> direction, float magnitude) {
  double squares = 0.0;
  for (const float value : direction) {
    squares += static_cast<double>(value) * value;
  }
  if (squares == 0.0) {
    return;
  }
  const double factor = static_cast<double>(magnitude) / std::sqrt(squares);
  for (float& value : direction) {
    value = static_cast<float>(value * factor);
  }
}

}  // namespace miniacc
