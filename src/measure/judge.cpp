#include "measure/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "measure/shape_fit.h"
#include "measure/sound.h"

namespace miniacc::measure {
namespace {

constexpr double kDefaultFps = 24.0;
constexpr double kMaxColorDistance = 90.0;  // levels; neighbours in the table are 97 apart
constexpr double kMaxBackgroundDistance = 40.0;
constexpr double kPlainDifference = 15.0;  // levels between top and bottom; gradients have 31
constexpr double kMaxGradientResidual = 12.0;
constexpr double kClearlyNearer = 0.85;  // nearest over second nearest colour
constexpr double kMinPurity = 0.6;
constexpr double kMinOverlap = 0.6;
constexpr double kOverlapMargin = 0.01;
constexpr std::size_t kShapeFrames = 12;

/// The named colour nearest to a measured one.
template <std::size_t kSize>
Measured<std::size_t> nearest_color(const std::array<NamedColor, kSize>& table, const Rgb& color,
                                    double max_distance) {
  std::array<std::pair<double, std::size_t>, kSize> distances;
  for (std::size_t i = 0; i < kSize; ++i) {
    const Rgb& rgb = table[i].rgb;
    distances[i] = {std::hypot(color[0] - rgb[0], color[1] - rgb[1], color[2] - rgb[2]), i};
  }
  std::sort(distances.begin(), distances.end());
  const auto& [nearest, index] = distances[0];
  if (nearest > max_distance) {
    return Measured<std::size_t>::unknown(
        fmt::format("rgb({:.0f}, {:.0f}, {:.0f}) has no name", color[0], color[1], color[2]));
  }
  if (nearest > kClearlyNearer * distances[1].first) {
    return Measured<std::size_t>::unknown(
        fmt::format("it is between {} and {}", table[index].name, table[distances[1].second].name));
  }
  return index;
}

Measured<std::size_t> measure_color(const Subject& subject) {
  if (subject.color_purity < kMinPurity) {
    return Measured<std::size_t>::unknown("the subject has several colours");
  }
  return nearest_color(kColors, subject.color, kMaxColorDistance);
}

struct ShapeGuess {
  Measured<ShapeKind> shape;
  Measured<double> overlap;
};

/// Compares with every shape over a dozen frames spread over those that show the subject whole, of
/// which the larger half is taken: small ones have few pixels to tell shapes apart.
ShapeGuess measure_shape(const Subject& subject) {
  std::vector<const SubjectFrame*> whole;
  for (const SubjectFrame& frame : subject.frames) {
    if (!frame.at_edge) {
      whole.push_back(&frame);
    }
  }
  if (whole.empty()) {
    const std::string why = "the subject is always cut by the picture's edge";
    return {Measured<ShapeKind>::unknown(why), Measured<double>::unknown(why)};
  }
  std::stable_sort(whole.begin(), whole.end(),
                   [](const SubjectFrame* a, const SubjectFrame* b) { return a->area > b->area; });
  whole.resize((whole.size() + 1) / 2);
  const std::size_t step = (whole.size() + kShapeFrames - 1) / kShapeFrames;
  std::array<std::pair<double, ShapeKind>, kShapeNames.size()> scores;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = {0.0, static_cast<ShapeKind>(i)};
    double count = 0.0;
    for (std::size_t frame = 0; frame < whole.size(); frame += step) {
      scores[i].first += shape_overlap(*whole[frame], scores[i].second);
      ++count;
    }
    scores[i].first /= count;
  }
  std::sort(scores.rbegin(), scores.rend());
  const auto& [best, shape] = scores[0];
  if (best < kMinOverlap) {
    return {Measured<ShapeKind>::unknown(fmt::format("it looks like none of the shapes (overlap "
                                                     "{:.2f} with a {})",
                                                     best, kShapeNames[index_of(shape)])),
            best};
  }
  if (best - scores[1].first < kOverlapMargin) {
    return {Measured<ShapeKind>::unknown(fmt::format("it may be a {} or a {}",
                                                     kShapeNames[index_of(shape)],
                                                     kShapeNames[index_of(scores[1].second)])),
            best};
  }
  return {shape, best};
}

/// Colours at top and bottom of the line through the rows above the floor.
Measured<std::pair<std::size_t, std::size_t>> measure_background(const Background& background) {
  using Ends = Measured<std::pair<std::size_t, std::size_t>>;
  if (background.unexplained > kMaxUnexplained) {
    return Ends::unknown("it is neither plain nor a gradient");
  }
  const auto height = static_cast<double>(background.rows.size());
  const auto used = static_cast<std::size_t>(kFloorY * height);
  if (used < 2) {
    return Ends::unknown("the picture has too few rows");
  }
  Rgb top = {};
  Rgb bottom = {};
  double residual = 0.0;
  for (std::size_t i = 0; i < 3; ++i) {
    double mean_y = 0.0;
    double mean_v = 0.0;
    const auto count = static_cast<double>(used);
    const auto place = [&](std::size_t row) { return (static_cast<double>(row) + 0.5) / height; };
    for (std::size_t row = 0; row < used; ++row) {
      mean_y += place(row) / count;
      mean_v += background.rows[row][i] / count;
    }
    double covariance = 0.0;
    double variance = 0.0;
    for (std::size_t row = 0; row < used; ++row) {
      covariance += (place(row) - mean_y) * (background.rows[row][i] - mean_v);
      variance += (place(row) - mean_y) * (place(row) - mean_y);
    }
    const double slope = covariance / variance;
    top[i] = mean_v - slope * mean_y;
    bottom[i] = mean_v + slope * (1 - mean_y);
    double squares = 0.0;
    for (std::size_t row = 0; row < used; ++row) {
      const double off = background.rows[row][i] - top[i] - slope * place(row);
      squares += off * off / count;
    }
    residual = std::max(residual, std::sqrt(squares));
  }
  if (residual > kMaxGradientResidual) {
    return Ends::unknown("it is neither plain nor a gradient");
  }
  if (std::hypot(top[0] - bottom[0], top[1] - bottom[1], top[2] - bottom[2]) < kPlainDifference) {
    for (std::size_t i = 0; i < 3; ++i) {
      top[i] = bottom[i] = (top[i] + bottom[i]) / 2;
    }
  }
  const auto top_name = nearest_color(kBackgrounds, top, kMaxBackgroundDistance);
  const auto bottom_name = nearest_color(kBackgrounds, bottom, kMaxBackgroundDistance);
  if (!top_name.value || !bottom_name.value) {
    return Ends::unknown(!top_name.value ? top_name.reason : bottom_name.reason);
  }
  return std::pair(*top_name.value, *bottom_name.value);
}

/// Times of the frames: the file's own where they rise, else by the frame rate.
std::vector<double> frame_times(const Clip& clip, double fps) {
  bool rising = clip.frame_times_s.size() == static_cast<std::size_t>(clip.num_frames);
  for (std::size_t i = 1; rising && i < clip.frame_times_s.size(); ++i) {
    rising = clip.frame_times_s[i] > clip.frame_times_s[i - 1];
  }
  if (rising) {
    return clip.frame_times_s;
  }
  std::vector<double> times;
  for (std::int64_t i = 0; i < clip.num_frames; ++i) {
    times.push_back(static_cast<double>(i) / fps);
  }
  return times;
}

std::vector<TrackPoint> make_track(const Subject& subject, const Measured<ShapeKind>& shape,
                                   const std::vector<double>& times, int height) {
  std::vector<TrackPoint> track;
  // The radius of an unknown shape is that of a circle of its area.
  const ShapeKind kind = shape.value.value_or(ShapeKind::kCircle);
  for (const SubjectFrame& frame : subject.frames) {
    track.push_back({.time_s = times[static_cast<std::size_t>(frame.frame)],
                     .x = frame.x / height,
                     .y = frame.y / height,
                     .radius = fitted_radius(frame, kind) / height,
                     .angle = fitted_angle(frame, kind),
                     .at_edge = frame.at_edge});
  }
  return track;
}

/// The class of the radius; a growing shape is named by its full size.
Measured<std::size_t> measure_size(const Judgement& result) {
  if (!result.shape.value) {
    return Measured<std::size_t>::unknown(result.shape.reason);
  }
  std::vector<double> radii;
  for (const TrackPoint& point : result.track) {
    if (!point.at_edge) {
      radii.push_back(point.radius);
    }
  }
  double radius = 0.0;
  if (result.motion.motion.value == Motion::kGrowing) {
    radius = radii.front() / kGrowthStart;
  } else {
    std::nth_element(radii.begin(), radii.begin() + static_cast<std::ptrdiff_t>(radii.size() / 2),
                     radii.end());
    radius = radii[radii.size() / 2];
  }
  std::size_t best = 0;
  const auto off = [&](std::size_t i) { return std::fabs(std::log(radius / kSizeRadius[i])); };
  for (std::size_t i = 1; i < kSizeRadius.size(); ++i) {
    best = off(i) < off(best) ? i : best;
  }
  constexpr double kHalfAgain = 0.405;  // ln 1.5: neighbours in the table differ by 1.4
  if (off(best) > kHalfAgain) {
    return Measured<std::size_t>::unknown(
        fmt::format("a radius of {:.2f} picture heights has no name", radius));
  }
  return best;
}

template <typename T, typename Name>
Agreement compare(std::string attribute, const Measured<T>& wanted, const Measured<T>& measured,
                  Name name) {
  Agreement result;
  result.attribute = std::move(attribute);
  if (wanted.value) {
    result.wanted = name(*wanted.value);
  }
  if (measured.value) {
    result.measured = name(*measured.value);
  }
  if (!wanted.value) {
    result.reason = wanted.reason;
  } else if (!measured.value) {
    result.reason = measured.reason;
  } else {
    result.verdict = *wanted.value == *measured.value ? Verdict::kRight : Verdict::kWrong;
  }
  return result;
}

void compare_with_caption(Judgement& result) {
  const CaptionAttributes wanted = parse_caption(result.caption);
  const auto from = [](const auto& table) {
    return [&table](auto index) { return std::string(table[static_cast<std::size_t>(index)]); };
  };
  const auto color_name = [](std::size_t index) { return std::string(kColors[index].name); };
  result.agreement = {
      compare("color", wanted.color, result.color, color_name),
      compare("shape", wanted.shape, result.shape, from(kShapeNames)),
      compare("size", wanted.size, result.size, from(kSizeNames)),
      compare("motion", wanted.motion, result.motion.motion, from(kMotionNames)),
      compare("speed", wanted.speed, result.motion.speed, from(kSpeedNames)),
      compare("background", wanted.background, result.background, background_name),
      compare("pitch", wanted.pitch, result.pitch, from(kPitchNames)),
  };
  if (wanted.names_second_shape) {
    Agreement second;
    second.attribute = "second shape";
    second.wanted = "at rest in a corner";
    second.reason = "a second shape is not measured";
    result.agreement.push_back(std::move(second));
  }
  // The pace of one motion says nothing about that of another.
  if (Agreement& speed = result.agreement[4]; wanted.motion.value &&
                                              result.motion.motion.value != wanted.motion.value &&
                                              speed.verdict != Verdict::kUnknown) {
    speed.verdict = Verdict::kUnknown;
    speed.reason = "the motion is another one";
  }
  int right = 0;
  int judged = 0;
  for (const Agreement& item : result.agreement) {
    right += item.verdict == Verdict::kRight ? 1 : 0;
    judged += item.verdict != Verdict::kUnknown ? 1 : 0;
  }
  result.prompt_agreement = judged > 0
                                ? Measured<double>(static_cast<double>(right) / judged)
                                : Measured<double>::unknown("nothing is both named and measured");
}

void give_up_on_subject(const std::string& why, Judgement& result) {
  const std::string reason = "no subject found: " + why;
  result.no_subject = why;
  result.color = Measured<std::size_t>::unknown(reason);
  result.shape = Measured<ShapeKind>::unknown(reason);
  result.shape_overlap = Measured<double>::unknown(reason);
  result.size = Measured<std::size_t>::unknown(reason);
  result.motion.motion = Measured<Motion>::unknown(reason);
  result.motion.speed = Measured<std::size_t>::unknown(reason);
  result.synchrony.median_offset_ms = Measured<double>::unknown(reason);
  result.synchrony.pan_correlation = Measured<double>::unknown(reason);
  result.synchrony.pan_error = Measured<double>::unknown(reason);
}

void measure_subject(const Clip& clip, const Pictures& pictures, const Subject& subject,
                     Judgement& result) {
  result.color = measure_color(subject);
  const ShapeGuess guess = measure_shape(subject);
  result.shape = guess.shape;
  result.shape_overlap = guess.overlap;
  result.track = make_track(subject, guess.shape, frame_times(clip, result.fps), pictures.height);
  const double aspect = static_cast<double>(pictures.width) / pictures.height;
  const int turns = guess.shape.value ? symmetry(*guess.shape.value) : 0;
  result.motion = classify_motion(result.track, turns, aspect);
  if (!guess.shape.value && result.motion.motion.value == Motion::kStill) {
    result.motion.motion =
        Measured<Motion>::unknown("it stays in place, but whether a nameless shape spins is open");
  }
  result.size = measure_size(result);
  result.synchrony = measure_synchrony(clip, result.track, result.motion, result.beeps_s, aspect,
                                       1.0 / result.fps);
}

}  // namespace

std::string background_name(const std::pair<std::size_t, std::size_t>& ends) {
  const auto [top, bottom] = ends;
  return top == bottom ? std::string(kBackgrounds[top].name)
                       : fmt::format("{} to {}", kBackgrounds[top].name, kBackgrounds[bottom].name);
}

Result<Judgement> judge(const Clip& clip, std::optional<std::string> caption) {
  if (!std::all_of(clip.audio.begin(), clip.audio.end(),
                   [](float value) { return std::isfinite(value); })) {
    return fail(ErrorCode::kInvalidInput, "the sound holds values that are no numbers");
  }
  Judgement result;
  result.width = clip.width;
  result.height = clip.height;
  result.num_frames = clip.num_frames;
  result.fps_assumed = !(clip.fps > 0.0);
  result.fps = result.fps_assumed ? kDefaultFps : clip.fps;
  result.sample_rate_hz = clip.num_samples() > 0 ? clip.sample_rate_hz : 0;
  result.has_caption = caption.has_value();
  result.caption = std::move(caption).value_or("");

  result.pitch_hz = measure_pitch(clip);
  result.pitch = pitch_class(result.pitch_hz);
  result.beeps_s = find_beeps(clip);

  const Pictures pictures = reduce(clip);
  Measured<Subject> subject = Measured<Subject>::unknown("the clip has no pictures");
  if (pictures.num_frames > 0) {
    const Background background = estimate_background(pictures);
    result.background = measure_background(background);
    subject = find_subject(pictures, background);
  } else {
    result.background =
        Measured<std::pair<std::size_t, std::size_t>>::unknown("the clip has no pictures");
  }
  if (subject.value) {
    measure_subject(clip, pictures, *subject.value, result);
  } else {
    give_up_on_subject(subject.reason, result);
  }
  if (!result.shape.value || !result.pitch.value) {
    result.pitch_fits_shape =
        Measured<bool>::unknown(!result.shape.value ? result.shape.reason : result.pitch.reason);
  } else {
    result.pitch_fits_shape = index_of(*result.shape.value) == *result.pitch.value;
  }
  result.quality = measure_quality(clip, pictures, subject, result.shape, result.track);
  if (result.has_caption) {
    compare_with_caption(result);
  }
  return result;
}

}  // namespace miniacc::measure
