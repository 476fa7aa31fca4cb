#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/weight_source.h"
#include "kernels/op_context.h"
#include "model/common/layer_cache.h"

namespace miniacc {

/// One tensor that every layer of a stack has.
struct LayerItem {
  std::string name;                 ///< behind the layer's prefix: "attn.qkv_proj.weight"
  Shape shape;                      ///< canonical
  std::optional<Precision> matrix;  ///< form of a linear layer's matrix; empty: an f32 vector
};

/// Layers of equal tensors, walked from the first to the last: what can be streamed.
struct LayerStack {
  std::string prefix;  ///< "blocks.": the layer's number and a point follow
  std::int64_t count = 0;
  std::vector<LayerItem> items;

  [[nodiscard]] std::string tensor_name(std::int64_t layer, std::size_t item) const;
};

/// Views of one layer's tensors, in the order of LayerStack::items; vectors have values alone.
struct LayerView {
  std::vector<WeightMatrix> tensors;
};

/// Where the layers of a stack come from while a pass walks them.
class LayerSource {
 public:
  virtual ~LayerSource() = default;

  /// Layer `index` on ctx.device for work on ctx.stream. Passes walk 0, 1, …, n-1; a pass may end
  /// early and the next one begins at 0. The views are valid until the next call. Errors are those
  /// of reading the layer, kOutOfMemory.
  [[nodiscard]] virtual Result<const LayerView*> acquire(std::int64_t index, OpContext& ctx) = 0;
  /// Layers read from their file so far, and bytes of those that stay on the device.
  [[nodiscard]] virtual std::int64_t loads() const = 0;
  [[nodiscard]] virtual std::size_t resident_bytes() const = 0;
};

/// A layer that owns its tensors.
class OwnedLayer {
 public:
  explicit OwnedLayer(std::vector<OwnedWeightMatrix> tensors);

  [[nodiscard]] const LayerView& view() const { return view_; }
  [[nodiscard]] std::size_t size_bytes() const;

 private:
  std::vector<OwnedWeightMatrix> tensors_;
  LayerView view_;
};

/// Reads one layer. kInvalidInput for a tensor of another shape than the stack's; else errors of
/// the source.
[[nodiscard]] Result<OwnedLayer> load_layer(WeightSource& weights, const LayerStack& stack,
                                            std::int64_t index, Device& device);

/// Layers read when a pass needs them; the first ones that fit the budget stay (LayerCache).
class CachedLayers final : public LayerSource {
 public:
  /// `weights` and `device` outlive the object.
  CachedLayers(WeightSource& weights, const LayerStack& stack, Device& device,
               std::size_t budget_bytes);

  [[nodiscard]] Result<const LayerView*> acquire(std::int64_t index, OpContext& ctx) override;
  [[nodiscard]] std::int64_t loads() const override { return layers_.loads(); }
  [[nodiscard]] std::size_t resident_bytes() const override { return layers_.resident_bytes(); }

 private:
  LayerCache<OwnedLayer> layers_;
};

}  // namespace miniacc
