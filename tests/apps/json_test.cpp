#include <gmock/gmock.h>

#include <set>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class Json : public Program {};

TEST_F(Json, EventsEndInOneResultAndOverallNeverFalls) {
  const ProcessResult result = generate({{"--width", "31"}}, {"--json"});
  expect_success(result);
  EXPECT_EQ(result.err, "");
  const auto events = json_lines(result.out);
  ASSERT_GT(events.size(), 10U);
  double overall = 0.0;
  std::set<std::string> stages;
  bool rounded = false;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const auto& event = events[i];
    ASSERT_NE(event.at("event"), "result");
    ASSERT_NE(event.at("event"), "error");
    EXPECT_GE(event.at("overall").get<double>(), overall) << event;
    overall = event.at("overall").get<double>();
    EXPECT_LE(overall, 1.0);
    if (event.contains("stage")) {
      stages.insert(event.at("stage").get<std::string>());
      EXPECT_LE(event.at("done").get<int>(), event.at("total").get<int>()) << event;
    }
    rounded =
        rounded || (event.at("event") == "note" &&
                    event.at("message").get<std::string>().find("making 32") != std::string::npos);
  }
  EXPECT_DOUBLE_EQ(overall, 1.0);
  EXPECT_TRUE(rounded) << "a rounded size is an event too";
  EXPECT_THAT(stages, IsSupersetOf({"load", "text encoding", "denoising", "audio decoding",
                                    "video decoding", "encode and save"}));
  const auto& last = events.back();
  EXPECT_EQ(last.at("event"), "result");
  EXPECT_EQ(last.at("output"), "clip.mp4");
  EXPECT_EQ(last.at("request").at("width"), 32) << "as carried out";
  EXPECT_EQ(last.at("request").at("prompt"), "a fox");
  EXPECT_EQ(last.at("forwards"), 2);
  EXPECT_GT(last.at("peak_resident_bytes").get<std::size_t>(), std::size_t{1} << 20);
  double sum = 0.0;
  for (const auto& stage : last.at("stages")) {
    sum += stage.at("seconds").get<double>();
  }
  EXPECT_LE(sum, last.at("seconds").get<double>() * 1.01 + 0.01);
  EXPECT_GE(sum, last.at("seconds").get<double>() * 0.8) << "the stages account for the time";
}

TEST_F(Json, EveryErrorIsTheLastLine) {
  const Flags cases[] = {
      {{"--width", "0"}},        {{"--negative-prompt", "x"}}, {{"--seed", "abc"}},
      {{"--model", "absent"}},   {{"--prompt", "a\xff"}},      {{"--frames", "five"}},
      {{"--promt", "misspelt"}}, {{"--output", {}}},           {{"--output", "absent/c.mp4"}}};
  for (const Flags& changes : cases) {
    SCOPED_TRACE(changes.begin()->first);
    const ProcessResult result = generate(changes, {"--json"});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    const auto events = json_lines(result.out);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back().at("event"), "error");
    EXPECT_NE(events.back().at("message"), "");
    EXPECT_TRUE(events.back().contains("code"));
    EXPECT_THAT(result.err, HasSubstr("miniacc: error: "));
  }
  EXPECT_TRUE(files().empty());
}

TEST_F(Json, RerunSpeaksJsonToo) {
  make_clip();
  const ProcessResult result =
      run({"show", "clip.mp4", "--rerun", "-t", "1", "-o", "again.mp4", "--json"});
  expect_success(result);
  EXPECT_EQ(json_lines(result.out).back().at("event"), "result");
}

TEST_F(Json, QuietPrintsTheNameOnly) {
  const ProcessResult result = generate({{"--width", "31"}}, {"--quiet"});
  expect_success(result);
  EXPECT_EQ(result.out, "clip.mp4\n");
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace miniacc::testing
