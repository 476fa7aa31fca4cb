#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "miniacc/miniacc.h"

namespace miniacc {
namespace {

using nlohmann::json;

constexpr int kRequestVersion = 1;

template <typename T>
bool is_integer_of(const json& number) {
  if (number.is_number_unsigned()) {
    return std::in_range<T>(number.get<std::uint64_t>());
  }
  return number.is_number_integer() && std::in_range<T>(number.get<std::int64_t>());
}

/// Reads fields of one JSON object; remembers which ones it was asked for, so that a misspelt field
/// is an error and not a shrug.
class ObjectReader {
 public:
  ObjectReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  template <typename T>
  Status read(const char* key, T& value) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) {
      return {};
    }
    const auto wrong = [&](const char* what) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: field '{}' {}: {}", where_, key, what,
                              found->dump(-1, ' ', false, json::error_handler_t::replace)));
    };
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      // get_to would cut a fraction off and wrap a number that does not fit.
      if (found->is_number() && !is_integer_of<T>(*found)) {
        return wrong("is not a whole number in range");
      }
    }
    try {
      found->get_to(value);
    } catch (const json::exception&) {
      return wrong("has the wrong type");
    }
    return {};
  }
  template <typename T>
  Status read(const char* key, std::optional<T>& value) {
    T inner{};
    MINIACC_RETURN_IF_ERROR(read(key, inner));
    if (object_.contains(key) && !object_.at(key).is_null()) {
      value = inner;
    }
    return {};
  }
  Status read(const char* key, std::filesystem::path& value) {
    std::string text = value.string();
    MINIACC_RETURN_IF_ERROR(read(key, text));
    value = text;
    return {};
  }
  [[nodiscard]] Status finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: there is no field '{}'", where_, key));
      }
    }
    return {};
  }

 private:
  const json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

json optional_json(const std::optional<float>& value) { return value ? json(*value) : json(); }

json loras_json(const std::vector<LoraRequest>& loras) {
  json list = json::array();
  for (const LoraRequest& lora : loras) {
    list.push_back({{"path", lora.path.string()},
                    {"strength", lora.strength},
                    {"alpha", optional_json(lora.alpha)},
                    {"half", lora.half}});
  }
  return list;
}

Result<std::vector<LoraRequest>> loras_from_json(const json& list) {
  if (!list.is_array()) {
    return fail(ErrorCode::kInvalidInput, "request: 'loras' must be an array");
  }
  std::vector<LoraRequest> loras;
  for (const json& item : list) {
    const std::string where = fmt::format("request.loras[{}]", loras.size());
    if (!item.is_object()) {
      return fail(ErrorCode::kInvalidInput, where + " must be an object");
    }
    LoraRequest& lora = loras.emplace_back();
    ObjectReader reader(item, where);
    MINIACC_RETURN_IF_ERROR(reader.read("path", lora.path));
    MINIACC_RETURN_IF_ERROR(reader.read("strength", lora.strength));
    MINIACC_RETURN_IF_ERROR(reader.read("alpha", lora.alpha));
    MINIACC_RETURN_IF_ERROR(reader.read("half", lora.half));
    MINIACC_RETURN_IF_ERROR(reader.finish());
  }
  return loras;
}

constexpr std::pair<ReferenceInput::Kind, const char*> kKindNames[] = {
    {ReferenceInput::Kind::kImage, "image"},
    {ReferenceInput::Kind::kVideo, "video"},
    {ReferenceInput::Kind::kAudio, "audio"}};

json input_json(const InputFile& file) {
  json object = {{"path", file.path.string()}};
  if (!file.sha256.empty()) {
    object["sha256"] = file.sha256;
  }
  return object;
}

json references_json(const std::vector<ReferenceInput>& references) {
  json list = json::array();
  for (const ReferenceInput& reference : references) {
    json object = input_json(reference.file);
    for (const auto& [kind, name] : kKindNames) {
      if (kind == reference.kind) {
        object["kind"] = name;
      }
    }
    if (reference.kind == ReferenceInput::Kind::kVideo) {
      object["with_sound"] = reference.with_sound;
    }
    list.push_back(std::move(object));
  }
  return list;
}

/// Fields of an input file; a hash is 64 hexadecimal digits.
Status read_input(ObjectReader& reader, const std::string& where, InputFile& file) {
  MINIACC_RETURN_IF_ERROR(reader.read("path", file.path));
  MINIACC_RETURN_IF_ERROR(reader.read("sha256", file.sha256));
  if (file.path.empty()) {
    return fail(ErrorCode::kInvalidInput, where + " names no file: field 'path' is missing");
  }
  const bool is_hex = std::all_of(file.sha256.begin(), file.sha256.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (!file.sha256.empty() && (file.sha256.size() != 64 || !is_hex)) {
    return fail(ErrorCode::kInvalidInput,
                where + ": field 'sha256' must be 64 lower-case hexadecimal digits");
  }
  return {};
}

/// A keyframe is an object, or just the path; null and "" mean none.
Result<InputFile> input_from_json(const json& value, const std::string& where) {
  InputFile file;
  if (value.is_null()) {
    return file;
  }
  if (value.is_string()) {
    file.path = value.get<std::string>();
    return file;
  }
  if (!value.is_object()) {
    return fail(ErrorCode::kInvalidInput, where + " must be a path or an object with a 'path'");
  }
  ObjectReader reader(value, where);
  MINIACC_RETURN_IF_ERROR(read_input(reader, where, file));
  MINIACC_RETURN_IF_ERROR(reader.finish());
  return file;
}

Result<std::vector<ReferenceInput>> references_from_json(const json& list) {
  if (!list.is_array()) {
    return fail(ErrorCode::kInvalidInput, "request: 'references' must be an array");
  }
  std::vector<ReferenceInput> references;
  for (const json& item : list) {
    const std::string where = fmt::format("request.references[{}]", references.size());
    if (!item.is_object()) {
      return fail(ErrorCode::kInvalidInput, where + " must be an object");
    }
    ReferenceInput& reference = references.emplace_back();
    std::string kind;
    ObjectReader reader(item, where);
    MINIACC_RETURN_IF_ERROR(read_input(reader, where, reference.file));
    MINIACC_RETURN_IF_ERROR(reader.read("kind", kind));
    MINIACC_RETURN_IF_ERROR(reader.read("with_sound", reference.with_sound));
    MINIACC_RETURN_IF_ERROR(reader.finish());
    const auto* const found = std::find_if(std::begin(kKindNames), std::end(kKindNames),
                                           [&](const auto& entry) { return kind == entry.second; });
    if (found == std::end(kKindNames)) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{}: field 'kind' must be image, video or audio, got '{}'", where, kind));
    }
    reference.kind = found->first;
  }
  return references;
}

/// What a request is conditioned on; absent without conditions, so that such requests stay readable
/// by programs that know none.
void add_conditions(json& document, const GenerateRequest& request) {
  if (!request.init_image.empty()) {
    document["init_image"] = input_json(request.init_image);
  }
  if (!request.end_image.empty()) {
    document["end_image"] = input_json(request.end_image);
  }
  if (!request.init_image.empty() || !request.end_image.empty()) {
    document["keyframe_fit"] = request.keyframe_fit;
  }
  if (!request.references.empty()) {
    document["references"] = references_json(request.references);
    document["ref_image_size"] = request.ref_image_size;
  }
  if (document.contains("keyframe_fit") || document.contains("references")) {
    document["picture_background"] = request.picture_background;
  }
}

Status read_conditions(ObjectReader& reader, GenerateRequest& request) {
  json init_image;
  json end_image;
  json references = json::array();
  json background;
  MINIACC_RETURN_IF_ERROR(reader.read("init_image", init_image));
  MINIACC_RETURN_IF_ERROR(reader.read("end_image", end_image));
  MINIACC_RETURN_IF_ERROR(reader.read("references", references));
  MINIACC_RETURN_IF_ERROR(reader.read("ref_image_size", request.ref_image_size));
  MINIACC_RETURN_IF_ERROR(reader.read("keyframe_fit", request.keyframe_fit));
  MINIACC_RETURN_IF_ERROR(reader.read("picture_background", background));
  MINIACC_ASSIGN(request.init_image, input_from_json(init_image, "request.init_image"));
  MINIACC_ASSIGN(request.end_image, input_from_json(end_image, "request.end_image"));
  MINIACC_ASSIGN(request.references, references_from_json(references));
  if (background.is_null()) {
    return {};
  }
  const bool is_color = background.is_array() && background.size() == 3 &&
                        std::all_of(background.begin(), background.end(), [](const json& level) {
                          return is_integer_of<std::uint8_t>(level);
                        });
  if (!is_color) {
    return fail(ErrorCode::kInvalidInput,
                "request: 'picture_background' must be three whole numbers from 0 to 255");
  }
  request.picture_background = background.get<std::array<std::uint8_t, 3>>();
  return {};
}

}  // namespace

std::string request_to_json(const GenerateRequest& request) {
  const SamplingOptions& sampling = request.sampling;
  const ModelPaths& model = request.model;
  json document = {{"version", kRequestVersion},
                   {"prompt", request.prompt},
                   {"width", request.width},
                   {"height", request.height},
                   {"frames", request.num_frames},
                   {"seed", request.seed},
                   {"sampling",
                    {{"recipe", sampling.recipe},
                     {"steps", sampling.steps ? json(*sampling.steps) : json()},
                     {"flow_shift", optional_json(sampling.video_shift)},
                     {"audio_flow_shift", optional_json(sampling.audio_shift)},
                     {"sigmas", sampling.video_sigmas},
                     {"audio_sigmas", sampling.audio_sigmas},
                     {"noise", sampling.noise}}},
                   {"model",
                    {{"folder", model.folder.string()},
                     {"diffusion_model", model.transformer.string()},
                     {"text_encoder", model.text_encoder.string()},
                     {"tokenizer", model.tokenizer.string()},
                     {"vae", model.video_vae.string()},
                     {"audio_vae", model.audio_vae.string()}}}};
  if (!model.half.empty()) {
    document["model"]["half"] = model.half;
  }
  if (!request.attention.empty()) {
    document["attention"] = request.attention;
  }
  add_conditions(document, request);
  // Absent without adapters, so that such requests stay readable by programs that know none.
  if (!request.loras.empty()) {
    document["loras"] = loras_json(request.loras);
    document["lora_allow_partial"] = request.lora_allow_partial;
    document["lora_mode"] = request.lora_mode;
    document["adaln_base"] = request.adaln_base.string();
  }
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string lora_reports_to_json(const std::vector<LoraReport>& reports) {
  json list = json::array();
  for (const LoraReport& report : reports) {
    list.push_back({{"path", report.path.string()},
                    {"strength", report.strength},
                    {"family", report.family},
                    {"alpha_source", report.alpha_source},
                    {"scale", {report.min_scale, report.max_scale}},
                    {"rank", {report.min_rank, report.max_rank}},
                    {"modules", report.num_modules},
                    {"matched", report.matched},
                    {"unmatched", report.unmatched},
                    {"rejected", report.rejected},
                    {"other_half", report.other_half},
                    {"projected", report.projected},
                    {"head_steps", report.head_steps},
                    {"half", report.half},
                    {"recipe", report.recipe},
                    {"recipe_source", report.recipe_source},
                    {"sparse_attention", report.sparse_attention},
                    {"mode", report.mode}});
  }
  return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<GenerateRequest> request_from_json(const std::string& text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return fail(ErrorCode::kInvalidInput, "the request is not a JSON object");
  }
  GenerateRequest request;
  int request_version = 0;
  json sampling_json = json::object();
  json model_json = json::object();
  json loras_json = json::array();
  ObjectReader reader(document, "request");
  MINIACC_RETURN_IF_ERROR(reader.read("version", request_version));
  MINIACC_RETURN_IF_ERROR(reader.read("prompt", request.prompt));
  MINIACC_RETURN_IF_ERROR(reader.read("width", request.width));
  MINIACC_RETURN_IF_ERROR(reader.read("height", request.height));
  MINIACC_RETURN_IF_ERROR(reader.read("frames", request.num_frames));
  MINIACC_RETURN_IF_ERROR(reader.read("seed", request.seed));
  MINIACC_RETURN_IF_ERROR(reader.read("sampling", sampling_json));
  MINIACC_RETURN_IF_ERROR(reader.read("model", model_json));
  MINIACC_RETURN_IF_ERROR(reader.read("attention", request.attention));
  MINIACC_RETURN_IF_ERROR(read_conditions(reader, request));
  MINIACC_RETURN_IF_ERROR(reader.read("loras", loras_json));
  MINIACC_RETURN_IF_ERROR(reader.read("lora_allow_partial", request.lora_allow_partial));
  MINIACC_RETURN_IF_ERROR(reader.read("lora_mode", request.lora_mode));
  MINIACC_RETURN_IF_ERROR(reader.read("lora_dir", request.lora_dir));
  MINIACC_RETURN_IF_ERROR(reader.read("adaln_base", request.adaln_base));
  MINIACC_RETURN_IF_ERROR(reader.finish());
  if (request_version != kRequestVersion) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("the request has version {}, this program reads version {}",
                            request_version, kRequestVersion));
  }
  if (!sampling_json.is_object() || !model_json.is_object()) {
    return fail(ErrorCode::kInvalidInput, "request: 'sampling' and 'model' must be objects");
  }
  MINIACC_ASSIGN(request.loras, loras_from_json(loras_json));
  ObjectReader sampling(sampling_json, "request.sampling");
  MINIACC_RETURN_IF_ERROR(sampling.read("recipe", request.sampling.recipe));
  MINIACC_RETURN_IF_ERROR(sampling.read("steps", request.sampling.steps));
  MINIACC_RETURN_IF_ERROR(sampling.read("flow_shift", request.sampling.video_shift));
  MINIACC_RETURN_IF_ERROR(sampling.read("audio_flow_shift", request.sampling.audio_shift));
  MINIACC_RETURN_IF_ERROR(sampling.read("sigmas", request.sampling.video_sigmas));
  MINIACC_RETURN_IF_ERROR(sampling.read("audio_sigmas", request.sampling.audio_sigmas));
  MINIACC_RETURN_IF_ERROR(sampling.read("noise", request.sampling.noise));
  MINIACC_RETURN_IF_ERROR(sampling.finish());
  if (!request.sampling.video_sigmas.empty()) {
    request.sampling.steps.reset();  // the sigmas say it, and say it exactly
  }
  ObjectReader model(model_json, "request.model");
  MINIACC_RETURN_IF_ERROR(model.read("folder", request.model.folder));
  MINIACC_RETURN_IF_ERROR(model.read("diffusion_model", request.model.transformer));
  MINIACC_RETURN_IF_ERROR(model.read("text_encoder", request.model.text_encoder));
  MINIACC_RETURN_IF_ERROR(model.read("tokenizer", request.model.tokenizer));
  MINIACC_RETURN_IF_ERROR(model.read("vae", request.model.video_vae));
  MINIACC_RETURN_IF_ERROR(model.read("audio_vae", request.model.audio_vae));
  MINIACC_RETURN_IF_ERROR(model.read("half", request.model.half));
  MINIACC_RETURN_IF_ERROR(model.finish());
  return request;
}

}  // namespace miniacc
