#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace miniacc {

/// torch.Generator("cpu"): MT19937 seeded with the low 32 bits of the seed, and torch.randn's float
/// values for tensors of 16 elements and more, bit for bit what PyTorch gives on a CPU with AVX2.
///
/// PyTorch's vectorised transform takes logarithm, sine and cosine from the Cephes single-precision
/// polynomials with fused multiply-adds; its scalar path (CPUs without AVX2) differs from it by a
/// few units in the last place. Source: spec model.md §5.4; Matsumoto & Nishimura 1998; Box &
/// Muller 1958.
class TorchRandom {
 public:
  explicit TorchRandom(std::uint64_t seed);

  /// Next output of the twister.
  std::uint32_t next();
  /// Fills `out` with standard normal values as one torch.randn call would; out.size() >= 16 (below
  /// that torch uses another algorithm, which no latent shape of ours meets).
  void fill_normal(std::span<float> out);

 private:
  void refill();

  std::array<std::uint32_t, 624> state_{};
  std::size_t position_ = 624;
};

}  // namespace miniacc
