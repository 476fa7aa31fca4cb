#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "device/device.h"
#include "io/tensor_file.h"
#include "model/support/memory_weights.h"

namespace miniacc::testing {

/// tests/golden/<name>.
[[nodiscard]] std::filesystem::path golden_path(const std::string& name);

/// A file of reference tensors (tools/reference/README.md). A missing tensor or another dtype
/// throws, which fails the test that asked.
class Golden {
 public:
  explicit Golden(const std::string& name);

  [[nodiscard]] Shape shape(const std::string& name) const;
  [[nodiscard]] std::vector<float> f32(const std::string& name) const;
  [[nodiscard]] std::vector<double> f64(const std::string& name) const;
  [[nodiscard]] std::vector<std::int32_t> ints(const std::string& name) const;
  [[nodiscard]] Tensor tensor(const std::string& name, Device& device) const;

 private:
  [[nodiscard]] const TensorEntry& entry(const std::string& name, DType dtype) const;
  TensorFile file_;
};

/// Weights of the micro model under canonical names, converted here from the official folder: an
/// independent second opinion on what the checkpoint layer serves.
[[nodiscard]] MemoryWeights micro_transformer();
/// The curve-table form.
[[nodiscard]] MemoryWeights micro_transformer_pruned();
[[nodiscard]] MemoryWeights micro_text_encoder();

}  // namespace miniacc::testing
