#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "measure/judge.h"

namespace miniacc::measure {
namespace {

using nlohmann::json;

constexpr std::string_view kVerdictNames[] = {"right", "wrong", "unknown"};

/// The value under `key`, or null with the reason under `key_unknown`.
template <typename T, typename Convert>
void put(json& object, const std::string& key, const Measured<T>& measured, Convert convert) {
  if (measured.value) {
    object[key] = convert(*measured.value);
  } else {
    object[key] = nullptr;
    object[key + "_unknown"] = measured.reason;
  }
}

template <typename T>
void put(json& object, const std::string& key, const Measured<T>& measured) {
  put(object, key, measured, [](const T& value) { return value; });
}

std::string color_name(std::size_t index) { return std::string(kColors[index].name); }
std::string size_name(std::size_t index) { return std::string(kSizeNames[index]); }
std::string speed_name(std::size_t index) { return std::string(kSpeedNames[index]); }
std::string pitch_name(std::size_t index) { return std::string(kPitchNames[index]); }
std::string shape_name(ShapeKind shape) { return std::string(kShapeNames[index_of(shape)]); }
std::string motion_name(Motion motion) { return std::string(kMotionNames[index_of(motion)]); }

/// What the number behind a speed counts.
std::string_view rate_unit(Motion motion) {
  switch (motion) {
    case Motion::kLeft:
    case Motion::kRight:
      return "picture widths a second";
    case Motion::kUp:
    case Motion::kDown:
      return "picture heights a second";
    case Motion::kCircling:
    case Motion::kSpinning:
      return "turns a second";
    case Motion::kBouncing:
      return "bounces a second";
    case Motion::kGrowing:
      return "of its full size a second";
    case Motion::kStill:
      return "";
  }
  return "";
}

json track_json(const Judgement& judgement) {
  json track = json::array();
  for (std::size_t i = 0; i < judgement.track.size(); ++i) {
    const TrackPoint& point = judgement.track[i];
    json entry = {{"time_s", point.time_s}, {"x", point.x},         {"y", point.y},
                  {"radius", point.radius}, {"angle", point.angle}, {"cut_by_edge", point.at_edge}};
    const auto& pan = judgement.synchrony.pan;
    entry["pan"] = i < pan.size() && pan[i] ? json(*pan[i]) : json();
    track.push_back(std::move(entry));
  }
  return track;
}

json subject_json(const Judgement& judgement) {
  json subject;
  subject["found"] = judgement.no_subject.empty();
  if (!judgement.no_subject.empty()) {
    subject["found_unknown"] = judgement.no_subject;
  }
  put(subject, "color", judgement.color, color_name);
  put(subject, "shape", judgement.shape, shape_name);
  put(subject, "shape_overlap", judgement.shape_overlap);
  put(subject, "size", judgement.size, size_name);
  put(subject, "motion", judgement.motion.motion, motion_name);
  put(subject, "speed", judgement.motion.speed, speed_name);
  const MotionReport& motion = judgement.motion;
  subject["rate"] = motion.rate ? json(*motion.rate) : json();
  subject["clockwise"] = motion.clockwise ? json(*motion.clockwise) : json();
  subject["bounces_s"] = motion.bounces_s;
  subject["track"] = track_json(judgement);
  return subject;
}

class TextReport {
 public:
  void section(std::string line) { lines_.push_back(std::move(line)); }
  void row(std::string_view name, const std::string& value) {
    lines_.push_back(fmt::format("  {:<22}{}", name, value));
  }
  template <typename T, typename Convert>
  void row(std::string_view name, const Measured<T>& measured, Convert convert) {
    row(name, measured.value ? convert(*measured.value) : "unknown: " + measured.reason);
  }
  [[nodiscard]] std::string text() const { return fmt::format("{}", fmt::join(lines_, "\n")); }

 private:
  std::vector<std::string> lines_;
};

std::string times_text(const std::vector<double>& times_s) {
  if (times_s.empty()) {
    return "none";
  }
  return fmt::format("{:.3f} s", fmt::join(times_s, ", "));
}

std::string two_digits(double value) { return fmt::format("{:.2f}", value); }

void add_picture(const Judgement& judgement, TextReport& report) {
  report.section("picture");
  if (!judgement.no_subject.empty()) {
    report.row("subject", "no subject found: " + judgement.no_subject);
  } else {
    report.row("colour", judgement.color, color_name);
    report.row("shape", judgement.shape, [&](ShapeKind shape) {
      return fmt::format("{} (overlap {:.2f})", shape_name(shape),
                         judgement.shape_overlap.value.value_or(0.0));
    });
    report.row("size", judgement.size, size_name);
    report.row("motion", judgement.motion.motion, motion_name);
    report.row("speed", judgement.motion.speed, [&](std::size_t speed) {
      return fmt::format("{} ({:.2f} {})", speed_name(speed), judgement.motion.rate.value_or(0.0),
                         rate_unit(judgement.motion.motion.value.value_or(Motion::kStill)));
    });
    if (!judgement.motion.bounces_s.empty()) {
      report.row("bounces", times_text(judgement.motion.bounces_s));
    }
  }
  report.row("background", judgement.background, background_name);
}

void add_sound(const Judgement& judgement, TextReport& report) {
  report.section("sound");
  report.row("pitch", judgement.pitch_hz, [&](double hertz) {
    return judgement.pitch.value ? fmt::format("{:.1f} Hz, {}: the tone of a {}", hertz,
                                               kPitchNames[*judgement.pitch.value],
                                               kShapeNames[*judgement.pitch.value])
                                 : fmt::format("{:.1f} Hz, near none of the tones", hertz);
  });
  report.row("beeps", times_text(judgement.beeps_s));
}

void add_agreement(const Judgement& judgement, TextReport& report) {
  report.section("agreement with the caption");
  for (const Agreement& item : judgement.agreement) {
    const std::string name = item.attribute == "color" ? "colour" : item.attribute;
    switch (item.verdict) {
      case Verdict::kRight:
        report.row(name, "right: " + item.wanted);
        break;
      case Verdict::kWrong:
        report.row(name, fmt::format("WRONG: wanted {}, got {}", item.wanted, item.measured));
        break;
      case Verdict::kUnknown:
        report.row(name, fmt::format("unknown: {}", item.reason));
        break;
    }
  }
  report.row("score", judgement.prompt_agreement, two_digits);
}

void add_synchrony(const Judgement& judgement, TextReport& report) {
  const Synchrony& synchrony = judgement.synchrony;
  report.section("sound and picture");
  report.row("beep after bounce", synchrony.median_offset_ms, [&](double offset_ms) {
    return fmt::format("{:+.0f} ms (median of {})", offset_ms, synchrony.offsets_ms.size());
  });
  if (synchrony.silent_bounces > 0 || synchrony.stray_beeps > 0) {
    report.row("unpaired", fmt::format("{} bounces without a beep, {} beeps without a bounce",
                                       synchrony.silent_bounces, synchrony.stray_beeps));
  }
  report.row("pan follows place", synchrony.pan_correlation,
             [](double value) { return fmt::format("correlation {:.2f}", value); });
  report.row("pan off place", synchrony.pan_error,
             [](double value) { return fmt::format("{:.2f} picture widths", value); });
  report.row("tone fits shape", judgement.pitch_fits_shape,
             [](bool fits) { return std::string(fits ? "yes" : "no"); });
}

void add_quality(const Judgement& judgement, TextReport& report) {
  const Quality& quality = judgement.quality;
  report.section("quality");
  report.row("background stability", quality.background_stability, [&](double value) {
    return fmt::format("{:.2f} (changes by {:.1f} of 255 levels)", value,
                       quality.background_change.value.value_or(0.0));
  });
  report.row("subject stability", quality.subject_stability, two_digits);
  report.row("sharpness", quality.sharpness,
             [](double value) { return fmt::format("{:.0f} (variance of the Laplacian)", value); });
}

}  // namespace

std::string judgement_text(const Judgement& judgement) {
  TextReport report;
  report.section(fmt::format(
      "{}x{}, {} frames at {:g} a second{}, {}", judgement.width, judgement.height,
      judgement.num_frames, judgement.fps, judgement.fps_assumed ? " (assumed)" : "",
      judgement.sample_rate_hz > 0 ? fmt::format("sound at {} Hz", judgement.sample_rate_hz)
                                   : std::string("no sound")));
  if (judgement.has_caption) {
    report.section("caption: " + judgement.caption);
  }
  add_picture(judgement, report);
  add_sound(judgement, report);
  if (judgement.has_caption) {
    add_agreement(judgement, report);
  }
  add_synchrony(judgement, report);
  add_quality(judgement, report);
  return report.text();
}

std::string judgement_json(const Judgement& judgement) {
  json document;
  document["clip"] = {{"width", judgement.width},
                      {"height", judgement.height},
                      {"frames", judgement.num_frames},
                      {"fps", judgement.fps},
                      {"fps_assumed", judgement.fps_assumed},
                      {"sample_rate_hz", judgement.sample_rate_hz}};
  document["subject"] = subject_json(judgement);
  put(document, "background", judgement.background, background_name);

  json sound;
  put(sound, "pitch_hz", judgement.pitch_hz);
  put(sound, "pitch", judgement.pitch, pitch_name);
  sound["beeps_s"] = judgement.beeps_s;
  document["sound"] = sound;

  const Synchrony& synchrony = judgement.synchrony;
  json together;
  together["offsets_ms"] = synchrony.offsets_ms;
  put(together, "median_offset_ms", synchrony.median_offset_ms);
  together["bounces_without_beep"] = synchrony.silent_bounces;
  together["beeps_without_bounce"] = synchrony.stray_beeps;
  put(together, "pan_correlation", synchrony.pan_correlation);
  put(together, "pan_error", synchrony.pan_error);
  put(together, "pitch_fits_shape", judgement.pitch_fits_shape);
  document["synchrony"] = together;

  const Quality& quality = judgement.quality;
  json measured;
  put(measured, "background_change", quality.background_change);
  put(measured, "background_stability", quality.background_stability);
  put(measured, "subject_overlap", quality.subject_overlap);
  put(measured, "subject_color_change", quality.subject_color_change);
  put(measured, "subject_size_change", quality.subject_size_change);
  put(measured, "subject_stability", quality.subject_stability);
  put(measured, "sharpness", quality.sharpness);
  document["quality"] = measured;

  if (judgement.has_caption) {
    document["caption"] = judgement.caption;
    json items = json::array();
    for (const Agreement& item : judgement.agreement) {
      json entry = {{"attribute", item.attribute},
                    {"wanted", item.wanted.empty() ? json() : json(item.wanted)},
                    {"measured", item.measured.empty() ? json() : json(item.measured)},
                    {"verdict", kVerdictNames[index_of(item.verdict)]}};
      if (item.verdict == Verdict::kUnknown) {
        entry["reason"] = item.reason;
      }
      items.push_back(std::move(entry));
    }
    document["agreement"] = items;
    put(document, "prompt_agreement", judgement.prompt_agreement);
  }
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace miniacc::measure
