#pragma once

#include <string>
#include <string_view>

#include "core/weight_source.h"
#include "device/device.h"

namespace miniacc {

/// A WeightSource whose tensors may be asked for on a CUDA device: they are read into host memory
/// as the source gives them and copied. Asked for on a CPU device it is the source itself. The
/// host's copy is gone when a call returns.
class DeviceWeights final : public WeightSource {
 public:
  /// `source` and `host`, which holds a tensor on its way, outlive this.
  DeviceWeights(WeightSource& source, Device& host) : source_(source), host_(host) {}

  [[nodiscard]] bool has(std::string_view name) const override { return source_.has(name); }
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override {
    return source_.shape(name);
  }
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override {
    return source_.config(key);
  }
  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override;
  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override;
  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                      Device& device) override;
  [[nodiscard]] std::string identity() const override { return source_.identity(); }

 private:
  [[nodiscard]] Result<Tensor> place(Tensor tensor, Device& device) const;
  [[nodiscard]] Device& read_to(Device& device) const {
    return device.id().kind == DeviceKind::kCpu ? device : host_;
  }

  WeightSource& source_;
  Device& host_;
};

}  // namespace miniacc
