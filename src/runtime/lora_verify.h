#pragma once

#include <string>
#include <vector>

#include "checkpoint/open_component.h"
#include "core/weight_matrix.h"
#include "kernels/op_context.h"
#include "runtime/lora_setup.h"
#include "runtime/sigma_schedule.h"

namespace miniacc {

/// What an adapter does to one tensor, measured on random activations (a fixed seed).
struct ModuleProbe {
  std::string tensor;
  double change = 0.0;  ///< ‖s·B·A·x‖ / ‖W·x‖; of a vector, ‖change‖ / ‖vector‖
  double error = 0.0;  ///< ‖(y with - y without) - s·B·A·x‖ / ‖s·B·A·x‖, the latter in double
  double bound = 0.0;     ///< what the arithmetic allows, rounding of the merged weights included
  bool attached = false;  ///< some bit of the output differs
  bool passed = false;    ///< error <= bound
  bool below_resolution =
      false;  ///< the change is smaller than the rounding of the weights it is in
};

/// Evidence that an adapter is applied, and applied right: counts of log lines prove nothing.
/// Source: spec adapters.md §8.
struct LoraVerification {
  std::vector<LoraReport> reports;
  std::vector<std::string> warnings;
  std::vector<ModuleProbe> modules;  ///< one for each tensor that the adapters change
  double video_difference = 0.0;  ///< of latents after one step: ‖with - without‖ / ‖without‖
  double audio_difference = 0.0;
  double largest_difference = 0.0;    ///< of any latent
  std::vector<std::string> failures;  ///< one sentence each; empty: verified
};

/// Runs each changed layer on 16 random rows, and one step of the transformer on a small clip, with
/// the adapters and without. Text features and noise are seeded random numbers: the difference that
/// an adapter makes needs no meaning. `schedule` gives the step's two sigmas. Errors are those of
/// opening and loading; what is wrong with the result is in `failures`.
[[nodiscard]] Result<LoraVerification> verify_loras(OpContext& ctx, ComponentWeights& transformer,
                                                    const LoraSetup& setup, Precision precision,
                                                    const SigmaSchedule& schedule);

}  // namespace miniacc
