#include "runtime/device_weights.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/copy.h"

namespace miniacc {

Result<const OwnedWeightMatrix*> KeptTensors::find_or_read(WeightSource& source,
                                                           std::string_view name,
                                                           std::optional<Precision> matrix) {
  const OwnedWeightMatrix* none = nullptr;
  const std::string key =
      fmt::format("{} {}", name, matrix ? static_cast<int>(*matrix) : static_cast<int>(-1));
  if (const auto found = tensors_.find(key); found != tensors_.end()) {
    return &found->second;
  }
  MINIACC_ASSIGN(const Shape shape, source.shape(name));
  const std::int64_t elements = shape.num_elements();
  const std::size_t most = static_cast<std::size_t>(elements) * sizeof(float);
  const bool is_block_adaln =
      name.starts_with("blocks.") && name.find(".adaln_proj.") != std::string_view::npos;
  if (is_block_adaln || elements <= 0 || most > max_bytes_ - size_bytes_) {
    return none;
  }
  OwnedWeightMatrix kept;
  if (!matrix) {
    auto tensor = source.load(name, pinned_);
    if (!tensor) {
      return tensor.error().code == ErrorCode::kOutOfMemory
                 ? Result<const OwnedWeightMatrix*>(none)
                 : tl::unexpected(std::move(tensor).error());
    }
    kept.values = *std::move(tensor);
  } else {
    const DType dtype = *matrix == Precision::kF32    ? DType::kF32
                        : *matrix == Precision::kBF16 ? DType::kBF16
                                                      : DType::kI8;
    auto values = try_empty_tensor(pinned_, {shape[0], elements / shape[0]}, dtype);
    auto scale = try_empty_tensor(pinned_, {shape[0]}, DType::kF32);
    if (!values || !scale) {
      return none;
    }
    kept.values = *std::move(values);
    if (*matrix == Precision::kInt8) {
      kept.row_scale = *std::move(scale);
    }
    MINIACC_ASSIGN(
        MatrixExtras extras,
        source.read_matrix(name, *matrix, num_threads_, pinned_, kept.values.view(),
                           kept.row_scale.empty() ? TensorView() : kept.row_scale.view()));
    kept.rotation_group = extras.rotation_group;
    kept.low_rank = std::move(extras.low_rank);
  }
  size_bytes_ += kept.size_bytes();
  return &tensors_.emplace(key, std::move(kept)).first->second;
}

Result<Tensor> DeviceWeights::copy_of(const Tensor& tensor, Device& device) const {
  MINIACC_ASSIGN(Tensor placed, try_empty_tensor(device, tensor.shape(), tensor.dtype()));
  OpContext ctx{.device = device, .host = &host_};
  ops::copy(ctx, placed.view(), tensor.view());
  return placed;
}

Result<Tensor> DeviceWeights::place(Tensor tensor, Device& device) const {
  return device.id().kind == DeviceKind::kCpu ? std::move(tensor) : copy_of(tensor, device);
}

Result<Tensor> DeviceWeights::load(std::string_view name, Device& device) {
  if (kept_ != nullptr && device.id().kind != DeviceKind::kCpu) {
    MINIACC_ASSIGN(const OwnedWeightMatrix* kept, kept_->find_or_read(source_, name, {}));
    if (kept != nullptr) {
      return copy_of(kept->values, device);
    }
  }
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
  if (device.id().kind == DeviceKind::kCpu) {
    return source_.load_matrix(name, precision, device);
  }
  OwnedWeightMatrix read;
  const OwnedWeightMatrix* on_host = nullptr;
  if (kept_ != nullptr) {
    MINIACC_ASSIGN(on_host, kept_->find_or_read(source_, name, precision));
  }
  if (on_host == nullptr) {
    MINIACC_ASSIGN(read, source_.load_matrix(name, precision, host_));
    on_host = &read;
  }
  OwnedWeightMatrix placed;
  MINIACC_ASSIGN(placed.values, copy_of(on_host->values, device));
  if (!on_host->row_scale.empty()) {
    MINIACC_ASSIGN(placed.row_scale, copy_of(on_host->row_scale, device));
  }
  placed.rotation_group = on_host->rotation_group;
  for (const LowRankDelta& delta : on_host->low_rank) {
    LowRankDelta& factors = placed.low_rank.emplace_back();
    factors.scale = delta.scale;
    factors.first_row = delta.first_row;
    MINIACC_ASSIGN(factors.down, copy_of(delta.down, device));
    MINIACC_ASSIGN(factors.up, copy_of(delta.up, device));
  }
  return placed;
}

}  // namespace miniacc
