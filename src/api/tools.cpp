#include "miniacc/tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/find_components.h"
#include "checkpoint/inspect.h"
#include "checkpoint/make_checkpoint.h"
#include "io/media/media_reader.h"
#include "io/media/picture_writer.h"
#include "io/tokenizer.h"
#include "measure/contact_sheet.h"
#include "measure/judge.h"
#include "runtime/sigma_schedule.h"

namespace miniacc {
namespace {

using nlohmann::json;

std::string dump(const json& document, int indent) {
  return document.dump(indent, ' ', false, json::error_handler_t::replace);
}

json stream_json(const StreamInfo& stream) {
  if (stream.kind == StreamKind::kVideo) {
    return {
        {"kind", "video"},
        {"codec", stream.codec},
        {"width", stream.width},
        {"height", stream.height},
        {"frames", stream.num_packets},
        {"frame_rate", fmt::format("{}/{}", stream.frame_rate_num, stream.frame_rate_den)},
        {"pixel_format", stream.pixel_format},
        {"color",
         {stream.color_space, stream.color_primaries, stream.color_transfer, stream.color_range}},
        {"seconds", stream.duration_s}};
  }
  if (stream.kind == StreamKind::kAudio) {
    return {{"kind", "audio"},
            {"codec", stream.codec},
            {"sample_rate", stream.sample_rate_hz},
            {"channels", stream.channels},
            {"seconds", stream.duration_s}};
  }
  return {{"kind", "other"}, {"codec", stream.codec}};
}

std::string stream_text(const StreamInfo& stream) {
  if (stream.kind == StreamKind::kVideo) {
    return fmt::format("video: {} {}x{}, {} frames at {}/{} a second, {} {}, {:.3f} s",
                       stream.codec, stream.width, stream.height, stream.num_packets,
                       stream.frame_rate_num, stream.frame_rate_den, stream.pixel_format,
                       stream.color_space, stream.duration_s);
  }
  if (stream.kind == StreamKind::kAudio) {
    return fmt::format("audio: {} {} Hz, {} channels, {:.3f} s", stream.codec,
                       stream.sample_rate_hz, stream.channels, stream.duration_s);
  }
  return "other: " + stream.codec;
}

/// The `miniacc` metadata of a clip as JSON; null when it has none.
Result<json> read_own_metadata(const std::map<std::string, std::string>& metadata,
                               const std::filesystem::path& path) {
  const auto found = metadata.find("miniacc");
  if (found == metadata.end()) {
    return json();
  }
  json document = json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("request")) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: its miniacc metadata is damaged", path.string()));
  }
  return document;
}

}  // namespace

Result<std::string> inspect_checkpoint(const std::filesystem::path& path, ReportFormat format) {
  MINIACC_ASSIGN(const InspectReport report, inspect(path));
  return format == ReportFormat::kJson ? report.to_json() : report.to_text();
}

Status make_checkpoint(const MakeCheckpointRequest& request, const EventSink& events,
                       const CancelToken& cancel) {
  const auto size = parse_synthetic_size(request.size);
  if (!size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--size must be tiny, small or full, got '{}'", request.size));
  }
  const auto format = parse_checkpoint_format(request.format);
  if (!format) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--format must be official, diffusers, comfy, comfy-pruned or gguf, "
                            "got '{}'",
                            request.format));
  }
  const std::string dtype = !request.dtype.empty()               ? request.dtype
                            : *format == CheckpointFormat::kGguf ? "q8_0"
                                                                 : "bf16";
  const auto storage = parse_weight_storage(dtype);
  if (!storage) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--dtype must be bf16, f32, f16, fp8_scaled, int8_convrot, q8_0, q4_0 "
                            "or q4_k, got '{}'",
                            request.dtype));
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto report = [&](Event::Kind kind, std::size_t size_bytes) {
    if (events) {
      Event event;
      event.kind = kind;
      event.stage = "writing " + request.output.string();
      event.done = static_cast<std::int64_t>(size_bytes >> 20);  // MiB
      event.seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      event.overall_fraction = kind == Event::Kind::kStageEnd ? 1.0 : 0.0;
      events(event);
    }
  };
  try {
    report(Event::Kind::kStageBegin, 0);
    MINIACC_RETURN_IF_ERROR(make_checkpoint(MakeCheckpointOptions{
        .size = *size,
        .format = *format,
        .storage = *storage,
        .seed = request.seed,
        .out = request.output,
        .cancel = &cancel,
        .progress = [&](std::size_t bytes) { report(Event::Kind::kProgress, bytes); }}));
    report(Event::Kind::kStageEnd, 0);
    return {};
  } catch (const ErrorException& error) {
    return tl::unexpected(error.error());
  }
}

Result<TokenizeResult> tokenize(const std::filesystem::path& path, const std::string& text) {
  auto tokenizer = Tokenizer::open(path);
  std::error_code unreadable;  // counts as no folder; opening it has said why
  if (!tokenizer && std::filesystem::is_directory(path, unreadable)) {
    // Not a tokenizer folder itself: perhaps a model folder that has one.
    auto found = find_tokenizer(path);
    if (found) {
      tokenizer = Tokenizer::open(*found);
    }
  }
  if (!tokenizer) {
    return tl::unexpected(std::move(tokenizer).error());
  }
  TokenizeResult result;
  MINIACC_ASSIGN(result.ids, tokenizer->encode(text));
  for (const std::int32_t id : result.ids) {
    result.tokens.push_back(tokenizer->token_text(id).value_or(""));
  }
  result.warnings = tokenizer->warnings();
  return result;
}

Result<ClipReport> show_clip(const std::filesystem::path& path) {
  ClipReport report;
  json document;
  std::vector<std::string> lines = {path.string()};
  std::error_code unreadable;  // counts as no folder; probe() says why
  if (!std::filesystem::is_directory(path, unreadable)) {
    MINIACC_ASSIGN(const MediaInfo info, probe(path));
    for (const StreamInfo& stream : info.streams) {
      document["streams"].push_back(stream_json(stream));
      lines.push_back(stream_text(stream));
    }
  }
  MINIACC_ASSIGN(const auto metadata, read_metadata(path));
  MINIACC_ASSIGN(const json own, read_own_metadata(metadata, path));
  if (!own.is_null()) {
    document["miniacc"] = own;
    MINIACC_ASSIGN(report.request, request_from_json(own.at("request").dump()));
    if (own.contains("precision") && own.at("precision").is_string()) {
      report.precision = own.at("precision").get<std::string>();
    }
    if (own.contains("vae_precision") && own.at("vae_precision").is_string()) {
      report.vae_precision = own.at("vae_precision").get<std::string>();
    }
    report.has_request = true;
    lines.push_back(dump(own, 2));
  } else {
    lines.emplace_back("no request is stored in this file");
  }
  report.text = fmt::format("{}", fmt::join(lines, "\n"));
  report.json = dump(document, -1);
  return report;
}

Result<std::string> judge_clip(const std::filesystem::path& path,
                               std::optional<std::string> caption, ReportFormat format) {
  if (!caption) {
    MINIACC_ASSIGN(const auto metadata, read_metadata(path));
    MINIACC_ASSIGN(const json own, read_own_metadata(metadata, path));
    if (!own.is_null()) {
      MINIACC_ASSIGN(GenerateRequest request, request_from_json(own.at("request").dump()));
      caption = std::move(request.prompt);
    }
  }
  MINIACC_ASSIGN(const Clip clip, read_clip(path));
  auto judgement = measure::judge(clip, std::move(caption));
  if (!judgement) {
    return fail(judgement.error().code,
                fmt::format("{}: {}", path.string(), judgement.error().message));
  }
  return format == ReportFormat::kJson ? measure::judgement_json(*judgement)
                                       : measure::judgement_text(*judgement);
}

Status make_sheet(const SheetRequest& request) {
  constexpr std::int64_t kMostFrames = 100;
  if (request.num_frames < 1 || request.num_frames > kMostFrames) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--frames must be 1 to {}, got {}", kMostFrames, request.num_frames));
  }
  std::vector<Clip> clips;
  for (const std::filesystem::path& path : request.clips) {
    MINIACC_ASSIGN(Clip clip, read_clip(path));
    clips.push_back(std::move(clip));
  }
  MINIACC_ASSIGN(const RgbImage sheet,
                 measure::contact_sheet(clips, {.num_frames = request.num_frames}));
  return write_picture(sheet, request.output,
                       request.overwrite ? ExistingOutput::kReplace : ExistingOutput::kRefuse);
}

std::string list_recipes(ReportFormat format) {
  if (format == ReportFormat::kJson) {
    json list = json::array();
    for (const Recipe& recipe : all_recipes()) {
      const SigmaSchedule schedule = make_schedule({.recipe = recipe.name}).value();
      list.push_back({{"name", recipe.name},
                      {"description", recipe.description},
                      {"forwards", recipe.num_forwards()},
                      {"flow_shift", recipe.video_shift},
                      {"audio_flow_shift", recipe.audio_shift},
                      {"sigmas", schedule.video},
                      {"audio_sigmas", schedule.audio}});
    }
    return dump(list, -1);
  }
  std::vector<std::string> lines = {
      fmt::format("{:<16}{:>8}  {:>11}  {}", "recipe", "forwards", "shifts", "for")};
  for (const Recipe& recipe : all_recipes()) {
    lines.push_back(fmt::format("{:<16}{:>8}  {:>11}  {}", recipe.name, recipe.num_forwards(),
                                fmt::format("{:g} / {:g}", recipe.video_shift, recipe.audio_shift),
                                recipe.description));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace miniacc
