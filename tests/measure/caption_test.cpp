#include "measure/caption.h"

#include <gtest/gtest.h>

#include <string>

namespace miniacc::measure {
namespace {

std::string color_of(const char* caption) {
  const auto color = parse_caption(caption).color;
  return color.value ? std::string(kColors[*color.value].name) : color.reason;
}

TEST(Caption, ReadsASentenceOfTheGrammar) {
  const CaptionAttributes parsed = parse_caption(
      "A video of a tiny red circle bounces slowly on a dark blue floor, a very low beep at each "
      "bounce.");
  EXPECT_EQ(kColors[parsed.color.value.value()].name, "red");
  EXPECT_EQ(parsed.shape.value, ShapeKind::kCircle);
  EXPECT_EQ(parsed.size.value, 0U);
  EXPECT_EQ(parsed.motion.value, Motion::kBouncing);
  EXPECT_EQ(parsed.speed.value, 0U);
  EXPECT_EQ(parsed.pitch.value, 0U);
  const auto background = parsed.background.value.value();
  EXPECT_EQ(kBackgrounds[background.first].name, "dark blue");
  EXPECT_EQ(background.first, background.second);
  EXPECT_FALSE(parsed.names_second_shape);
}

TEST(Caption, KnowsEveryMotionPhraseWithEveryAdverb) {
  const std::pair<const char*, Motion> phrases[] = {
      {"moves {a} to the left", Motion::kLeft},
      {"slides {a} leftwards", Motion::kLeft},
      {"travels {a} from right to left", Motion::kLeft},
      {"is moving left {a}", Motion::kLeft},
      {"moves {a} to the right", Motion::kRight},
      {"slides {a} rightwards", Motion::kRight},
      {"travels {a} from left to right", Motion::kRight},
      {"is moving right {a}", Motion::kRight},
      {"moves {a} upwards", Motion::kUp},
      {"rises {a}", Motion::kUp},
      {"floats up {a}", Motion::kUp},
      {"is going up {a}", Motion::kUp},
      {"moves {a} downwards", Motion::kDown},
      {"sinks {a}", Motion::kDown},
      {"falls {a}", Motion::kDown},
      {"is going down {a}", Motion::kDown},
      {"moves {a} in a circular path", Motion::kCircling},
      {"circles {a} around the center", Motion::kCircling},
      {"goes around in circles {a}", Motion::kCircling},
      {"bounces {a}", Motion::kBouncing},
      {"is bouncing up and down {a}", Motion::kBouncing},
      {"hops {a}", Motion::kBouncing},
      {"keeps bouncing {a}", Motion::kBouncing},
      {"grows {a}", Motion::kGrowing},
      {"gets bigger {a}", Motion::kGrowing},
      {"is growing {a} in place", Motion::kGrowing},
      {"expands {a}", Motion::kGrowing},
      {"spins {a} in place", Motion::kSpinning},
      {"rotates {a}", Motion::kSpinning},
      {"is turning {a} around itself", Motion::kSpinning}};
  const std::pair<const char*, std::optional<std::size_t>> adverbs[] = {
      {"slowly", 0},           {"gently", 0},  {"at a slow pace", 0}, {"steadily", 1},
      {"at a medium pace", 1}, {"quickly", 2}, {"fast", 2},           {"at high speed", 2}};
  for (const auto& [phrase, motion] : phrases) {
    for (const auto& [adverb, speed] : adverbs) {
      std::string action = phrase;
      action.replace(action.find("{a}"), 3, adverb);
      const std::string caption = "a red star " + action + " on black, making a shrill sound";
      SCOPED_TRACE(caption);
      const CaptionAttributes parsed = parse_caption(caption);
      EXPECT_EQ(parsed.motion.value, motion) << parsed.motion.reason;
      EXPECT_EQ(parsed.speed.value, speed) << parsed.speed.reason;
      EXPECT_EQ(parsed.shape.value, ShapeKind::kStar);
      EXPECT_EQ(parsed.pitch.value, 4U);
    }
  }
}

TEST(Caption, TheSecondShapeIsNotTheSubject) {
  const CaptionAttributes parsed = parse_caption(
      "a big orange cross rises on a gradient from dark red to brown, a cyan square rests in the "
      "upper left corner, with a deep hum");
  EXPECT_TRUE(parsed.names_second_shape);
  EXPECT_EQ(parsed.shape.value, ShapeKind::kCross);
  EXPECT_EQ(kColors[parsed.color.value.value()].name, "orange");
  EXPECT_EQ(parsed.size.value, 2U);
  EXPECT_EQ(parsed.motion.value, Motion::kUp);  // not the "upper left" of the other one
  EXPECT_EQ(parsed.pitch.value, 0U);
  const auto background = parsed.background.value.value();
  EXPECT_EQ(kBackgrounds[background.first].name, "dark red");
  EXPECT_EQ(kBackgrounds[background.second].name, "brown");
}

TEST(Caption, WhatIsNotNamedStaysUnknown) {
  const CaptionAttributes parsed = parse_caption("a blue triangle grows");
  EXPECT_TRUE(parsed.color.value);
  for (const std::string& reason :
       {parsed.size.reason, parsed.speed.reason, parsed.pitch.reason, parsed.background.reason}) {
    EXPECT_EQ(reason, "the caption does not name it");
  }
}

TEST(Caption, ContradictionsAreUnknown) {
  EXPECT_EQ(parse_caption("a red circle rises and a red circle sinks").motion.reason,
            "the caption names more than one motion");
  const CaptionAttributes two = parse_caption("a small red circle meets a small red square");
  EXPECT_EQ(two.shape.reason, "the caption names more than one shape");
  EXPECT_FALSE(two.color.value);
  EXPECT_FALSE(two.size.value);
  EXPECT_EQ(color_of("a red circle turns into a blue circle"),
            "the caption names more than one colour");
}

TEST(Caption, TextOutsideTheGrammarNamesNothing) {
  for (const char* caption :
       {"", " ", ",.,.", "A cat sits to the left of a lamp and watches the rain fall.",
        "people cross the square quick as lightning", "circle", "rests", "a rests", "from",
        "on a on a on a", "ein roter Kreis springt", "\xff\xfe\x80", "dark", "very high", "tone"}) {
    SCOPED_TRACE(caption);
    const CaptionAttributes parsed = parse_caption(caption);
    EXPECT_FALSE(parsed.color.value);
    EXPECT_FALSE(parsed.size.value);
    EXPECT_FALSE(parsed.motion.value);
    EXPECT_FALSE(parsed.pitch.value);
    EXPECT_FALSE(parsed.background.value);
  }
  EXPECT_EQ(color_of("a dark red circle"), "the caption does not name it");
  EXPECT_EQ(color_of("a circle on a dark blue wall"), "the caption does not name it");
}

TEST(Caption, LongTextIsReadInReasonableTime) {
  std::string caption;
  for (int i = 0; i < 4000; ++i) {
    caption += "a red circle rests ";
  }
  EXPECT_TRUE(parse_caption(caption).names_second_shape);
}

}  // namespace
}  // namespace miniacc::measure
