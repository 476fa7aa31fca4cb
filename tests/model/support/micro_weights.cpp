#include "model/support/micro_weights.h"

#include <algorithm>
#include <utility>

#include "io/dequantize.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

/// Every tensor of a file, without the prefix `strip` where a name has it.
MemoryWeights read_all(const std::string& relative, std::string_view strip) {
  const TensorFile file = TensorFile::open(test_data(relative)).value();
  MemoryWeights weights;
  for (const TensorEntry& entry : file.entries()) {
    const bool prefixed = entry.name.rfind(strip, 0) == 0;
    std::vector<float> values(static_cast<std::size_t>(entry.shape.num_elements()));
    dequantize(entry.dtype, file.bytes(entry).value(), entry.shape.num_elements(), values.data());
    weights.set(prefixed ? entry.name.substr(strip.size()) : entry.name, entry.shape,
                std::move(values));
  }
  return weights;
}

/// Rows ordered head, projection, channel become rows ordered projection, head, channel.
void split_qkv(MemoryWeights::Entry& qkv, std::int64_t head_dim) {
  const std::int64_t width = qkv.shape[1];
  const std::int64_t heads = qkv.shape[0] / 3 / head_dim;
  std::vector<float> plain(qkv.values.size());
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t part = 0; part < 3; ++part) {
      const std::int64_t source = (head * 3 + part) * head_dim * width;
      const std::int64_t target = (part * heads + head) * head_dim * width;
      std::copy_n(qkv.values.begin() + source, head_dim * width, plain.begin() + target);
    }
  }
  qkv.values = std::move(plain);
}

}  // namespace

Tensor golden_tensor(const Golden& golden, const std::string& name, Device& device) {
  return make_tensor(device, golden.shape(name), golden.floats(name));
}

std::vector<std::int32_t> golden_ints(const Golden& golden, const std::string& name) {
  std::vector<std::int32_t> values;
  for (const std::int64_t value : golden.integers(name)) {
    values.push_back(static_cast<std::int32_t>(value));
  }
  return values;
}

MemoryWeights micro_transformer() {
  MemoryWeights weights = read_all("golden/h3-micro/transformer/model.safetensors.index.json", "");
  const std::int64_t head_dim = weights.tensors.at("blocks.0.attn.q_norm.weight").shape[0];
  for (auto& [name, entry] : weights.tensors) {
    if (name.find("attn.qkv_proj.weight") != std::string::npos) {
      split_qkv(entry, head_dim);
    }
  }
  weights.config_values["rope_inv_freq_len"] = {4};
  return weights;
}

MemoryWeights micro_transformer_pruned() {
  MemoryWeights weights = read_all("golden/h3-micro-pruned/transformer.safetensors", "");
  weights.config_values["rope_inv_freq_len"] = {4};
  return weights;
}

MemoryWeights micro_text_encoder() {
  MemoryWeights weights = read_all("golden/h3-micro/text_encoder/model.safetensors.index.json",
                                   "model.language_model.");
  const std::string tower = "model.visual.";
  for (auto entry = weights.tensors.lower_bound(tower);
       entry != weights.tensors.end() && entry->first.starts_with(tower);) {
    auto node = weights.tensors.extract(entry++);
    node.key() = node.key().substr(std::string("model.").size());
    weights.tensors.insert(std::move(node));
  }
  weights.config_values["vision_num_heads"] = {2};
  weights.config_values["deepstack_visual_indexes"] = {0, 1, 2};
  weights.config_values["miniacc_text_layers"] = {3};
  weights.config_values["mrope_section"] = {4, 2, 2};
  return weights;
}

}  // namespace miniacc::testing
