#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "io/gguf_types.h"
#include "io/sequential_writer.h"
#include "io/tensor_file_builder.h"

namespace miniacc {
namespace {

/// The header under construction; numbers are little-endian as the supported machines are.
class Header {
 public:
  template <typename T>
  void number(T value) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + sizeof(T));
    std::memcpy(bytes_.data() + end, &value, sizeof(T));
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes_ += value;
  }
  void key(std::string_view name, GgufValueType type) {
    text(name);
    number(static_cast<std::uint32_t>(type));
  }
  void raw(std::string_view value) { bytes_ += value; }
  void pad() {
    bytes_.append(
        (kGgufDefaultAlignment - bytes_.size() % kGgufDefaultAlignment) % kGgufDefaultAlignment,
        '\0');
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

bool is_folded(const Shape& shape) { return shape.rank() > kGgufMaxDims || shape.rank() == 0; }

/// The dimensions as stored: innermost first, the outermost ones multiplied down to four, one for a
/// scalar.
std::vector<std::uint64_t> stored_dims(const Shape& shape) {
  std::vector<std::uint64_t> dims(shape.dims().rbegin(), shape.dims().rend());
  while (dims.size() > static_cast<std::size_t>(kGgufMaxDims)) {
    const std::uint64_t outermost = dims.back();
    dims.pop_back();
    dims.back() *= outermost;
  }
  if (dims.empty()) {
    dims.push_back(1);
  }
  return dims;
}

/// Readers in Python take any integer type; 32 bits are what they write themselves.
void write_orig_shape(Header& header, const TensorSpec& spec) {
  header.key(std::string(kGgufOrigShapePrefix) + spec.name, GgufValueType::kArray);
  const auto dims = spec.shape.dims();
  const bool small = std::all_of(dims.begin(), dims.end(), [](std::int64_t size) {
    return size <= std::numeric_limits<std::int32_t>::max();
  });
  header.number(static_cast<std::uint32_t>(small ? GgufValueType::kInt32 : GgufValueType::kInt64));
  header.number(static_cast<std::uint64_t>(dims.size()));
  for (const std::int64_t size : dims) {
    if (small) {
      header.number(static_cast<std::int32_t>(size));
    } else {
      header.number(size);
    }
  }
}

}  // namespace

Result<std::unique_ptr<TensorWriter>> create_gguf(
    const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata) {
  MINIACC_RETURN_IF_ERROR(check_specs(path, tensors, metadata));
  std::uint64_t num_folded = 0;
  for (const TensorSpec& spec : tensors) {
    if (!ggml_type_of_dtype(spec.dtype)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: tensor {} is {}, which GGUF files cannot hold", path.string(),
                              spec.name, dtype_name(spec.dtype)));
    }
    num_folded += is_folded(spec.shape) ? 1 : 0;
  }
  for (const auto& [key, value] : metadata) {
    if (key == "general.alignment" || key == "split.count" ||
        key.starts_with(kGgufOrigShapePrefix)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: metadata key {} has a meaning of its own in GGUF files",
                              path.string(), key));
    }
  }

  Header header;
  header.raw(kGgufMagic);
  header.number(kGgufVersion);
  header.number(static_cast<std::uint64_t>(tensors.size()));
  header.number(static_cast<std::uint64_t>(metadata.size()) + num_folded);
  for (const auto& [key, value] : metadata) {
    header.key(key, GgufValueType::kString);
    header.text(value);
  }
  for (const TensorSpec& spec : tensors) {
    if (is_folded(spec.shape)) {
      write_orig_shape(header, spec);
    }
  }
  std::vector<std::uint64_t> sizes;
  std::uint64_t offset = 0;
  for (const TensorSpec& spec : tensors) {
    const std::vector<std::uint64_t> dims = stored_dims(spec.shape);
    header.text(spec.name);
    header.number(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t size : dims) {
      header.number(size);
    }
    header.number(ggml_type_of_dtype(spec.dtype).value());
    header.number(offset);
    const std::uint64_t size = spec_bytes(spec);
    sizes.push_back(size);
    // Sums that wrap make the total too large, which create_sequential_writer refuses.
    offset += (size + kGgufDefaultAlignment - 1) / kGgufDefaultAlignment * kGgufDefaultAlignment;
  }
  header.pad();
  if (header.bytes().size() > kMaxHeaderBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the header is {} bytes long, at most {} are allowed",
                            path.string(), header.bytes().size(), kMaxHeaderBytes));
  }
  return create_sequential_writer(path, header.bytes(), std::move(sizes), kGgufDefaultAlignment);
}

}  // namespace miniacc
