#include <gmock/gmock.h>

#include <csignal>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Work that ends before it is done.
class Interrupted : public Program {
 protected:
  /// A job of many seconds in the stage that is to be interrupted.
  [[nodiscard]] static Flags long_job(const std::string& stage) {
    if (stage == "denoising") {
      return {{"--steps", "999"}};
    }
    if (stage == "audio decoding") {
      return {{"--frames", "345"}, {"--width", "32"}, {"--height", "32"}, {"--steps", "1"}};
    }
    return {{"--frames", "39"}, {"--width", "320"}, {"--height", "320"}, {"--steps", "1"}};
  }

  [[nodiscard]] ProcessResult signal_in(const std::string& stage, int signal) const {
    ProcessOptions options;
    options.signal = signal;
    options.signal_when = "\"stage\":\"" + stage + "\"";
    return generate(long_job(stage), {"--json"}, options);
  }
};

class InterruptedStage : public Interrupted, public ::testing::WithParamInterface<const char*> {};

TEST_P(InterruptedStage, CtrlCStopsWithinASecondAndLeavesNoPartialFile) {
  const std::string stage = GetParam();
  const bool sampled = stage != "denoising";
  // The second is the program's promise on an idle machine; a busy one gets three tries.
  double seconds = 0.0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const ProcessResult result = signal_in(stage, SIGINT);
    ASSERT_TRUE(result.signalled) << result.err;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("miniacc: error: "));
    EXPECT_THAT(result.err, HasSubstr("cancelled"));
    EXPECT_EQ(json_lines(result.out).back().at("code"), "cancelled");
    if (sampled) {  // what was computed is worth keeping, and said
      EXPECT_THAT(result.err, HasSubstr("clip.mp4.latents.safetensors"));
      EXPECT_THAT(files(), ElementsAre("clip.mp4.latents.safetensors"));
    } else {
      EXPECT_THAT(files(), IsEmpty());
    }
    seconds = result.seconds_after_signal;
    if (seconds < 1.0) {
      break;
    }
  }
  EXPECT_LT(seconds, 1.0);
}

TEST_P(InterruptedStage, KilledRunLeavesNothingUnderTheFinalName) {
  const ProcessResult result = signal_in(GetParam(), SIGKILL);
  ASSERT_TRUE(result.signalled) << result.err;
  EXPECT_EQ(result.end_signal, SIGKILL);
  EXPECT_THAT(files(), Each(Not("clip.mp4")));
  // What it may leave is hidden and in nobody's way: the same request runs.
  for (const std::string& name : files()) {
    EXPECT_EQ(name.front(), '.') << name;
  }
  make_clip();
  EXPECT_EQ(clip("clip.mp4").num_frames, 5);
}

INSTANTIATE_TEST_SUITE_P(Stages, InterruptedStage,
                         ::testing::Values("denoising", "audio decoding", "video decoding"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           name.resize(name.find(' ') == std::string::npos ? name.size()
                                                                           : name.find(' '));
                           return name;
                         });

TEST_F(Interrupted, TerminateIsLikeCtrlC) {
  const ProcessResult result = signal_in("denoising", SIGTERM);
  ASSERT_TRUE(result.signalled) << result.err;
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Interrupted, FullDiskLeavesNoClipAndKeepsTheLatents) {
  make_clip({{"--output", "whole.wav"}}, {"--no-metadata"});
  ProcessOptions options;
  options.max_file_bytes = 16 * 1024;  // latents fit, 27 kB of sound do not
  const ProcessResult result = generate({{"--output", "clip.wav"}}, {}, options);
  expect_error(result, 1, {"clip", "File too large", "clip.wav.latents.safetensors"});
  EXPECT_THAT(files(), ElementsAre("clip.wav.latents.safetensors", "whole.wav"));

  make_clip({{"--resume-latents", "clip.wav.latents.safetensors"}, {"--output", "clip.wav"}},
            {"--no-metadata"});
  EXPECT_EQ(read("clip.wav"), read("whole.wav"));
}

TEST_F(Interrupted, FullDiskSaysThatTheLatentsAreLostToo) {
  ProcessOptions options;
  options.max_file_bytes = 512;
  for (const std::string output : {"clip.mp4", "clip.mkv", "clip.wav", "frames/"}) {
    SCOPED_TRACE(output);
    const ProcessResult result = generate({{"--output", output}}, {}, options);
    expect_error(result, 1, {"File too large", "could not be kept either"});
    EXPECT_THAT(files(), IsEmpty());
  }
}

}  // namespace
}  // namespace miniacc::testing
