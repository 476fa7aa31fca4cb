#include "model/support/golden.h"

#include <cstring>
#include <stdexcept>

#include "core/float_convert.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

TensorFile open_file(const std::filesystem::path& path) {
  auto file = TensorFile::open(path);
  if (!file) {
    throw std::runtime_error(file.error().message);
  }
  return *std::move(file);
}

template <typename T>
std::vector<T> read_values(const TensorFile& file, const TensorEntry& entry) {
  const auto bytes = file.bytes(entry);
  if (!bytes) {
    throw std::runtime_error(bytes.error().message);
  }
  std::vector<T> values(bytes->size() / sizeof(T));
  std::memcpy(values.data(), bytes->data(), values.size() * sizeof(T));
  return values;
}

std::vector<float> read_floats(const TensorFile& file, const TensorEntry& entry) {
  if (entry.dtype == DType::kF32) {
    return read_values<float>(file, entry);
  }
  if (entry.dtype != DType::kBF16 && entry.dtype != DType::kF16) {
    throw std::runtime_error(entry.name + " is no floating-point tensor");
  }
  std::vector<float> values;
  for (const std::uint16_t bits : read_values<std::uint16_t>(file, entry)) {
    values.push_back(entry.dtype == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits));
  }
  return values;
}

MemoryWeights read_all(const std::string& name, std::string_view strip) {
  const TensorFile file = open_file(golden_path(name));
  MemoryWeights weights;
  for (const TensorEntry& entry : file.entries()) {
    const bool prefixed = entry.name.rfind(strip, 0) == 0;
    weights.set(prefixed ? entry.name.substr(strip.size()) : entry.name, entry.shape,
                read_floats(file, entry));
  }
  return weights;
}

void set_transformer_config(MemoryWeights& weights) {
  weights.config_values["rope_inv_freq_len"] = {4};
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

std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(MINIACC_TEST_DATA) / "golden" / name;
}

Golden::Golden(const std::string& name) : file_(open_file(golden_path(name))) {}

const TensorEntry& Golden::entry(const std::string& name, DType dtype) const {
  const TensorEntry* found = file_.find(name);
  if (found == nullptr || found->dtype != dtype) {
    throw std::runtime_error("golden tensor missing or of another type: " + name);
  }
  return *found;
}

Shape Golden::shape(const std::string& name) const {
  const TensorEntry* found = file_.find(name);
  if (found == nullptr) {
    throw std::runtime_error("golden tensor missing: " + name);
  }
  return found->shape;
}

std::vector<float> Golden::f32(const std::string& name) const {
  return read_values<float>(file_, entry(name, DType::kF32));
}

std::vector<double> Golden::f64(const std::string& name) const {
  return read_values<double>(file_, entry(name, DType::kF64));
}

std::vector<std::int32_t> Golden::ints(const std::string& name) const {
  std::vector<std::int32_t> values;
  for (const std::int64_t value : read_values<std::int64_t>(file_, entry(name, DType::kI64))) {
    values.push_back(static_cast<std::int32_t>(value));
  }
  return values;
}

Tensor Golden::tensor(const std::string& name, Device& device) const {
  return make_tensor(device, shape(name), f32(name));
}

MemoryWeights micro_transformer() {
  MemoryWeights weights = read_all("h3-micro/transformer/model.safetensors.index.json", "");
  const std::int64_t head_dim = weights.tensors.at("blocks.0.attn.q_norm.weight").shape[0];
  for (auto& [name, entry] : weights.tensors) {
    if (name.find("attn.qkv_proj.weight") != std::string::npos) {
      split_qkv(entry, head_dim);
    }
  }
  set_transformer_config(weights);
  return weights;
}

MemoryWeights micro_transformer_pruned() {
  MemoryWeights weights = read_all("h3-micro-pruned/transformer.safetensors", "");
  set_transformer_config(weights);
  return weights;
}

MemoryWeights micro_text_encoder() {
  MemoryWeights weights =
      read_all("h3-micro/text_encoder/model.safetensors.index.json", "model.language_model.");
  weights.config_values["miniacc_text_layers"] = {3};
  weights.config_values["mrope_section"] = {4, 2, 2};
  return weights;
}

}  // namespace miniacc::testing
