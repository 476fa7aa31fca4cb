#include "measure/synchrony.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "measure/sound.h"

namespace miniacc::measure {
namespace {

constexpr double kMaxPairingS = 0.25;
constexpr std::size_t kMinPanPoints = 8;
constexpr double kMinPanTravel = 0.15;  // picture heights; below, a correlation says nothing

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Pair {
  std::size_t bounce;
  std::size_t beep;
  double distance_s;
};

void pair_bounces(const std::vector<double>& bounces_s, const std::vector<double>& beeps_s,
                  const std::vector<TrackPoint>& track, double frame_s, Synchrony& result) {
  double reach_s = kMaxPairingS;
  for (std::size_t i = 1; i < bounces_s.size(); ++i) {
    reach_s = std::min(reach_s, (bounces_s[i] - bounces_s[i - 1]) / 2);
  }
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < bounces_s.size(); ++i) {
    for (std::size_t j = 0; j < beeps_s.size(); ++j) {
      const double distance_s = std::fabs(beeps_s[j] - bounces_s[i]);
      if (distance_s <= reach_s) {
        pairs.push_back({i, j, distance_s});
      }
    }
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& a, const Pair& b) { return a.distance_s < b.distance_s; });
  std::vector<std::optional<double>> offset_of_bounce(bounces_s.size());
  std::vector<bool> beep_used(beeps_s.size(), false);
  for (const Pair& pair : pairs) {
    if (!offset_of_bounce[pair.bounce] && !beep_used[pair.beep]) {
      offset_of_bounce[pair.bounce] = 1000 * (beeps_s[pair.beep] - bounces_s[pair.bounce]);
      beep_used[pair.beep] = true;
    }
  }
  for (const auto& offset : offset_of_bounce) {
    if (offset) {
      result.offsets_ms.push_back(*offset);
    } else {
      ++result.silent_bounces;
    }
  }
  // A bounce in the first or last frames has no flight on one side and cannot be seen; its beep is
  // no stray.
  const double first_s = track.front().time_s + 2 * frame_s;
  const double last_s = track.back().time_s - 2 * frame_s;
  for (std::size_t j = 0; j < beeps_s.size(); ++j) {
    result.stray_beeps += !beep_used[j] && beeps_s[j] > first_s && beeps_s[j] < last_s ? 1 : 0;
  }
}

void measure_pan(const Clip& clip, const std::vector<TrackPoint>& track, double aspect,
                 double frame_s, Synchrony& result) {
  std::vector<double> pans;
  std::vector<double> places;
  std::string reason = "no frame has both sound and subject";
  for (const TrackPoint& point : track) {
    const Measured<double> pan = pan_at(clip, point.time_s, frame_s);
    result.pan.push_back(pan.value);
    if (pan.value) {
      pans.push_back(*pan.value);
      places.push_back(point.x / aspect);
    } else {
      reason = pan.reason;
    }
  }
  if (pans.empty()) {
    result.pan_error = Measured<double>::unknown(reason);
    result.pan_correlation = Measured<double>::unknown(reason);
    return;
  }
  const auto count = static_cast<double>(pans.size());
  double error = 0.0;
  double mean_pan = 0.0;
  double mean_place = 0.0;
  for (std::size_t i = 0; i < pans.size(); ++i) {
    error += std::fabs(pans[i] - places[i]) / count;
    mean_pan += pans[i] / count;
    mean_place += places[i] / count;
  }
  result.pan_error = error;
  const auto [left, right] = std::minmax_element(places.begin(), places.end());
  if (pans.size() < kMinPanPoints || (*right - *left) * aspect < kMinPanTravel) {
    result.pan_correlation =
        Measured<double>::unknown("the subject hardly moves sideways while it is heard");
    return;
  }
  double covariance = 0.0;
  double pan_variance = 0.0;
  double place_variance = 0.0;
  for (std::size_t i = 0; i < pans.size(); ++i) {
    covariance += (pans[i] - mean_pan) * (places[i] - mean_place);
    pan_variance += (pans[i] - mean_pan) * (pans[i] - mean_pan);
    place_variance += (places[i] - mean_place) * (places[i] - mean_place);
  }
  constexpr double kSteadyPan = 1e-8;  // a variance: the pan does not move at all
  if (pan_variance / count < kSteadyPan) {
    result.pan_correlation = Measured<double>::unknown("the sound does not move between the sides");
    return;
  }
  result.pan_correlation = covariance / std::sqrt(pan_variance * place_variance);
}

}  // namespace

Synchrony measure_synchrony(const Clip& clip, const std::vector<TrackPoint>& track,
                            const MotionReport& motion, const std::vector<double>& beeps_s,
                            double aspect, double frame_s) {
  Synchrony result;
  if (motion.bounces_s.empty()) {
    result.median_offset_ms = Measured<double>::unknown("no bounce is seen");
  } else {
    pair_bounces(motion.bounces_s, beeps_s, track, frame_s, result);
    if (result.offsets_ms.empty()) {
      result.median_offset_ms = Measured<double>::unknown("no bounce has a beep");
    } else {
      result.median_offset_ms = median(result.offsets_ms);
    }
  }
  measure_pan(clip, track, aspect, frame_s, result);
  return result;
}

}  // namespace miniacc::measure
