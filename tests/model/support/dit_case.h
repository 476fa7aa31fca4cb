#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/dit/dit.h"
#include "model/support/micro_weights.h"

namespace miniacc::testing {

/// One case of dit.safetensors: its inputs, and the sequence MiniAcc packs for it.
struct DitCase {
  std::string name;
  PackedSequence sequence;
  std::vector<std::pair<float, float>> times;  ///< video and audio time of each step
  Tensor video_rows;
  Tensor audio_rows;
  Tensor text_states;

  [[nodiscard]] std::string step(std::size_t index) const {
    return name + ".step_" + std::to_string(index);
  }
  [[nodiscard]] DitInput input(const Tensor& refined_text, std::size_t index) const {
    return {video_rows.view(),     audio_rows.view(),      refined_text.view(),
            times.at(index).first, times.at(index).second, sequence};
  }
};

/// "t2_4x6", "t7_6x4", "t12_4x6" or "keyframes".
[[nodiscard]] DitCase dit_case(const std::string& name, const Golden& golden, Device& device);
[[nodiscard]] std::vector<DitCase> all_dit_cases(const Golden& golden, Device& device);

/// The values of the last `rows` rows of a [., width] golden: the target rows of a velocity.
[[nodiscard]] std::vector<float> last_rows(const std::vector<float>& values, std::int64_t rows,
                                           std::int64_t width);

}  // namespace miniacc::testing
