#include "adapters/adapter_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "io/dequantize.h"
#include "io/tensor_writer.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (const auto at = text.find(from); at != std::string::npos) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string diffusers_module(const ModuleChange& change) {
  constexpr const char* kParts[] = {"to_q", "to_k", "to_v"};
  std::string name = change.module;
  name = name.starts_with("token_refiner.")
             ? replaced(name, "token_refiner.blocks", "token_refiner.refiner_blocks")
             : replaced(name, "blocks", "transformer_blocks");
  name = replaced(name, "attn.out_proj", "attn.to_out.0");
  name = replaced(name, "mlp.fc1", "ff.net.0.proj");
  name = replaced(name, "mlp.fc2", "ff.net.2");
  return change.part < 0 ? name : replaced(name, "qkv_proj", kParts[change.part]);
}

/// Rows in the order that `source_row` gives: out row i = row source_row(i).
template <typename Source>
AdapterTensor move_rows(const AdapterTensor& tensor, Source&& source_row) {
  AdapterTensor moved = tensor;
  const std::int64_t columns = tensor.shape[1];
  for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
    std::copy_n(tensor.values.begin() + source_row(row) * columns, columns,
                moved.values.begin() + row * columns);
  }
  return moved;
}

}  // namespace

AdapterTensor random_factor(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  AdapterTensor tensor{{rows, columns}, random_normal(rows * columns, seed)};
  for (float& value : tensor.values) {
    value *= 0.1F;
  }
  return tensor;
}

std::filesystem::path write_adapter(const std::filesystem::path& path,
                                    const AdapterTensors& tensors, const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, tensor.dtype, tensor.shape});
  }
  auto writer = create_safetensors(path, specs, metadata);
  if (!writer) {
    throw std::runtime_error(writer.error().message);
  }
  for (const auto& [name, tensor] : tensors) {
    std::vector<std::byte> bytes(
        *storage_bytes(tensor.dtype, static_cast<std::int64_t>(tensor.values.size())));
    quantize(tensor.dtype, tensor.values, bytes);
    if (const Status written = (*writer)->append(bytes); !written) {
      throw std::runtime_error(written.error().message);
    }
  }
  if (const Status done = (*writer)->finish(); !done) {
    throw std::runtime_error(done.error().message);
  }
  return path;
}

std::vector<ModuleChange> random_changes(const WeightSource& base, std::int64_t rank,
                                         std::uint64_t seed) {
  std::vector<ModuleChange> changes;
  for (const std::string block :
       {"blocks.0", "blocks.1", "blocks.2", "token_refiner.blocks.0", "token_refiner.blocks.1"}) {
    for (const std::string leaf : {"attn.qkv_proj", "attn.out_proj", "mlp.fc1", "mlp.fc2"}) {
      const std::string module = fmt::format("{}.{}", block, leaf);
      const Shape shape = base.shape(module + ".weight").value();
      const bool fused = leaf == "attn.qkv_proj";
      for (int part = fused ? 0 : -1; part < (fused ? 3 : 0); ++part) {
        const std::int64_t rows = fused ? shape[0] / 3 : shape[0];
        changes.push_back({module, part, rank, random_factor(rank, shape[1], ++seed),
                           random_factor(rows, rank, ++seed)});
      }
    }
  }
  return changes;
}

AdapterTensors diffusers_names(const std::vector<ModuleChange>& changes, const std::string& prefix,
                               const std::string& down, const std::string& up) {
  AdapterTensors tensors;
  for (const ModuleChange& change : changes) {
    const std::string module = prefix + diffusers_module(change);
    const std::int64_t half = change.up.shape[0] / 2;
    tensors[module + down] = change.down;
    tensors[module + up] =
        change.module.ends_with("fc1")
            ? move_rows(change.up,
                        [&](std::int64_t row) { return row < half ? row + half : row - half; })
            : change.up;
  }
  return tensors;
}

AdapterTensors fused_names(const std::vector<ModuleChange>& changes, const std::string& prefix,
                           const std::string& down, const std::string& up) {
  AdapterTensors tensors;
  for (const ModuleChange& change : changes) {
    const std::string module = prefix + change.module;
    AdapterTensor& a = tensors[fmt::format("{}{}", module, down)];
    AdapterTensor& b = tensors[fmt::format("{}{}", module, up)];
    if (change.part < 0) {
      a = change.down;
      b = change.up;
      continue;
    }
    const std::int64_t rank = change.rank;
    const std::int64_t rows = change.up.shape[0];
    if (change.part == 0) {
      a = {{3 * rank, change.down.shape[1]}, {}};
      b = {{3 * rows, 3 * rank}, std::vector<float>(static_cast<std::size_t>(9 * rows * rank))};
    }
    a.values.insert(a.values.end(), change.down.values.begin(), change.down.values.end());
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(change.up.values.begin() + row * rank, rank,
                  b.values.begin() + ((change.part * rows + row) * 3 + change.part) * rank);
    }
  }
  return tensors;
}

AdapterTensors interleave_heads(AdapterTensors tensors, std::int64_t head_dim) {
  for (auto& [name, tensor] : tensors) {
    if (name.find("qkv_proj.lora_B") != std::string::npos) {
      const std::int64_t inner = tensor.shape[0] / 3;
      tensor = move_rows(tensor, [&](std::int64_t row) {
        const std::int64_t head = row / (3 * head_dim);
        const std::int64_t part = row / head_dim % 3;
        return part * inner + head * head_dim + row % head_dim;
      });
    }
  }
  return tensors;
}

AdapterTensors flat_names(const AdapterTensors& tensors) {
  AdapterTensors flat;
  for (const auto& [name, tensor] : tensors) {
    const auto suffix = name.find(".lora_");
    std::string module = name.substr(0, suffix);
    std::replace(module.begin(), module.end(), '.', '_');
    flat["lora_unet_" + module + name.substr(suffix)] = tensor;
  }
  return flat;
}

}  // namespace miniacc::testing
