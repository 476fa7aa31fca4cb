#include "io/media/stereo_mix.h"

#include <algorithm>

#include <fmt/format.h>

extern "C" {
#include <libavutil/channel_layout.h>
}

namespace miniacc::libav {
namespace {

constexpr float kHalfPower = 0.70710678F;

/// Part in left and right of a loudspeaker.
std::array<float, 2> place(AVChannel channel) {
  switch (channel) {
    case AV_CHAN_FRONT_LEFT:
    case AV_CHAN_FRONT_LEFT_OF_CENTER:
    case AV_CHAN_STEREO_LEFT:
    case AV_CHAN_WIDE_LEFT:
      return {1.0F, 0.0F};
    case AV_CHAN_FRONT_RIGHT:
    case AV_CHAN_FRONT_RIGHT_OF_CENTER:
    case AV_CHAN_STEREO_RIGHT:
    case AV_CHAN_WIDE_RIGHT:
      return {0.0F, 1.0F};
    case AV_CHAN_FRONT_CENTER:
    case AV_CHAN_TOP_CENTER:
    case AV_CHAN_TOP_FRONT_CENTER:
      return {kHalfPower, kHalfPower};
    case AV_CHAN_BACK_CENTER:
    case AV_CHAN_TOP_BACK_CENTER:
      return {0.5F, 0.5F};
    case AV_CHAN_BACK_LEFT:
    case AV_CHAN_SIDE_LEFT:
    case AV_CHAN_SURROUND_DIRECT_LEFT:
    case AV_CHAN_TOP_FRONT_LEFT:
    case AV_CHAN_TOP_BACK_LEFT:
    case AV_CHAN_TOP_SIDE_LEFT:
      return {kHalfPower, 0.0F};
    case AV_CHAN_BACK_RIGHT:
    case AV_CHAN_SIDE_RIGHT:
    case AV_CHAN_SURROUND_DIRECT_RIGHT:
    case AV_CHAN_TOP_FRONT_RIGHT:
    case AV_CHAN_TOP_BACK_RIGHT:
    case AV_CHAN_TOP_SIDE_RIGHT:
      return {0.0F, kHalfPower};
    case AV_CHAN_LOW_FREQUENCY:
    case AV_CHAN_LOW_FREQUENCY_2:
      return {0.0F, 0.0F};
    default:
      return {0.5F, 0.5F};  // no known place: in the middle
  }
}

}  // namespace

StereoMix stereo_mix(const AVChannelLayout& layout) {
  const int count = layout.nb_channels;
  if (count == 1) {
    return {{{1.0F, 1.0F}}, ""};
  }
  if (count == 2) {
    return {{{1.0F, 0.0F}, {0.0F, 1.0F}}, ""};
  }
  AVChannelLayout named{};
  if (layout.order == AV_CHANNEL_ORDER_UNSPEC) {
    av_channel_layout_default(&named, count);
  } else {
    av_channel_layout_copy(&named, &layout);
  }
  StereoMix mix;
  std::array<float, 2> sum{};
  for (int i = 0; i < count; ++i) {
    mix.weights.push_back(
        place(av_channel_layout_channel_from_index(&named, static_cast<unsigned int>(i))));
    sum[0] += mix.weights.back()[0];
    sum[1] += mix.weights.back()[1];
  }
  const float loudest = std::max({sum[0], sum[1], 1.0F});
  for (std::array<float, 2>& weight : mix.weights) {
    weight[0] /= loudest;
    weight[1] /= loudest;
  }
  std::array<char, 64> name{};
  av_channel_layout_describe(&named, name.data(), name.size());
  av_channel_layout_uninit(&named);
  mix.note = fmt::format("its {} channels ({}) are mixed down to stereo", count, name.data());
  return mix;
}

}  // namespace miniacc::libav
