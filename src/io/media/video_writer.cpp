#include "io/media/video_writer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "io/media/audio_samples.h"
#include "io/media/container_writer.h"
#include "io/media/png_folder_writer.h"
#include "io/media/wav_writer.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

// H.264 level 6.2 allows 139,264 macroblocks; the model makes at most 2,048 pixels a side.
constexpr int kMaxSide = 8192;
constexpr std::array<const char*, 9> kPresets = {
    "ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow"};

enum class OutputKind { kMp4, kMkv, kWav, kPngFolder };

Result<OutputKind> kind_of(const fs::path& path) {
  if (!path.has_filename() && path.has_parent_path()) {
    return OutputKind::kPngFolder;
  }
  if (path.filename() == "%05d.png") {
    return OutputKind::kPngFolder;
  }
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ending == ".mp4") {
    return OutputKind::kMp4;
  }
  if (ending == ".mkv") {
    return OutputKind::kMkv;
  }
  if (ending == ".wav") {
    return OutputKind::kWav;
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: the output must end in .mp4, .mkv, .wav, / or /%05d.png", path.string()));
}

Status check_video_options(const VideoWriterOptions& options, OutputKind kind) {
  if (options.width <= 0 || options.height <= 0 || options.width > kMaxSide ||
      options.height > kMaxSide || options.width % 2 != 0 || options.height % 2 != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output: size {}x{} is not two even numbers up to {}", options.width,
                            options.height, kMaxSide));
  }
  if (options.fps < 1 || options.fps > 240) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output: {} frames a second, wanted 1 to 240", options.fps));
  }
  if (options.crf < 1 ||
      options.crf > 51) {  // 0 is x264's lossless mode, which is not High profile
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output: crf {} is outside 1 to 51", options.crf));
  }
  if (std::find(kPresets.begin(), kPresets.end(), options.preset) == kPresets.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output: \"{}\" is not an x264 preset", options.preset));
  }
  if (options.threads < 1 || options.threads > 64) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output: {} threads, wanted 1 to 64", options.threads));
  }
  if (options.lossless && kind == OutputKind::kMp4) {
    return fail(ErrorCode::kInvalidArgument,
                "output: an .mp4 cannot be lossless, wanted .mkv or a frame folder");
  }
  return {};
}

}  // namespace

Result<bool> VideoWriter::path_has_frames(const fs::path& path) {
  MINIACC_ASSIGN(const OutputKind kind, kind_of(path));
  return kind != OutputKind::kWav;
}

Result<std::unique_ptr<VideoWriter>> VideoWriter::create(const fs::path& path,
                                                         const VideoWriterOptions& options) {
  MINIACC_ASSIGN(const OutputKind kind, kind_of(path));
  const int rate = options.audio_sample_rate_hz;
  if (rate != 0 && (rate < 8000 || rate > 96000)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output: {} samples a second, wanted 8000 to 96000, or 0", rate));
  }
  if (kind == OutputKind::kWav) {
    if (rate == 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a .wav needs sound, and there is none", path.string()));
    }
    return WavWriter::create(path, options);
  }
  MINIACC_RETURN_IF_ERROR(check_video_options(options, kind));
  if (kind == OutputKind::kPngFolder) {
    return PngFolderWriter::create(path.parent_path(), options);
  }
  return ContainerWriter::create(
      path, kind == OutputKind::kMp4 ? Container::kMp4 : Container::kMatroska, options);
}

Status VideoWriter::write_frames(std::span<const std::uint8_t> rgb) {
  MINIACC_REQUIRE(!finished_ && !failed_, "video writer: write after finish() or an error");
  MINIACC_REQUIRE(has_frames_, "video writer: this output has no frames");
  MINIACC_REQUIRE(rgb.size() % frame_bytes() == 0, "video writer: frames are [n, h, w, 3]");
  for (std::size_t begin = 0; begin < rgb.size(); begin += frame_bytes()) {
    wrote_frames_ = true;
    failed_ = true;  // until proven otherwise, also by an exception
    MINIACC_RETURN_IF_ERROR(write_frame(rgb.subspan(begin, frame_bytes())));
    failed_ = false;
  }
  return {};
}

Status VideoWriter::write_audio(std::span<const float> stereo) {
  MINIACC_REQUIRE(!finished_ && !failed_, "video writer: write after finish() or an error");
  MINIACC_REQUIRE(has_audio(), "video writer: this output has no sound");
  MINIACC_REQUIRE(stereo.size() % 2 == 0, "video writer: sound is [2, n]");
  failed_ = true;
  MINIACC_RETURN_IF_ERROR(check_finite(stereo));
  const std::size_t count = stereo.size() / 2;
  if (count > 0) {
    wrote_audio_ = true;
    MINIACC_RETURN_IF_ERROR(write_samples(stereo.first(count), stereo.last(count)));
  }
  failed_ = false;
  return {};
}

Status VideoWriter::finish() {
  MINIACC_REQUIRE(!finished_ && !failed_, "video writer: finish() once, and not after an error");
  failed_ = true;
  if (has_frames_ && !wrote_frames_) {
    return fail(ErrorCode::kInternal, "output: no frame was written");
  }
  if (has_audio() && !wrote_audio_) {
    return fail(ErrorCode::kInternal, "output: sound was announced, none was written");
  }
  MINIACC_RETURN_IF_ERROR(complete());
  failed_ = false;
  finished_ = true;
  return {};
}

}  // namespace miniacc
