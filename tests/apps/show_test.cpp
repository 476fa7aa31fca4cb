#include <gmock/gmock.h>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Show : public Program {};

TEST_F(Show, PrintsStreamsAndRequest) {
  make_clip({{"--seed", "7"}, {"--prompt", "a \"quoted\" fox 🦊"}});
  const ProcessResult text = run({"show", "clip.mp4"});
  expect_success(text);
  EXPECT_THAT(text.out, AllOf(HasSubstr("h264 64x64, 5 frames at 24/1"), HasSubstr("aac 32000 Hz"),
                              HasSubstr("a \\\"quoted\\\" fox 🦊"), HasSubstr("\"seed\": 7"),
                              HasSubstr("\"checkpoint\""), HasSubstr("\"engine\"")));
  const auto shown = nlohmann::json::parse(run({"show", "clip.mp4", "--json"}).out);
  const auto& request = shown.at("miniacc").at("request");
  EXPECT_EQ(request.at("prompt"), "a \"quoted\" fox 🦊");
  EXPECT_EQ(request.at("seed"), 7);
  EXPECT_EQ(request.at("width"), 64);
  EXPECT_EQ(request.at("frames"), 5);
  EXPECT_EQ(request.at("sampling").at("recipe"), "pdmd2");
  EXPECT_EQ(request.at("model").at("folder"), model().string());
  ASSERT_EQ(shown.at("streams").size(), 2U);
}

TEST_F(Show, RerunMakesTheSameClipFromEveryKind) {
  const Flags how = {{"--seed", "123456789012345"},
                     {"--steps", "3"},
                     {"--flow-shift", "7.3"},
                     {"--noise", "diffusers"},
                     {"--width", "33"}};
  const std::pair<std::string, std::string> outputs[] = {{"clip.mp4", "again.mp4"},
                                                         {"clip.mkv", "again.mkv"},
                                                         {"clip.wav", "again.wav"},
                                                         {"frames/", "again/"}};
  for (const auto& [output, again] : outputs) {
    SCOPED_TRACE(output);
    Flags flags = how;
    flags["--output"] = output;
    make_clip(flags);
    expect_success(run({"show", output, "--rerun", "-t", "1", "-o", again, "-q"}));
    expect_same_clip(clip(again), clip(output));
  }
}

TEST_F(Show, RerunKeepsThePrecisionOfTheClip) {
  make_clip({{"--precision", "bf16"}});
  make_clip({{"--output", "f32.mp4"}});
  ASSERT_FALSE(clip("clip.mp4").frames == clip("f32.mp4").frames);
  expect_success(run({"show", "clip.mp4", "--rerun", "-t", "1", "-o", "again.mp4", "-q"}));
  expect_same_clip(clip("again.mp4"), clip("clip.mp4"));
  expect_success(run(
      {"show", "clip.mp4", "--rerun", "-t", "1", "-o", "other.mp4", "-q", "--precision", "f32"}));
  expect_same_clip(clip("other.mp4"), clip("f32.mp4"));
}

TEST_F(Show, RerunTakesAnotherCopyOfTheModel) {
  make_clip();
  const auto comfy = model_in("comfy", "bf16");
  expect_success(run(
      {"show", "clip.mp4", "--rerun", "-t", "1", "-o", "again.mp4", "-m", comfy.string(), "-q"}));
  expect_same_clip(clip("again.mp4"), clip("clip.mp4"));
}

TEST_F(Show, RerunNeverReplacesByItself) {
  make_clip();
  const std::string before = read("clip.mp4");
  expect_error(run({"show", "clip.mp4", "--rerun", "-t", "1", "-o", "clip.mp4"}), 2,
               {"exists already"});
  expect_error(run({"show", "clip.mp4", "--rerun"}), 2, {"-o"});
  EXPECT_EQ(read("clip.mp4"), before);
  expect_success(
      run({"show", "clip.mp4", "--rerun", "-t", "1", "-o", "clip.mp4", "--overwrite", "-q"}));
  EXPECT_EQ(read("clip.mp4"), before) << "the same request gives the same bytes";
}

TEST_F(Show, WhatIsNoClipIsAnError) {
  write("text.mp4", "this is no clip");
  expect_error(run({"show", "text.mp4"}), 2, {"text.mp4"});
  expect_error(run({"show", "absent.mp4"}), 2, {"absent.mp4"});
  expect_error(run({"show"}), 2, {"file"});
}

TEST_F(Show, DamagedRequestIsAnError) {
  make_clip({{"--output", "frames/"}});
  auto metadata = nlohmann::json::parse(read("frames/metadata.json"));
  auto own = nlohmann::json::parse(metadata.at("miniacc").get<std::string>());
  own["request"]["colour"] = "red";
  metadata["miniacc"] = own.dump();
  write("frames/metadata.json", metadata.dump());
  expect_error(run({"show", "frames"}), 2, {"no field 'colour'"});
  metadata["miniacc"] = "{\"request\":";
  write("frames/metadata.json", metadata.dump());
  expect_error(run({"show", "frames"}), 2, {"damaged"});
  own["request"] = {{"version", 99}};
  metadata["miniacc"] = own.dump();
  write("frames/metadata.json", metadata.dump());
  expect_error(run({"show", "frames"}), 2, {"version 99"});
}

}  // namespace
}  // namespace miniacc::testing
