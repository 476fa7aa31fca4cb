#include "adapters/delta_values.h"

#include <algorithm>
#include <array>

#include "core/float_convert.h"
#include "io/dequantize.h"

namespace miniacc {
namespace {

/// One row of a matrix, or one value of a vector, as f32.
void read_row(const TensorEntry& entry, std::span<const std::byte> bytes, std::int64_t row,
              std::int64_t columns, float* out) {
  const std::size_t row_bytes = static_cast<std::size_t>(columns) * block_bytes(entry.dtype);
  dequantize(entry.dtype, bytes.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes),
             columns, out);
}

/// Rows `rows` and, of them, columns `columns` of an f32 matrix, in the dtype of a product.
Result<Tensor> pick(const Tensor& matrix, std::int64_t first_row, std::int64_t num_rows,
                    const std::vector<std::int64_t>& columns, DType dtype, Device& device) {
  const std::int64_t width = matrix.shape()[1];
  const auto count = static_cast<std::int64_t>(columns.size());
  MINIACC_ASSIGN(Tensor result, try_empty_tensor(device, {num_rows, count}, dtype));
  const float* source = matrix.f32().data() + first_row * width;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t c = 0; c < count; ++c) {
      const float value = source[row * width + columns[static_cast<std::size_t>(c)]];
      if (dtype == DType::kF32) {
        result.f32()[static_cast<std::size_t>(row * count + c)] = value;
      } else {
        result.view().as<std::uint16_t>()[row * count + c] = float_to_bf16(value);
      }
    }
  }
  return result;
}

/// Rows `picked` of an f32 matrix.
Result<Tensor> pick_rows(const Tensor& matrix, const std::vector<std::int64_t>& picked, DType dtype,
                         Device& device) {
  const std::int64_t width = matrix.shape()[1];
  MINIACC_ASSIGN(
      Tensor result,
      try_empty_tensor(device, {static_cast<std::int64_t>(picked.size()), width}, dtype));
  for (std::size_t i = 0; i < picked.size(); ++i) {
    const float* source = matrix.f32().data() + picked[i] * width;
    const auto offset = static_cast<std::int64_t>(i) * width;
    if (dtype == DType::kF32) {
      std::copy_n(source, width, result.f32().data() + offset);
    } else {
      std::transform(source, source + width, result.view().as<std::uint16_t>() + offset,
                     float_to_bf16);
    }
  }
  return result;
}

/// The rank indices that rows [first, first + count) of `up` use.
std::vector<std::int64_t> used_ranks(const Tensor& up, std::int64_t first, std::int64_t count) {
  const std::int64_t rank = up.shape()[1];
  std::vector<bool> used(static_cast<std::size_t>(rank));
  const float* values = up.f32().data() + first * rank;
  for (std::int64_t i = 0; i < count * rank; ++i) {
    if (values[i] != 0.0F) {
      used[static_cast<std::size_t>(i % rank)] = true;
    }
  }
  std::vector<std::int64_t> indices;
  for (std::int64_t r = 0; r < rank; ++r) {
    if (used[static_cast<std::size_t>(r)]) {
      indices.push_back(r);
    }
  }
  return indices;
}

}  // namespace

Result<Tensor> load_down(const TensorFile& file, const LoraDelta& delta, Device& device) {
  if (delta.computed_down != nullptr) {
    MINIACC_ASSIGN(Tensor down, try_empty_tensor(device, delta.computed_down->shape, DType::kF32));
    std::ranges::copy(delta.computed_down->values, down.f32().begin());
    return down;
  }
  MINIACC_ASSIGN(Tensor down, try_empty_tensor(device, delta.down->shape, DType::kF32));
  MINIACC_ASSIGN(const auto bytes, file.bytes(*delta.down));
  dequantize(delta.down->dtype, bytes, delta.down->shape.num_elements(), down.f32().data());
  file.drop_pages(*delta.down);
  return down;
}

Result<Tensor> load_up(const TensorFile& file, const LoraDelta& delta, Device& device) {
  MINIACC_ASSIGN(Tensor up, try_empty_tensor(device, delta.up->shape, DType::kF32));
  MINIACC_ASSIGN(const auto bytes, file.bytes(*delta.up));
  const std::int64_t rank = delta.rank();
  for (std::int64_t row = 0; row < delta.num_rows; ++row) {
    read_row(*delta.up, bytes, delta.stored_row(row), rank, up.f32().data() + row * rank);
  }
  file.drop_pages(*delta.up);
  return up;
}

Result<Tensor> load_dense_rows(const TensorFile& file, const LoraDelta& delta, std::int64_t first,
                               std::int64_t count, std::int64_t columns, Device& device) {
  MINIACC_ASSIGN(Tensor values, try_empty_tensor(device, {count, columns}, DType::kF32));
  if (delta.computed_dense != nullptr) {
    std::copy_n(delta.computed_dense->values.begin() + first * columns, count * columns,
                values.f32().begin());
    return values;
  }
  MINIACC_ASSIGN(const auto bytes, file.bytes(*delta.dense));
  for (std::int64_t row = 0; row < count; ++row) {
    read_row(*delta.dense, bytes, delta.stored_row(first + row), columns,
             values.f32().data() + row * columns);
  }
  file.drop_pages(*delta.dense);
  return values;
}

Result<std::vector<LowRankDelta>> load_side_products(const TensorFile& file, const LoraDelta& delta,
                                                     bool fused_qkv, Precision precision,
                                                     Device& device) {
  MINIACC_ASSIGN(const Tensor down, load_down(file, delta, device));
  MINIACC_ASSIGN(const Tensor up, load_up(file, delta, device));
  const bool exact_in_bf16 = delta.computed_down == nullptr && delta.down->dtype == DType::kBF16 &&
                             delta.up->dtype == DType::kBF16;
  const DType dtype = precision != Precision::kF32 && exact_in_bf16 ? DType::kBF16 : DType::kF32;
  struct Part {
    std::int64_t first_row;
    std::int64_t num_rows;
    std::vector<std::int64_t> ranks;
  };
  std::vector<Part> parts = {{0, delta.num_rows, used_ranks(up, 0, delta.num_rows)}};
  if (fused_qkv && delta.first_row == 0 && delta.num_rows % 3 == 0) {
    const std::int64_t third = delta.num_rows / 3;
    std::vector<Part> split;
    std::size_t total = 0;
    for (std::int64_t part = 0; part < 3; ++part) {
      split.push_back({part * third, third, used_ranks(up, part * third, third)});
      total += split.back().ranks.size();
    }
    // Parts that use the same ranks would compute them three times.
    if (total <= parts.front().ranks.size()) {
      parts = std::move(split);
    }
  }
  std::vector<LowRankDelta> products;
  for (const Part& part : parts) {
    if (part.ranks.empty()) {
      continue;  // zeros
    }
    LowRankDelta product;
    MINIACC_ASSIGN(product.down, pick_rows(down, part.ranks, dtype, device));
    MINIACC_ASSIGN(product.up, pick(up, part.first_row, part.num_rows, part.ranks, dtype, device));
    product.scale = delta.factor;
    product.first_row = delta.first_row + part.first_row;
    products.push_back(std::move(product));
  }
  return products;
}

}  // namespace miniacc
