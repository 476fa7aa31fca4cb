#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors_types.h"

namespace miniacc {
namespace {

constexpr std::size_t kLengthBytes = 8;

// Types the format knows and MiniAcc has no use for: refused as unsupported, not as broken.
constexpr std::array<std::string_view, 10> kOtherDTypes = {
    "U16", "U32", "U64", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64",
};

/// Builds the header from JSON events. The document's shape is fixed, so the position in it is a
/// state of this machine: nothing nests deeper than the format does, duplicate keys are seen (a
/// parsed nlohmann::json would have dropped them), and no tree is built for a hostile header.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const MappedFile& file, std::size_t data_begin)
      : file_(file), data_begin_(data_begin) {}

  [[nodiscard]] Result<TensorFileHeader> finish() {
    if (error_) {
      error_->message = fmt::format("{}: {}", file_.path().string(), error_->message);
      return tl::unexpected(*std::move(error_));
    }
    return std::move(header_);
  }

  bool null() override {
    if (state_ == State::kMetadataStart) {  // the format's own reader takes it for "none"
      state_ = State::kTop;
      return true;
    }
    return unexpected_value("null");
  }
  bool boolean(bool /*value*/) override { return unexpected_value("a boolean"); }
  bool number_integer(number_integer_t value) override {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      return reject(fmt::format("{} holds {}, wanted a number of 0 or more", where(), value));
    }
    return unexpected_value("a number");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) {
      // One more than the limit is kept, for checked_shape to report.
      if (dims_.size() <= Shape::kMaxRank) {
        dims_.push_back(value);
      }
      return true;
    }
    if (state_ == State::kOffsets) {
      if (offsets_.size() == 2) {
        return reject(fmt::format("{} holds more than two numbers", where()));
      }
      offsets_.push_back(value);
      return true;
    }
    return unexpected_value("a number");
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      return reject(
          fmt::format("{} holds {}, wanted an integer below 2^64", where(), printable(text)));
    }
    return unexpected_value("a number");
  }
  bool string(string_t& value) override {
    if (state_ == State::kMetadataValue) {
      header_.metadata[key_] = value;
      state_ = State::kMetadata;
      return true;
    }
    if (state_ == State::kDType) {
      dtype_ = value;
      state_ = State::kTensor;
      return true;
    }
    return unexpected_value("a string");
  }
  bool binary(binary_t& /*value*/) override { return unexpected_value("binary data"); }

  bool start_object(std::size_t /*size*/) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kMetadataStart:
        state_ = State::kMetadata;
        return true;
      case State::kTensorStart:
        state_ = State::kTensor;
        return true;
      default:
        return unexpected_value("an object");
    }
  }
  bool end_object() override {
    switch (state_) {
      case State::kTop:
        state_ = State::kEnd;
        return true;
      case State::kMetadata:
        state_ = State::kTop;
        return true;
      default:  // kTensor: no other object can end here
        state_ = State::kTop;
        return add_tensor();
    }
  }
  bool start_array(std::size_t /*size*/) override {
    if (state_ == State::kShapeStart) {
      state_ = State::kShape;
      return true;
    }
    if (state_ == State::kOffsetsStart) {
      state_ = State::kOffsets;
      return true;
    }
    return unexpected_value("an array");
  }
  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool key(string_t& value) override {
    if (state_ == State::kTop) {
      return value == kSafetensorsMetadataKey ? start_metadata() : start_tensor(value);
    }
    if (state_ == State::kMetadata) {
      if (header_.metadata.contains(value)) {
        return reject(fmt::format("__metadata__ has the key {} twice", printable(value)));
      }
      key_ = value;
      state_ = State::kMetadataValue;
      return true;
    }
    return start_field(value);
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*exception*/) override {
    return reject(fmt::format("the header is not valid JSON at byte {}", kLengthBytes + position));
  }

 private:
  enum class State {
    kStart,          ///< before the outermost object
    kTop,            ///< in it, before a key
    kMetadataStart,  ///< before the value of __metadata__
    kMetadata,       ///< in __metadata__, before a key
    kMetadataValue,  ///< before the value of a key of __metadata__
    kTensorStart,    ///< before the value of a tensor's name
    kTensor,         ///< in a tensor's object, before a key
    kDType,          ///< before the value of a tensor's key; likewise the next two
    kShapeStart,
    kOffsetsStart,
    kShape,    ///< inside the array
    kOffsets,  ///< inside the array
    kEnd,      ///< after the outermost object
  };

  bool reject(std::string message, ErrorCode code = ErrorCode::kInvalidInput) {
    error_ = Error{code, std::move(message)};
    return false;
  }

  /// Names the value in hand, for messages.
  [[nodiscard]] std::string where() const {
    switch (state_) {
      case State::kStart:
      case State::kTop:
      case State::kEnd:
        return "the header";
      case State::kMetadataStart:
      case State::kMetadata:
        return "__metadata__";
      case State::kMetadataValue:
        return fmt::format("__metadata__ key {}", printable(key_));
      case State::kTensorStart:
      case State::kTensor:
        return fmt::format("tensor {}", printable(name_));
      case State::kDType:
        return fmt::format("dtype of tensor {}", printable(name_));
      case State::kShapeStart:
      case State::kShape:
        return fmt::format("shape of tensor {}", printable(name_));
      case State::kOffsetsStart:
      case State::kOffsets:
        return fmt::format("data_offsets of tensor {}", printable(name_));
    }
    return "the header";
  }

  [[nodiscard]] std::string_view wanted() const {
    switch (state_) {
      case State::kMetadataValue:
      case State::kDType:
        return "a string";
      case State::kShapeStart:
      case State::kOffsetsStart:
        return "an array";
      case State::kShape:
      case State::kOffsets:
        return "a number";
      default:
        return "an object";
    }
  }

  bool unexpected_value(std::string_view got) {
    return reject(fmt::format("{} holds {}, wanted {}", where(), got, wanted()));
  }

  bool start_metadata() {
    if (has_metadata_) {
      return reject("the header has __metadata__ twice");
    }
    has_metadata_ = true;
    state_ = State::kMetadataStart;
    return true;
  }

  bool start_tensor(const std::string& name) {
    if (const auto problem = tensor_name_problem(name)) {
      return reject(fmt::format("tensor name '{}' {}", printable(name), *problem));
    }
    name_ = name;
    dtype_.reset();
    has_shape_ = false;
    has_offsets_ = false;
    dims_.clear();
    offsets_.clear();
    state_ = State::kTensorStart;
    return true;
  }

  bool start_field(const std::string& field) {
    const auto twice = [&] {
      return reject(fmt::format("tensor {} has {} twice", printable(name_), field));
    };
    if (field == "dtype") {
      state_ = State::kDType;
      return dtype_ ? twice() : true;
    }
    if (field == "shape") {
      state_ = State::kShapeStart;
      return std::exchange(has_shape_, true) ? twice() : true;
    }
    if (field == "data_offsets") {
      state_ = State::kOffsetsStart;
      return std::exchange(has_offsets_, true) ? twice() : true;
    }
    return reject(
        fmt::format("tensor {} has an unknown field {}", printable(name_), printable(field)));
  }

  bool add_tensor() {
    if (!dtype_ || !has_shape_ || !has_offsets_) {
      return reject(fmt::format("tensor {} lacks {}", printable(name_),
                                !dtype_       ? "dtype"
                                : !has_shape_ ? "shape"
                                              : "data_offsets"));
    }
    const auto type = parse_safetensors_dtype(*dtype_);
    if (!type) {
      const bool other =
          std::find(kOtherDTypes.begin(), kOtherDTypes.end(), *dtype_) != kOtherDTypes.end();
      return reject(fmt::format("tensor {} has the {} dtype {}", printable(name_),
                                other ? "unsupported" : "unknown", printable(*dtype_)),
                    other ? ErrorCode::kUnsupported : ErrorCode::kInvalidInput);
    }
    const auto shape = checked_shape(dims_);
    if (!shape) {
      return reject(fmt::format("tensor {} {}", printable(name_), shape.error()));
    }
    if (offsets_.size() != 2) {
      return reject(fmt::format("data_offsets of tensor {} holds {} numbers, wanted two",
                                printable(name_), offsets_.size()));
    }
    const std::uint64_t begin = offsets_[0];
    const std::uint64_t end = offsets_[1];
    if (begin > end) {
      return reject(fmt::format("data_offsets of tensor {} begin at {} after their end {}",
                                printable(name_), begin, end));
    }
    if (end > std::numeric_limits<std::size_t>::max() - data_begin_) {
      return reject(fmt::format(
          "data_offsets of tensor {} end at {}, which overflows 64 bits with the header",
          printable(name_), end));
    }
    const auto size = storage_bytes(*type, shape->num_elements());
    if (!size || *size != end - begin) {
      return reject(fmt::format("tensor {} is {} {}, wanted {} bytes, its data_offsets span {}",
                                printable(name_), *dtype_, shape->to_string(),
                                size ? std::to_string(*size) : "over 2^64", end - begin));
    }
    header_.entries.push_back({name_, *type, *shape, 0, data_begin_ + begin, *size});
    return true;
  }

  const MappedFile& file_;
  std::size_t data_begin_;
  State state_ = State::kStart;
  TensorFileHeader header_;
  std::optional<Error> error_;
  bool has_metadata_ = false;
  std::string key_;
  // The tensor in hand:
  std::string name_;
  std::optional<std::string> dtype_;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::vector<std::uint64_t> dims_;
  std::vector<std::uint64_t> offsets_;
};

Status check_names_differ(const MappedFile& file, const std::vector<TensorEntry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const TensorEntry& entry : entries) {
    names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: the header has tensor {} twice",
                                                      file.path().string(), printable(*twin)));
  }
  return {};
}

}  // namespace

Result<TensorFileHeader> read_safetensors_header(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() <= kLengthBytes) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is truncated: {} bytes are too few for a safetensors header",
                            file.path().string(), bytes.size()));
  }
  std::uint64_t length = 0;  // little-endian in the file; the supported machines are too
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: its safetensors header would be {} bytes long, at most {} are "
                            "allowed",
                            file.path().string(), length, kMaxHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is truncated: its header is {} bytes long, the file has {} "
                            "(an incomplete download?)",
                            file.path().string(), length, bytes.size()));
  }
  const std::size_t data_begin = kLengthBytes + static_cast<std::size_t>(length);
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  HeaderReader reader(file, data_begin);
  // False when the reader has an error, which finish() returns.
  static_cast<void>(nlohmann::json::sax_parse(text, text + length, &reader));
  MINIACC_ASSIGN(TensorFileHeader header, reader.finish());
  MINIACC_RETURN_IF_ERROR(check_names_differ(file, header.entries));
  MINIACC_RETURN_IF_ERROR(check_layout(file, header.entries, data_begin, 1));
  return header;
}

}  // namespace miniacc
