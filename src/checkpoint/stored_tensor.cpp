#include "checkpoint/stored_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "checkpoint/row_transforms.h"
#include "core/float_convert.h"
#include "io/dequantize.h"
#include "kernels/kaiser_filter.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

/// Bytes read before their pages are given back: large enough that the calls do not count, small
/// beside any layer.
constexpr std::int64_t kSlabBytes = std::int64_t{8} << 20;

Status not_finite(const TensorFile& file, const CanonicalTensor& tensor, std::int64_t row) {
  return fail(ErrorCode::kInvalidInput, fmt::format("{}: {} holds NaN or infinity (row {})",
                                                    file.path().string(), tensor.name, row));
}

Status check_finite(const TensorFile& file, const CanonicalTensor& tensor, const float* values,
                    std::int64_t first, std::int64_t count) {
  const std::int64_t columns = tensor.columns();
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      if (!std::isfinite(values[row * columns + column])) {
        return not_finite(file, tensor, first + row);
      }
    }
  }
  return {};
}

/// Rows and columns of one stored part.
std::int64_t stored_columns(const TensorEntry& entry) {
  const std::int64_t rows = entry.shape.rank() == 0 ? 1 : entry.shape[0];
  return rows == 0 ? 0 : entry.shape.num_elements() / rows;
}

Result<std::vector<float>> whole_as_float(const TensorFile& file, const TensorEntry& entry) {
  std::vector<float> values(static_cast<std::size_t>(entry.shape.num_elements()));
  MINIACC_ASSIGN(const auto bytes, file.bytes(entry));
  dequantize(entry.dtype, bytes, entry.shape.num_elements(), values.data());
  return values;
}

/// Reads rows of one stored tensor; keeps its scales, which are small.
class PartReader {
 public:
  static Result<PartReader> open(const TensorFile& file, const StoredTensor& part) {
    PartReader reader(file, part);
    MINIACC_ASSIGN(reader.bytes_, file.bytes(*part.values));
    if (part.quantization.scale != nullptr) {
      MINIACC_ASSIGN(reader.scales_, whole_as_float(file, *part.quantization.scale));
    }
    return reader;
  }

  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] float scale(std::int64_t row) const {
    if (scales_.empty()) {
      return 1.0F;
    }
    return scales_.size() == 1 ? scales_.front() : scales_[static_cast<std::size_t>(row)];
  }

  [[nodiscard]] Status read(std::int64_t first, std::int64_t count, Device& scratch,
                            float* out) const {
    const DType dtype = part_.values->dtype;
    if (columns_ % block_elements(dtype) != 0) {
      return read_unaligned(first, count, out);  // a block-quantised vector
    }
    const std::int64_t slab_rows = std::max<std::int64_t>(1, kSlabBytes / row_bytes());
    for (std::int64_t done = 0; done < count; done += slab_rows) {
      const std::int64_t rows = std::min(slab_rows, count - done);
      const auto stored = row_span(first + done, rows);
      float* target = out + done * columns_;
      dequantize(dtype, stored, rows * columns_, target);
      apply_scales(first + done, rows, target);
      if (part_.quantization.rotation_group > 0) {
        OpContext ctx{scratch};
        ops::rotate_rows(ctx, TensorView(target, {rows, columns_}, DType::kF32),
                         part_.quantization.rotation_group);
      }
      drop(stored);
    }
    return {};
  }

  /// Stored bytes of rows, without a change.
  void copy(std::int64_t first, std::int64_t count, std::byte* out) const {
    const std::int64_t slab_rows = std::max<std::int64_t>(1, kSlabBytes / row_bytes());
    for (std::int64_t done = 0; done < count; done += slab_rows) {
      const auto stored = row_span(first + done, std::min(slab_rows, count - done));
      std::memcpy(out + done * row_bytes(), stored.data(), stored.size());
      drop(stored);
    }
  }

 private:
  PartReader(const TensorFile& file, const StoredTensor& part)
      : file_(file), part_(part), columns_(stored_columns(*part.values)) {}

  [[nodiscard]] std::int64_t row_bytes() const {
    const DType dtype = part_.values->dtype;
    return std::max<std::int64_t>(
        1, columns_ / block_elements(dtype) * static_cast<std::int64_t>(block_bytes(dtype)));
  }
  [[nodiscard]] std::span<const std::byte> row_span(std::int64_t first, std::int64_t count) const {
    return bytes_.subspan(static_cast<std::size_t>(first * row_bytes()),
                          static_cast<std::size_t>(count * row_bytes()));
  }
  void drop(std::span<const std::byte> part) const {
    file_.files()[part_.values->file].drop_pages(part);
  }

  [[nodiscard]] Status read_unaligned(std::int64_t first, std::int64_t count, float* out) const {
    MINIACC_ASSIGN(const auto values, whole_as_float(file_, *part_.values));
    std::copy_n(values.begin() + first * columns_, count * columns_, out);
    apply_scales(first, count, out);
    return {};
  }

  void apply_scales(std::int64_t first, std::int64_t count, float* values) const {
    if (scales_.empty()) {
      return;
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const float factor = scale(first + r);
      for (std::int64_t c = 0; c < columns_; ++c) {
        values[r * columns_ + c] *= factor;
      }
    }
  }

  const TensorFile& file_;
  StoredTensor part_;
  std::int64_t columns_;
  std::span<const std::byte> bytes_;
  std::vector<float> scales_;
};

Result<std::vector<PartReader>> open_parts(const TensorFile& file, const CanonicalTensor& tensor) {
  std::vector<PartReader> readers;
  readers.reserve(tensor.parts.size());
  for (const StoredTensor& part : tensor.parts) {
    MINIACC_ASSIGN(auto reader, PartReader::open(file, part));
    readers.push_back(std::move(reader));
  }
  return readers;
}

Status read_weight_norm(const std::vector<PartReader>& parts, const CanonicalTensor& tensor,
                        std::int64_t first, std::int64_t count, Device& scratch, float* out) {
  const std::int64_t columns = tensor.columns();
  std::vector<float> magnitudes(static_cast<std::size_t>(count));
  MINIACC_RETURN_IF_ERROR(parts[0].read(first, count, scratch, out));
  MINIACC_RETURN_IF_ERROR(parts[1].read(first, count, scratch, magnitudes.data()));
  for (std::int64_t r = 0; r < count; ++r) {
    fold_weight_norm({out + r * columns, static_cast<std::size_t>(columns)},
                     magnitudes[static_cast<std::size_t>(r)]);
  }
  return {};
}

Status read_patch_slots(const std::vector<PartReader>& parts, const CanonicalTensor& tensor,
                        std::int64_t first, std::int64_t count, Device& scratch, float* out) {
  // [n, c, p, p] twice -> [n, c, 2, p, p]
  const std::int64_t half = tensor.columns() / 2;
  const std::int64_t plane = tensor.shape[3] * tensor.shape[4];
  std::vector<float> slot(static_cast<std::size_t>(count * half));
  for (std::int64_t time = 0; time < 2; ++time) {
    MINIACC_RETURN_IF_ERROR(
        parts[static_cast<std::size_t>(time)].read(first, count, scratch, slot.data()));
    for (std::int64_t i = 0; i < count * half / plane; ++i) {
      std::copy_n(slot.data() + i * plane, plane, out + (2 * i + time) * plane);
    }
  }
  return {};
}

}  // namespace

RowRun locate_row(const CanonicalTensor& tensor, std::int64_t row) {
  const std::int64_t rows = tensor.rows();
  switch (tensor.layout) {
    case RowLayout::kInterleavedQkv: {
      MINIACC_REQUIRE(rows >= 3 && tensor.head_dim > 0, "locate_row: whole heads of q, k and v");
      const std::int64_t inner = rows / 3;
      const std::int64_t projection = row / inner;
      const std::int64_t head = row % inner / tensor.head_dim;
      const std::int64_t channel = row % tensor.head_dim;
      return {0, (3 * head + projection) * tensor.head_dim + channel, tensor.head_dim - channel};
    }
    case RowLayout::kSwappedHalves: {
      const std::int64_t half = rows / 2;
      return row < half ? RowRun{0, row + half, half - row} : RowRun{0, row - half, rows - row};
    }
    case RowLayout::kConcatenated: {
      std::int64_t stored_row = row;
      for (std::size_t part = 0; part < tensor.parts.size(); ++part) {
        const std::int64_t part_rows = tensor.parts[part].values->shape[0];
        if (stored_row < part_rows) {
          return {part, stored_row, part_rows - stored_row};
        }
        stored_row -= part_rows;
      }
      break;
    }
    default:
      return {0, row, rows - row};
  }
  MINIACC_REQUIRE(false, "locate_row: row outside the tensor");
}

Status read_rows(const TensorFile& file, const CanonicalTensor& tensor, std::int64_t first,
                 std::int64_t count, Device& scratch, float* out) {
  MINIACC_REQUIRE(first >= 0 && count >= 0 && first + count <= tensor.rows(),
                  "read_rows: rows outside the tensor");
  if (tensor.layout == RowLayout::kResampleFilter) {
    const std::vector<float> filter = antialiasing_filter(tensor.shape.back());
    std::copy(filter.begin(), filter.end(), out);
    return {};
  }
  MINIACC_ASSIGN(const auto parts, open_parts(file, tensor));
  if (tensor.layout == RowLayout::kWeightNorm) {
    MINIACC_RETURN_IF_ERROR(read_weight_norm(parts, tensor, first, count, scratch, out));
  } else if (tensor.layout == RowLayout::kPatchSlots) {
    MINIACC_RETURN_IF_ERROR(read_patch_slots(parts, tensor, first, count, scratch, out));
  } else {
    for (std::int64_t done = 0; done < count;) {
      const RowRun run = locate_row(tensor, first + done);
      const std::int64_t rows = std::min(run.length, count - done);
      MINIACC_RETURN_IF_ERROR(
          parts[run.part].read(run.stored_row, rows, scratch, out + done * tensor.columns()));
      done += rows;
    }
  }
  return check_finite(file, tensor, out, first, count);
}

bool is_plain_bf16(const CanonicalTensor& tensor) {
  const bool moves_rows =
      tensor.layout != RowLayout::kWeightNorm && tensor.layout != RowLayout::kPatchSlots;
  return moves_rows && !tensor.parts.empty() &&
         std::all_of(tensor.parts.begin(), tensor.parts.end(), [](const StoredTensor& part) {
           return part.values->dtype == DType::kBF16 && part.quantization.scale == nullptr;
         });
}

bool is_row_int8(const CanonicalTensor& tensor) {
  const bool moves_rows =
      tensor.layout != RowLayout::kWeightNorm && tensor.layout != RowLayout::kPatchSlots;
  return moves_rows && !tensor.parts.empty() &&
         std::all_of(tensor.parts.begin(), tensor.parts.end(), [&](const StoredTensor& part) {
           return part.values->dtype == DType::kI8 && part.quantization.scale != nullptr &&
                  part.quantization.rotation_group ==
                      tensor.parts.front().quantization.rotation_group;
         });
}

Status copy_rows(const TensorFile& file, const CanonicalTensor& tensor, std::int64_t first,
                 std::int64_t count, std::byte* out) {
  MINIACC_REQUIRE(is_plain_bf16(tensor) || is_row_int8(tensor), "copy_rows: needs arithmetic");
  MINIACC_REQUIRE(first >= 0 && count >= 0 && first <= tensor.rows() - count,
                  "copy_rows: rows outside the tensor");
  MINIACC_ASSIGN(const auto parts, open_parts(file, tensor));
  const DType dtype = tensor.parts.front().values->dtype;
  const std::int64_t row_bytes = tensor.columns() * static_cast<std::int64_t>(block_bytes(dtype));
  for (std::int64_t done = 0; done < count;) {
    const RowRun run = locate_row(tensor, first + done);
    const std::int64_t rows = std::min(run.length, count - done);
    parts[run.part].copy(run.stored_row, rows, out + done * row_bytes);
    done += rows;
  }
  if (dtype != DType::kBF16) {
    return {};
  }
  const std::int64_t columns = tensor.columns();
  for (std::int64_t row = 0; row < count; ++row) {
    const std::byte* values = out + row * row_bytes;
    std::uint32_t bad = 0;  // without a branch, so that the loop runs at the speed of memory
    for (std::int64_t column = 0; column < columns; ++column) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, values + 2 * column, sizeof bits);
      bad |= static_cast<std::uint32_t>((bits & 0x7F80U) == 0x7F80U);
    }
    if (bad != 0) {
      return not_finite(file, tensor, first + row);
    }
  }
  return {};
}

Status copy_row_scales(const TensorFile& file, const CanonicalTensor& tensor, float* out) {
  MINIACC_ASSIGN(const auto parts, open_parts(file, tensor));
  for (std::int64_t row = 0; row < tensor.rows();) {
    const RowRun run = locate_row(tensor, row);
    for (std::int64_t i = 0; i < run.length; ++i, ++row) {
      out[row] = parts[run.part].scale(run.stored_row + i);
      if (!std::isfinite(out[row])) {
        return not_finite(file, tensor, row);
      }
    }
  }
  return {};
}

}  // namespace miniacc
