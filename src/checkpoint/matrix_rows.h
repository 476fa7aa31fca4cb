#pragma once

#include <cstdint>
#include <functional>

#include "core/weight_matrix.h"
#include "device/device.h"

namespace miniacc {

/// The dtype of a matrix's values in the form of a precision.
[[nodiscard]] DType matrix_dtype(Precision precision);

/// InternalError unless the views are what WeightSource::read_matrix promises to fill.
[[nodiscard]] Status check_matrix_memory(std::int64_t rows, std::int64_t columns,
                                         Precision precision, TensorView values,
                                         TensorView row_scale);

/// Calls fill(first, count) for slabs of whole rows, about a million values each, from up to
/// `num_threads` threads. An error ends it. Slabs do not depend on the number of threads.
[[nodiscard]] Status for_row_slabs(
    std::int64_t rows, std::int64_t columns, int num_threads,
    const std::function<Status(std::int64_t first, std::int64_t count)>& fill);

/// f32 rows into the matrix's form: bf16 values, or i8 values with row_scale[first, ...).
///   rows [count, columns] bf16 or i8 · from [count, columns] f32
void convert_rows(Device& scratch, TensorView rows, TensorView row_scale, std::int64_t first,
                  ConstTensorView from);

}  // namespace miniacc
