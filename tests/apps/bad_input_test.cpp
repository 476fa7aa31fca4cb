#include <gmock/gmock.h>

#include <sys/stat.h>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kUsage = 2;

/// Requests that must be refused before anything is written.
class BadInput : public Program {
 protected:
  void expect_refused(const Flags& changes, const std::vector<std::string>& parts,
                      const Words& switches = {}) const {
    SCOPED_TRACE(parts.front());
    expect_error(generate(changes, switches), kUsage, parts);
    EXPECT_THAT(files(), IsEmpty());
  }
};

TEST_F(BadInput, EmptyPromptIsAllowedAndSaid) {
  const ProcessResult result = generate({{"--prompt", ""}});
  expect_success(result);
  EXPECT_THAT(result.err, HasSubstr("the prompt is empty"));
  EXPECT_THAT(files(), ElementsAre("clip.mp4"));
}

TEST_F(BadInput, LongestPromptIsTakenAndOneMoreIsNot) {
  write("long.txt", std::string(20001, 'a'));
  expect_error(generate({{"--prompt", {}}, {"--prompt-file", "long.txt"}}), kUsage,
               {"20001 characters", "at most 20000"});
  EXPECT_THAT(files(), ElementsAre("long.txt"));
}

TEST_F(BadInput, PromptOf50000CharactersIsRefusedWithTheCount) {
  // Two bytes each: characters are counted, not bytes.
  std::string prompt;
  for (int i = 0; i < 50000; ++i) {
    prompt += "é";
  }
  expect_refused({{"--prompt", prompt}}, {"50000 characters", "at most 20000"});
}

TEST_F(BadInput, PromptFileOfManyMebibytesIsRefused) {
  write("huge.txt", std::string((std::size_t{4} << 20) + 1, 'a'));
  expect_error(generate({{"--prompt", {}}, {"--prompt-file", "huge.txt"}}), kUsage,
               {"huge.txt", "4194304 bytes"});
  EXPECT_THAT(files(), ElementsAre("huge.txt"));
}

TEST_F(BadInput, InvalidUtf8IsRefusedWithItsOffset) {
  expect_refused({{"--prompt", "ab\xff"}}, {"byte 2", "UTF-8"});
  expect_refused({{"--prompt", "\xc3"}}, {"byte 0", "UTF-8"});
}

TEST_F(BadInput, PromptIsNeededOnce) {
  expect_refused({{"--prompt", {}}}, {"-p", "--prompt-file"});
  expect_refused({{"--prompt-file", "-"}}, {"-p", "--prompt-file"});
  expect_refused({{"--prompt", {}}, {"--prompt-file", "absent.txt"}}, {"absent.txt"});
}

TEST_F(BadInput, ImpossibleFrameCountsAreRefusedWithTheNearest) {
  expect_refused({{"--frames", "0"}}, {"a clip of 0 frames", "shortest clip has 5"});
  expect_refused({{"--frames", "-1"}}, {"a clip of -1 frames", "shortest clip has 5"});
  expect_refused({{"--frames", "100000"}}, {"a clip of 100000 frames", "longest has 1093"});
  expect_refused({{"--frames", "1094"}}, {"a clip of 1094 frames", "longest has 1093"});
  expect_refused({{"--frames", "five"}}, {"--frames", "five"});
  expect_refused({{"--frames", "99999999999999999999"}}, {"too long", "1093"});
}

TEST_F(BadInput, FramesBetweenLengthsAreRoundedUpAndSaid) {
  const ProcessResult result = generate({{"--frames", "23"}});
  expect_success(result);
  EXPECT_THAT(result.err, HasSubstr("making 39 instead of 23"));
  EXPECT_EQ(clip("clip.mp4").num_frames, 39);
}

TEST_F(BadInput, ImpossibleSizesAreRefusedWithTheNearest) {
  for (const std::string side : {"width", "height"}) {
    expect_refused({{"--" + side, "0"}}, {side, "got 0", "smallest is 32"});
    expect_refused({{"--" + side, "-64"}}, {side, "got -64", "smallest is 32"});
    expect_refused({{"--" + side, "100000"}}, {side, "100000", "largest is 4096"});
    expect_refused({{"--" + side, "64.5"}}, {"--" + side, "64.5"});
  }
}

TEST_F(BadInput, SizesOffTheGridAreRoundedUpAndSaid) {
  const ProcessResult result = generate({{"--width", "31"}, {"--height", "33"}});
  expect_success(result);
  EXPECT_THAT(result.err, HasSubstr("width 31 is not a multiple of 32: making 32"));
  EXPECT_THAT(result.err, HasSubstr("height 33 is not a multiple of 32: making 64"));
  const Clip made = clip("clip.mp4");
  EXPECT_EQ(made.width, 32);
  EXPECT_EQ(made.height, 64);
}

TEST_F(BadInput, SecondsAreOneWayToSayTheLength) {
  expect_refused({{"--seconds", "1"}}, {"--frames or --seconds"});
  for (const std::string seconds : {"0", "-1", "nan", "46", "inf"}) {
    expect_refused({{"--frames", {}}, {"--seconds", seconds}}, {"--seconds"});
  }
  make_clip({{"--frames", {}}, {"--seconds", "0.5"}});
  EXPECT_EQ(clip("clip.mp4").num_frames, 22) << "12 frames, rounded up to 17 + 5";
}

TEST_F(BadInput, OutputFolderThatMayNotBeWrittenIsRefused) {
  std::filesystem::create_directory(*this / "locked");
  ASSERT_EQ(::chmod((*this / "locked").c_str(), 0555), 0);
  ProcessOptions options;
  options.obey_permissions = true;
  for (const std::string output : {"locked/clip.mp4", "locked/clip.wav", "locked/frames/"}) {
    SCOPED_TRACE(output);
    expect_error(generate({{"--output", output}}, {}, options), 1,
                 {"locked/", "Permission denied"});
    EXPECT_THAT(files(), IsEmpty());
  }
}

TEST_F(BadInput, OutputInAbsentFolderIsRefused) {
  expect_refused({{"--output", "absent/clip.mp4"}}, {"absent/clip.mp4", "No such file"});
}

TEST_F(BadInput, OutputOfUnknownKindIsRefused) {
  expect_refused({{"--output", "clip.avi"}}, {"clip.avi", ".mp4", ".mkv", ".wav"});
  expect_refused({{"--output", "clip"}}, {"clip", ".mp4"});
  expect_refused({{"--output", ""}}, {"-o"});
}

TEST_F(BadInput, ExistingOutputNeedsOverwrite) {
  write("clip.mp4", "precious");
  expect_error(generate(), kUsage, {"clip.mp4", "exists already", "overwrite"});
  EXPECT_EQ(read("clip.mp4"), "precious");
  make_clip({}, {"--overwrite"});
  EXPECT_EQ(clip("clip.mp4").num_frames, 5);
  EXPECT_THAT(files(), ElementsAre("clip.mp4"));
}

TEST_F(BadInput, FolderWithOtherFilesIsNeverReplaced) {
  std::filesystem::create_directory(*this / "photos");
  write("photos/holiday.jpg", "precious");
  expect_error(generate({{"--output", "photos/"}}, {"--overwrite"}), kUsage,
               {"photos", "holiday.jpg"});
  EXPECT_THAT(files(), ElementsAre("photos/holiday.jpg"));
}

TEST_F(BadInput, FolderUnderTheNameOfAFileIsRefused) {
  std::filesystem::create_directory(*this / "clip.mp4");
  expect_refused({}, {"clip.mp4", "not a regular file"}, {"--overwrite"});
}

TEST_F(BadInput, SaveLatentsIsCheckedBeforeAnyWork) {
  expect_refused({{"--save-latents", "absent/l.safetensors"}}, {"absent/l.safetensors"});
  expect_refused({{"--save-latents", "clip.mp4"}}, {"--save-latents", "clip.mp4"});
  expect_refused({{"--save-latents", "./clip.mp4"}}, {"--save-latents", "clip.mp4"});
  write("l.safetensors", "precious");
  expect_error(generate({{"--save-latents", "l.safetensors"}}), kUsage,
               {"l.safetensors", "exists already"});
  EXPECT_EQ(read("l.safetensors"), "precious");
  make_clip({{"--save-latents", "l.safetensors"}}, {"--overwrite"});
  EXPECT_THAT(files(), ElementsAre("clip.mp4", "l.safetensors"));
}

TEST_F(BadInput, UnfitLatentsAreRefused) {
  make_clip({{"--save-latents", "l.safetensors"}, {"--output", "first.mp4"}});
  const Words before = files();
  const auto expect_unfit = [&](const Flags& changes, const std::vector<std::string>& parts) {
    expect_error(generate(changes), kUsage, parts);
    EXPECT_EQ(files(), before);
  };
  expect_unfit({{"--resume-latents", "absent.safetensors"}}, {"absent.safetensors"});
  expect_unfit({{"--resume-latents", "first.mp4"}}, {"first.mp4"});
  expect_unfit({{"--resume-latents", "l.safetensors"}, {"--frames", "22"}},
               {"another request", "5 frames"});
  expect_unfit({{"--resume-latents", "l.safetensors"}, {"--prompt", "another scene"}},
               {"another request"});
  expect_unfit({{"--resume-latents", "l.safetensors"}, {"--seed", "77"}}, {"another request"});
  expect_unfit({{"--resume-latents", (model() / "audio_vae/model.safetensors").string()}},
               {"no latents file"});
}

TEST_F(BadInput, UnknownAndMisspeltFlagsAreErrors) {
  expect_refused({{"--promt", "a fox"}}, {"--promt"});
  expect_refused({{"--overwritee", "1"}}, {"--overwritee"});
  expect_refused({}, {"--no-metadat"}, {"--no-metadat"});
  expect_error(run({"generat"}), kUsage, {"generat"});
  expect_error(run({}), kUsage, {"subcommand"});
  expect_error(run({"generate", "-p", "a"}), kUsage, {"--output"});
}

TEST_F(BadInput, ValuesOutsideTheirListAreErrors) {
  expect_refused({{"--recipe", "lightx2v"}}, {"'lightx2v'", "lightx2v4", "pdmd2"});
  expect_refused({{"--noise", "torch"}}, {"--noise", "sglang, diffusers or comfy", "'torch'"});
  expect_refused({{"--precision", "fp4"}}, {"--precision", "f32, bf16 or int8", "'fp4'"});
  expect_refused({{"--attention", "fp8"}}, {"--attention", "f32, bf16 or int8", "'fp8'"});
  expect_refused({{"--threads", "-1"}}, {"--threads"});
  expect_refused({{"--weight-cache", "much"}}, {"--weight-cache"});
  expect_refused({{"--steps", "0"}}, {"--steps", "1 … 999", "got 0"});
  expect_refused({{"--steps", "1000"}}, {"--steps", "1 … 999", "got 1000"});
  expect_refused({{"--flow-shift", "0"}}, {"--flow-shift", "got 0"});
  expect_refused({{"--audio-flow-shift", "nan"}}, {"--audio-flow-shift"});
}

TEST_F(BadInput, SeedsThatAreNoWholeNumberAreErrors) {
  for (const std::string seed : {"abc", "18446744073709551616", "1.5", "0x10", "1 2", "", "-x"}) {
    expect_refused({{"--seed", seed}}, {"--seed", "'" + seed + "'"});
  }
}

TEST_F(BadInput, SigmasThatAreNoScheduleAreErrors) {
  expect_refused({{"--sigmas", "1,,0"}}, {"--sigmas", "1,,0"});
  expect_refused({{"--sigmas", "1,0.5,0,"}}, {"--sigmas", "1,0.5,0,"});
  expect_refused({{"--sigmas", "1;0"}}, {"--sigmas", "1;0"});
  expect_refused({{"--sigmas", "one,0"}}, {"--sigmas", "one"});
  expect_refused({{"--sigmas", "0"}}, {"--sigmas", "two values"});
  expect_refused({{"--sigmas", "1,0.5"}}, {"--sigmas", "end in 0"});
  expect_refused({{"--sigmas", "0.5,1,0"}}, {"--sigmas", "fall strictly"});
  expect_refused({{"--sigmas", "1,1,0"}}, {"--sigmas", "fall strictly"});
  expect_refused({{"--sigmas", "1.5,0"}}, {"--sigmas", "at most 1"});
  expect_refused({{"--sigmas", "nan,0"}}, {"--sigmas", "nan"});
  expect_refused({{"--sigmas", "1,0.5,0"}, {"--steps", "2"}}, {"--steps"});
  expect_refused({{"--audio-sigmas", "1,0.5,0"}}, {"--audio-sigmas needs --sigmas"});
  expect_refused({{"--sigmas", "1,0.5,0"}, {"--audio-sigmas", "1,0"}}, {"2 values", "3"});
}

TEST_F(BadInput, FlagsOfOtherModelsGetAClearAnswer) {
  expect_refused({{"--cfg-scale", "2"}}, {"guidance-distilled", "--cfg-scale"});
  expect_refused({{"--negative-prompt", "blurry"}}, {"guidance-distilled", "--negative-prompt"});
  expect_refused({{"--fps", "25"}}, {"24 frames a second", "--fps 25"});
  make_clip({{"--cfg-scale", "1"}, {"--fps", "24"}, {"--negative-prompt", ""}});
}

}  // namespace
}  // namespace miniacc::testing
