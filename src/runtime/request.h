#pragma once

#include <optional>

#include "core/error.h"
#include "core/weight_matrix.h"
#include "miniacc/miniacc.h"
#include "runtime/condition_media.h"
#include "runtime/conditions.h"
#include "runtime/geometry.h"
#include "runtime/noise.h"
#include "runtime/sigma_schedule.h"

namespace miniacc {

/// A request after every check that needs no weights, in native types.
struct PreparedRequest {
  GenerateRequest request;  ///< sizes rounded, sigmas filled in
  Task task = Task::kT2va;
  ClipGeometry geometry;
  ConditionRules rules;
  std::vector<Condition> conditions;  ///< in packed order; empty when latents are resumed
  SigmaSchedule schedule;
  NoiseOrder noise = NoiseOrder::kSglang;
  std::optional<Precision> attention;  ///< of the transformer's blocks; empty: default_attention()
  std::vector<std::string> notes;      ///< what was rounded, one sentence each
};

struct PrepareOptions {
  ConditionRules rules = {};
  ConditionProbe probe = probe_condition;
  bool needs_output = true;  ///< false for a dry run
};

/// kInvalidArgument or kInvalidInput (prompt, files) says which field is wrong, and what would be
/// right. Reads the headers of the files that the clip is conditioned on.
[[nodiscard]] Result<PreparedRequest> prepare_request(const GenerateRequest& request,
                                                      const PrepareOptions& options = {});

[[nodiscard]] Result<Precision> parse_precision(const std::string& name);
/// "f32", "bf16" or "int8".
[[nodiscard]] const char* precision_name(Precision precision);
/// kUnsupported when attention in this arithmetic takes no heads of so many channels there.
[[nodiscard]] Status check_heads(std::int64_t head_dim, Precision attention, DeviceKind device);
/// That of the video decoder; empty for "auto".
[[nodiscard]] Result<std::optional<Precision>> parse_vae_precision(const std::string& name);
/// "f32", "bf16" or "int8".
[[nodiscard]] const char* precision_name(Precision precision);
/// kUnsupported when attention in this arithmetic takes no heads of so many channels there.
[[nodiscard]] Status check_heads(std::int64_t head_dim, Precision attention, DeviceKind device);

}  // namespace miniacc
