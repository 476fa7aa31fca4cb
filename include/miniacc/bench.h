#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "miniacc/conversion.h"
#include "miniacc/miniacc.h"

/// Timing of the engine itself, without a prompt: one workload, several runs, stage by stage.
namespace miniacc {

struct BenchRequest {
  /// A model folder, or made-up weights of the released sizes: "synthetic:full-int8".
  ModelPaths model;
  std::int64_t width = 1344;
  std::int64_t height = 768;
  std::int64_t num_frames = 124;
  /// Recipe and steps; an empty recipe is lightx2v4, the one of four forwards.
  SamplingOptions sampling;
  std::int64_t num_text_tokens = 256;
  std::string attention;  ///< as GenerateRequest::attention
  /// Of text, denoise, audio, video, save; empty: all of them. What a stage reads from one that is
  /// left out is random instead.
  std::vector<std::string> stages;
  int runs = 3;  ///< counted ones; one more before them is not counted
  EngineOptions engine;
  /// Limits of device memory to compare, in place of engine.vram_bytes: the whole benchmark under
  /// each, one after another, then every stage as a multiple of its time under the last. The last
  /// is the one that holds all weights, the others stream.
  std::vector<std::size_t> compare_vram_bytes = {};
};

/// Makes the clip `runs` + 1 times with random tokens and other noise each time, and reports
/// median, smallest and largest time of each stage and step beside what the device can do at its
/// best (measured in the same process), memory and bytes. Errors are those of generating.
[[nodiscard]] Result<ToolReport> run_bench(const BenchRequest& request, const EventSink& events,
                                           const CancelToken& cancel);

}  // namespace miniacc
