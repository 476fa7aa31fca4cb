#include "runtime/presentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "runtime/vision_frames.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/test_picture.h"

namespace miniacc {
namespace {

using nlohmann::json;
using testing::Golden;
using ::testing::HasSubstr;
using testing::test_data;
using testing::test_picture;
using Kind = PresentedInput::Kind;

Tokenizer micro_tokenizer() {
  return Tokenizer::open(test_data("golden/h3-micro/tokenizer")).value();
}

PresentedInput image(std::int64_t width, std::int64_t height) {
  return {.kind = Kind::kImage, .width = width, .height = height, .name = {}};
}
PresentedInput video(std::int64_t frames, std::int64_t width, std::int64_t height,
                     bool has_sound = false) {
  return {.kind = Kind::kVideo,
          .width = width,
          .height = height,
          .num_frames = frames,
          .has_sound = has_sound,
          .name = {}};
}
PresentedInput audio() { return {.kind = Kind::kAudio, .has_sound = true, .name = {}}; }

PresentedInput input_of(const json& reference) {
  const std::string kind = reference.at("kind");
  if (kind == "image") {
    return image(reference.at("width"), reference.at("height"));
  }
  if (kind == "video") {
    return video(reference.at("frames"), reference.at("width"), reference.at("height"),
                 reference.at("sound"));
  }
  return audio();
}

/// Consecutive rows of one id and tag: [id, tag, count].
json runs_of(const Presentation& presentation) {
  json runs = json::array();
  for (std::size_t i = 0; i < presentation.ids.size(); ++i) {
    const auto tag = static_cast<int>(presentation.tags[i]);
    if (!runs.empty() && runs.back()[0] == presentation.ids[i] && runs.back()[1] == tag) {
      runs.back()[2] = runs.back()[2].get<int>() + 1;
    } else {
      runs.push_back({presentation.ids[i], tag, 1});
    }
  }
  return runs;
}

TEST(Presentation, MixesOfReferencesMatchTheReference) {
  const Tokenizer tokenizer = micro_tokenizer();
  std::ifstream file(test_data("golden/presentations.json"));
  const json cases = json::parse(file);
  ASSERT_GE(cases.size(), 10U);
  for (const json& entry : cases) {
    std::vector<PresentedInput> inputs;
    for (const json& reference : entry.at("references")) {
      inputs.push_back(input_of(reference));
    }
    const auto presentation =
        make_presentation(tokenizer, entry.at("prompt").get<std::string>(), inputs);
    ASSERT_TRUE(presentation) << presentation.error().message;
    EXPECT_EQ(runs_of(*presentation), entry.at("runs")) << entry.at("references");
  }
}

// Every block is where its pads are, and counts add up.
TEST(Presentation, BlocksAndCountsTellWhereTheRowsAre) {
  const Tokenizer tokenizer = micro_tokenizer();
  const std::vector<PresentedInput> inputs = {image(2048, 2720), video(25, 1344, 768, true),
                                              audio(), video(13, 64, 96)};
  const Presentation presentation = make_presentation(tokenizer, "A red fox", inputs).value();
  ASSERT_EQ(presentation.blocks.size(), 4U);
  const std::int64_t owners[] = {0, 1, 1, 3};
  const std::int64_t numbers[] = {0, 0, 1, 0};
  const VisionGrid grids[] = {{170, 128}, {48, 84}, {48, 84}, {6, 4}};
  for (std::size_t i = 0; i < 4; ++i) {
    const VisualBlock& block = presentation.blocks[i];
    EXPECT_EQ(block.input, owners[i]);
    EXPECT_EQ(block.block, numbers[i]);
    EXPECT_EQ(block.grid, grids[i]);
    const auto first = static_cast<std::size_t>(block.first_row);
    const auto count = static_cast<std::size_t>(block.grid.num_tokens());
    EXPECT_EQ(presentation.ids[first - 1], 529);
    EXPECT_EQ(presentation.ids[first + count], 530);
    for (std::size_t row = first; row < first + count; ++row) {
      ASSERT_EQ(presentation.ids[row], i == 0 ? 532 : 533);
    }
  }
  std::int64_t rows = presentation.prompt_rows;
  for (const std::int64_t count : presentation.rows_of_input) {
    rows += count;
  }
  EXPECT_EQ(rows, static_cast<std::int64_t>(presentation.ids.size()));
  EXPECT_EQ(presentation.tags.size(), presentation.ids.size());
  EXPECT_EQ(presentation.rows_of_input[3],
            6 * 4 / 4 + 2 +
                static_cast<std::int64_t>(tokenizer.encode("<Video 2>: ")->size() +
                                          tokenizer.encode("<0.2 seconds>")->size()));
  EXPECT_EQ(presentation.text,
            "<Picture 1>: [5440 image tokens]<Audio 1>: <Video 1>: <0.2 seconds>[1008 video tokens]"
            "<1.0 seconds>[1008 video tokens]<Audio 2>: <Video 2>: <0.2 seconds>[6 video tokens]"
            "A red fox");
}

TEST(Presentation, TextAloneIsThePromptAsItIs) {
  const Tokenizer tokenizer = micro_tokenizer();
  const std::string prompt = "  She says <d>Don't go!</d>\n";
  const Presentation presentation = make_presentation(tokenizer, prompt, {}).value();
  EXPECT_EQ(presentation.ids, tokenizer.encode(prompt).value());
  EXPECT_EQ(presentation.prompt_rows, static_cast<std::int64_t>(presentation.ids.size()));
  EXPECT_TRUE(presentation.blocks.empty());
  for (const Modality tag : presentation.tags) {
    EXPECT_EQ(tag, Modality::kText);
  }
}

TEST(Presentation, AnEmptyPromptIsOnePaddingTokenOnlyWhereNothingElseIs) {
  const Tokenizer tokenizer = micro_tokenizer();
  const Presentation alone = make_presentation(tokenizer, "", {}).value();
  EXPECT_EQ(alone.ids, std::vector<std::int32_t>{*tokenizer.id_of("<|endoftext|>")});
  EXPECT_EQ(alone.prompt_rows, 1);
  const PresentedInput keyframe = image(256, 256);
  const Presentation shown = make_presentation(tokenizer, "", {&keyframe, 1}).value();
  EXPECT_EQ(shown.ids.back(), 530);
  EXPECT_EQ(shown.prompt_rows, 0);
}

TEST(Presentation, NamesWhatCannotBePresented) {
  const Tokenizer tokenizer = micro_tokenizer();
  const auto message = [&](std::string_view prompt, PresentedInput input) {
    const auto presentation = make_presentation(tokenizer, prompt, {&input, 1});
    return presentation ? std::string("accepted") : presentation.error().message;
  };
  EXPECT_THAT(message("x", video(12, 64, 64)),
              HasSubstr("input 1: a reference video of 12 frames"));
  EXPECT_THAT(message("x", image(640, 1)), HasSubstr("640x1"));
  PresentedInput named = video(3, 64, 64);
  named.name = "reference 2 (video dance.mp4)";
  EXPECT_THAT(message("x", named), HasSubstr("reference 2 (video dance.mp4): a reference video"));
  EXPECT_THAT(message("a <|image_pad|> b", image(256, 256)), HasSubstr("<|image_pad|>"));
  EXPECT_THAT(message("\xff", image(256, 256)), ::testing::Not(HasSubstr("accepted")));
}

/// From pictures to the state that conditions the transformer.
std::vector<float> condition(const std::string& prompt, const std::vector<PresentedInput>& inputs,
                             const std::vector<VisionFrames>& blocks) {
  CpuDevice device;
  OpContext ctx{device};
  const auto weights =
      open_component(test_data("golden/h3-micro/text_encoder"), Component::kTextEncoder).value();
  const Presentation presentation = make_presentation(micro_tokenizer(), prompt, inputs).value();
  std::vector<VisionInput> tower_inputs;
  for (const VisionFrames& frames : blocks) {
    tower_inputs.push_back({frames});
  }
  const auto features = run_vision_tower(ctx, *weights, read_vision_config(*weights).value(),
                                         tower_inputs, Precision::kF32)
                            .value();
  const Tensor hidden =
      encode_text(ctx, *weights, read_text_encoder_config(*weights).value(), presentation.ids,
                  visual_spans(presentation, features), Precision::kF32)
          .value();
  return {hidden.f32().begin(), hidden.f32().end()};
}

RgbClip clip_of(std::int64_t num_frames, std::int64_t height, std::int64_t width,
                std::int64_t seed) {
  RgbClip clip{.width = width, .height = height, .num_frames = num_frames, .pixels = {}};
  for (std::int64_t i = 0; i < num_frames; ++i) {
    const RgbImage frame = test_picture(height, width, seed + i);
    clip.pixels.insert(clip.pixels.end(), frame.pixels.begin(), frame.pixels.end());
  }
  return clip;
}

constexpr const char* kPrompt = "A red fox walking through snow";

// The picture is below the least size and enlarged on its way.
TEST(Conditioner, AKeyframeMatchesTheReferencePipeline) {
  const Golden golden("golden/conditioner.safetensors");
  const auto hidden = condition(kPrompt, {image(160, 96)},
                                {prepare_vision_frames(test_picture(96, 160, 12)).value()});
  EXPECT_TRUE(testing::close_to(hidden, golden.floats("small.hidden_state_3"), 1e-5));
}

TEST(Conditioner, TwoKeyframesMatchTheReferencePipeline) {
  const Golden golden("golden/conditioner.safetensors");
  const auto hidden = condition(kPrompt, {image(256, 256), image(256, 256)},
                                {prepare_vision_frames(test_picture(256, 256, 10)).value(),
                                 prepare_vision_frames(test_picture(256, 256, 11)).value()});
  EXPECT_TRUE(testing::close_to(hidden, golden.floats("both.hidden_state_3"), 1e-5));
}

TEST(Conditioner, ReferencesMatchTheReferencePipeline) {
  const Golden golden("golden/conditioner.safetensors");
  std::vector<VisionFrames> blocks = {prepare_vision_frames(test_picture(256, 288, 13)).value()};
  for (const RgbClip& clip : {clip_of(25, 64, 96, 20), clip_of(13, 96, 64, 50)}) {
    std::vector<VisionFrames> pairs = prepare_vision_frames(clip).value();
    for (VisionFrames& block : pairs) {
      blocks.push_back(std::move(block));
    }
  }
  const auto hidden = condition(
      kPrompt, {image(288, 256), video(25, 96, 64, true), audio(), video(13, 64, 96)}, blocks);
  EXPECT_TRUE(testing::close_to(hidden, golden.floats("references.hidden_state_3"), 1e-5));
}

}  // namespace
}  // namespace miniacc
