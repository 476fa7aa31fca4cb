#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/name_rules.h"
#include "checkpoint/quantization.h"
#include "core/error.h"
#include "core/shape.h"
#include "device/device.h"
#include "io/tensor_file.h"

namespace miniacc {

/// One tensor of the file, with what its quantisation needs.
struct StoredTensor {
  const TensorEntry* values = nullptr;
  WeightQuantization quantization;
};

/// A tensor in canonical layout and where its rows come from. A row is one index of the outermost
/// dimension: shape[0] rows of num_elements / shape[0] columns; vectors have rows of one value.
struct CanonicalTensor {
  std::string name;
  Shape shape;
  RowLayout layout = RowLayout::kAsStored;
  std::int64_t head_dim = 0;  ///< kInterleavedQkv: channels of one head
  std::vector<StoredTensor> parts;

  [[nodiscard]] std::int64_t rows() const { return shape.rank() == 0 ? 1 : shape[0]; }
  [[nodiscard]] std::int64_t columns() const {
    return rows() == 0 ? 0 : shape.num_elements() / rows();
  }
};

/// Where a canonical row lies, and how many rows after it follow in the file as well.
struct RowRun {
  std::size_t part = 0;
  std::int64_t stored_row = 0;
  std::int64_t length = 0;
};
/// `row` in [0, tensor.rows()). For layouts that move whole rows (not kWeightNorm, kPatchSlots and
/// kResampleFilter, whose rows keep their place).
[[nodiscard]] RowRun locate_row(const CanonicalTensor& tensor, std::int64_t row);

/// Canonical rows [first, first + count) as f32 into `out` [count * columns]: dequantised, rotation
/// undone, each value finite (kInvalidInput names tensor and file otherwise). Works in slabs of a
/// few MB and gives each slab's pages back. `scratch` is a CPU device.
[[nodiscard]] Status read_rows(const TensorFile& file, const CanonicalTensor& tensor,
                               std::int64_t first, std::int64_t count, Device& scratch, float* out);

/// True when the matrix is stored as bf16 and needs no arithmetic.
[[nodiscard]] bool is_plain_bf16(const CanonicalTensor& tensor);
/// True when the matrix is stored as i8 with scales, all parts rotated alike.
[[nodiscard]] bool is_row_int8(const CanonicalTensor& tensor);
/// Canonical rows [first, first + count) as stored (is_plain_bf16 or is_row_int8). bf16 values are
/// checked to be finite. `out` has count * columns values of the stored type.
[[nodiscard]] Status copy_rows(const TensorFile& file, const CanonicalTensor& tensor,
                               std::int64_t first, std::int64_t count, std::byte* out);
/// The scale of each canonical row of an i8 matrix.
[[nodiscard]] Status copy_row_scales(const TensorFile& file, const CanonicalTensor& tensor,
                                     float* out);

}  // namespace miniacc
