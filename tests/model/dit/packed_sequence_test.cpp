#include "model/dit/packed_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"
#include "model/support/micro_weights.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using testing::Golden;

using Position = std::array<double, 3>;

Position position(const PackedSequence& sequence, std::int64_t row) {
  const auto first = static_cast<std::size_t>(3 * row);
  return {sequence.position_ids.at(first), sequence.position_ids.at(first + 1),
          sequence.position_ids.at(first + 2)};
}

void expect_position(const PackedSequence& sequence, std::int64_t row, const Position& wanted) {
  const Position got = position(sequence, row);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    EXPECT_NEAR(got.at(axis), wanted.at(axis), 5e-9) << "row " << row << ", axis " << axis;
  }
}

std::vector<Modality> text_tags(const std::vector<std::int32_t>& values) {
  std::vector<Modality> tags;
  for (const std::int32_t value : values) {
    tags.push_back(static_cast<Modality>(value));
  }
  return tags;
}

// Positions may differ from the reference by the order of a few f64 operations; what counts is the
// f32 value that the angles are made of, and that is compared exactly.
void expect_same_as_golden(const PackedSequence& sequence, const Golden& golden,
                           const std::string& name) {
  const std::vector<double> wanted = golden.doubles(name + ".position_ids");
  ASSERT_EQ(sequence.position_ids.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(static_cast<float>(sequence.position_ids[i]), static_cast<float>(wanted[i]))
        << name << " position " << i;
    EXPECT_NEAR(sequence.position_ids[i], wanted[i], 1e-12);
  }
  EXPECT_EQ(sequence.tags, testing::golden_ints(golden, name + ".token_tags"));
  std::vector<std::int32_t> video;
  std::vector<std::int32_t> audio;
  std::vector<std::int32_t> text;
  for (const Segment& segment : sequence.segments) {
    auto& rows =
        segment.kind == SegmentKind::kText ? text
        : segment.kind == SegmentKind::kTargetAudio || segment.kind == SegmentKind::kAudioCondition
            ? audio
            : video;
    for (std::int64_t row = segment.rows.first; row < segment.rows.end(); ++row) {
      rows.push_back(static_cast<std::int32_t>(row));
    }
  }
  EXPECT_EQ(video, testing::golden_ints(golden, name + ".video_indices"));
  EXPECT_EQ(audio, testing::golden_ints(golden, name + ".audio_indices"));
  EXPECT_EQ(text, testing::golden_ints(golden, name + ".text_indices"));
  EXPECT_THAT(testing::golden_ints(golden, name + ".num_condition_rows"),
              ElementsAre(sequence.num_video_rows() - sequence.target_video().count,
                          sequence.num_audio_rows() - sequence.target_audio().count));
  const std::vector<float> pairs = golden.floats("timestep_pairs");
  for (std::size_t k = 0; k < pairs.size() / 2; ++k) {
    const RowTimesteps timesteps = sequence.timesteps(pairs[2 * k], pairs[2 * k + 1]);
    const std::string prefix = name + ".pair_" + std::to_string(k);
    EXPECT_EQ(timesteps.distinct, golden.floats(prefix + ".timesteps")) << prefix;
    EXPECT_EQ(timesteps.timestep_index, testing::golden_ints(golden, prefix + ".timestep_indices"))
        << prefix;
  }
}

TEST(PackedSequence, TextToVideoMatchesTheReference) {
  const Golden golden("golden/packing.safetensors");
  expect_same_as_golden(pack_t2va(1, {2, 2, 2}, 8), golden, "t2va_1_row");
  expect_same_as_golden(pack_t2va(3, {2, 4, 8}, 8), golden, "t2va_wide");
  expect_same_as_golden(pack_t2va(5, {7, 4, 6}, 37), golden, "t2va_micro");
  expect_same_as_golden(pack_t2va(7, {12, 6, 4}, 65), golden, "t2va_tall");
}

TEST(PackedSequence, KeyframesMatchTheReference) {
  const Golden golden("golden/packing.safetensors");
  expect_same_as_golden(
      pack_fl2va(text_tags({1, 0, 0, 1}), {.first = true, .last = true}, {7, 4, 6}, 37), golden,
      "fl2va_both");
  expect_same_as_golden(pack_fl2va(text_tags({1, 1}), {.last = true}, {12, 4, 4}, 65), golden,
                        "fl2va_last");
}

Reference image(std::int64_t height, std::int64_t width) {
  return {.visual = LatentSize{1, height, width}, .is_image = true};
}
Reference video(const LatentSize& size, std::int64_t num_audio_latents) {
  return {.visual = size, .num_audio_latents = num_audio_latents};
}
Reference sound(std::int64_t num_audio_latents) { return {.num_audio_latents = num_audio_latents}; }

// The mixes of tools/reference/packing.py.
TEST(PackedSequence, ReferencesMatchTheReference) {
  const Golden golden("golden/packing.safetensors");
  const auto expect = [&](const std::string& name, const std::vector<std::int32_t>& tags,
                          const std::vector<Reference>& references, const LatentSize& target,
                          std::int64_t num_audio_latents) {
    SCOPED_TRACE(name);
    expect_same_as_golden(pack_ref2va(text_tags(tags), references, target, num_audio_latents),
                          golden, name);
  };
  expect("ref2va_image", {1, 0, 0, 1}, {image(4, 8)}, {2, 4, 6}, 8);
  std::vector<Reference> nine;
  for (std::int64_t i = 0; i < 9; ++i) {
    nine.push_back(image(2 + 2 * (i % 3), 4));
  }
  expect("ref2va_nine_images", {1, 1}, nine, {2, 2, 4}, 8);
  expect("ref2va_silent_video", {1, 0, 1}, {video({7, 4, 4}, 0)}, {7, 4, 4}, 37);
  expect("ref2va_video_long_sound", {1, 0, 1}, {video({2, 4, 4}, 9)}, {2, 4, 6}, 8);
  expect("ref2va_video_short_sound", {1, 0, 1}, {video({7, 6, 4}, 3)}, {2, 4, 6}, 8);
  expect("ref2va_spec", {1, 1, 1, 1}, {image(4, 8), video({2, 4, 4}, 9), sound(5)}, {2, 6, 4}, 8);
  expect("ref2va_sound_first", {1, 1, 1}, {sound(8), image(6, 4)}, {2, 4, 4}, 8);
  expect("ref2va_image_first", {1, 1, 1}, {image(6, 4), sound(8)}, {2, 4, 4}, 8);
  expect("ref2va_three_sounds", {1, 1}, {sound(1), image(4, 4), sound(7), sound(2)}, {2, 2, 6}, 8);
  expect("ref2va_three_videos", {0, 0, 0, 0, 0},
         {video({12, 4, 6}, 65), video({2, 2, 4}, 0), video({7, 4, 2}, 37)}, {12, 4, 6}, 65);
  std::vector<Reference> twelve;
  for (std::int64_t i = 0; i < 6; ++i) {
    twelve.push_back(image(2, 2 + 2 * i));
  }
  twelve.insert(twelve.end(), {video({7, 4, 4}, 37), sound(9), video({2, 4, 6}, 0), sound(37),
                               image(6, 2), sound(1)});
  expect("ref2va_twelve", {1, 0, 0, 1, 1}, twelve, {7, 4, 4}, 37);
}

void expect_same_on_sampled_rows(const PackedSequence& sequence, const Golden& golden,
                                 const std::string& name) {
  EXPECT_THAT(testing::golden_ints(golden, name + ".num_rows"), ElementsAre(sequence.num_rows()));
  const std::vector<std::int32_t> rows = testing::golden_ints(golden, name + ".rows");
  const std::vector<double> positions = golden.doubles(name + ".position_ids");
  const std::vector<std::int32_t> tags = testing::golden_ints(golden, name + ".token_tags");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Position got = position(sequence, rows[i]);
    for (std::size_t axis = 0; axis < 3; ++axis) {
      EXPECT_EQ(static_cast<float>(got.at(axis)), static_cast<float>(positions[3 * i + axis]))
          << "row " << rows[i];
    }
    EXPECT_EQ(sequence.tags[static_cast<std::size_t>(rows[i])], tags[i]);
  }
}

TEST(PackedSequence, ReleasedSizesMatchTheReferenceOnSampledRows) {
  const Golden golden("golden/packing.safetensors");
  expect_same_on_sampled_rows(pack_t2va(23, {37, 48, 84}, 207), golden, "t2va_released");
  const std::vector<Modality> tags(31, Modality::kText);
  const std::vector<Reference> references = {image(128, 228), video({37, 48, 84}, 207), sound(207),
                                             video({22, 84, 48}, 0)};
  expect_same_on_sampled_rows(pack_ref2va(tags, references, {37, 48, 84}, 207), golden,
                              "ref2va_released");
}

// Spec model.md §9, example 5.
TEST(PackedSequence, SpatialAxesOfTheWorkedExamples) {
  const PackedSequence wide = pack_t2va(1, {1, 48, 84}, 1);
  const std::int64_t first = wide.target_video().first;
  expect_position(wide, first, {1, 3.9051368637, -5.1660104885});
  expect_position(wide, first + 1, {1, 3.9051368637, -4.1581052272});
  expect_position(wide, first + 42, {1, 4.9130421251, -5.1660104885});
  expect_position(wide, first + 24 * 42 - 1, {1, 27.0869578749, 36.1581052272});
  const PackedSequence square = pack_t2va(1, {1, 4, 4}, 1);
  expect_position(square, square.target_video().first, {1, 0, 0});
  expect_position(square, square.target_video().end() - 1, {1, 16, 16});
  const PackedSequence tall = pack_t2va(1, {1, 6, 4}, 1);
  expect_position(tall, tall.target_video().first, {1, -3.5959179423, 2.9360547052});
  expect_position(tall, tall.target_video().end() - 1, {1, 22.5319726474, 16});
}

// Spec model.md §9, example 6, first part.
TEST(PackedSequence, KeyframesOfTheWorkedExample) {
  const PackedSequence sequence =
      pack_fl2va(text_tags({1, 1, 1}), {.first = true, .last = true}, {2, 4, 8}, 8);
  ASSERT_EQ(sequence.num_rows(), 51);
  expect_position(sequence, 2, {2, 0, 0});
  expect_position(sequence, 3, {3, 4.686291501, -6.627416998});
  expect_position(sequence, 10, {3, 16, 27.313708499});
  expect_position(sequence, 11, {9 + 2.0 / 3.0, 4.686291501, -6.627416998});
  expect_position(sequence, 19, {3, 0, -6.627416998});
  expect_position(sequence, 26, {10, 0, -6.627416998});
  expect_position(sequence, 27, {3, 0, 27.313708499});
  expect_position(sequence, 34, {10, 0, 27.313708499});
  expect_position(sequence, 35, {3, 4.686291501, -6.627416998});
  expect_position(sequence, 43, {4 + 2.0 / 3.0, 4.686291501, -6.627416998});
  expect_position(sequence, 50, {4 + 2.0 / 3.0, 16, 27.313708499});
  for (std::int64_t row = 0; row < 51; ++row) {
    const int wanted = row < 3 ? 1 : row < 19 ? 0 : row < 35 ? 2 : 0;
    EXPECT_EQ(sequence.tags[static_cast<std::size_t>(row)], wanted) << row;
  }
  // Seven latent frames from origin 3, and the anchor of a last keyframe there.
  const PackedSequence longer = pack_fl2va(text_tags({1, 1, 1}), {.last = true}, {7, 2, 2}, 37);
  const std::int64_t first = longer.target_video().first;
  const std::array<double, 7> times = {
      3, 4 + 2.0 / 3.0, 11 + 1.0 / 3.0, 18, 24 + 2.0 / 3.0, 31 + 1.0 / 3.0, 33};
  for (std::int64_t frame = 0; frame < 7; ++frame) {
    expect_position(longer, first + frame, {times.at(static_cast<std::size_t>(frame)), 0, 0});
  }
  expect_position(longer, 3, {38, 0, 0});
}

// Spec model.md §9, example 6, second part.
TEST(PackedSequence, ReferencesOfTheWorkedExample) {
  const std::vector<Reference> references = {
      {.visual = LatentSize{1, 4, 8}, .is_image = true},
      {.visual = LatentSize{2, 4, 4}, .num_audio_latents = 9},
      {.num_audio_latents = 5}};
  const PackedSequence sequence = pack_ref2va(text_tags({1, 1, 1, 1}), references, {2, 6, 4}, 8);
  ASSERT_EQ(sequence.num_rows(), 76);
  const std::array<std::int64_t, 7> starts = {0, 4, 12, 30, 38, 48, 64};
  const std::array<SegmentKind, 7> kinds = {
      SegmentKind::kText,           SegmentKind::kVideoCondition, SegmentKind::kAudioCondition,
      SegmentKind::kVideoCondition, SegmentKind::kAudioCondition, SegmentKind::kTargetAudio,
      SegmentKind::kTargetVideo};
  ASSERT_EQ(sequence.segments.size(), starts.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    EXPECT_EQ(sequence.segments[i].rows.first, starts.at(i)) << i;
    EXPECT_EQ(sequence.segments[i].kind, kinds.at(i)) << i;
  }
  expect_position(sequence, 4, {4, 4.686291501, -6.627416998});
  expect_position(sequence, 12, {5, 0, 0});
  expect_position(sequence, 21, {5, 0, 16});
  expect_position(sequence, 30, {5, 0, 0});
  expect_position(sequence, 34, {6 + 2.0 / 3.0, 0, 0});
  expect_position(sequence, 38, {14, 0, 2.936054705});
  expect_position(sequence, 48, {19, 0, 2.936054705});
  expect_position(sequence, 56, {19, 0, 16});
  expect_position(sequence, 64, {19, -3.595917942, 2.936054705});
  expect_position(sequence, 70, {20 + 2.0 / 3.0, -3.595917942, 2.936054705});
  expect_position(sequence, 75, {20 + 2.0 / 3.0, 22.531972647, 16});
  EXPECT_EQ(sequence.num_video_rows(), 8 + 8 + 12);
  EXPECT_EQ(sequence.num_audio_rows(), 18 + 10 + 16);
}

TEST(PackedSequence, CountsTheRowsOfTheReleasedRequest) {
  // Spec model.md §5.3.
  const PackedSequence sequence = pack_t2va(2, {37, 48, 84}, 207);
  EXPECT_EQ(sequence.num_rows(), 37712);
  EXPECT_EQ(sequence.target_video().count, 37296);
  EXPECT_EQ(sequence.target_audio().count, 414);
}

TEST(PackedSequence, EqualTimesShareOneTimestep) {
  const PackedSequence sequence = pack_t2va(2, {1, 2, 2}, 1);
  const RowTimesteps start = sequence.timesteps(0.0F, 0.0F);
  EXPECT_THAT(start.distinct, ElementsAre(0.0F));
  EXPECT_THAT(start.adaln_row, ElementsAre(1, 1, 2, 2, 0));
  const RowTimesteps later = sequence.timesteps(0.1F, 0.3F);
  EXPECT_THAT(later.distinct, ElementsAre(0.1F, 0.3F));
  EXPECT_THAT(later.timestep_index, ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(later.adaln_row, ElementsAre(1, 1, 5, 5, 0));
}

// Spec model.md §9, example 14: timestep index 2 and tag 2 make AdaLN row 8.
TEST(PackedSequence, ConditionsHaveTimesOfTheirOwn) {
  const std::vector<Reference> references = {
      {.visual = LatentSize{1, 2, 2}, .num_audio_latents = 1}};
  const PackedSequence sequence = pack_ref2va(text_tags({1}), references, {1, 2, 2}, 1);
  const RowTimesteps timesteps = sequence.timesteps(0.2F, 0.5F);
  EXPECT_THAT(timesteps.distinct, ElementsAre(0.2F, 0.5F, 0.999F, 1.0F));
  // text, soundtrack (2), picture, target sound (2), target video
  EXPECT_THAT(timesteps.timestep_index, ElementsAre(0, 3, 3, 2, 1, 1, 0));
  EXPECT_THAT(timesteps.adaln_row, ElementsAre(1, 11, 11, 6, 5, 5, 0));
  const RowTimesteps late = sequence.timesteps(0.9995F, 0.25F);
  EXPECT_THAT(late.distinct, ElementsAre(0.25F, 0.9995F, 1.0F));
  EXPECT_THAT(late.timestep_index, ElementsAre(1, 2, 2, 1, 0, 0, 1));
  EXPECT_EQ(sequence.timesteps(0.1F, 0.999F).adaln_row.at(1), 8);
}

TEST(PackedSequence, RefusesSizesNoRequestHas) {
  EXPECT_THROW((void)pack_t2va(0, {2, 4, 4}, 8), InternalError);
  EXPECT_THROW((void)pack_t2va(1, {0, 4, 4}, 8), InternalError);
  EXPECT_THROW((void)pack_t2va(1, {2, 3, 4}, 8), InternalError);
  EXPECT_THROW((void)pack_t2va(1, {2, 4, 5}, 8), InternalError);
  EXPECT_THROW((void)pack_t2va(1, {2, 4, 4}, 0), InternalError);
  const PackedSequence sequence = pack_t2va(1, {1, 2, 2}, 1);
  EXPECT_THROW((void)sequence.timesteps(std::numeric_limits<float>::quiet_NaN(), 0.0F),
               InternalError);
}

}  // namespace
}  // namespace miniacc
