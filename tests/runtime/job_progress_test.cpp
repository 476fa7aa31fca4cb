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
