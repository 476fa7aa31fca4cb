#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/detect.h"
#include "checkpoint/stored_tensor.h"

namespace miniacc {

/// Every canonical tensor of a file, and what is wrong with the file as a whole.
struct Plan {
  std::map<std::string, CanonicalTensor, std::less<>> tensors;
  std::map<std::string, std::int64_t> dimensions;
  std::vector<std::string> missing;   ///< canonical names (with the stored part where it has parts)
  std::vector<std::string> unknown;   ///< stored names
  std::vector<std::string> problems;  ///< wrong shapes, dtypes, config; a sentence each
  /// The same, missing and unknown tensors included, of a VAE's encoder: reported when an encoder's
  /// tensor is asked for, not before.
  std::vector<std::string> encoder_problems;
};

/// Maps stored tensors to canonical ones and compares them with what the component consists of.
/// Findings about single tensors go into the plan; an Error means that not even the sizes can be
/// read. `interleaved`: fused rows of a transformer are stored head by head.
[[nodiscard]] Result<Plan> make_plan(const TensorFile& file, const Recognised& recognised,
                                     const QuantizationRecords& quantization,
                                     const ComponentConfig& config, bool interleaved);

/// One error for all findings of a plan; success when there are none.
[[nodiscard]] Status check_plan(const TensorFile& file, Component component, const Plan& plan);

}  // namespace miniacc
