#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/weight_source.h"

namespace miniacc::testing {

/// A WeightSource over values in memory, in canonical names and layouts.
class VaeMemorySource final : public WeightSource {
 public:
  struct Entry {
    Shape shape;
    std::vector<float> values;
  };

  void set(const std::string& name, const Shape& shape, std::vector<float> values);
  void set_config(const std::string& key, std::vector<double> values) { config_[key] = values; }
  void erase(const std::string& name) { entries_.erase(name); }
  Entry& at(const std::string& name) { return entries_.at(name); }

  [[nodiscard]] bool has(std::string_view name) const override;
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override;
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override;
  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override;
  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override;
  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                      Device& device) override;
  [[nodiscard]] std::string identity() const override { return "memory"; }

  /// How often a tensor's values were read.
  [[nodiscard]] int reads(const std::string& name) const;

 private:
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::vector<double>, std::less<>> config_;
  std::map<std::string, int, std::less<>> reads_;
};

}  // namespace miniacc::testing
