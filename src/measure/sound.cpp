#include "measure/sound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <span>

#include "measure/vocabulary.h"

namespace miniacc::measure {
namespace {

constexpr double kLowestHz = 100.0;
constexpr double kHighestHz = 4000.0;
constexpr int kMaxSampleRateHz = 384000;  // bounds the size of the transform
constexpr double kToneWidth = 1.06;       // a tone holds the power within this ratio of its peak
constexpr double kMinTonality = 0.35;     // of the power in the band; white noise has under 0.1
constexpr double kBeepOn = 0.3;           // of the peak level
constexpr double kBeepOff = 0.15;
constexpr double kBeepQuietS = 0.04;
constexpr double kBeepLengthS = 0.25;
constexpr double kLevelStepS = 0.004;  // about a period of the lowest tone

using Complex = std::complex<double>;

/// In-place radix-2 transform; the size is a power of two.
void fft(std::vector<Complex>& values) {
  const std::size_t size = values.size();
  for (std::size_t i = 1, j = 0; i < size; ++i) {
    std::size_t bit = size >> 1U;
    for (; (j & bit) != 0; bit >>= 1U) {
      j ^= bit;
    }
    j ^= bit;
    if (i < j) {
      std::swap(values[i], values[j]);
    }
  }
  for (std::size_t half = 1; half < size; half *= 2) {
    const double angle = -std::numbers::pi / static_cast<double>(half);
    for (std::size_t k = 0; k < half; ++k) {
      const Complex factor = std::polar(1.0, angle * static_cast<double>(k));
      for (std::size_t i = k; i < size; i += 2 * half) {
        const Complex odd = factor * values[i + half];
        values[i + half] = values[i] - odd;
        values[i] += odd;
      }
    }
  }
}

std::span<const float> channel_of(const Clip& clip, int channel) {
  const auto count = static_cast<std::size_t>(clip.num_samples());
  return std::span(clip.audio).subspan(count * static_cast<std::size_t>(channel), count);
}

double rms(std::span<const float> samples) {
  double squares = 0.0;
  for (const float sample : samples) {
    squares += static_cast<double>(sample) * sample;
  }
  return samples.empty() ? 0.0 : std::sqrt(squares / static_cast<double>(samples.size()));
}

double loudest_channel(const Clip& clip) {
  double loudest = 0.0;
  for (int channel = 0; channel < clip.channels; ++channel) {
    loudest = std::max(loudest, rms(channel_of(clip, channel)));
  }
  return loudest;
}

/// Power of bins 0 to size / 2, summed over channels and windows that overlap by half.
std::vector<double> power_spectrum(const Clip& clip, std::size_t size) {
  std::vector<double> power(size / 2 + 1, 0.0);
  for (int channel = 0; channel < clip.channels; ++channel) {
    const auto samples = channel_of(clip, channel);
    for (std::size_t begin = 0; begin < samples.size(); begin += size / 2) {
      std::vector<Complex> window(size);
      for (std::size_t i = 0; i < size && begin + i < samples.size(); ++i) {
        const double phase = 2 * std::numbers::pi * static_cast<double>(i) / size;
        window[i] = samples[begin + i] * (0.5 - 0.5 * std::cos(phase));
      }
      fft(window);
      for (std::size_t bin = 0; bin < power.size(); ++bin) {
        power[bin] += std::norm(window[bin]);
      }
    }
  }
  return power;
}

/// Offset in bins of the top of the parabola through three logarithms of power.
double interpolate_peak(const std::vector<double>& power, std::size_t peak) {
  constexpr double kFloor = 1e-300;
  const double before = std::log(power[peak - 1] + kFloor);
  const double top = std::log(power[peak] + kFloor);
  const double after = std::log(power[peak + 1] + kFloor);
  const double bend = before - 2 * top + after;
  return bend < 0 ? std::clamp(0.5 * (before - after) / bend, -0.5, 0.5) : 0.0;
}

/// Magnitude over all channels of one sample.
double magnitude(const Clip& clip, std::int64_t sample) {
  double squares = 0.0;
  for (int channel = 0; channel < clip.channels; ++channel) {
    const double value =
        clip.audio[static_cast<std::size_t>(clip.num_samples() * channel + sample)];
    squares += value * value;
  }
  return std::sqrt(squares);
}

}  // namespace

Measured<double> measure_pitch(const Clip& clip) {
  if (clip.num_samples() == 0) {
    return Measured<double>::unknown("the clip has no sound");
  }
  if (loudest_channel(clip) < kSilenceRms) {
    return Measured<double>::unknown("the clip is silent");
  }
  if (clip.sample_rate_hz < 3 * kHighestHz || clip.sample_rate_hz > kMaxSampleRateHz) {
    return Measured<double>::unknown(
        fmt::format("a sample rate of {} Hz is not supported", clip.sample_rate_hz));
  }
  std::size_t size = 2;
  while (static_cast<double>(size) < 0.5 * clip.sample_rate_hz) {
    size *= 2;
  }
  const std::vector<double> power = power_spectrum(clip, size);
  const double bin_hz = static_cast<double>(clip.sample_rate_hz) / static_cast<double>(size);
  const auto low = static_cast<std::size_t>(kLowestHz / bin_hz);
  const auto high = static_cast<std::size_t>(kHighestHz / bin_hz);
  double total = 0.0;
  std::size_t peak = low;
  for (std::size_t bin = low; bin <= high; ++bin) {
    total += power[bin];
    peak = power[bin] > power[peak] ? bin : peak;
  }
  double near = 0.0;
  const auto center = static_cast<double>(peak);
  for (std::size_t bin = low; bin <= high; ++bin) {
    const auto place = static_cast<double>(bin);
    // Two bins are the width of the window itself.
    if (std::fabs(place - center) <= 2 ||
        (place <= center * kToneWidth && place >= center / kToneWidth)) {
      near += power[bin];
    }
  }
  if (total <= 0.0 || near < kMinTonality * total) {
    return Measured<double>::unknown("no tone stands out of the sound");
  }
  return (center + interpolate_peak(power, peak)) * bin_hz;
}

Measured<std::size_t> pitch_class(const Measured<double>& pitch_hz) {
  if (!pitch_hz.value) {
    return Measured<std::size_t>::unknown(pitch_hz.reason);
  }
  for (std::size_t i = 0; i < kToneHz.size(); ++i) {
    const double ratio = *pitch_hz.value / kToneHz[i];
    if (std::max(ratio, 1 / ratio) < kToneWidth) {
      return i;
    }
  }
  return Measured<std::size_t>::unknown(
      fmt::format("{:.0f} Hz is near none of the tones", *pitch_hz.value));
}

std::vector<double> find_beeps(const Clip& clip) {
  if (clip.num_samples() == 0) {
    return {};
  }
  const std::int64_t step =
      std::max<std::int64_t>(1, std::llround(kLevelStepS * clip.sample_rate_hz));
  std::vector<double> levels;  // root mean square of each step
  for (std::int64_t begin = 0; begin + step <= clip.num_samples(); begin += step) {
    double squares = 0.0;
    for (std::int64_t i = begin; i < begin + step; ++i) {
      const double value = magnitude(clip, i);
      squares += value * value;
    }
    levels.push_back(std::sqrt(squares / static_cast<double>(step)));
  }
  const double peak = levels.empty() ? 0.0 : *std::max_element(levels.begin(), levels.end());
  if (peak < kSilenceRms) {
    return {};
  }
  const auto quiet_steps = static_cast<std::size_t>(std::lround(kBeepQuietS / kLevelStepS));
  const auto beep_steps = static_cast<std::size_t>(std::lround(kBeepLengthS / kLevelStepS));
  std::vector<double> beeps;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double previous = i == 0 ? 0.0 : levels[i - 1];  // silence before the clip
    if (levels[i] < kBeepOn * peak || previous >= kBeepOn * peak) {
      continue;
    }
    const auto at = levels.begin() + static_cast<std::ptrdiff_t>(i);
    const auto quiet_begin = at - static_cast<std::ptrdiff_t>(std::min(i, quiet_steps));
    if (i >= quiet_steps && *std::min_element(quiet_begin, at) >= kBeepOff * peak) {
      continue;
    }
    const auto end = at + static_cast<std::ptrdiff_t>(std::min(beep_steps, levels.size() - i));
    const double loudest = *std::max_element(at, end);
    // A sound that the clip's end cuts off may have been a beep; it counts as one if it began
    // after a silence, and every start but the first did.
    const bool cut_off = i + beep_steps > levels.size() && i > 0;
    if (!cut_off && *std::min_element(at, end) >= kBeepOn * loudest) {
      continue;
    }
    // The level rose somewhere in this step or the one before: the first loud sample tells where.
    const std::int64_t search_begin =
        std::max<std::int64_t>(0, (static_cast<std::int64_t>(i) - 1) * step);
    std::int64_t sample = search_begin;
    while (sample < static_cast<std::int64_t>(i + 1) * step &&
           magnitude(clip, sample) < kBeepOn * loudest) {
      ++sample;
    }
    beeps.push_back(static_cast<double>(sample) / clip.sample_rate_hz);
  }
  return beeps;
}

Measured<double> pan_at(const Clip& clip, double time_s, double window_s) {
  if (clip.channels != 2) {
    return Measured<double>::unknown(clip.channels == 0 ? "the clip has no sound"
                                                        : "the sound is not stereo");
  }
  const std::int64_t begin =
      std::clamp<std::int64_t>(std::llround(time_s * clip.sample_rate_hz), 0, clip.num_samples());
  const std::int64_t count = std::min<std::int64_t>(std::llround(window_s * clip.sample_rate_hz),
                                                    clip.num_samples() - begin);
  const auto level = [&](int channel) {
    return rms(channel_of(clip, channel)
                   .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
  };
  const double left = level(0);
  const double right = level(1);
  if (std::hypot(left, right) < kSilenceRms) {
    return Measured<double>::unknown("silence");
  }
  return std::atan2(right, left) * 2 / std::numbers::pi;
}

}  // namespace miniacc::measure
