#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// A dense change of one linear layer, f32.
struct DensePatch {
  std::string module;             ///< canonical
  std::span<const float> weight;  ///< [rows, columns]
  std::span<const float> bias;    ///< [rows]
};

/// Writes `diffusion_model.<module>.diff` and `.diff_b` of each patch, behind the tensors of the
/// adapter `merge_into` if one is given. kInvalidInput when that has other names than
/// `diffusion_model.…`, or one of the patch's.
[[nodiscard]] Status write_dense_patch(const std::filesystem::path& out,
                                       const std::vector<DensePatch>& patches,
                                       const std::filesystem::path& merge_into,
                                       const std::map<std::string, std::string>& metadata);

/// How AdaLN inputs of the pruned width come from those of full width: table = q·u + c.
struct WidthLift {
  std::span<const float> q;  ///< [rank, width]
  std::span<const float> c;  ///< [rank] or empty
  std::int64_t rank = 0;
  std::int64_t width = 0;
};
struct LiftReport {
  std::int64_t num_lifted = 0;  ///< modules
  std::int64_t num_kept = 0;    ///< tensors that are the same
};
/// An adapter that was trained on a pruned transformer, for the full one: in AdaLN layers
/// A_full = A·q, and a dense change [rows, rank] becomes the pair B = ΔW, A = q; with a bias beside
/// it, which no reader takes beside a pair, it stays dense as ΔW·q with Δb + ΔW·c. Other tensors
/// are copied. kInvalidInput: nothing to lift, shapes that do not fit, changes of the time
/// embedding, a constant beside a low-rank pair (no adapter format holds a bias there), or a scale
/// in the metadata that would be taken for that of new pairs. Source: spec adapters.md §5.3.
[[nodiscard]] Result<LiftReport> lift_adapter(const std::filesystem::path& in,
                                              const std::filesystem::path& out,
                                              const WidthLift& lift);

}  // namespace miniacc
