#include <gtest/gtest.h>

#include <map>

#include "device/cpu_device.h"
#include "model/support/micro_weights.h"
#include "model/text_encoder/encode_text.h"
#include "support/compare.h"
#include "support/test_picture.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;
using testing::identical_to;
using testing::MemoryWeights;
using testing::relative_error;
using testing::test_picture;

constexpr std::int32_t kImagePad = 532;
constexpr std::int32_t kVideoPad = 533;

/// A presentation of the goldens with the pictures that its blocks show, in order.
struct VisualCase {
  std::vector<std::int32_t> ids;
  std::vector<std::vector<RgbImage>> frames;
  std::vector<VisionFeatures> features;
  std::vector<VisualSpan> spans;
};

std::vector<std::vector<RgbImage>> frames_of(const std::string& name) {
  if (name == "first") {
    return {{test_picture(256, 256, 10)}};
  }
  if (name == "both") {
    return {{test_picture(256, 256, 10)}, {test_picture(256, 256, 11)}};
  }
  // An image; a video of 25 frames (samples 0, 12, 24, the last one twice); one of 13 frames.
  return {{test_picture(256, 288, 13)},
          {test_picture(64, 96, 20), test_picture(64, 96, 32)},
          {test_picture(64, 96, 44), test_picture(64, 96, 44)},
          {test_picture(96, 64, 50), test_picture(96, 64, 62)}};
}

VisualCase make_case(OpContext& ctx, WeightSource& weights, const std::string& name) {
  const Golden golden("golden/conditioner.safetensors");
  VisualCase result{.ids = testing::golden_ints(golden, name + ".ids"),
                    .frames = frames_of(name),
                    .features = {},
                    .spans = {}};
  std::vector<VisionInput> inputs;
  for (const auto& frames : result.frames) {
    inputs.push_back({frames});
  }
  result.features =
      run_vision_tower(ctx, weights, read_vision_config(weights).value(), inputs, Precision::kF32)
          .value();
  for (std::size_t row = 0; row < result.ids.size(); ++row) {
    const bool is_pad = result.ids[row] == kImagePad || result.ids[row] == kVideoPad;
    const bool starts = is_pad && result.ids[row - 1] != result.ids[row];
    if (starts) {
      const std::size_t index = result.spans.size();
      const RgbImage& image = result.frames.at(index)[0];
      result.spans.push_back({.first = static_cast<std::int64_t>(row),
                              .grid = {image.height / 16, image.width / 16},
                              .features = &result.features[index]});
    }
  }
  return result;
}

// Measured 8.8e-7.
TEST(EncodeVisuals, HiddenStatesMatchTheReference) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden golden("golden/conditioner.safetensors");
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  for (const std::string name : {"first", "both", "references"}) {
    const VisualCase given = make_case(ctx, weights, name);
    ASSERT_EQ(given.spans.size(), given.frames.size());
    const Tensor hidden =
        encode_text(ctx, weights, config, given.ids, given.spans, Precision::kF32).value();
    const double error = relative_error(hidden.f32(), golden.floats(name + ".hidden_state_3"));
    RecordProperty(name, std::to_string(error * 1e9) + "e-9");
    EXPECT_LE(error, 1e-5) << name;
  }
}

// With four layers the third DeepStack addition is inside as well.
TEST(EncodeVisuals, EveryDeepStackAdditionMatchesTheReference) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden golden("golden/conditioner.safetensors");
  MemoryWeights weights = testing::micro_text_encoder();
  weights.config_values["miniacc_text_layers"] = {4};
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  VisualCase given = make_case(ctx, weights, "references");
  const std::vector<float> expected = golden.floats("references.hidden_state_4");
  const auto error = [&] {
    return relative_error(
        encode_text(ctx, weights, config, given.ids, given.spans, Precision::kF32)->f32(),
        expected);
  };
  EXPECT_LE(error(), 1e-5);
  for (std::size_t kept : {2U, 1U, 0U}) {  // each addition shows in the result
    const double before = error();
    for (VisionFeatures& features : given.features) {
      features.deepstack.resize(kept);
    }
    EXPECT_GT(error(), before + 1e-3) << kept;
  }
}

TEST(EncodeVisuals, PositionsOfABlockAreTwoDimensional) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  VisualCase given = make_case(ctx, weights, "first");
  const Tensor right =
      encode_text(ctx, weights, config, given.ids, given.spans, Precision::kF32).value();
  given.spans[0].grid = {8, 32};  // as many tokens in another raster
  const Tensor wrong =
      encode_text(ctx, weights, config, given.ids, given.spans, Precision::kF32).value();
  EXPECT_GT(relative_error(wrong.f32(), right.f32()), 1e-3);
}

TEST(EncodeVisuals, NoBlocksIsTheTextAlone) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  const std::vector<std::int32_t> ids = {5, 9, 17};
  const Tensor a =
      encode_text(ctx, weights, config, ids, std::span<const VisualSpan>{}, Precision::kF32)
          .value();
  const Tensor b = encode_text(ctx, weights, config, ids, Precision::kF32).value();
  EXPECT_TRUE(identical_to(a.f32(), b.f32()));
}

TEST(EncodeVisuals, RefusesBlocksThatDoNotFit) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  const VisualCase given = make_case(ctx, weights, "both");
  const auto refused = [&](std::vector<VisualSpan> spans) {
    EXPECT_THROW((void)encode_text(ctx, weights, config, given.ids, spans, Precision::kF32),
                 InternalError);
  };
  refused({given.spans[1], given.spans[0]});
  refused({given.spans[0], given.spans[0]});
  VisualSpan late = given.spans[1];
  late.first = static_cast<std::int64_t>(given.ids.size()) - 3;
  refused({late});
  VisualSpan early = given.spans[0];
  early.first = -1;
  refused({early});
  VisualSpan bare = given.spans[0];
  bare.features = nullptr;
  refused({bare});
  VisualSpan other = given.spans[0];
  other.grid = {4, 4};
  refused({other});
}

}  // namespace
}  // namespace miniacc
