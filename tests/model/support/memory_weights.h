#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/weight_source.h"

namespace miniacc::testing {

/// A WeightSource whose tensors a test wrote down or changed. It keeps the contract of the real
/// ones: canonical names, non-finite values are an error, matrices in the form that was asked for.
class MemoryWeights final : public WeightSource {
 public:
  struct Entry {
    Shape shape;
    std::vector<float> values;
  };

  std::map<std::string, Entry, std::less<>> tensors;
  std::map<std::string, std::vector<double>, std::less<>> config_values;
  /// How often each tensor was read, by load, load_rows or load_matrix.
  std::map<std::string, int, std::less<>> reads;
  /// True: NaN and infinity pass, as they would from arithmetic rather than from a file.
  bool allow_non_finite = false;

  void set(const std::string& name, const Shape& shape, std::vector<float> values);
  /// Normal values times `scale`, plus `mean`, from a generator seeded by the name.
  void set_random(const std::string& name, const Shape& shape, float scale, float mean = 0.0F);
  [[nodiscard]] std::vector<float>& values(std::string_view name);

  [[nodiscard]] bool has(std::string_view name) const override;
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override;
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override;
  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override;
  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override;
  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                      Device& device) override;
  [[nodiscard]] std::string identity() const override { return "memory"; }

 private:
  [[nodiscard]] Result<const Entry*> find(std::string_view name) const;
};

}  // namespace miniacc::testing
