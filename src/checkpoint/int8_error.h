#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/component_layout.h"
#include "device/cpu_device.h"

namespace miniacc {

/// What quantising one matrix to int8 does, against the values it was made from.
struct Int8Error {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t rotation_group = 0;
  double weight_error = 0.0;       ///< ‖W - Ŵ‖ / ‖W‖, Ŵ dequantised and rotated back
  double output_error = 0.0;       ///< of x·Wᵀ with Ŵ and exact activations
  double int8_output_error = 0.0;  ///< with int8 activations (per row) as well
};

/// Measures as the rows are made: nothing is read twice. Activations are normally distributed, the
/// same for every layer of one width.
class Int8ErrorMeter {
 public:
  explicit Int8ErrorMeter(int num_threads) : num_threads_(num_threads) {}

  [[nodiscard]] Status observe(const Int8Slab& slab);
  /// In the order in which layers were seen.
  [[nodiscard]] std::vector<Int8Error> errors() const;

 private:
  struct Sums {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t group = 0;
    double weight = 0.0;  ///< squares of W
    double weight_error = 0.0;
    double output = 0.0;
    double output_error = 0.0;
    double int8_output_error = 0.0;
  };
  struct Activations {
    std::vector<float> plain;
    std::vector<float> rotated;
    std::vector<float> quantised;  ///< rotated, through int8
  };
  [[nodiscard]] const Activations& activations(std::int64_t columns, std::int64_t group);

  int num_threads_;
  CpuDevice device_;
  std::vector<std::string> order_;
  std::map<std::string, Sums> sums_;
  std::map<std::pair<std::int64_t, std::int64_t>, Activations> activations_;
};

}  // namespace miniacc
