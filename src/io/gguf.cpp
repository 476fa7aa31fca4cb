#include "io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/gguf_types.h"

namespace miniacc {
namespace {

constexpr std::size_t kMaxKeyBytes = 65535;   // the format's own limit
constexpr std::size_t kMaxPrintedItems = 64;  // longer arrays appear in metadata as a count
constexpr std::uint32_t kMaxAlignment = 1U << 20;
constexpr int kMaxArrayDepth = 4;
constexpr std::size_t kMinTensorInfoBytes = 8 + 4 + 4 + 8;  // name length, rank, type, offset
constexpr std::size_t kMinPairBytes = 8 + 4 + 1;            // key length, type, shortest value

/// A key's value as far as MiniAcc keeps it.
struct Value {
  std::string text;                                ///< as TensorFile::metadata shows it
  std::optional<std::uint64_t> unsigned_number;    ///< of a non-negative integer
  std::optional<std::vector<std::uint64_t>> dims;  ///< of a short array of non-negative integers
};

/// Reads the header front to back. Every read is checked against the end of the file; the first
/// failure is kept and everything after it is skipped.
class Reader {
 public:
  explicit Reader(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

  Result<TensorFileHeader> read();

 private:
  [[nodiscard]] std::size_t left() const { return bytes_.size() - position_; }

  [[nodiscard]] tl::unexpected<Error> reject(const std::string& message,
                                             ErrorCode code = ErrorCode::kInvalidInput) const {
    return fail(code, fmt::format("{}: {}", file_.path().string(), message));
  }
  [[nodiscard]] tl::unexpected<Error> truncated(const std::string& what) const {
    return reject(
        fmt::format("is truncated: {} at byte {} goes beyond the file's {} bytes (an "
                    "incomplete download?)",
                    what, position_, bytes_.size()));
  }

  /// Whether `size` more bytes may belong to the header.
  [[nodiscard]] Status check_room(std::uint64_t size, const std::string& what) const {
    if (size > left()) {
      return truncated(what);
    }
    if (size > kMaxHeaderBytes || position_ + size > kMaxHeaderBytes) {
      return reject(
          fmt::format("{} goes beyond the {} bytes a header may have", what, kMaxHeaderBytes));
    }
    return {};
  }

  template <typename T>
  Result<T> number(const std::string& what) {
    MINIACC_RETURN_IF_ERROR(check_room(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  /// Points into the map.
  Result<std::string_view> text(const std::string& what);

  /// Whether `count` things of at least `least` bytes each may follow.
  [[nodiscard]] Status check_count(std::uint64_t count, std::size_t least,
                                   const std::string& what) const {
    if (count > left() / least) {
      return truncated(fmt::format("a list of {} {}", count, what));
    }
    return check_room(count * least, fmt::format("a list of {} {}", count, what));
  }

  Status check_version();
  Status read_pair();
  Result<Value> read_value(GgufValueType type, const std::string& what, int depth);
  Result<Value> read_array(const std::string& what, int depth);
  template <typename T>
  Result<Value> read_scalar(const std::string& what);
  Status read_tensor_info();
  Status apply_orig_shapes();
  Status place_tensors();

  const MappedFile& file_;
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_pairs_ = 0;
  std::size_t alignment_ = kGgufDefaultAlignment;
  std::map<std::string, std::vector<std::uint64_t>> orig_shapes_;  // by tensor name
  std::set<std::string> names_;
  TensorFileHeader header_;
};

Result<TensorFileHeader> Reader::read() {
  MINIACC_RETURN_IF_ERROR(check_version());
  MINIACC_ASSIGN(num_tensors_, number<std::uint64_t>("the number of tensors"));
  MINIACC_ASSIGN(num_pairs_, number<std::uint64_t>("the number of key/value pairs"));
  // Bounds for all loops and allocations below.
  MINIACC_RETURN_IF_ERROR(check_count(num_pairs_, kMinPairBytes, "key/value pairs"));
  MINIACC_RETURN_IF_ERROR(check_count(num_tensors_, kMinTensorInfoBytes, "tensors"));
  for (std::uint64_t i = 0; i < num_pairs_; ++i) {
    MINIACC_RETURN_IF_ERROR(read_pair());
  }
  for (std::uint64_t i = 0; i < num_tensors_; ++i) {
    MINIACC_RETURN_IF_ERROR(read_tensor_info());
  }
  MINIACC_RETURN_IF_ERROR(place_tensors());
  MINIACC_RETURN_IF_ERROR(apply_orig_shapes());
  return std::move(header_);
}

Result<std::string_view> Reader::text(const std::string& what) {
  MINIACC_ASSIGN(const auto length, number<std::uint64_t>("the length of " + what));
  MINIACC_RETURN_IF_ERROR(check_room(length, what));
  const std::string_view value(reinterpret_cast<const char*>(bytes_.data()) + position_,
                               static_cast<std::size_t>(length));
  position_ += value.size();
  return value;
}

Status Reader::check_version() {
  position_ = kGgufMagic.size();
  MINIACC_ASSIGN(const auto version, number<std::uint32_t>("the version"));
  if (version == 2 || version == kGgufVersion) {
    return {};
  }
  if ((version & 0xFFFFU) == 0) {
    return reject("is a big-endian GGUF file, only little-endian is supported",
                  ErrorCode::kUnsupported);
  }
  return reject(fmt::format("is GGUF version {}, supported are 2 and 3", version),
                ErrorCode::kUnsupported);
}

Status Reader::read_pair() {
  MINIACC_ASSIGN(const auto key, text("a key"));
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return reject(fmt::format("a key is {} bytes long, wanted 1 to {}", key.size(), kMaxKeyBytes));
  }
  const std::string what = fmt::format("key {}", printable(key));
  if (!is_utf8(key)) {
    return reject(what + " is not UTF-8");
  }
  MINIACC_ASSIGN(const auto type, number<std::uint32_t>("the type of " + what));
  MINIACC_ASSIGN(Value value, read_value(static_cast<GgufValueType>(type), what, 0));
  if (!is_utf8(value.text)) {
    return reject(what + " has a value that is not UTF-8");
  }
  if (!header_.metadata.emplace(key, std::move(value.text)).second) {
    return reject(fmt::format("{} is present twice", what));
  }
  if (key == "general.alignment") {
    const std::uint64_t alignment = value.unsigned_number.value_or(0);
    if (alignment == 0 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
      return reject(fmt::format("general.alignment is {}, wanted a power of two up to {}",
                                printable(header_.metadata["general.alignment"]), kMaxAlignment));
    }
    alignment_ = static_cast<std::size_t>(alignment);
  } else if (key == "split.count" && value.unsigned_number.value_or(2) > 1) {
    return reject(fmt::format("is one of {} parts of a split GGUF file: join them first "
                              "(llama-gguf-split --merge)",
                              printable(header_.metadata["split.count"])),
                  ErrorCode::kUnsupported);
  } else if (key.starts_with(kGgufOrigShapePrefix)) {
    if (!value.dims) {
      return reject(fmt::format("{} is not a short array of sizes", what));
    }
    orig_shapes_.emplace(key.substr(kGgufOrigShapePrefix.size()), *std::move(value.dims));
  }
  return {};
}

template <typename T>
Result<Value> Reader::read_scalar(const std::string& what) {
  MINIACC_ASSIGN(const T number_read, number<T>(what));
  Value value;
  value.text = fmt::format("{}", number_read);
  if constexpr (std::is_integral_v<T>) {
    if (number_read >= 0) {
      value.unsigned_number = static_cast<std::uint64_t>(number_read);
    }
  }
  return value;
}

Result<Value> Reader::read_value(GgufValueType type, const std::string& what, int depth) {
  switch (type) {
    case GgufValueType::kUint8:
      return read_scalar<std::uint8_t>(what);
    case GgufValueType::kInt8:
      return read_scalar<std::int8_t>(what);
    case GgufValueType::kUint16:
      return read_scalar<std::uint16_t>(what);
    case GgufValueType::kInt16:
      return read_scalar<std::int16_t>(what);
    case GgufValueType::kUint32:
      return read_scalar<std::uint32_t>(what);
    case GgufValueType::kInt32:
      return read_scalar<std::int32_t>(what);
    case GgufValueType::kFloat32:
      return read_scalar<float>(what);
    case GgufValueType::kUint64:
      return read_scalar<std::uint64_t>(what);
    case GgufValueType::kInt64:
      return read_scalar<std::int64_t>(what);
    case GgufValueType::kFloat64:
      return read_scalar<double>(what);
    case GgufValueType::kBool: {
      MINIACC_ASSIGN(const auto byte, number<std::uint8_t>(what));
      if (byte > 1) {
        return reject(fmt::format("{} is a boolean of value {}", what, byte));
      }
      return Value{byte == 1 ? "true" : "false", std::nullopt, std::nullopt};
    }
    case GgufValueType::kString: {
      MINIACC_ASSIGN(const auto value, text(what));
      return Value{std::string(value), std::nullopt, std::nullopt};
    }
    case GgufValueType::kArray:
      return read_array(what, depth);
  }
  return reject(
      fmt::format("{} has the unknown value type {}", what, static_cast<std::uint32_t>(type)));
}

/// Bytes the shortest value of a type takes.
std::size_t min_value_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kString:
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kArray:
      return 12;
    default:
      return 1;
  }
}

Result<Value> Reader::read_array(const std::string& what, int depth) {
  if (depth >= kMaxArrayDepth) {
    return reject(fmt::format("{} nests arrays more than {} deep", what, kMaxArrayDepth));
  }
  MINIACC_ASSIGN(const auto type_number, number<std::uint32_t>(what));
  MINIACC_ASSIGN(const auto count, number<std::uint64_t>(what));
  const auto type = static_cast<GgufValueType>(type_number);
  MINIACC_RETURN_IF_ERROR(check_count(count, min_value_bytes(type), "items of " + what));
  Value value;
  const bool is_short = count <= kMaxPrintedItems;
  if (is_short) {
    value.dims.emplace();
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    MINIACC_ASSIGN(const Value item, read_value(type, what, depth + 1));
    if (!is_short) {
      continue;
    }
    value.text += value.text.empty() ? item.text : ", " + item.text;
    if (item.unsigned_number && value.dims) {
      value.dims->push_back(*item.unsigned_number);
    } else {
      value.dims.reset();
    }
  }
  value.text = is_short ? "[" + value.text + "]" : fmt::format("[{} items]", count);
  return value;
}

Status Reader::read_tensor_info() {
  MINIACC_ASSIGN(const auto name, text("a tensor name"));
  if (const auto problem = tensor_name_problem(name)) {
    return reject(fmt::format("tensor name '{}' {}", printable(name), *problem));
  }
  const std::string what = fmt::format("tensor {}", name);
  if (!names_.emplace(name).second) {
    return reject(fmt::format("{} is present twice", what));
  }
  MINIACC_ASSIGN(const auto rank, number<std::uint32_t>("the rank of " + what));
  if (rank > static_cast<std::uint32_t>(Shape::kMaxRank)) {
    return reject(
        fmt::format("{} has {} dimensions, at most {} are supported", what, rank, Shape::kMaxRank));
  }
  std::vector<std::uint64_t> dims(rank);
  for (std::uint64_t& size : dims) {
    MINIACC_ASSIGN(size, number<std::uint64_t>("the dimensions of " + what));
  }
  MINIACC_ASSIGN(const auto type, number<std::uint32_t>("the type of " + what));
  MINIACC_ASSIGN(const auto offset, number<std::uint64_t>("the offset of " + what));
  const auto dtype = dtype_of_ggml_type(type);
  if (!dtype) {
    return reject(
        fmt::format("{} is stored as {}, which is not supported", what, ggml_type_name(type)),
        ErrorCode::kUnsupported);
  }
  const std::uint64_t row = dims.empty() ? 1 : dims.front();
  if (row % static_cast<std::uint64_t>(block_elements(*dtype)) != 0) {
    return reject(fmt::format("{} has rows of {} values, {} wants a multiple of {}", what, row,
                              dtype_name(*dtype), block_elements(*dtype)));
  }
  std::reverse(dims.begin(), dims.end());
  const auto shape = checked_shape(dims);
  if (!shape) {
    return reject(fmt::format("{} {}", what, shape.error()));
  }
  const auto size = storage_bytes(*dtype, shape->num_elements());
  if (!size || *size > bytes_.size()) {
    return reject(
        fmt::format("is truncated: {} is {} {}, more than the file's {} bytes (an "
                    "incomplete download?)",
                    what, dtype_name(*dtype), shape->to_string(), bytes_.size()));
  }
  // Relative until place_tensors knows where the data begins.
  header_.entries.push_back(
      {std::string(name), *dtype, *shape, 0, static_cast<std::size_t>(offset), *size});
  return {};
}

Status Reader::place_tensors() {
  const std::size_t padding = (alignment_ - position_ % alignment_) % alignment_;
  // Without tensors the file may end where the header does.
  if (header_.entries.empty() && left() <= padding) {
    return {};
  }
  if (padding > left()) {
    return truncated("the start of the data");
  }
  const std::size_t data_begin = position_ + padding;
  for (TensorEntry& entry : header_.entries) {
    if (entry.offset % alignment_ != 0) {
      return reject(fmt::format("tensor {} has offset {}, wanted a multiple of {}", entry.name,
                                entry.offset, alignment_));
    }
    if (entry.offset > bytes_.size()) {
      return reject(
          fmt::format("is truncated: tensor {} begins {} bytes into the data, the file "
                      "has {} bytes (an incomplete download?)",
                      entry.name, entry.offset, bytes_.size()));
    }
    entry.offset += data_begin;
  }
  return check_layout(file_, header_.entries, data_begin, alignment_);
}

Status Reader::apply_orig_shapes() {
  for (TensorEntry& entry : header_.entries) {
    const auto original = orig_shapes_.find(entry.name);
    if (original == orig_shapes_.end()) {
      continue;
    }
    const auto shape = checked_shape(original->second);
    if (!shape || shape->num_elements() != entry.shape.num_elements()) {
      return reject(fmt::format("{}{} is {}, which is not a shape of the tensor's {} values",
                                kGgufOrigShapePrefix, entry.name,
                                header_.metadata[std::string(kGgufOrigShapePrefix) + entry.name],
                                entry.shape.num_elements()));
    }
    entry.shape = *shape;
  }
  return {};
}

}  // namespace

Result<TensorFileHeader> read_gguf_header(const MappedFile& file) { return Reader(file).read(); }

}  // namespace miniacc
