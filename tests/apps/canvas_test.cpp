#include <gmock/gmock.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

struct Canvas {
  const char* ratio;
  int width;
  int height;
};

double standard_deviation(std::span<const std::uint8_t> values) {
  double sum = 0.0;
  double squares = 0.0;
  for (const std::uint8_t value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(values.size());
  return std::sqrt(std::max(0.0, squares / count - sum / count * (sum / count)));
}

/// The published aspect ratios on the smallest canvases of the 32-pixel grid that come near them:
/// odd and even numbers of tokens a side, portrait and landscape.
class CanvasMatrix : public Program, public ::testing::WithParamInterface<Canvas> {};

TEST_P(CanvasMatrix, EveryLengthGivesAWholeClip) {
  const Canvas& canvas = GetParam();
  for (const int num_frames : {5, 22, 56}) {
    SCOPED_TRACE(fmt::format("{}x{}, {} frames", canvas.width, canvas.height, num_frames));
    const ProcessResult result = generate({{"--width", std::to_string(canvas.width)},
                                           {"--height", std::to_string(canvas.height)},
                                           {"--frames", std::to_string(num_frames)},
                                           {"--steps", "1"},
                                           {"--output", "frames/"}},
                                          {"--json", "--overwrite", "--no-metadata"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json_lines(result.out).back().at("audio"), "ok") << "finite, and not one value";
    const Clip made = clip("frames");
    ASSERT_EQ(made.width, canvas.width);
    ASSERT_EQ(made.height, canvas.height);
    ASSERT_EQ(made.num_frames, num_frames);
    EXPECT_EQ(made.num_samples(), std::llround(num_frames * 32000.0 / 24.0));

    // A tail that no kernel wrote shows as flat rows at the lower edge of the last frames. Random
    // weights give every band of every frame the same spread; half of it is far from flat.
    const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(canvas.width);
    const std::size_t frame_bytes = row_bytes * static_cast<std::size_t>(canvas.height);
    const double typical = standard_deviation(made.frames);
    EXPECT_GT(typical, 2.0);
    for (std::size_t frame = 0; frame < static_cast<std::size_t>(num_frames); ++frame) {
      for (std::size_t row = 0; row < static_cast<std::size_t>(canvas.height); row += 16) {
        const std::span<const std::uint8_t> band(
            made.frames.data() + frame * frame_bytes + row * row_bytes, 16 * row_bytes);
        ASSERT_GT(standard_deviation(band), typical / 2.0)
            << "frame " << frame << ", rows from " << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ratios, CanvasMatrix,
                         ::testing::Values(Canvas{"Wide21x9", 224, 96}, Canvas{"Wide16x9", 160, 96},
                                           Canvas{"Wide4x3", 128, 96}, Canvas{"Square", 96, 96},
                                           Canvas{"Tall3x4", 96, 128}, Canvas{"Tall9x16", 96, 160}),
                         [](const auto& param_info) {
                           return std::string(param_info.param.ratio);
                         });

}  // namespace
}  // namespace miniacc::testing
