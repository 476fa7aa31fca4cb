#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/weight_source.h"
#include "model/common/layer_source.h"

namespace miniacc {

/// How the layers of a stack lie in one record of bytes each: all tensors back to back, each at a
/// multiple of 256 bytes, the same places in every layer. Side products of adapters do not: their
/// number differs from layer to layer.
struct LayerLayout {
  struct Place {
    Shape shape;
    DType dtype = DType::kF32;
    std::size_t values = 0;     ///< offset
    std::size_t row_scale = 0;  ///< offset, of i8 matrices
  };
  std::vector<Place> places;  ///< of LayerStack::items
  std::size_t record_bytes = 0;

  [[nodiscard]] static LayerLayout of(const LayerStack& stack);
};

/// Views of a layer whose record lies at `record` on `device`.
///   extras  of the items; their low-rank factors lie on the same device and outlive the views
[[nodiscard]] LayerView record_view(const LayerLayout& layout, const void* record, DeviceId device,
                                    std::span<const MatrixExtras> extras);

/// Reads layer `index` into a record in host memory, at memory speed where weights are stored in
/// the form that is asked for, with up to `num_threads` threads. `extras` gets an entry an item.
/// Errors: kInvalidInput for a tensor of another shape than the stack's; those of the source.
[[nodiscard]] Status fill_record(WeightSource& weights, const LayerStack& stack,
                                 const LayerLayout& layout, std::int64_t index, int num_threads,
                                 Device& scratch, std::span<std::byte> record,
                                 std::vector<MatrixExtras>& extras);

}  // namespace miniacc
