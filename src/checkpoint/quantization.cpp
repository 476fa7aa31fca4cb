#include "checkpoint/quantization.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

namespace miniacc {
namespace {

using nlohmann::json;

struct Format {
  std::string name;
  std::int64_t rotation_group = 0;
};

constexpr std::size_t kMaxRecordBytes = 4096;
constexpr std::int64_t kDefaultRotationGroup = 256;  // ComfyUI's, where a record gives none
constexpr std::int64_t kMaxRotationGroup = 65536;

/// Weight name without ".weight", where `name` is a side tensor called `suffix`.
std::optional<std::string> owner_of(const TensorFile& file, const std::string& name,
                                    std::string_view suffix) {
  if (!name.ends_with(suffix)) {
    return std::nullopt;
  }
  std::string owner = name.substr(0, name.size() - suffix.size());
  if (file.find(owner + ".weight") == nullptr) {
    return std::nullopt;
  }
  return owner;
}

Result<Format> parse_format(const TensorFile& file, const std::string& owner, const json& record) {
  const auto bad = [&](std::string_view what) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: quantisation record of {} {}", file.path().string(), owner, what));
  };
  if (!record.is_object() || !record.contains("format") || !record["format"].is_string()) {
    return bad("has no format");
  }
  Format format{record["format"].get<std::string>(), 0};
  const bool known = format.name == "int8_tensorwise" || format.name == "float8_e4m3fn" ||
                     format.name == "float8_e5m2";
  if (!known) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} is quantised as {}, which this build cannot read",
                            file.path().string(), owner, format.name));
  }
  const auto convrot = record.find("convrot");
  if (convrot != record.end() && !convrot->is_boolean()) {
    return bad("has a convrot entry that is not true or false");
  }
  if (convrot != record.end() && convrot->get<bool>()) {
    format.rotation_group = kDefaultRotationGroup;
    if (const auto group = record.find("convrot_groupsize"); group != record.end()) {
      if (!group->is_number_integer()) {
        return bad("has a convrot_groupsize that is not an integer");
      }
      format.rotation_group = group->get<std::int64_t>();
    }
    std::int64_t power = 4;
    while (power < format.rotation_group && power < kMaxRotationGroup) {
      power *= 4;
    }
    if (power != format.rotation_group) {
      return bad(fmt::format("has convrot_groupsize {}, wanted a power of 4 up to {}",
                             format.rotation_group, kMaxRotationGroup));
    }
  }
  return format;
}

/// Formats by owner, from the file's metadata.
Status read_metadata(const TensorFile& file, std::map<std::string, Format>& formats) {
  const auto text = file.metadata().find("_quantization_metadata");
  if (text == file.metadata().end()) {
    return {};
  }
  const json root = json::parse(text->second, nullptr, false);
  if (root.is_discarded() || !root.is_object() || !root.contains("layers") ||
      !root["layers"].is_object()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: _quantization_metadata is not JSON with a layers object",
                            file.path().string()));
  }
  constexpr std::array<std::string_view, 3> kPrefixes = {"", "model.diffusion_model.",
                                                         "diffusion_model."};
  for (const auto& [name, record] : root["layers"].items()) {
    for (const std::string_view prefix : kPrefixes) {
      const std::string owner = std::string(prefix) + name;
      if (file.find(owner + ".weight") != nullptr) {
        MINIACC_ASSIGN(formats[owner], parse_format(file, owner, record));
        break;
      }
    }
  }
  return {};
}

Status read_blob(const TensorFile& file, const TensorEntry& entry, const std::string& owner,
                 std::map<std::string, Format>& formats) {
  if (entry.size_bytes > kMaxRecordBytes) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} has {} bytes, wanted at most {}", file.path().string(),
                            entry.name, entry.size_bytes, kMaxRecordBytes));
  }
  MINIACC_ASSIGN(const auto bytes, file.bytes(entry));
  std::string text(bytes.size(), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text[i] = static_cast<char>(bytes[i]);
  }
  const json record = json::parse(text, nullptr, false);
  if (record.is_discarded()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} is not JSON", file.path().string(), entry.name));
  }
  MINIACC_ASSIGN(formats[owner], parse_format(file, owner, record));
  return {};
}

Status check_scale(const TensorFile& file, const TensorEntry& weight, const TensorEntry& scale) {
  const bool is_float =
      scale.dtype == DType::kF32 || scale.dtype == DType::kF16 || scale.dtype == DType::kBF16;
  const std::int64_t rows = weight.shape.rank() > 0 ? weight.shape[0] : 1;
  const std::int64_t count = scale.shape.num_elements();
  if (!is_float || (count != 1 && count != rows)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} is {} {}, wanted one float value or one per row of {}",
                            file.path().string(), scale.name, dtype_name(scale.dtype),
                            scale.shape.to_string(), weight.shape.to_string()));
  }
  return {};
}

/// Formats that are recognised by their side tensors and refused.
Status refuse_unsupported(const TensorFile& file, const std::string& name) {
  struct Refused {
    std::string_view suffix;
    std::string_view format;
  };
  constexpr std::array<Refused, 6> kRefused = {{{".weight_scale_2", "nvfp4"},
                                                {".weight_s_rel", "asym_w4a8_int8"},
                                                {".weight_s_channel", "asym_w4a8_int8"},
                                                {".weight_codebook", "asym_w4a8_int8"},
                                                {".pre_quant_scale", "awq"},
                                                {".weight_zero_point", "zero-point int8"}}};
  for (const auto& [suffix, format] : kRefused) {
    if (owner_of(file, name, suffix)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: {} belongs to quantisation format {}, which this build cannot "
                              "read; use a bf16, fp8_scaled, int8 or GGUF file",
                              file.path().string(), name, format));
    }
  }
  return {};
}

}  // namespace

Result<QuantizationRecords> read_quantization(const TensorFile& file) {
  QuantizationRecords records;
  std::map<std::string, Format> formats;
  std::map<std::string, const TensorEntry*> scales;
  for (const TensorEntry& entry : file.entries()) {
    MINIACC_RETURN_IF_ERROR(refuse_unsupported(file, entry.name));
    for (const std::string_view suffix : {".weight_scale", ".scale_weight"}) {
      if (const auto owner = owner_of(file, entry.name, suffix)) {
        scales[*owner] = &entry;
        records.side_tensors.insert(&entry);
      }
    }
    // Scales of the activations serve 8-bit products on GPUs; weights are complete without them.
    for (const std::string_view suffix : {".input_scale", ".scale_input"}) {
      if (owner_of(file, entry.name, suffix)) {
        records.side_tensors.insert(&entry);
      }
    }
    if (const auto owner = owner_of(file, entry.name, ".comfy_quant")) {
      MINIACC_RETURN_IF_ERROR(read_blob(file, entry, *owner, formats));
      records.side_tensors.insert(&entry);
    }
    if (entry.name == "scaled_fp8" || entry.name.ends_with(".scaled_fp8")) {
      records.side_tensors.insert(&entry);
    }
  }
  MINIACC_RETURN_IF_ERROR(read_metadata(file, formats));

  bool has_fp8 = false;
  bool has_int8 = false;
  bool has_rotation = false;
  for (const TensorEntry& entry : file.entries()) {
    const bool is_int8 = entry.dtype == DType::kI8;
    const bool is_fp8 = entry.dtype == DType::kF8E4M3 || entry.dtype == DType::kF8E5M2;
    const std::string owner = entry.name.ends_with(".weight")
                                  ? entry.name.substr(0, entry.name.size() - 7)
                                  : std::string();
    WeightQuantization weight;
    if (const auto scale = scales.find(owner); !owner.empty() && scale != scales.end()) {
      weight.scale = scale->second;
      MINIACC_RETURN_IF_ERROR(check_scale(file, entry, *weight.scale));
    }
    if (const auto format = formats.find(owner); !owner.empty() && format != formats.end()) {
      weight.rotation_group = format->second.rotation_group;
      if (is_int8 != (format->second.name == "int8_tensorwise") || (!is_int8 && !is_fp8)) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: {} is {}, but its record says {}", file.path().string(),
                                entry.name, dtype_name(entry.dtype), format->second.name));
      }
    }
    if (weight.rotation_group > 0 &&
        (entry.shape.rank() != 2 || entry.shape.back() % weight.rotation_group != 0)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} is {}, wanted columns in whole ConvRot groups of {}",
                              file.path().string(), entry.name, entry.shape.to_string(),
                              weight.rotation_group));
    }
    if (is_int8 && file.format() == ContainerFormat::kSafetensors && weight.scale == nullptr) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{}: {} is int8 without a weight_scale",
                                                        file.path().string(), entry.name));
    }
    if (weight.scale != nullptr || weight.rotation_group > 0) {
      has_fp8 = has_fp8 || is_fp8;
      has_int8 = has_int8 || is_int8;
      has_rotation = has_rotation || weight.rotation_group > 0;
      records.weights[&entry] = weight;
    }
  }
  records.summary = has_int8 ? "int8_tensorwise" : (has_fp8 ? "fp8_scaled" : "");
  if (has_rotation) {
    records.summary += "+convrot";
  }
  return records;
}

}  // namespace miniacc
