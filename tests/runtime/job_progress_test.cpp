#include "runtime/job_progress.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace miniacc {
namespace {

TEST(JobProgress, OneScaleThatNeverFallsAndEndsAtOne) {
  std::vector<Event> events;
  JobProgress progress({{"encode", 1.0}, {"denoise", 8.0}, {"decode", 1.0}},
                       [&](const Event& event) { events.push_back(event); });
  progress.begin("encode", 2);
  progress.update(1, 0.5);
  progress.end();
  progress.begin("denoise", 4);
  progress.update(2, 0.5);
  progress.update(1, 0.25);  // a late report must not take progress back
  progress.end();
  progress.begin("decode", 1);
  progress.end();
  double before = 0.0;
  for (const Event& event : events) {
    EXPECT_GE(event.overall_fraction, before);
    before = event.overall_fraction;
  }
  EXPECT_DOUBLE_EQ(events[1].overall_fraction, 0.05);
  EXPECT_DOUBLE_EQ(events[4].overall_fraction, 0.5);
  EXPECT_DOUBLE_EQ(before, 1.0);
  ASSERT_EQ(progress.stages().size(), 3U);
  EXPECT_EQ(progress.stages()[1].name, "denoise");
  EXPECT_GT(progress.stages()[1].peak_resident_bytes, 0U);
}

TEST(JobProgress, CostsCanBeLearntBeforeAStageBegins) {
  double last = 0.0;
  JobProgress progress({{"load", 1.0}, {"work", 1.0}},
                       [&](const Event& event) { last = event.overall_fraction; });
  progress.begin("load", 1);
  progress.set_cost("work", 99.0);
  progress.end();
  EXPECT_DOUBLE_EQ(last, 0.01);
  EXPECT_THROW(progress.set_cost("other", 1.0), InternalError);
}

TEST(JobProgress, SecondsCanBeCountedElsewhere) {
  JobProgress progress({{"decode", 1.0}, {"save", 1.0}}, nullptr);
  progress.begin("decode", 1);
  progress.end();
  progress.begin("save", 1);
  progress.end();
  const double decode = progress.stages()[0].seconds;
  progress.move_seconds("decode", "save", -2.0);
  EXPECT_DOUBLE_EQ(progress.stages()[0].seconds, decode + 2.0);
  EXPECT_LT(progress.stages()[1].seconds, 0.0);
}

TEST(JobProgress, WarningsAreKept) {
  JobProgress progress({{"only", 1.0}}, nullptr);
  progress.warning("careful");
  EXPECT_EQ(progress.warnings(), std::vector<std::string>{"careful"});
}

TEST(JobProgress, AnUnplannedStageIsADefect) {
  JobProgress progress({{"only", 1.0}}, nullptr);
  EXPECT_THROW(progress.begin("other", 1), InternalError);
}

}  // namespace
}  // namespace miniacc
