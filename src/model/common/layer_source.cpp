#include "model/common/layer_source.h"

#include <fmt/format.h>

#include <utility>

namespace miniacc {

std::string LayerStack::tensor_name(std::int64_t layer, std::size_t item) const {
  return fmt::format("{}{}.{}", prefix, layer, items[item].name);
}

OwnedLayer::OwnedLayer(std::vector<OwnedWeightMatrix> tensors) : tensors_(std::move(tensors)) {
  view_.tensors.reserve(tensors_.size());
  for (const OwnedWeightMatrix& tensor : tensors_) {
    view_.tensors.push_back(tensor.view());
  }
}

std::size_t OwnedLayer::size_bytes() const {
  std::size_t bytes = 0;
  for (const OwnedWeightMatrix& tensor : tensors_) {
    bytes += tensor.size_bytes();
  }
  return bytes;
}

Result<OwnedLayer> load_layer(WeightSource& weights, const LayerStack& stack, std::int64_t index,
                              Device& device) {
  std::vector<OwnedWeightMatrix> tensors;
  for (std::size_t i = 0; i < stack.items.size(); ++i) {
    const LayerItem& item = stack.items[i];
    const std::string name = stack.tensor_name(index, i);
    // The header is asked first, so that a tensor of absurd size is refused before it is read.
    MINIACC_ASSIGN(const Shape found, weights.shape(name));
    if (found != item.shape) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{} is {}, wanted {}", name,
                                                        found.to_string(), item.shape.to_string()));
    }
    OwnedWeightMatrix& tensor = tensors.emplace_back();
    if (item.matrix) {
      MINIACC_ASSIGN(tensor, weights.load_matrix(name, *item.matrix, device));
    } else {
      MINIACC_ASSIGN(tensor.values, weights.load(name, device));
    }
  }
  return OwnedLayer(std::move(tensors));
}

CachedLayers::CachedLayers(WeightSource& weights, const LayerStack& stack, Device& device,
                           std::size_t budget_bytes)
    : layers_(stack.count, budget_bytes,
              [source = &weights, layers = stack, target = &device](std::int64_t index) {
                return load_layer(*source, layers, index, *target);
              }) {}

Result<const LayerView*> CachedLayers::acquire(std::int64_t index, OpContext& /*ctx*/) {
  MINIACC_ASSIGN(const OwnedLayer* layer, layers_.get(index));
  return &layer->view();
}

}  // namespace miniacc
