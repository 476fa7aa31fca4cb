#include "measure/quality.h"

#include <algorithm>
#include <cmath>

#include "measure/shape_fit.h"

namespace miniacc::measure {
namespace {

constexpr double kLevelsOfScoreZero = 25.5;  // a tenth of the range

double score(double change, double change_of_zero) {
  return std::max(0.0, 1.0 - change / change_of_zero);
}

Measured<double> background_change(const Pictures& pictures, const Measured<Subject>& subject) {
  if (pictures.num_frames < 2) {
    return Measured<double>::unknown("one frame does not change");
  }
  const auto pixels =
      static_cast<std::size_t>(pictures.width) * static_cast<std::size_t>(pictures.height);
  std::vector<double> sum(3 * pixels, 0.0);
  std::vector<double> squares(3 * pixels, 0.0);
  std::vector<std::int64_t> count(pixels, 0);
  std::size_t next = 0;
  for (std::int64_t frame = 0; frame < pictures.num_frames; ++frame) {
    const SubjectFrame* matte = nullptr;
    if (subject.value && next < subject.value->frames.size() &&
        subject.value->frames[next].frame == frame) {
      matte = &subject.value->frames[next++];
    }
    for (int y = 0; y < pictures.height; ++y) {
      for (int x = 0; x < pictures.width; ++x) {
        // The subject's whole box is left out: its blurred rim is no background.
        if (matte != nullptr && x >= matte->left && x < matte->left + matte->width &&
            y >= matte->top && y < matte->top + matte->height) {
          continue;
        }
        const std::size_t at =
            static_cast<std::size_t>(y) * static_cast<std::size_t>(pictures.width) +
            static_cast<std::size_t>(x);
        const std::uint8_t* pixel = pictures.pixel(frame, x, y);
        ++count[at];
        for (std::size_t i = 0; i < 3; ++i) {
          sum[3 * at + i] += pixel[i];
          squares[3 * at + i] += static_cast<double>(pixel[i]) * pixel[i];
        }
      }
    }
  }
  double total = 0.0;
  double samples = 0.0;
  for (std::size_t at = 0; at < pixels; ++at) {
    if (count[at] < 2) {
      continue;
    }
    const auto n = static_cast<double>(count[at]);
    for (std::size_t i = 3 * at; i < 3 * at + 3; ++i) {
      total += std::max(0.0, squares[i] - sum[i] * sum[i] / n);
      samples += n;
    }
  }
  if (samples == 0.0) {
    return Measured<double>::unknown("the subject hides the background");
  }
  return std::sqrt(total / samples);
}

double sharpness_of(const Clip& clip, std::int64_t frame, std::vector<double>& luma) {
  const std::uint8_t* rgb = clip.frames.data() + frame * std::int64_t{clip.width} * clip.height * 3;
  for (double& value : luma) {
    value = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];  // BT.709
    rgb += 3;
  }
  double sum = 0.0;
  double squares = 0.0;
  const auto width = static_cast<std::size_t>(clip.width);
  const auto height = static_cast<std::size_t>(clip.height);
  for (std::size_t y = 1; y + 1 < height; ++y) {
    for (std::size_t x = 1; x + 1 < width; ++x) {
      const std::size_t at = y * width + x;
      const double value =
          luma[at - 1] + luma[at + 1] + luma[at - width] + luma[at + width] - 4 * luma[at];
      sum += value;
      squares += value * value;
    }
  }
  const auto count = static_cast<double>((width - 2) * (height - 2));
  return squares / count - sum / count * (sum / count);
}

Measured<double> measure_sharpness(const Clip& clip) {
  if (clip.num_frames == 0 || clip.width < 3 || clip.height < 3) {
    return Measured<double>::unknown("no picture of 3x3 pixels or more");
  }
  std::vector<double> luma(static_cast<std::size_t>(clip.width) *
                           static_cast<std::size_t>(clip.height));
  double total = 0.0;
  for (std::int64_t frame = 0; frame < clip.num_frames; ++frame) {
    total += sharpness_of(clip, frame, luma);
  }
  return total / static_cast<double>(clip.num_frames);
}

double color_change(const Subject& subject) {
  Rgb mean = {};
  for (const SubjectFrame& frame : subject.frames) {
    for (std::size_t i = 0; i < 3; ++i) {
      mean[i] += frame.color[i] / static_cast<double>(subject.frames.size());
    }
  }
  double squares = 0.0;
  for (const SubjectFrame& frame : subject.frames) {
    for (std::size_t i = 0; i < 3; ++i) {
      squares += (frame.color[i] - mean[i]) * (frame.color[i] - mean[i]) / 3;
    }
  }
  return std::sqrt(squares / static_cast<double>(subject.frames.size()));
}

/// Root mean square distance of the radius from its best line over time, relative to its mean.
double size_change(const std::vector<TrackPoint>& points) {
  const auto count = static_cast<double>(points.size());
  double mean_t = 0.0;
  double mean_r = 0.0;
  for (const TrackPoint& p : points) {
    mean_t += p.time_s / count;
    mean_r += p.radius / count;
  }
  double covariance = 0.0;
  double variance = 0.0;
  for (const TrackPoint& p : points) {
    covariance += (p.time_s - mean_t) * (p.radius - mean_r);
    variance += (p.time_s - mean_t) * (p.time_s - mean_t);
  }
  const double slope = variance > 0 ? covariance / variance : 0.0;
  double squares = 0.0;
  for (const TrackPoint& p : points) {
    const double off = p.radius - mean_r - slope * (p.time_s - mean_t);
    squares += off * off;
  }
  return std::sqrt(squares / count) / mean_r;
}

void measure_subject(const Measured<Subject>& subject, const Measured<ShapeKind>& shape,
                     const std::vector<TrackPoint>& track, Quality& quality) {
  const auto give_up = [&](const std::string& why) {
    for (Measured<double>* value :
         {&quality.subject_overlap, &quality.subject_size_change, &quality.subject_stability}) {
      *value = Measured<double>::unknown(why);
    }
  };
  if (!subject.value) {
    give_up(subject.reason);
    quality.subject_color_change = Measured<double>::unknown(subject.reason);
    return;
  }
  if (subject.value->frames.size() < 2) {
    give_up("one frame does not change");
    quality.subject_color_change = Measured<double>::unknown("one frame does not change");
    return;
  }
  quality.subject_color_change = color_change(*subject.value);
  if (!shape.value) {
    give_up(shape.reason);
    return;
  }
  std::vector<TrackPoint> inside;
  double overlap = 0.0;
  for (std::size_t i = 0; i < track.size(); ++i) {
    if (!track[i].at_edge) {
      inside.push_back(track[i]);
      overlap += shape_overlap(subject.value->frames[i], *shape.value);
    }
  }
  if (inside.size() < 2) {
    give_up("the subject is always cut by the picture's edge");
    return;
  }
  quality.subject_overlap = overlap / static_cast<double>(inside.size());
  quality.subject_size_change = size_change(inside);
  quality.subject_stability = subject.value->seen_share * *quality.subject_overlap.value *
                              score(*quality.subject_color_change.value, kLevelsOfScoreZero) *
                              score(*quality.subject_size_change.value, 1.0);
}

}  // namespace

Quality measure_quality(const Clip& clip, const Pictures& pictures,
                        const Measured<Subject>& subject, const Measured<ShapeKind>& shape,
                        const std::vector<TrackPoint>& track) {
  Quality quality;
  quality.background_change = background_change(pictures, subject);
  quality.background_stability =
      quality.background_change.value
          ? Measured<double>(score(*quality.background_change.value, kLevelsOfScoreZero))
          : Measured<double>::unknown(quality.background_change.reason);
  measure_subject(subject, shape, track, quality);
  quality.sharpness = measure_sharpness(clip);
  return quality;
}

}  // namespace miniacc::measure
