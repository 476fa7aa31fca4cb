#include "condition_options.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

namespace miniacc {
namespace {

constexpr const char* kRefImage = "--ref-image";
constexpr const char* kRefVideo = "--ref-video";
constexpr const char* kRefVideoAudio = "--ref-video-audio";
constexpr const char* kRefAudio = "--ref-audio";

/// "#rrggbb" or "rrggbb".
Result<std::array<std::uint8_t, 3>> parse_color(const std::string& text) {
  const std::string digits = text.starts_with('#') ? text.substr(1) : text;
  std::uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, /*base=*/16);
  if (digits.size() != 6 || error != std::errc() || end != digits.data() + digits.size()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--picture-background must be a colour such as #ffffff, got '{}'", text));
  }
  return std::array<std::uint8_t, 3>{static_cast<std::uint8_t>(value >> 16),
                                     static_cast<std::uint8_t>(value >> 8),
                                     static_cast<std::uint8_t>(value)};
}

ReferenceInput make_reference(const std::string& option, const std::string& path) {
  ReferenceInput reference;
  reference.file.path = path;
  reference.kind = option == kRefImage   ? ReferenceInput::Kind::kImage
                   : option == kRefAudio ? ReferenceInput::Kind::kAudio
                                         : ReferenceInput::Kind::kVideo;
  reference.with_sound = option == kRefVideoAudio;
  return reference;
}

}  // namespace

void add_condition_options(CLI::App& command, ConditionFlags& flags) {
  const char* group = "Pictures, videos and sounds to follow";
  command.add_option("-i,--init-img", flags.init_image, "Picture that the clip starts with")
      ->group(group);
  command.add_option("--end-img", flags.end_image, "Picture that the clip ends with")->group(group);
  const auto add_list = [&](const std::string& names, std::vector<std::string>& list,
                            const char* help) {
    command.add_option(names, list, help)->take_all()->allow_extra_args(false)->group(group);
  };
  add_list(fmt::format("-r,{}", kRefImage), flags.ref_images,
           "Reference image, <Picture 1> in the prompt; may be given 9 times");
  add_list(kRefVideo, flags.ref_videos,
           "Reference video (or folder of frames) without its sound, <Video 1>; up to 3");
  add_list(kRefVideoAudio, flags.ref_videos_with_sound,
           "Reference video with its sound, <Video 1> and <Audio 1>");
  add_list(kRefAudio, flags.ref_sounds, "Reference sound, <Audio 1>; up to 3");
  command
      .add_option("--ref-image-size", flags.ref_image_size,
                  "Size of reference images: diffusers (short edge 2048), max (at most that) or "
                  "match (at most the clip's area)")
      ->group(group);
  command
      .add_option("--fit", flags.keyframe_fit,
                  "Keyframes of another shape: reference (the first is stretched, the second "
                  "cropped), stretch, cover or contain")
      ->group(group);
  command
      .add_option("--picture-background", flags.background,
                  "Colour behind transparent pictures, e.g. #ffffff")
      ->group(group);
}

Status apply_condition_flags(const CLI::App& command, const ConditionFlags& flags,
                             GenerateRequest& request) {
  for (const char* option :
       {"--init-img", "--end-img", kRefImage, kRefVideo, kRefVideoAudio, kRefAudio}) {
    for (const std::string& path : command[option]->results()) {
      if (path.empty()) {
        return fail(ErrorCode::kInvalidArgument, fmt::format("{} names no file", option));
      }
    }
  }
  if (command.count("--init-img") > 0) {
    request.init_image = {flags.init_image, {}};
  }
  if (command.count("--end-img") > 0) {
    request.end_image = {flags.end_image, {}};
  }
  if (command.count("--ref-image-size") > 0) {
    request.ref_image_size = flags.ref_image_size;
  }
  if (command.count("--fit") > 0) {
    request.keyframe_fit = flags.keyframe_fit;
  }
  if (command.count("--picture-background") > 0) {
    MINIACC_ASSIGN(request.picture_background, parse_color(flags.background));
  }
  // parse_order() has an entry for each time an option was met.
  std::map<std::string, std::size_t> used;
  std::vector<ReferenceInput> references;
  for (const CLI::Option* option : command.parse_order()) {
    const std::string name = option->get_name();
    if (name == kRefImage || name == kRefVideo || name == kRefVideoAudio || name == kRefAudio) {
      references.push_back(make_reference(name, option->results().at(used[name]++)));
    }
  }
  if (!references.empty()) {
    request.references = std::move(references);
  }
  return {};
}

}  // namespace miniacc
