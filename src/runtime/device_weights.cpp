#include "runtime/device_weights.h"

#include <utility>

#include "kernels/copy.h"

namespace miniacc {

Result<Tensor> DeviceWeights::place(Tensor tensor, Device& device) const {
  if (device.id().kind == DeviceKind::kCpu) {
    return tensor;
  }
  MINIACC_ASSIGN(Tensor placed, try_empty_tensor(device, tensor.shape(), tensor.dtype()));
  OpContext ctx{.device = device, .host = &host_};
  ops::copy(ctx, placed.view(), std::as_const(tensor).view());
  return placed;
}

Result<Tensor> DeviceWeights::load(std::string_view name, Device& device) {
  MINIACC_ASSIGN(Tensor tensor, source_.load(name, read_to(device)));
  return place(std::move(tensor), device);
}

Result<Tensor> DeviceWeights::load_rows(std::string_view name, std::int64_t first,
                                        std::int64_t count, Device& device) {
  MINIACC_ASSIGN(Tensor tensor, source_.load_rows(name, first, count, read_to(device)));
  return place(std::move(tensor), device);
}

Result<OwnedWeightMatrix> DeviceWeights::load_matrix(std::string_view name, Precision precision,
                                                     Device& device) {
  MINIACC_ASSIGN(OwnedWeightMatrix matrix, source_.load_matrix(name, precision, read_to(device)));
  MINIACC_ASSIGN(matrix.values, place(std::move(matrix.values), device));
  if (!matrix.row_scale.empty()) {
    MINIACC_ASSIGN(matrix.row_scale, place(std::move(matrix.row_scale), device));
  }
  for (LowRankDelta& delta : matrix.low_rank) {
    MINIACC_ASSIGN(delta.down, place(std::move(delta.down), device));
    MINIACC_ASSIGN(delta.up, place(std::move(delta.up), device));
  }
  return matrix;
}

}  // namespace miniacc
