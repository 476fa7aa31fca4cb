#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/dit/packed_sequence.h"
#include "runtime/device_plan.h"
#include "runtime/request.h"
#include "runtime/stage_plan.h"

namespace miniacc {

/// What one condition takes of the two sequences.
struct ConditionShare {
  std::string name;              ///< "reference image fox.png"
  std::string label;             ///< how the prompt names it, "<Picture 1>"; for sound "<Audio 1>"
  std::int64_t text_tokens = 0;  ///< label, timestamps and pad tokens
  std::int64_t packed_rows = 0;  ///< of its latents
};

/// A whole job as it is foreseen before any weight is read.
struct JobPlan {
  PreparedRequest prepared;
  std::string final_text;  ///< what the text encoder gets; runs of pad tokens as <|image_pad|>×n
  std::int64_t num_text_tokens = 0;
  PackedSequence sequence;
  std::vector<ConditionShare> shares;  ///< in packed order
  std::vector<StagePlan> stages;
  std::optional<DevicePlan> device;  ///< where a CUDA device computes
  std::vector<std::string> notes;
  double flops_per_second = 0.0;  ///< measured on this machine with a matrix product; 0: unknown
  std::string precision = "f32";
  std::string attention = "f32";  ///< arithmetic of the transformer's attention
};

/// Layout, final text, shares, memory and work for people.
[[nodiscard]] std::string job_plan_text(const JobPlan& plan);
/// The same as one JSON object; docs/cli.md has its fields.
[[nodiscard]] std::string job_plan_json(const JobPlan& plan);

/// Speed of a matrix product of this precision on `num_threads` threads, measured for a few tens of
/// milliseconds.
[[nodiscard]] double measure_flops_per_second(Precision precision, int num_threads);

/// Physical memory that the system can give without swapping; 0 where it does not say.
[[nodiscard]] std::size_t available_memory_bytes();

}  // namespace miniacc
