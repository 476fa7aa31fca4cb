#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "core/weight_source.h"
#include "kernels/op_context.h"
#include "model/dit/config.h"
#include "model/dit/weights.h"

namespace miniacc {

/// AdaLN outputs of all blocks and the final layer, by timestep. They depend on the time alone, so
/// a request computes those of its schedule once: the AdaLN projections, two fifths of the released
/// checkpoint, are then read once a request instead of once a step. One cache belongs to one Dit.
/// A timestep's values do not depend on which others were computed with it: bit-identical.
class ModulationCache {
 public:
  /// Computes the timesteps not there yet, reading each block's projection once (not at all when
  /// none is missing). On an error the cache stays as it was. Times must be finite.
  [[nodiscard]] Status prepare(OpContext& ctx, WeightSource& weights, const DitConfig& config,
                               const DitIslands& islands, Precision precision,
                               std::span<const float> times);

  /// Takes values that were computed before: blocks [layers, 3, 6·D] and final_layer [2·D], f32 on
  /// the device of the passes. Does nothing where the time is there already.
  void insert(float time, Tensor blocks, Tensor final_layer);

  [[nodiscard]] bool has(float time) const { return entries_.contains(time); }
  /// [3, 6·D] f32: row = modality; shift, scale, gate of attention, then of the MLP.
  [[nodiscard]] ConstTensorView block(float time, std::int64_t layer) const;
  /// [layers, 3, 6·D] f32, of all blocks.
  [[nodiscard]] ConstTensorView blocks(float time) const { return entry(time).blocks.view(); }
  /// [2·D] f32: shift, then scale.
  [[nodiscard]] ConstTensorView final_layer(float time) const;

  [[nodiscard]] std::size_t size_bytes() const;
  /// Projections read so far.
  [[nodiscard]] std::int64_t num_reads() const { return num_reads_; }
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    Tensor blocks;       ///< [layers, 3, 6·D]
    Tensor final_layer;  ///< [2·D]
  };
  [[nodiscard]] const Entry& entry(float time) const;

  std::map<float, Entry> entries_;
  std::int64_t num_reads_ = 0;
};

}  // namespace miniacc
