#pragma once

#include "core/error.h"
#include "miniacc/miniacc.h"
#include "runtime/geometry.h"
#include "runtime/noise.h"
#include "runtime/sigma_schedule.h"

#include "core/weight_matrix.h"

namespace miniacc {

/// A request after every check that needs no weights, in native types.
struct PreparedRequest {
  GenerateRequest request;  ///< sizes rounded, sigmas filled in
  ClipGeometry geometry;
  SigmaSchedule schedule;
  NoiseOrder noise = NoiseOrder::kSglang;
  std::vector<std::string> notes;  ///< what was rounded, one sentence each
};

/// kInvalidArgument or kInvalidInput (prompt) says which field is wrong, and what would be right.
[[nodiscard]] Result<PreparedRequest> prepare_request(const GenerateRequest& request);

[[nodiscard]] Result<Precision> parse_precision(const std::string& name);

}  // namespace miniacc
