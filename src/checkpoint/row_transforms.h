#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace miniacc {

/// direction ← magnitude · direction / ‖direction‖ for one row, the norm in double. A row of zeros
/// stays zero. Source: Salimans & Kingma 2016; spec vae.md §4.4.
void fold_weight_norm(std::span<float> direction, float magnitude);

/// The low-pass filter of the anti-aliased activations for ratio 2: a Kaiser-windowed sinc of
/// `taps` taps, cutoff 0.25, half width 0.3, sum 1. Source: spec vae.md §4.3.
[[nodiscard]] std::vector<float> resample_filter(std::int64_t taps);

}  // namespace miniacc
