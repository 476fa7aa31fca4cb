#include "model/dit/modulation.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/copy.h"
#include "kernels/linear.h"
#include "model/dit/time_embedding.h"

namespace miniacc {
namespace {

/// Timesteps are projected in batches of this many rows, the last one filled with zero rows: a
/// product of always one shape runs the same instructions for a row, whoever its neighbours are.
constexpr std::int64_t kTimeBatch = 16;

/// out rows [count] ← linear(inputs rows [count]) in batches of kTimeBatch.
///   store(row, values) receives each output row as [1, width].
template <typename Store>
void project_rows(OpContext& ctx, const Tensor& inputs, const BiasedLinear& layer,
                  const Store& store) {
  const std::int64_t rows = inputs.shape()[0];
  const std::int64_t width = inputs.shape()[1];
  const std::int64_t out_width = layer.bias.shape()[0];
  Tensor batch = empty_tensor(ctx.device, {kTimeBatch, width});
  Tensor out = empty_tensor(ctx.device, {kTimeBatch, out_width});
  for (std::int64_t first = 0; first < rows; first += kTimeBatch) {
    ctx.check_cancelled();
    const std::int64_t count = std::min(kTimeBatch, rows - first);
    ops::fill_zero(ctx, batch.view());
    ops::copy(ctx, batch.view().narrow(0, 0, count), inputs.view().narrow(0, first, count));
    ops::linear(ctx, out.view(), batch.view(), layer.weight.view(), layer.bias.view());
    for (std::int64_t row = 0; row < count; ++row) {
      store(first + row, std::as_const(out).view().narrow(0, row, 1));
    }
  }
}

}  // namespace

Status ModulationCache::prepare(OpContext& ctx, WeightSource& weights, const DitConfig& config,
                                const DitIslands& islands, Precision precision,
                                std::span<const float> times) {
  std::vector<float> missing;
  for (const float time : times) {
    MINIACC_REQUIRE(std::isfinite(time), "modulation: times are finite");
    if (!has(time) && std::ranges::find(missing, time) == missing.end()) {
      missing.push_back(time);
    }
  }
  if (missing.empty()) {
    return {};
  }
  const std::int64_t block_size = config.modulation_size();
  std::vector<Entry> entries(missing.size());
  for (Entry& entry : entries) {
    entry.blocks = empty_tensor(ctx.device, {config.num_layers, kNumModalities,
                                             kNumModulationVectors * config.hidden_size});
    entry.final_layer = empty_tensor(ctx.device, {2 * config.hidden_size});
  }
  // The time MLP also runs row by row for the sake of bit-identity; it is tiny.
  Tensor inputs =
      empty_tensor(ctx.device, {static_cast<std::int64_t>(missing.size()), config.time_embed_dim});
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const Tensor row = adaln_input(ctx, config, islands, {&missing[i], 1});
    ops::copy(ctx, inputs.view().narrow(0, static_cast<std::int64_t>(i), 1), row.view());
  }
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    MINIACC_ASSIGN(const BiasedLinear adaln_proj,
                   load_block_adaln(weights, config, layer, precision, ctx.device));
    ++num_reads_;
    project_rows(ctx, inputs, adaln_proj, [&](std::int64_t row, ConstTensorView values) {
      const TensorView target =
          entries[static_cast<std::size_t>(row)].blocks.view().narrow(0, layer, 1);
      ops::copy(ctx, target.reshape({1, block_size}), values);
    });
  }
  project_rows(ctx, inputs, islands.final_adaln_proj,
               [&](std::int64_t row, ConstTensorView values) {
                 Tensor& final_values = entries[static_cast<std::size_t>(row)].final_layer;
                 ops::copy(ctx, final_values.view().reshape({1, 2 * config.hidden_size}), values);
               });
  for (std::size_t i = 0; i < missing.size(); ++i) {
    entries_.emplace(missing[i], std::move(entries[i]));
  }
  return {};
}

void ModulationCache::insert(float time, Tensor blocks, Tensor final_layer) {
  MINIACC_REQUIRE(blocks.shape().rank() == 3 && final_layer.shape().rank() == 1,
                  "modulation: blocks are [layers, 3, 6D], the final layer's values [2D]");
  entries_.try_emplace(time, Entry{std::move(blocks), std::move(final_layer)});
}

const ModulationCache::Entry& ModulationCache::entry(float time) const {
  const auto found = entries_.find(time);
  MINIACC_REQUIRE(found != entries_.end(), "modulation: this timestep was not prepared");
  return found->second;
}

ConstTensorView ModulationCache::block(float time, std::int64_t layer) const {
  const ConstTensorView blocks = entry(time).blocks.view();
  return blocks.narrow(0, layer, 1).reshape({blocks.dim(1), blocks.dim(2)});
}

ConstTensorView ModulationCache::final_layer(float time) const {
  return entry(time).final_layer.view();
}

std::size_t ModulationCache::size_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [time, values] : entries_) {
    bytes += values.blocks.size_bytes() + values.final_layer.size_bytes();
  }
  return bytes;
}

}  // namespace miniacc
