#include "runtime/condition_media.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <system_error>
#include <utility>

#include "io/media/input_probe.h"
#include "io/media/picture_reader.h"
#include "io/media/reference_clip.h"
#include "io/media/resize.h"
#include "io/media/sound_reader.h"
#include "io/sha256.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

std::int64_t samples_of_seconds(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * static_cast<double>(kSampleRateHz)));
}

/// Python's round().
std::int64_t round_even(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

/// The file, or the files of a folder by name.
Result<std::vector<fs::path>> content_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return std::vector<fs::path>{path};
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator item(path, error), end; !error && item != end;
       item.increment(error)) {
    if (item->is_regular_file(error)) {
      files.push_back(item->path());
    }
  }
  if (error) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: cannot list this folder: {}", path.string(), error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

Status hash_file(const fs::path& path, Sha256& hash) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 1 << 16> buffer{};
  while (file.read(buffer.data(), buffer.size()) || file.gcount() > 0) {
    hash.add(std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(file.gcount()))));
  }
  if (!file.eof()) {
    return fail(ErrorCode::kIo, path.string() + ": cannot read this file");
  }
  return {};
}

RgbClip clip_of(RgbImage image) { return {image.width, image.height, 1, std::move(image.pixels)}; }

/// The picture in the middle of a canvas of one colour.
RgbImage on_canvas(const RgbImage& image, std::int64_t width, std::int64_t height,
                   const std::array<std::uint8_t, 3>& color) {
  RgbImage canvas{width, height, {}};
  canvas.pixels.resize(static_cast<std::size_t>(3 * width * height));
  for (std::size_t i = 0; i < canvas.pixels.size(); ++i) {
    canvas.pixels[i] = color.at(i % 3);
  }
  const std::int64_t left = (width - image.width) / 2;
  const std::int64_t top = (height - image.height) / 2;
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::copy_n(image.pixels.begin() + 3 * y * image.width, 3 * image.width,
                canvas.pixels.begin() + 3 * ((top + y) * width + left));
  }
  return canvas;
}

void add_notes(const Condition& condition, const std::vector<std::string>& from,
               std::vector<std::string>& notes) {
  for (const std::string& note : from) {
    notes.push_back(fmt::format("{}: {}", condition.name, note));
  }
}

Status read_picture_pixels(Condition& condition, const GenerateRequest& request,
                           const ClipGeometry& clip, const ConditionRules& rules,
                           ConditionMedia& media, std::vector<std::string>& notes) {
  PictureOptions options;
  options.background = request.picture_background;
  MINIACC_ASSIGN(Picture picture, read_picture(condition.file.path, options));
  add_notes(condition, picture.notes, notes);
  std::vector<std::string> already_said;
  MINIACC_RETURN_IF_ERROR(fit_condition(
      condition, {.width = picture.image.width, .height = picture.image.height, .num_frames = 1},
      request, clip, rules, already_said));
  media.frames =
      clip_of(condition.is_keyframe() ? fit_keyframe_pixels(picture.image, condition, request)
                                      : resize(picture.image, condition.width, condition.height,
                                               ResizeFilter::kLanczos));
  return {};
}

Status read_video(Condition& condition, const GenerateRequest& request, const ClipGeometry& clip,
                  const ConditionRules& rules, ConditionMedia& media,
                  std::vector<std::string>& notes) {
  ReferenceClipOptions options;
  options.max_frames = clip.num_frames;
  options.with_sound = condition.with_sound;
  options.background = request.picture_background;
  PictureSize shown;
  options.target_size = [&](PictureSize size) -> Result<PictureSize> {
    shown = size;
    MINIACC_ASSIGN(const Canvas canvas,
                   canvas_of_aspect(static_cast<double>(size.width),
                                    static_cast<double>(size.height), rules.canvas));
    return PictureSize{canvas.width, canvas.height};
  };
  MINIACC_ASSIGN(ReferenceClip video, read_reference_clip(condition.file.path, options));
  add_notes(condition, video.notes, notes);
  std::vector<std::string> already_said;
  const SourceInfo source = {.width = shown.width,
                             .height = shown.height,
                             .num_frames = video.frames.num_frames,
                             .num_samples = video.sound ? video.sound->num_samples : 0};
  MINIACC_RETURN_IF_ERROR(fit_condition(condition, source, request, clip, rules, already_said));
  media.frames = std::move(video.frames);
  media.sound = std::move(video.sound);
  return {};
}

Status read_audio(Condition& condition, const GenerateRequest& request, const ClipGeometry& clip,
                  const ConditionRules& rules, ConditionMedia& media,
                  std::vector<std::string>& notes) {
  SoundOptions options;
  options.max_seconds =
      static_cast<double>(clip.num_frames) / static_cast<double>(kFramesPerSecond);
  options.sample_rate_hz = static_cast<int>(kSampleRateHz);
  MINIACC_ASSIGN(SoundClip sound, read_sound(condition.file.path, options));
  add_notes(condition, sound.notes, notes);
  std::vector<std::string> already_said;
  MINIACC_RETURN_IF_ERROR(fit_condition(condition, {.num_samples = sound.sound.num_samples},
                                        request, clip, rules, already_said));
  media.sound = std::move(sound.sound);
  return {};
}

/// Exactly the samples that the plan counts, which rounds where a resampler may not.
void cut_sound(const Condition& condition, StereoSound& sound) {
  const std::int64_t kept = condition.num_samples;
  if (sound.num_samples <= kept) {
    return;
  }
  std::copy_n(sound.samples.begin() + sound.num_samples, kept, sound.samples.begin() + kept);
  sound.samples.resize(static_cast<std::size_t>(2 * kept));
  sound.num_samples = kept;
}

bool is_silent(const StereoSound& sound) {
  return std::all_of(sound.samples.begin(), sound.samples.end(),
                     [](float sample) { return sample == 0.0F; });
}

}  // namespace

Result<SourceInfo> probe_condition(const Condition& condition) {
  SourceInfo source;
  MINIACC_ASSIGN(source.stamp, file_stamp(condition.file.path));
  switch (condition.role) {
    case ConditionRole::kFirstFrame:
    case ConditionRole::kLastFrame:
    case ConditionRole::kImage: {
      MINIACC_ASSIGN(const PictureInfo info, probe_picture(condition.file.path));
      source.width = info.width;
      source.height = info.height;
      source.num_frames = 1;
      break;
    }
    case ConditionRole::kVideo: {
      MINIACC_ASSIGN(const ClipInfo info, probe_clip(condition.file.path));
      source.width = info.width;
      source.height = info.height;
      source.num_frames = info.num_frames;
      source.num_samples = info.has_sound ? samples_of_seconds(info.seconds) : 0;
      break;
    }
    case ConditionRole::kAudio: {
      MINIACC_ASSIGN(const SoundInfo info, probe_sound(condition.file.path));
      source.num_samples = samples_of_seconds(info.seconds);
      break;
    }
  }
  return source;
}

Result<std::string> file_stamp(const fs::path& path) {
  MINIACC_ASSIGN(const std::vector<fs::path> files, content_files(path));
  std::string stamp;
  for (const fs::path& file : files) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) {
      const std::error_code error(errno, std::generic_category());
      return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                  fmt::format("{}: cannot read this file: {}", file.string(), error.message()));
    }
    stamp += fmt::format("{}:{}:{}.{:09};", file.filename().string(), status.st_size,
                         status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return stamp;
}

Result<std::string> content_sha256(const fs::path& path) {
  MINIACC_ASSIGN(const std::vector<fs::path> files, content_files(path));
  const bool is_folder = files.size() != 1 || files.front() != path;
  Sha256 hash;
  for (const fs::path& file : files) {
    if (is_folder) {
      const std::string name = file.filename().string();
      hash.add(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    }
    MINIACC_RETURN_IF_ERROR(hash_file(file, hash));
  }
  return hash.hex();
}

RgbImage fit_keyframe_pixels(const RgbImage& image, const Condition& condition,
                             const GenerateRequest& request) {
  const std::int64_t width = condition.width;
  const std::int64_t height = condition.height;
  if (image.width == width && image.height == height) {
    return image;
  }
  const bool follows = condition.role == ConditionRole::kLastFrame && !request.init_image.empty();
  const std::string& fit = request.keyframe_fit;
  if (fit == "stretch" || (fit == "reference" && !follows)) {
    return resize(image, width, height, ResizeFilter::kLanczos);
  }
  const double x_scale = static_cast<double>(width) / static_cast<double>(image.width);
  const double y_scale = static_cast<double>(height) / static_cast<double>(image.height);
  const double scale = fit == "contain" ? std::min(x_scale, y_scale) : std::max(x_scale, y_scale);
  const std::int64_t fitted_width = round_even(static_cast<double>(image.width) * scale);
  const std::int64_t fitted_height = round_even(static_cast<double>(image.height) * scale);
  if (fit == "contain") {
    return on_canvas(
        resize(image, std::clamp<std::int64_t>(fitted_width, 1, width),
               std::clamp<std::int64_t>(fitted_height, 1, height), ResizeFilter::kLanczos),
        width, height, request.picture_background);
  }
  const RgbImage covering = resize(image, std::max(width, fitted_width),
                                   std::max(height, fitted_height), ResizeFilter::kLanczos);
  return crop(covering, (covering.width - width) / 2, (covering.height - height) / 2, width,
              height);
}

Result<ConditionMedia> read_condition(Condition& condition, const GenerateRequest& request,
                                      const ClipGeometry& clip, const ConditionRules& rules,
                                      std::vector<std::string>& notes) {
  // Reading replaces condition.source by what was found, which has no stamp.
  const std::string checked = condition.source.stamp;
  const auto check_stamp = [&]() -> Status {
    MINIACC_ASSIGN(const std::string stamp, file_stamp(condition.file.path));
    if (!checked.empty() && stamp != checked) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{} was changed while the job was being prepared; start it again when "
                      "the file is complete",
                      condition.name));
    }
    return {};
  };
  MINIACC_RETURN_IF_ERROR(check_stamp());
  ConditionMedia media;
  switch (condition.role) {
    case ConditionRole::kFirstFrame:
    case ConditionRole::kLastFrame:
    case ConditionRole::kImage:
      MINIACC_RETURN_IF_ERROR(read_picture_pixels(condition, request, clip, rules, media, notes));
      break;
    case ConditionRole::kVideo:
      MINIACC_RETURN_IF_ERROR(read_video(condition, request, clip, rules, media, notes));
      break;
    case ConditionRole::kAudio:
      MINIACC_RETURN_IF_ERROR(read_audio(condition, request, clip, rules, media, notes));
      break;
  }
  if (media.sound) {
    cut_sound(condition, *media.sound);
    if (is_silent(*media.sound)) {
      notes.push_back(fmt::format("the sound of {} is silence", condition.name));
    }
  }
  MINIACC_ASSIGN(const std::string sha256, content_sha256(condition.file.path));
  MINIACC_RETURN_IF_ERROR(check_stamp());
  if (!condition.file.sha256.empty() && condition.file.sha256 != sha256) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{} is not the file that the request was made with: its SHA-256 is {}, "
                            "the request says {}; put that file back, or make a new request",
                            condition.name, sha256, condition.file.sha256));
  }
  condition.file.sha256 = sha256;
  return media;
}

}  // namespace miniacc
