#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace miniacc {

/// direction ← magnitude · direction / ‖direction‖ for one row, the norm in double. A row of zeros
/// stays zero. Source: Salimans & Kingma 2016; spec vae.md §4.4.
void fold_weight_norm(std::span<float> direction, float magnitude);

}  // namespace miniacc
