#include "apps/sparse_checkpoint.h"

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace miniacc::testing {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kHidden = 5376;
constexpr std::int64_t kInner = 7168;
constexpr std::int64_t kFfn = 14336;

class Header {
 public:
  void add(const std::string& name, const char* dtype, std::uint64_t value_bytes,
           std::vector<std::int64_t> shape) {
    std::uint64_t size = value_bytes;
    for (const std::int64_t dim : shape) {
      size *= static_cast<std::uint64_t>(dim);
    }
    json_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {end_, end_ + size}}};
    end_ += size;
  }
  void bf16(const std::string& name, std::vector<std::int64_t> shape) {
    add(name, "BF16", 2, std::move(shape));
  }
  void f32(const std::string& name, std::vector<std::int64_t> shape) {
    add(name, "F32", 4, std::move(shape));
  }
  /// A linear layer, int8 with the scales of its rows.
  void int8(const std::string& stem, std::int64_t rows, std::int64_t columns) {
    add(stem + ".weight", "I8", 1, {rows, columns});
    f32(stem + ".weight_scale", {rows, 1});
    layers_[stem] = {{"format", "int8_tensorwise"}, {"convrot", true}, {"convrot_groupsize", 256}};
  }

  std::uintmax_t write(const std::filesystem::path& path) {
    json_["__metadata__"] = {{"_quantization_metadata", ordered_json{{"layers", layers_}}.dump()}};
    std::string text = json_.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = text.size();
    std::ofstream stream(path, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(&length), sizeof length);
    stream << text;
    stream.close();
    std::filesystem::resize_file(path, sizeof length + length + end_);
    return sizeof length + length + end_;
  }

 private:
  ordered_json json_ = ordered_json::object();
  ordered_json layers_ = ordered_json::object();
  std::uint64_t end_ = 0;
};

void add_block(Header& header, const std::string& stem, bool quantised) {
  const auto linear = [&](const std::string& leaf, std::int64_t rows, std::int64_t columns) {
    quantised ? header.int8(stem + leaf, rows, columns)
              : header.bf16(stem + leaf + ".weight", {rows, columns});
  };
  header.bf16(stem + "norm1.weight", {kHidden});
  header.bf16(stem + "norm2.weight", {kHidden});
  header.bf16(stem + "attn.q_norm.weight", {128});
  header.bf16(stem + "attn.k_norm.weight", {128});
  linear("attn.qkv_proj", 3 * kInner, kHidden);
  linear("attn.out_proj", kHidden, kInner);
  linear("mlp.fc1", 2 * kFfn, kHidden);
  linear("mlp.fc2", kHidden, kFfn);
}

void add_affine(Header& header, const std::string& stem, std::int64_t rows, std::int64_t columns) {
  header.f32(stem + ".weight", {rows, columns});
  header.f32(stem + ".bias", {rows});
}

}  // namespace

std::uintmax_t write_sparse_transformer(const std::filesystem::path& path) {
  Header header;
  header.f32("adaln_t_table", {1025, 8});
  header.f32("rope.inv_freq", {16});
  add_affine(header, "video_patch_proj", kHidden, 96);
  add_affine(header, "audio_patch_proj", kHidden, 32);
  header.bf16("condition_proj.weight", {kHidden, 5120});
  header.bf16("condition_proj.bias", {kHidden});
  for (int i = 0; i < 2; ++i) {
    add_block(header, "token_refiner.blocks." + std::to_string(i) + ".", false);
  }
  header.bf16("token_refiner.final_norm.weight", {kHidden});
  for (int i = 0; i < 50; ++i) {
    const std::string stem = "blocks." + std::to_string(i) + ".";
    add_block(header, stem, true);
    header.bf16(stem + "adaln_proj.linear.weight", {18 * kHidden, 8});
    header.bf16(stem + "adaln_proj.linear.bias", {18 * kHidden});
  }
  header.bf16("final_layer.norm.weight", {kHidden});
  header.bf16("final_layer.adaln_proj.linear.weight", {2 * kHidden, 8});
  header.bf16("final_layer.adaln_proj.linear.bias", {2 * kHidden});
  add_affine(header, "final_layer.video_out", 96, kHidden);
  add_affine(header, "final_layer.audio_out", 32, kHidden);
  return header.write(path);
}

}  // namespace miniacc::testing
