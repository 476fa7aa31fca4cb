#include <gmock/gmock.h>

#include "apps/program.h"
#include "runtime/condition_files.h"

namespace miniacc::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// `miniacc generate` with pictures, videos and sounds, on the tiny random model.
class ConditionFlagsTest : public Program {
 protected:
  void make_files() const {
    write_formula_picture(folder() / "fox.png", 100, 60, 1);
    write_formula_picture(folder() / "snow.png", 64, 64, 2);
    write_formula_sound(folder() / "voice.wav", 20001, 5);
    write_formula_video(folder() / "dance", 64, 48, 30, 3, 30000);
    write_formula_video(folder() / "mute", 64, 48, 30, 4, 0);
  }
  /// The plan of a dry run with these further words; 22 frames of 64x64.
  [[nodiscard]] nlohmann::json plan(const Words& words) const {
    Words all = request({{"--frames", "22"}, {"--ref-image-size", "match"}}, words);
    all.insert(all.end(), {"--dry-run", "--json"});
    const ProcessResult result = run(all);
    expect_success(result);
    return nlohmann::json::parse(result.out);
  }
  static Words names(const nlohmann::json& list) {
    Words found;
    for (const auto& item : list) {
      found.push_back(item.at("what"));
    }
    return found;
  }
};

TEST_F(ConditionFlagsTest, OrderOnTheCommandLineIsTheOrderOfReferences) {
  make_files();
  const nlohmann::json shown =
      plan({"--model-half", "ref2va", "--ref-audio", "voice.wav", "-r", "snow.png", "--ref-video",
            "mute", "--ref-image", "fox.png", "--ref-video-audio", "dance"});
  EXPECT_EQ(shown.at("task"), "ref2va");
  EXPECT_EQ(names(shown.at("conditions")),
            (Words{"reference sound voice.wav", "reference image snow.png", "reference video mute",
                   "reference image fox.png", "reference video dance"}));
  EXPECT_EQ(
      names(shown.at("sequence").at("segments")),
      (Words{"text", "reference sound voice.wav", "reference image snow.png",
             "reference video mute", "reference image fox.png", "sound of reference video dance",
             "reference video dance", "clip's sound", "clip's video"}));
  EXPECT_THAT(shown.at("text").at("final").get<std::string>(),
              HasSubstr("<Audio 1>: <Picture 1>: "));
  EXPECT_EQ(shown.at("conditions").at(4).at("label"), "<Audio 2> <Video 2>");
  // What the plan says is what the segments hold.
  std::int64_t rows = 0;
  for (const auto& segment : shown.at("sequence").at("segments")) {
    EXPECT_EQ(segment.at("first_row"), rows);
    rows += segment.at("rows").get<std::int64_t>();
  }
  EXPECT_EQ(shown.at("sequence").at("rows"), rows);
  EXPECT_THAT(files(), Not(Contains("clip.mp4")));
}

TEST_F(ConditionFlagsTest, DryRunNeedsNoWeightsAndWritesNothing) {
  const Words before = files();
  const ProcessResult text =
      run({"generate", "-m", "synthetic:full", "-p", "a fox", "--dry-run", "-t", "1"});
  expect_success(text);
  EXPECT_THAT(text.out, AllOf(HasSubstr("t2va: 1344x768, 124 frames"), HasSubstr("final text"),
                              HasSubstr("37x48x84 latents"), HasSubstr("denoising")));
  EXPECT_EQ(files(), before);
  expect_error(run({"generate", "-m", "synthetic:vast", "-p", "a fox", "--dry-run"}), 2,
               {"synthetic:", "full"});
}

TEST_F(ConditionFlagsTest, EveryNamedErrorComesBeforeAnyWork) {
  make_files();
  const auto refuse = [&](const Words& words, const std::vector<std::string>& parts) {
    Words all = request({}, words);
    expect_error(run(all), 2, parts);
    all.emplace_back("--dry-run");
    expect_error(run(all), 2, parts);
    EXPECT_THAT(files(), Not(Contains("clip.mp4")));
  };
  refuse({"--ref-audio", "voice.wav"}, {"cannot be used alone"});
  Words ten;
  for (int i = 0; i < 10; ++i) {
    ten.insert(ten.end(), {"-r", "fox.png"});
  }
  refuse(ten, {"10 reference images", "at most 9"});
  refuse({"-i", "fox.png", "-r", "snow.png"}, {"cannot be used together"});
  refuse({"-r", "fox.png", "--model-half", "fl2va"},
         {"is the FL2VA half", "references need the Ref2VA half"});
  refuse({"-i", "fox.png", "--model-half", "ref2va"}, {"keyframes need the FL2VA half"});
  refuse({"-i", "missing.png"}, {"missing.png"});
  refuse({"-i", ""}, {"--init-img names no file"});
  refuse({"-i", "fox.png", "--save-latents", "fox.png", "--overwrite"},
         {"fox.png is an input of this job"});
  refuse({"--ref-video", "voice.wav", "--model-half", "ref2va"}, {"voice.wav"});
  refuse({"--ref-image-size", "huge"}, {"--ref-image-size"});
  refuse({"--fit", "squeeze"}, {"--fit"});
  refuse({"--picture-background", "red"}, {"--picture-background"});
  refuse({"--model-half", "both"}, {"--model-half"});
  write("empty.png", "");
  refuse({"-i", "empty.png"}, {"empty.png"});
}

TEST_F(ConditionFlagsTest, ARequestFileTakesAnyOrderAndFlagsReplaceItsFields) {
  make_files();
  write("request.json", R"({"version":1,"prompt":"from the file","width":64,"height":64,
    "frames":22,"seed":5,"ref_image_size":"match","references":[
      {"kind":"video","path":"dance","with_sound":true},{"kind":"image","path":"fox.png"}],
    "model":{"half":"ref2va"}})");
  const Words words = {"generate",  "--request", "request.json", "-m", model().string(),
                       "--dry-run", "--json",    "-s",           "6",  "-t",
                       "1"};
  const ProcessResult result = run(words);
  expect_success(result);
  const auto shown = nlohmann::json::parse(result.out);
  EXPECT_EQ(names(shown.at("conditions")),
            (Words{"reference video dance", "reference image fox.png"}));
  EXPECT_EQ(shown.at("request").at("seed"), 6);
  EXPECT_EQ(shown.at("request").at("prompt"), "from the file");
  write("wrong.json", R"({"version":1,"referenses":[]})");
  expect_error(run({"generate", "--request", "wrong.json", "-o", "a.mp4"}), 2,
               {"wrong.json", "no field 'referenses'"});
  expect_error(run({"generate", "--request", "absent.json", "-o", "a.mp4"}), 2, {"absent.json"});
}

TEST_F(ConditionFlagsTest, AClipKeepsItsKeyframeAndRunsAgain) {
  make_files();
  make_clip({{"--init-img", "fox.png"}, {"--end-img", "snow.png"}},
            {"--save-latents", "clip.safetensors"});
  make_clip({{"--output", "plain.mp4"}});
  EXPECT_FALSE(clip("clip.mp4").frames == clip("plain.mp4").frames);
  const auto shown = nlohmann::json::parse(run({"show", "clip.mp4", "--json"}).out);
  const auto& keyframe = shown.at("miniacc").at("request").at("init_image");
  EXPECT_EQ(keyframe.at("path"), "fox.png");
  EXPECT_EQ(keyframe.at("sha256").get<std::string>().size(), 64U);
  expect_success(run({"show", "clip.mp4", "--rerun", "-t", "1", "-o", "again.mp4", "-q"}));
  expect_same_clip(clip("again.mp4"), clip("clip.mp4"));
  // Latents carry the conditions; decoding them needs no picture.
  write_formula_picture(folder() / "fox.png", 100, 60, 9);
  expect_success(run({"generate", "--resume-latents", "clip.safetensors", "-t", "1", "-m",
                      model().string(), "-o", "resumed.mp4", "-q"}));
  expect_same_clip(clip("resumed.mp4"), clip("clip.mp4"));
  expect_error(run({"generate", "--resume-latents", "clip.safetensors", "-m", model().string(),
                    "-o", "other.mp4", "-i", "snow.png"}),
               2, {"finished latents"});
  expect_error(run({"show", "clip.mp4", "--rerun", "-t", "1", "-o", "third.mp4"}), 2,
               {"fox.png", "is not the file that the request was made with"});
}

TEST_F(ConditionFlagsTest, ReferencesMakeAClip) {
  make_files();
  make_clip({{"--frames", "22"}, {"--ref-image-size", "match"}, {"--model-half", "ref2va"}},
            {"-r", "snow.png", "--ref-audio", "voice.wav"});
  EXPECT_EQ(clip("clip.mp4").num_frames, 22);
}

// Seeds count modulo 2^32, as torch's do; what the clip says must bring the same frames back.
TEST_F(ConditionFlagsTest, AnySeedRunsAgainBitForBit) {
  for (const std::string seed : {"-1", "random", "1", "4294967295", "4294967296",
                                 "9007199254740993", "18446744073709551615"}) {
    SCOPED_TRACE(seed);
    make_clip({{"--seed", seed}}, {"--overwrite"});
    const auto shown = nlohmann::json::parse(run({"show", "clip.mp4", "--json"}).out);
    const auto stored = shown.at("miniacc").at("request").at("seed").get<std::uint64_t>();
    if (seed != "-1" && seed != "random") {
      EXPECT_EQ(std::to_string(stored), seed);
    }
    expect_success(
        run({"show", "clip.mp4", "--rerun", "-t", "1", "-o", "again.mp4", "--overwrite", "-q"}));
    expect_same_clip(clip("again.mp4"), clip("clip.mp4"));
  }
}

}  // namespace
}  // namespace miniacc::testing
