#include "io/tensor_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "io/sequential_writer.h"
#include "io/tensor_file_builder.h"

namespace miniacc {
namespace {

constexpr std::uint64_t kMaxAlignment = 64;

std::uint64_t padding_after(std::uint64_t size, std::uint64_t alignment) {
  return (alignment - size % alignment) % alignment;
}

class SequentialWriter final : public TensorWriter {
 public:
  SequentialWriter(OutputFile file, std::vector<std::uint64_t> sizes, std::uint64_t alignment)
      : file_(std::move(file)), sizes_(std::move(sizes)), alignment_(alignment) {}

  /// For the first tensors, when they are empty.
  Status skip_empty() {
    while (current_ < sizes_.size() && filled_ == sizes_[current_]) {
      MINIACC_RETURN_IF_ERROR(pad());
      ++current_;
      filled_ = 0;
    }
    return {};
  }

  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      if (current_ == sizes_.size()) {
        return fail(ErrorCode::kInternal, "tensor writer: more bytes than the tensors have");
      }
      const auto count = static_cast<std::size_t>(
          std::min<std::uint64_t>(bytes.size(), sizes_[current_] - filled_));
      MINIACC_RETURN_IF_ERROR(file_.write(bytes.first(count)));
      bytes = bytes.subspan(count);
      filled_ += count;
      MINIACC_RETURN_IF_ERROR(skip_empty());
    }
    return {};
  }

  Status finish() override {
    if (current_ != sizes_.size()) {
      return fail(ErrorCode::kInternal,
                  fmt::format("tensor writer: tensor {} of {} has {} of its {} bytes", current_ + 1,
                              sizes_.size(), filled_, sizes_[current_]));
    }
    return file_.commit();
  }

 private:
  Status pad() {
    static constexpr std::array<std::byte, kMaxAlignment> kZeros{};
    const std::uint64_t padding = padding_after(sizes_[current_], alignment_);
    return file_.write(std::span(kZeros).first(static_cast<std::size_t>(padding)));
  }

  OutputFile file_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t alignment_;
  std::size_t current_ = 0;
  std::uint64_t filled_ = 0;
};

}  // namespace

Result<std::unique_ptr<TensorWriter>> create_sequential_writer(const std::filesystem::path& path,
                                                               std::string_view header,
                                                               std::vector<std::uint64_t> sizes,
                                                               std::uint64_t alignment) {
  MINIACC_REQUIRE(alignment <= kMaxAlignment && header.size() % alignment == 0,
                  "tensor writer: alignment of the header");
  std::uint64_t total = header.size();
  for (const std::uint64_t size : sizes) {
    const std::uint64_t padded = size + padding_after(size, alignment);
    if (padded < size ||
        padded > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) - total) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the tensors are over 2^63 bytes together", path.string()));
    }
    total += padded;
  }
  MINIACC_ASSIGN(OutputFile file, OutputFile::create(path, total));
  MINIACC_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header))));
  auto writer = std::make_unique<SequentialWriter>(std::move(file), std::move(sizes), alignment);
  MINIACC_RETURN_IF_ERROR(writer->skip_empty());
  return writer;
}

Status check_specs(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  const auto reject = [&](const std::string& message) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), message));
  };
  std::set<std::string_view> names;
  for (const TensorSpec& spec : tensors) {
    if (const auto problem = tensor_name_problem(spec.name)) {
      return reject(fmt::format("tensor name '{}' {}", printable(spec.name), *problem));
    }
    if (!names.insert(spec.name).second) {
      return reject(fmt::format("tensor {} is listed twice", spec.name));
    }
    const std::vector<std::uint64_t> dims(spec.shape.dims().begin(), spec.shape.dims().end());
    if (const auto shape = checked_shape(dims); !shape) {
      return reject(fmt::format("tensor {} {}", spec.name, shape.error()));
    }
    const std::int64_t row = spec.shape.rank() == 0 ? 1 : spec.shape.back();
    if (row % block_elements(spec.dtype) != 0 ||
        !storage_bytes(spec.dtype, spec.shape.num_elements())) {
      return reject(fmt::format("tensor {} is {}, {} wants rows of a multiple of {} values",
                                spec.name, spec.shape.to_string(), dtype_name(spec.dtype),
                                block_elements(spec.dtype)));
    }
  }
  for (const auto& [key, value] : metadata) {
    if (key.empty() || !is_utf8(key) || !is_utf8(value)) {
      return reject(fmt::format("metadata key '{}' is empty or not UTF-8, or its value is not",
                                printable(key)));
    }
  }
  return {};
}

std::uint64_t spec_bytes(const TensorSpec& spec) {
  return storage_bytes(spec.dtype, spec.shape.num_elements()).value();
}

}  // namespace miniacc
