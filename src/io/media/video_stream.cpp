#include "io/media/video_stream.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "io/media/libav_decoder.h"
#include "io/media/still_decoder.h"

extern "C" {
#include <libavutil/display.h>
}

namespace miniacc::libav {
namespace {

constexpr std::string_view kWanted = "a clip: MP4, MOV, MKV, WebM, AVI or a folder of pictures";

DisplayMatrix display_matrix(const AVStream& stream) {
  std::size_t size = 0;
  const std::uint8_t* data = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
  std::array<std::int32_t, 9> matrix{};
  if (data == nullptr || size < sizeof matrix) {
    return {};
  }
  std::memcpy(matrix.data(), data, sizeof matrix);
  return read_display_matrix(matrix);
}

/// Pixels' width by height; 1 where nothing, or nonsense, is stated.
AVRational pixel_aspect(const MediaInput& input, AVStream* stream) {
  const AVRational aspect = av_guess_sample_aspect_ratio(input.get(), stream, nullptr);
  constexpr std::int64_t kWidest = 8;
  const bool sane = aspect.num > 0 && aspect.den > 0 && aspect.num <= kWidest * aspect.den &&
                    aspect.den <= kWidest * aspect.num;
  return sane ? aspect : AVRational{1, 1};
}

}  // namespace

Result<MediaInput> open_clip(InputFile file) {
  MINIACC_ASSIGN(MediaInput input, MediaInput::open(std::move(file), kClipFormats, kWanted));
  MINIACC_RETURN_IF_ERROR(input.check_complete());
  return input;
}

Result<VideoStream> find_video(const MediaInput& input, std::int64_t max_pixels) {
  const auto index = find_stream(input, AVMEDIA_TYPE_VIDEO);
  if (!index) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: has no video{}, wanted {}", input.path(),
                            find_stream(input, AVMEDIA_TYPE_AUDIO) ? ", only sound" : "", kWanted));
  }
  AVStream* stream = input->streams[*index];
  VideoStream video;
  video.index = *index;
  video.stored = {stream->codecpar->width, stream->codecpar->height};
  if (video.stored.width < 1 || video.stored.height < 1) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: does not state the size of its video", input.path()));
  }
  const Status fits = check_pixels(video.stored.width, video.stored.height, max_pixels);
  if (!fits) {
    return fail(fits.error().code, fmt::format("{}: {}", input.path(), fits.error().message));
  }
  video.time_base = stream->time_base;
  if (stream->avg_frame_rate.num > 0 && stream->avg_frame_rate.den > 0) {
    video.rate = stream->avg_frame_rate;
  }
  const AVRational aspect = pixel_aspect(input, stream);
  video.square_pixels = aspect.num == aspect.den;
  video.displayed = video.stored;
  if (!video.square_pixels) {
    video.displayed.width =
        std::max<std::int64_t>(1, av_rescale(video.stored.width, aspect.num, aspect.den));
    video.notes.push_back(fmt::format("has pixels of {}:{}, it is shown as {}x{}", aspect.num,
                                      aspect.den, video.displayed.width, video.displayed.height));
  }
  const DisplayMatrix matrix = display_matrix(*stream);
  video.orientation = matrix.orientation;
  if (matrix.orientation != Orientation::kUpright) {
    video.notes.push_back(fmt::format("is {}, as it says", describe(matrix.orientation)));
  }
  if (!matrix.exact) {
    video.notes.emplace_back("asks to be turned by a part of a quarter turn, which is left out");
  }
  if (swaps_sides(video.orientation)) {
    std::swap(video.displayed.width, video.displayed.height);
  }
  return video;
}

}  // namespace miniacc::libav
