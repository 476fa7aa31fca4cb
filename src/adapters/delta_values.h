#pragma once

#include <cstdint>
#include <vector>

#include "adapters/lora.h"
#include "core/weight_matrix.h"
#include "device/device.h"

namespace miniacc {

/// Reading the values of an adapter's changes, rows in canonical order, on a CPU device. `file` is
/// that of the Lora which the delta belongs to.

/// down [rank, in] and up [num_rows, rank] of a low-rank change, as f32.
[[nodiscard]] Result<Tensor> load_down(const TensorFile& file, const LoraDelta& delta,
                                       Device& device);
[[nodiscard]] Result<Tensor> load_up(const TensorFile& file, const LoraDelta& delta,
                                     Device& device);
/// Rows [first, first + count) of a dense change as f32 [count, columns].
[[nodiscard]] Result<Tensor> load_dense_rows(const TensorFile& file, const LoraDelta& delta,
                                             std::int64_t first, std::int64_t count,
                                             std::int64_t columns, Device& device);

/// A low-rank change as side products. `fused_qkv`: a block-diagonal up matrix over [Q; K; V]
/// becomes three products without the zero blocks; one whose down matrix is shared by the parts
/// stays one. Factors are bf16 where the file's are bf16 and `precision` is not f32; else f32.
[[nodiscard]] Result<std::vector<LowRankDelta>> load_side_products(const TensorFile& file,
                                                                   const LoraDelta& delta,
                                                                   bool fused_qkv,
                                                                   Precision precision,
                                                                   Device& device);

}  // namespace miniacc
