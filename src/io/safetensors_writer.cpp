#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors_types.h"
#include "io/sequential_writer.h"
#include "io/tensor_file_builder.h"

namespace miniacc {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

Result<std::unique_ptr<TensorWriter>> create_safetensors(
    const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata) {
  MINIACC_RETURN_IF_ERROR(check_specs(path, tensors, metadata));
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      json += fmt::format("{}{}:{}", json.back() == '{' ? "" : ",", quoted(key), quoted(value));
    }
    json += "}";
  }
  std::vector<std::uint64_t> sizes;
  std::uint64_t offset = 0;
  for (const TensorSpec& spec : tensors) {
    const auto type = safetensors_dtype_name(spec.dtype);
    if (!type) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: tensor {} is {}, which safetensors files cannot hold",
                              path.string(), spec.name, dtype_name(spec.dtype)));
    }
    if (spec.name == kSafetensorsMetadataKey) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: {} cannot be a tensor's name", path.string(), spec.name));
    }
    const std::uint64_t size = spec_bytes(spec);
    // A sum that wraps makes the total wrap too, which create_sequential_writer refuses.
    json += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json.size() == 1 ? "" : ",", quoted(spec.name), *type,
                        fmt::join(spec.shape.dims(), ","), offset, offset + size);
    sizes.push_back(size);
    offset += size;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');  // data begins aligned
  if (json.size() > kMaxHeaderBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the header is {} bytes long, at most {} are allowed",
                            path.string(), json.size(), kMaxHeaderBytes));
  }
  const std::uint64_t length = json.size();
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  return create_sequential_writer(path, header + json, std::move(sizes), 1);
}

}  // namespace miniacc
