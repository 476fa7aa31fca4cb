#include "model/video_vae/temporal_windows.h"

#include <gtest/gtest.h>

namespace miniacc::video_vae {
namespace {

TEST(TemporalWindows, ReleasedGeometry) {
  const TemporalGeometry geometry;
  EXPECT_EQ(geometry.chunk(), 5);
  EXPECT_EQ(geometry.frame_pre_padding(), 3);
  EXPECT_EQ(geometry.token_overlap(), 2);
  EXPECT_EQ(geometry.window(), 7);
  EXPECT_EQ(geometry.frame_overlap(), 5);
  EXPECT_EQ(geometry.kept_frames(), 22);
  EXPECT_TRUE(geometry.validate());
}

TEST(TemporalWindows, PlansOfTheSpecsTable) {
  struct Row {
    std::int64_t latents, padding, windows, frames;
  };
  for (const Row& row :
       {Row{7, 0, 1, 22}, Row{12, 0, 2, 39}, Row{37, 0, 7, 124}, Row{8, 4, 2, 26}, Row{3, 4, 1, 9},
        Row{5, 2, 1, 17}, Row{2, 5, 1, 5}, Row{1, 6, 1, 1}, Row{107, 0, 21, 362}}) {
    const TemporalPlan plan = plan_windows(row.latents, {});
    EXPECT_EQ(plan.num_padding, row.padding) << row.latents;
    EXPECT_EQ(plan.num_windows, row.windows) << row.latents;
    EXPECT_EQ(plan.num_frames, row.frames) << row.latents;
  }
}

TEST(TemporalWindows, LegalCountsAre17nPlus5FramesOf5nPlus2Latents) {
  for (std::int64_t n = 0; n <= 40; ++n) {
    EXPECT_EQ(plan_windows(5 * n + 2, {}).num_frames, 17 * n + 5);
  }
}

TEST(TemporalWindows, OneMoreLatentNeverGivesFewerFrames) {
  for (std::int64_t latents = 1; latents < 200; ++latents) {
    EXPECT_LT(plan_windows(latents, {}).num_frames, plan_windows(latents + 1, {}).num_frames);
  }
}

TEST(TemporalWindows, KeptFramesAreHeadAndTail) {
  const TemporalGeometry geometry;
  EXPECT_EQ(geometry.kept_index(0), -1);
  EXPECT_EQ(geometry.kept_index(2), -1);
  EXPECT_EQ(geometry.kept_index(3), 0);
  EXPECT_EQ(geometry.kept_index(19), 16);
  EXPECT_EQ(geometry.kept_index(20), -1);
  EXPECT_EQ(geometry.kept_index(22), -1);
  EXPECT_EQ(geometry.kept_index(23), 17);
  EXPECT_EQ(geometry.kept_index(27), 21);
}

TEST(TemporalWindows, RefusesGeometryWithoutWindows) {
  EXPECT_FALSE((TemporalGeometry{.clip_length = 17, .token_drop = 5}.validate()));
  EXPECT_FALSE((TemporalGeometry{.clip_length = 17, .token_drop = 0}.validate()));
  EXPECT_FALSE((TemporalGeometry{.clip_length = 1, .token_drop = 1}.validate()));
  EXPECT_THROW(plan_windows(0, {}), InternalError);
}

}  // namespace
}  // namespace miniacc::video_vae
