#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BenchCommand : public Program {
 protected:
  std::vector<std::string> words(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"bench", "-m", "synthetic:tiny-f32", "-W", "64",
                                    "-H",    "64", "--frames",           "22", "-q"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(BenchCommand, TimesEveryStageOverTheCountedRuns) {
  const ProcessResult done =
      run(words({"--runs", "2", "--precision", "f32", "--text-tokens", "5", "--json", "-"}));
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto report = nlohmann::json::parse(done.out);
  std::vector<std::string> names;
  for (const auto& stage : report.at("stages")) {
    names.push_back(stage.at("name").get<std::string>());
    ASSERT_EQ(stage.at("runs_s").size(), 2U) << stage.dump();
    EXPECT_LE(stage.at("min_s").get<double>(), stage.at("median_s").get<double>());
    EXPECT_GE(stage.at("max_s").get<double>(), stage.at("median_s").get<double>());
  }
  EXPECT_THAT(names, ElementsAre("text encoding", "denoising", "audio decoding", "video decoding",
                                 "encode and save"));
  EXPECT_EQ(report.at("steps").size(), 4U);
  EXPECT_EQ(report.at("total").at("runs_s").size(), 2U);
  EXPECT_EQ(report.at("text_tokens").get<int>(), 5);
  EXPECT_GT(report.at("ceilings").at("operations_per_second").get<double>(), 0.0);
  EXPECT_GT(report.at("ceilings").at("copy_bytes_per_second").get<double>(), 0.0);
  double denoising = 0.0;
  double steps = 0.0;
  for (const auto& stage : report.at("stages")) {
    if (stage.at("name") == "denoising") {
      denoising = stage.at("runs_s").at(0).get<double>();
      EXPECT_GT(stage.at("operations").get<double>(), 0.0);
    }
  }
  for (const auto& step : report.at("steps")) {
    steps += step.at("runs_s").at(0).get<double>();
  }
  EXPECT_LE(steps, denoising);
}

TEST_F(BenchCommand, OneStageRunsByItself) {
  for (const std::string stage : {"text", "denoise", "audio", "video"}) {
    const ProcessResult done =
        run(words({"--runs", "1", "--precision", "bf16", "--stages", stage, "--json", "-"}));
    ASSERT_EQ(done.exit_code, 0) << stage << done.err;
    EXPECT_EQ(nlohmann::json::parse(done.out).at("stages").size(), 1U) << stage;
  }
}

TEST_F(BenchCommand, WrongWordsAreUsageErrors) {
  struct Case {
    std::vector<std::string> words;
    const char* message;
  };
  for (const Case& wrong :
       {Case{{"--stages", "dance"}, "there is no stage 'dance'"},
        Case{{"--stages", "save"}, "save encodes the frames"},
        Case{{"--text-tokens", "0"}, "--text-tokens must be 1 to"},
        Case{{"--precision", "int3"}, "int3"}, Case{{"--recipe", "none"}, "none"},
        Case{{"--vae-precision", "int3"}, "must be auto, f32, bf16 or int8, got 'int3'"},
        Case{{"--compare-vram", "some"}, "--compare-vram"},
        Case{{"--compare-vram", "1GiB,2GiB", "--vram", "1GiB"}, "name one of them"},
        Case{{"--compare-vram", "1GiB,2GiB", "--device", "cpu"}, "goes with a CUDA device"}}) {
    const ProcessResult done = run(words(wrong.words));
    EXPECT_EQ(done.exit_code, 2) << done.err;
    EXPECT_THAT(done.err, HasSubstr(wrong.message));
  }
}

}  // namespace
}  // namespace miniacc::testing
