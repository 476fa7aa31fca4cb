#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Output : public Program {
 protected:
  [[nodiscard]] nlohmann::json ffprobe(const std::string& name) const {
    ProcessOptions options;
    options.folder = folder();
    const ProcessResult result = run_process({"ffprobe", "-v", "error", "-count_frames",
                                              "-show_streams", "-show_format", "-of", "json", name},
                                             options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return nlohmann::json::parse(result.out);
  }
  static double number(const nlohmann::json& text) {
    return std::strtod(text.get<std::string>().c_str(), nullptr);
  }
};

TEST_F(Output, Mp4IsWhatPlayersExpect) {
  make_clip({{"--frames", "39"}});
  const auto probed = ffprobe("clip.mp4");
  ASSERT_EQ(probed.at("streams").size(), 2U);
  const auto& video = probed.at("streams").at(0);
  EXPECT_EQ(video.at("codec_name"), "h264");
  EXPECT_EQ(video.at("pix_fmt"), "yuv420p");
  EXPECT_EQ(video.at("color_space"), "bt709");
  EXPECT_EQ(video.at("color_primaries"), "bt709");
  EXPECT_EQ(video.at("color_transfer"), "bt709");
  EXPECT_EQ(video.at("color_range"), "tv");
  EXPECT_EQ(video.at("r_frame_rate"), "24/1");
  EXPECT_EQ(video.at("avg_frame_rate"), "24/1");
  EXPECT_EQ(video.at("nb_read_frames"), "39");
  EXPECT_EQ(video.at("width"), 64);
  EXPECT_EQ(video.at("height"), 64);
  const auto& audio = probed.at("streams").at(1);
  EXPECT_EQ(audio.at("codec_name"), "aac");
  EXPECT_EQ(audio.at("sample_rate"), "32000");
  EXPECT_EQ(audio.at("channels"), 2);
  EXPECT_EQ(audio.at("channel_layout"), "stereo");
  constexpr double kAacFrame = 1024.0 / 32000.0;
  EXPECT_NEAR(number(video.at("duration")), 39.0 / 24.0, 1e-3);
  EXPECT_NEAR(number(audio.at("duration")), number(video.at("duration")), kAacFrame);

  const std::string bytes = read("clip.mp4");
  EXPECT_LT(bytes.find("moov"), bytes.find("mdat")) << "the index comes first (faststart)";
}

TEST_F(Output, MkvAndFramesHoldTheSameClip) {
  make_clip({{"--output", "frames/"}});
  EXPECT_THAT(files(), ElementsAre("frames/00001.png", "frames/00002.png", "frames/00003.png",
                                   "frames/00004.png", "frames/00005.png", "frames/audio.wav",
                                   "frames/metadata.json"));
  make_clip({{"--output", "again/%05d.png"}});
  const Clip frames = clip("frames");
  expect_same_clip(clip("again"), frames);
  EXPECT_EQ(frames.width, 64);
  EXPECT_EQ(frames.num_frames, 5);
  EXPECT_EQ(frames.num_samples(), 6667) << "5 / 24 s at 32000 Hz";

  make_clip({{"--output", "clip.mkv"}});
  const Clip mkv = clip("clip.mkv");
  EXPECT_EQ(mkv.num_frames, 5);
  EXPECT_TRUE(mkv.audio == frames.audio) << "FLAC holds the 16-bit values of the .wav";
  double difference = 0.0;
  for (std::size_t i = 0; i < frames.frames.size(); ++i) {
    difference += std::abs(static_cast<double>(frames.frames[i]) - mkv.frames.at(i));
  }
  EXPECT_LT(difference / static_cast<double>(frames.frames.size()), 40.0)
      << "noise loses its colour detail in 4:2:0, not its picture";

  make_clip({{"--output", "clip.wav"}});
  EXPECT_TRUE(clip("clip.wav").audio == frames.audio);
}

TEST_F(Output, WavIsSoundWithoutTheCostOfPictures) {
  const ProcessResult result = generate({{"--output", "clip.wav"}}, {"--json"});
  expect_success(result);
  EXPECT_THAT(result.out, Not(HasSubstr("video decoding")));
  const auto probed = ffprobe("clip.wav");
  ASSERT_EQ(probed.at("streams").size(), 1U);
  EXPECT_EQ(probed.at("streams").at(0).at("codec_name"), "pcm_s16le");
}

TEST_F(Output, FrameFolderIsReplacedOnlyWithOverwrite) {
  make_clip({{"--output", "frames/"}, {"--frames", "22"}});
  const Words before = files();
  expect_error(generate({{"--output", "frames/"}}), 2, {"frames", "exists already"});
  EXPECT_EQ(files(), before);
  make_clip({{"--output", "frames/"}}, {"--overwrite"});
  EXPECT_EQ(clip("frames").num_frames, 5);
}

TEST_F(Output, MetadataCarriesTheRequestUnlessForbidden) {
  make_clip({{"--prompt", "a very distinct fox"}});
  EXPECT_THAT(read("clip.mp4"), HasSubstr("a very distinct fox"));
  EXPECT_EQ(ffprobe("clip.mp4").at("format").at("tags").at("title"), "a very distinct fox");
  for (const std::string name : {"bare.mp4", "bare.mkv", "bare.wav", "bare/"}) {
    SCOPED_TRACE(name);
    make_clip({{"--prompt", "a very distinct fox"}, {"--output", name}}, {"--no-metadata"});
    const ProcessResult shown = run({"show", name});
    expect_success(shown);
    EXPECT_THAT(shown.out, HasSubstr("no request is stored"));
    expect_error(run({"show", name, "--rerun", "-t", "1", "-o", "x.mp4"}), 2,
                 {"carries no request"});
  }
  EXPECT_THAT(read("bare.mp4"), Not(HasSubstr("distinct fox")));
  EXPECT_FALSE(std::filesystem::exists(*this / "bare/metadata.json"));
}

}  // namespace
}  // namespace miniacc::testing
