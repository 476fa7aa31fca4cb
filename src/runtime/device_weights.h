#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/weight_source.h"
#include "device/device.h"

namespace miniacc {

/// Tensors of one component in pinned host memory, read once and copied to a CUDA device in every
/// request: what surrounds the streamed layers. The projections of modulation are left out, as
/// their outputs are what is kept.
class KeptTensors {
 public:
  /// Keeps at most `max_bytes`, of what `pinned` (which outlives the object) has to give.
  KeptTensors(Device& pinned, std::size_t max_bytes, int num_threads)
      : pinned_(pinned), max_bytes_(max_bytes), num_threads_(num_threads) {}

  /// The tensor in the form asked for; null where it is not kept. `matrix` is empty for load().
  [[nodiscard]] Result<const OwnedWeightMatrix*> find_or_read(WeightSource& source,
                                                              std::string_view name,
                                                              std::optional<Precision> matrix);
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] int num_threads() const { return num_threads_; }

 private:
  Device& pinned_;
  std::size_t max_bytes_;
  int num_threads_;
  std::size_t size_bytes_ = 0;
  std::map<std::string, OwnedWeightMatrix, std::less<>> tensors_;
};

/// A WeightSource whose tensors may be asked for on a CUDA device: they are read into host memory
/// as the source gives them and copied. Asked for on a CPU device it is the source itself. The
/// host's copy is gone when a call returns.
class DeviceWeights final : public WeightSource {
 public:
  /// `source` and `host`, which holds a tensor on its way, outlive this, and so does `kept`, where
  /// tensors for the device are found or put.
  DeviceWeights(WeightSource& source, Device& host, KeptTensors* kept = nullptr)
      : source_(source), host_(host), kept_(kept) {}

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
  [[nodiscard]] Result<Tensor> copy_of(const Tensor& tensor, Device& device) const;
  [[nodiscard]] Device& read_to(Device& device) const {
    return device.id().kind == DeviceKind::kCpu ? device : host_;
  }

  WeightSource& source_;
  Device& host_;
  KeptTensors* kept_;
};

}  // namespace miniacc
