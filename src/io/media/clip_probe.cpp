#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "io/media/frame_folder.h"
#include "io/media/input_probe.h"
#include "io/media/libav_decoder.h"
#include "io/media/picture_reader.h"
#include "io/media/video_stream.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPackets = 1'000'000;

/// When a frame is shown, in ticks of its stream.
struct FrameTime {
  std::int64_t begin = 0;
  std::int64_t duration = 0;
};

/// The times of all frames of a stream in the order in which they are shown.
Result<std::vector<FrameTime>> frame_times(libav::MediaInput& input,
                                           const libav::VideoStream& video,
                                           const libav::FrameClock& clock) {
  for (unsigned int i = 0; i < input->nb_streams; ++i) {
    input->streams[i]->discard =
        static_cast<int>(i) == video.index ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
  }
  std::vector<FrameTime> times;
  const libav::Packet packet = libav::make_packet();
  while (true) {
    const int status = av_read_frame(input.get(), packet.get());
    if (status == AVERROR_EOF) {
      break;
    }
    MINIACC_RETURN_IF_ERROR(libav::check(status, input.path()));
    if (packet->stream_index == video.index && (packet->flags & AV_PKT_FLAG_DISCARD) == 0) {
      const std::int64_t time = packet->pts != AV_NOPTS_VALUE ? packet->pts : packet->dts;
      times.push_back({time != AV_NOPTS_VALUE
                           ? time
                           : clock.nominal_ticks(static_cast<std::int64_t>(times.size())),
                       packet->duration > 0 ? packet->duration : clock.frame_ticks()});
      if (times.size() > kMaxPackets) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: has more than {} frames", input.path(), kMaxPackets));
      }
    }
    av_packet_unref(packet.get());
  }
  std::sort(times.begin(), times.end(),
            [](const FrameTime& a, const FrameTime& b) { return a.begin < b.begin; });
  return times;
}

Result<ClipInfo> probe_folder(const fs::path& folder, double fps) {
  if (!(fps >= 1.0 && fps <= 1000.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("clip: wants 1 to 1000 fps for a folder, got {}", fps));
  }
  MINIACC_ASSIGN(const std::vector<fs::path> paths, list_frames(folder));
  MINIACC_ASSIGN(const PictureInfo first, probe_picture(paths.front()));
  ClipInfo info;
  info.width = first.width;
  info.height = first.height;
  info.num_frames = libav::constant_rate_slot(static_cast<std::int64_t>(paths.size()), fps);
  info.has_sound = !frame_folder_sound(folder).empty();
  return info;
}

Result<ClipInfo> probe_file(const fs::path& path) {
  MINIACC_ASSIGN(InputFile file,
                 InputFile::open(path, "a clip: MP4, MOV, MKV, WebM, AVI or a folder of pictures"));
  MINIACC_ASSIGN(libav::MediaInput input, libav::open_clip(std::move(file)));
  MINIACC_ASSIGN(const libav::VideoStream video,
                 libav::find_video(input, PictureOptions{}.max_pixels));
  const libav::FrameClock clock(video.time_base, video.rate);
  MINIACC_ASSIGN(const std::vector<FrameTime> times, frame_times(input, video, clock));
  if (times.empty()) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: its video has no frame", input.path()));
  }
  MINIACC_RETURN_IF_ERROR(input.file().check_unchanged());
  ClipInfo info;
  info.width = video.displayed.width;
  info.height = video.displayed.height;
  const FrameTime& last = times.back();
  const auto length = static_cast<std::int64_t>(static_cast<std::uint64_t>(last.begin) -
                                                static_cast<std::uint64_t>(times.front().begin) +
                                                static_cast<std::uint64_t>(last.duration));
  info.num_frames = clock.slot(static_cast<std::int64_t>(times.size()), length);
  info.has_sound = libav::find_stream(input, AVMEDIA_TYPE_AUDIO).has_value();
  return info;
}

}  // namespace

Result<ClipInfo> probe_clip(const fs::path& path, double folder_fps) {
  std::error_code ignored;
  auto info = fs::is_directory(path, ignored) ? probe_folder(path, folder_fps) : probe_file(path);
  if (info && info->num_frames < 1) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: lasts less than half of 1/{} s", path.string(), libav::kModelFps));
  }
  if (info) {
    info->seconds = static_cast<double>(info->num_frames) / libav::kModelFps;
  }
  return info;
}

}  // namespace miniacc
