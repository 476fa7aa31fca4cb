#include "core/weight_source.h"

#include <cstring>
#include <utility>

namespace miniacc {
namespace {

void copy_bytes(TensorView to, ConstTensorView from) {
  MINIACC_REQUIRE(to.shape == from.shape && to.dtype == from.dtype && to.is_contiguous(),
                  "read_matrix: memory of the matrix's shape and dtype");
  std::memcpy(to.data, from.data, storage_bytes(from.dtype, from.num_elements()).value());
}

}  // namespace

Result<MatrixExtras> WeightSource::read_matrix(std::string_view name, Precision precision,
                                               int /*num_threads*/, Device& scratch,
                                               TensorView values, TensorView row_scale) {
  MINIACC_ASSIGN(OwnedWeightMatrix matrix, load_matrix(name, precision, scratch));
  copy_bytes(values, std::as_const(matrix.values).view());
  if (!matrix.row_scale.empty()) {
    copy_bytes(row_scale, std::as_const(matrix.row_scale).view());
  }
  return MatrixExtras{matrix.rotation_group, std::move(matrix.low_rank)};
}

}  // namespace miniacc
