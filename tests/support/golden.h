#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/tensor_file.h"

namespace miniacc::testing {

/// Path below tests/, e.g. test_data("golden/h3-micro").
std::filesystem::path test_data(const std::string& relative);

/// Reference tensors of tests/golden (made by tools/reference). Throws when a name is missing, so
/// that a renamed tensor fails its test instead of skipping it.
class Golden {
 public:
  explicit Golden(const std::string& relative);

  [[nodiscard]] bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  [[nodiscard]] Shape shape(const std::string& name) const { return entry(name).shape; }
  /// Any float dtype as float.
  [[nodiscard]] std::vector<float> floats(const std::string& name) const;
  [[nodiscard]] std::vector<double> doubles(const std::string& name) const;
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& name) const;
  [[nodiscard]] std::vector<std::uint8_t> bytes(const std::string& name) const;

 private:
  [[nodiscard]] const TensorEntry& entry(const std::string& name) const;
  template <typename T>
  [[nodiscard]] std::vector<T> raw(const std::string& name, DType dtype) const;

  TensorFile file_;
};

}  // namespace miniacc::testing
