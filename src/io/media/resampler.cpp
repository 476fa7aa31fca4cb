#include "io/media/resampler.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "io/media/libav.h"

extern "C" {
#include <libavutil/opt.h>
#include <libswresample/swresample.h>
}

namespace miniacc {
namespace {

struct FreeResampler {
  void operator()(SwrContext* context) const noexcept { swr_free(&context); }
};
using Resampler = std::unique_ptr<SwrContext, FreeResampler>;

/// An initialised converter of planar float stereo; null when this FFmpeg lacks `soxr`.
Result<Resampler> open_resampler(int from, int to, bool soxr) {
  SwrContext* context = nullptr;
  AVChannelLayout stereo = AV_CHANNEL_LAYOUT_STEREO;
  MINIACC_RETURN_IF_ERROR(
      libav::check(swr_alloc_set_opts2(&context, &stereo, AV_SAMPLE_FMT_FLTP, to, &stereo,
                                       AV_SAMPLE_FMT_FLTP, from, 0, nullptr),
                   "resampler"));
  Resampler resampler(context);
  if (soxr) {
    constexpr int kVeryHighQualityBits = 28;
    av_opt_set_int(context, "resampler", SWR_ENGINE_SOXR, 0);
    av_opt_set_int(context, "precision", kVeryHighQualityBits, 0);
  } else {
    constexpr int kTaps = 128;
    constexpr double kPassband = 0.97;
    constexpr double kKaiserBeta = 12.0;
    av_opt_set_int(context, "filter_size", kTaps, 0);
    av_opt_set_double(context, "cutoff", kPassband, 0);
    av_opt_set_int(context, "filter_type", SWR_FILTER_TYPE_KAISER, 0);
    av_opt_set_double(context, "kaiser_beta", kKaiserBeta, 0);
    av_opt_set_int(context, "exact_rational", 1, 0);
  }
  const int status = swr_init(context);
  if (status < 0 && soxr) {
    return Resampler();
  }
  MINIACC_RETURN_IF_ERROR(libav::check(status, "resampler"));
  return resampler;
}

}  // namespace

Result<Resampled> resample(StereoSound sound, int sample_rate_hz) {
  if (sound.sample_rate_hz == sample_rate_hz || sound.num_samples == 0) {
    sound.sample_rate_hz = sample_rate_hz;
    return Resampled{std::move(sound), ""};
  }
  const std::int64_t from = sound.sample_rate_hz;
  const std::int64_t num_samples = (sound.num_samples * sample_rate_hz + from - 1) / from;
  if (sound.num_samples > std::numeric_limits<int>::max() / 2 ||
      num_samples > std::numeric_limits<int>::max() / 2) {
    return fail(ErrorCode::kInvalidInput, "sound is too long to be resampled");
  }
  libav::quiet();
  std::string name = "soxr";
  MINIACC_ASSIGN(Resampler resampler,
                 open_resampler(static_cast<int>(from), sample_rate_hz, /*soxr=*/true));
  if (!resampler) {
    name = "swresample";
    MINIACC_ASSIGN(resampler,
                   open_resampler(static_cast<int>(from), sample_rate_hz, /*soxr=*/false));
  }
  // Room for what a resampler may give beyond the exact length.
  constexpr std::int64_t kRoom = 4096;
  const auto capacity = static_cast<std::size_t>(num_samples + kRoom);
  std::array<std::vector<float>, 2> out;
  out.fill(std::vector<float>(capacity, 0.0F));
  std::size_t done = 0;
  const auto convert = [&](const std::uint8_t** in, int count) -> Result<int> {
    std::array<std::uint8_t*, 2> to = {reinterpret_cast<std::uint8_t*>(out[0].data() + done),
                                       reinterpret_cast<std::uint8_t*>(out[1].data() + done)};
    const int got =
        swr_convert(resampler.get(), to.data(), static_cast<int>(capacity - done), in, count);
    MINIACC_RETURN_IF_ERROR(libav::check(got, "resampler"));
    done += static_cast<std::size_t>(got);
    return got;
  };
  const float* samples = sound.samples.data();
  std::array<const std::uint8_t*, 2> in = {
      reinterpret_cast<const std::uint8_t*>(samples),
      reinterpret_cast<const std::uint8_t*>(samples + sound.num_samples)};
  MINIACC_RETURN_IF_ERROR(convert(in.data(), static_cast<int>(sound.num_samples)));
  while (done < static_cast<std::size_t>(num_samples)) {
    MINIACC_ASSIGN(const int got, convert(nullptr, 0));
    if (got == 0) {
      break;  // what is missing is silence
    }
  }
  Resampled result{{sample_rate_hz, num_samples, {}}, name};
  result.sound.samples.reserve(2 * static_cast<std::size_t>(num_samples));
  for (const std::vector<float>& channel : out) {
    result.sound.samples.insert(result.sound.samples.end(), channel.begin(),
                                channel.begin() + num_samples);
  }
  return result;
}

}  // namespace miniacc
