#include "runtime/pdd.h"

#include <fmt/format.h>

#include <cmath>

namespace miniacc {
namespace {

// Sigmas are rounded to f32 and may be typed with six digits; the nearest two points of the
// 32-interval grid are 2.7e-3 apart.
constexpr double kSameSigma = 2e-6;

/// The point of the grid that a sigma is, or -1.
std::int64_t point_of(float sigma, double shift, std::int64_t num_steps) {
  const auto value = static_cast<double>(sigma);
  const double base = value / (shift - (shift - 1.0) * value);
  const auto point =
      std::llround((1.0 - base) * static_cast<double>(num_steps));  // the inverse of shifting
  const double exact_base = 1.0 - static_cast<double>(point) / static_cast<double>(num_steps);
  const double exact = shift * exact_base / (1.0 + (shift - 1.0) * exact_base);
  return std::fabs(exact - value) <= kSameSigma ? point : -1;
}

}  // namespace

Result<std::vector<HeadRange>> head_ranges(const SigmaSchedule& schedule, std::int64_t num_steps) {
  std::vector<HeadRange> ranges;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < schedule.video.size(); ++i) {
    const std::int64_t video = point_of(schedule.video[i], kPddVideoShift, num_steps);
    const std::int64_t audio = point_of(schedule.audio[i], kPddAudioShift, num_steps);
    const bool falls = i == 0 ? video == 0 : video > last;
    if (video < 0 || video != audio || !falls) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the adapter's output heads are for steps between {} even points under "
                      "shifts {:g} and {:g}, and sigma {} (video {:.6g}, audio {:.6g}) is none; "
                      "leave shifts and sigmas out and use --steps {}, {}, {} or {}",
                      num_steps, kPddVideoShift, kPddAudioShift, i, schedule.video[i],
                      schedule.audio[i], num_steps / 8, num_steps / 4, num_steps / 2, num_steps));
    }
    if (i > 0) {
      ranges.push_back({last, video - last});
    }
    last = video;
  }
  MINIACC_REQUIRE(last == num_steps, "head_ranges: a schedule ends in 0");
  return ranges;
}

const Lora* find_head_banks(const AdaptedWeights* adapted) {
  if (adapted != nullptr) {
    for (const Lora& lora : adapted->loras()) {
      if (lora.head_banks()) {
        return &lora;
      }
    }
  }
  return nullptr;
}

Result<std::vector<DitHeads>> fuse_heads(const AdaptedWeights* adapted,
                                         const SigmaSchedule& schedule, Device& device) {
  std::vector<DitHeads> heads;
  const Lora* lora = find_head_banks(adapted);
  if (lora == nullptr) {
    return heads;
  }
  const HeadBanks& banks = *lora->head_banks();
  MINIACC_ASSIGN(const auto ranges, head_ranges(schedule, banks.num_steps()));
  for (const HeadRange& range : ranges) {
    MINIACC_ASSIGN(FusedHeads fused, banks.fuse(lora->file(), range.first, range.count, device));
    DitHeads& pair = heads.emplace_back();
    pair.video_out.weight.values = std::move(fused.video_weight);
    pair.video_out.bias = std::move(fused.video_bias);
    pair.audio_out.weight.values = std::move(fused.audio_weight);
    pair.audio_out.bias = std::move(fused.audio_bias);
  }
  return heads;
}

}  // namespace miniacc
