#include "checkpoint/matrix_rows.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/float_convert.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

constexpr std::int64_t kSlabValues = std::int64_t{1} << 20;

}  // namespace

DType matrix_dtype(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return DType::kF32;
    case Precision::kBF16:
      return DType::kBF16;
    case Precision::kInt8:
      return DType::kI8;
  }
  MINIACC_REQUIRE(false, "matrix_dtype: unknown precision");
}

Status check_matrix_memory(std::int64_t rows, std::int64_t columns, Precision precision,
                           TensorView values, TensorView row_scale) {
  MINIACC_REQUIRE(rows > 0 && columns > 0, "read_matrix: an empty tensor");
  MINIACC_REQUIRE(values.shape == Shape({rows, columns}) &&
                      values.dtype == matrix_dtype(precision) && values.is_contiguous(),
                  "read_matrix: values are [n, k] of the precision's dtype");
  MINIACC_REQUIRE(precision != Precision::kInt8 ||
                      (row_scale.shape == Shape({rows}) && row_scale.dtype == DType::kF32),
                  "read_matrix: i8 values have row scales [n]");
  return {};
}

Status for_row_slabs(std::int64_t rows, std::int64_t columns, int num_threads,
                     const std::function<Status(std::int64_t, std::int64_t)>& fill) {
  const std::int64_t slab_rows = std::clamp<std::int64_t>(kSlabValues / columns, 1, rows);
  const std::int64_t slabs = (rows + slab_rows - 1) / slab_rows;
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr thrown;
  Status first_error;
  const auto work = [&] {
    for (std::int64_t slab = next++; slab < slabs; slab = next++) {
      const std::int64_t first = slab * slab_rows;
      Status status;
      try {
        status = fill(first, std::min(slab_rows, rows - first));
      } catch (...) {
        const std::scoped_lock lock(mutex);
        thrown = std::current_exception();
      }
      const std::scoped_lock lock(mutex);
      if (!status && first_error) {
        first_error = status;
      }
      if (thrown || !first_error) {
        next = slabs;
      }
    }
  };
  std::vector<std::thread> helpers;
  const auto threads = std::min<std::int64_t>(num_threads, slabs);
  for (std::int64_t i = 1; i < threads; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads to have: the others do it
    }
  }
  work();
  for (std::thread& helper : helpers) {
    helper.join();
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  return first_error;
}

void convert_rows(Device& scratch, TensorView rows, TensorView row_scale, std::int64_t first,
                  ConstTensorView from) {
  if (rows.dtype == DType::kBF16) {
    std::transform(from.f32(), from.f32() + from.num_elements(), rows.as<std::uint16_t>(),
                   float_to_bf16);
    return;
  }
  OpContext ctx{scratch};
  ops::quantize_rows(ctx, rows, row_scale.narrow(0, first, rows.dim(0)), from);
}

}  // namespace miniacc
