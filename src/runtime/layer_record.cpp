#include "runtime/layer_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace miniacc {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

DType dtype_of(const LayerItem& item) {
  if (!item.matrix || *item.matrix == Precision::kF32) {
    return DType::kF32;
  }
  return *item.matrix == Precision::kBF16 ? DType::kBF16 : DType::kI8;
}

}  // namespace

LayerLayout LayerLayout::of(const LayerStack& stack) {
  LayerLayout layout;
  std::size_t offset = 0;
  const auto take = [&](std::int64_t elements, DType dtype) {
    const std::size_t begin = offset;
    const auto bytes = storage_bytes(dtype, elements);
    MINIACC_REQUIRE(bytes.has_value(), "LayerLayout: a tensor has a size");
    offset = aligned(offset + *bytes);
    return begin;
  };
  for (const LayerItem& item : stack.items) {
    Place place{.shape = item.shape, .dtype = dtype_of(item)};
    if (item.matrix) {
      MINIACC_REQUIRE(item.shape.rank() == 2, "LayerLayout: matrices are [n, k]");
    }
    place.values = take(item.shape.num_elements(), place.dtype);
    if (place.dtype == DType::kI8) {
      place.row_scale = take(item.shape[0], DType::kF32);
    }
    layout.places.push_back(place);
  }
  layout.record_bytes = offset;
  return layout;
}

LayerView record_view(const LayerLayout& layout, const void* record, DeviceId device,
                      std::span<const MatrixExtras> extras) {
  MINIACC_REQUIRE(extras.size() == layout.places.size(), "record_view: extras of every item");
  const auto* bytes = static_cast<const std::byte*>(record);
  LayerView view;
  view.tensors.reserve(layout.places.size());
  for (std::size_t i = 0; i < layout.places.size(); ++i) {
    const LayerLayout::Place& place = layout.places[i];
    WeightMatrix tensor{
        .values = ConstTensorView(bytes + place.values, place.shape, place.dtype, device),
        .rotation_group = extras[i].rotation_group,
        .low_rank = extras[i].low_rank};
    if (place.dtype == DType::kI8) {
      tensor.row_scale =
          ConstTensorView(bytes + place.row_scale, {place.shape[0]}, DType::kF32, device);
    }
    view.tensors.push_back(tensor);
  }
  return view;
}

Status fill_record(WeightSource& weights, const LayerStack& stack, const LayerLayout& layout,
                   std::int64_t index, int num_threads, Device& scratch,
                   std::span<std::byte> record, std::vector<MatrixExtras>& extras) {
  MINIACC_REQUIRE(record.size() >= layout.record_bytes, "fill_record: a whole record");
  extras.clear();
  for (std::size_t i = 0; i < stack.items.size(); ++i) {
    const LayerItem& item = stack.items[i];
    const LayerLayout::Place& place = layout.places[i];
    const std::string name = stack.tensor_name(index, i);
    // The header is asked first, so that a tensor of absurd size is refused before it is read.
    MINIACC_ASSIGN(const Shape found, weights.shape(name));
    if (found != item.shape) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{} is {}, wanted {}", name,
                                                        found.to_string(), item.shape.to_string()));
    }
    const TensorView values(record.data() + place.values, place.shape, place.dtype);
    MatrixExtras& extra = extras.emplace_back();
    if (item.matrix) {
      const TensorView row_scale =
          place.dtype == DType::kI8
              ? TensorView(record.data() + place.row_scale, {place.shape[0]}, DType::kF32)
              : TensorView();
      MINIACC_ASSIGN(
          extra, weights.read_matrix(name, *item.matrix, num_threads, scratch, values, row_scale));
    } else {
      MINIACC_ASSIGN(const Tensor vector, weights.load(name, scratch));
      std::ranges::copy(vector.f32(), values.f32());
    }
  }
  return {};
}

}  // namespace miniacc
