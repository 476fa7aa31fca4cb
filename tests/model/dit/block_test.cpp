#include "model/dit/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/cpu_device.h"
#include "kernels/linear.h"
#include "model/common/row_chunks.h"
#include "model/dit/dit.h"
#include "model/support/dit_case.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::DitCase;
using testing::Golden;
using testing::MemoryWeights;

/// The packed residual stream as the first block sees it, put together here from public parts.
Tensor embed(OpContext& ctx, const Dit& dit, const DitCase& dit_case, const Tensor& refined) {
  const PackedSequence& sequence = dit_case.sequence;
  Tensor h = empty_tensor(ctx.device, {sequence.num_rows(), dit.config().hidden_size});
  const auto project = [&](const Tensor& rows, const BiasedLinear& layer, SegmentKind condition,
                           SegmentKind target) {
    Tensor out = empty_tensor(ctx.device, {rows.shape()[0], dit.config().hidden_size});
    ops::linear(ctx, out.view(), rows.view(), layer.weight.view(), layer.bias.view());
    std::int64_t next = 0;
    for (const Segment& segment : sequence.segments) {
      if (segment.kind == condition || segment.kind == target) {
        std::copy_n(out.f32().data() + next * dit.config().hidden_size,
                    segment.rows.count * dit.config().hidden_size,
                    h.view().narrow(0, segment.rows.first, segment.rows.count).f32());
        next += segment.rows.count;
      }
    }
  };
  std::ranges::copy(refined.f32(), h.f32().begin());
  project(dit_case.video_rows, dit.islands().video_patch_proj, SegmentKind::kVideoCondition,
          SegmentKind::kTargetVideo);
  project(dit_case.audio_rows, dit.islands().audio_patch_proj, SegmentKind::kAudioCondition,
          SegmentKind::kTargetAudio);
  return h;
}

/// The residual stream after each block at the first pair of times of a case.
std::vector<std::vector<float>> run_blocks(MemoryWeights weights, const std::string& case_name) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case(case_name, golden, device);
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const DitConfig& config = dit.config();
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  Tensor h = embed(ctx, dit, dit_case, refined);
  const auto [video_time, audio_time] = dit_case.times[0];
  const RowTimesteps timesteps = dit_case.sequence.timesteps(video_time, audio_time);
  ModulationCache modulation;
  EXPECT_TRUE(dit.prepare_modulation(ctx, timesteps.distinct, modulation));
  const RopeTable rope = make_rope_table(device, dit_case.sequence.position_ids,
                                         rope_inv_freq(config.rope_freqs, config.rope_theta));
  const Tensor index = testing::make_index(device, timesteps.adaln_row);
  BlockActivations activations(device, config, dit_case.sequence.num_rows(), {});
  std::vector<std::vector<float>> states;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    std::vector<float> table;
    for (const float time : timesteps.distinct) {
      const ConstTensorView values = modulation.block(time, i);
      table.insert(table.end(), values.f32(), values.f32() + values.num_elements());
    }
    const auto table_rows = static_cast<std::int64_t>(timesteps.distinct.size()) * 3;
    const Tensor table_tensor =
        testing::make_tensor(device, {table_rows, 6 * config.hidden_size}, table);
    const OwnedLayer layer =
        *load_layer(weights, dit_block_stack(config, Precision::kF32), i, device);
    dit_block(ctx, h.view(), dit_block_weights(layer.view()), config,
              {table_tensor.view(), index.view()}, rope, activations);
    states.emplace_back(h.f32().begin(), h.f32().end());
  }
  return states;
}

void expect_blocks_match(const MemoryWeights& weights, const Golden& results,
                         const std::string& prefix) {
  const auto states = run_blocks(weights, prefix.substr(prefix.rfind('.') + 1));
  EXPECT_TRUE(close_to(states.front(), results.floats(prefix + ".step_0.block_0"), 1e-5));
  EXPECT_TRUE(close_to(states.back(), results.floats(prefix + ".step_0.block_last"), 1e-5));
}

TEST(DitBlock, MatchesTheReferenceAfterFirstAndLastBlock) {
  const Golden golden("golden/dit.safetensors");
  expect_blocks_match(testing::micro_transformer(), golden, "t2_4x6");
}

TEST(DitBlock, MatchesTheReferenceWithConditions) {
  const Golden golden("golden/dit.safetensors");
  expect_blocks_match(testing::micro_transformer(), golden, "keyframes");
}

TEST(DitBlock, MatchesTheReferenceInCurveForm) {
  const Golden golden("golden/dit_curve.safetensors");
  expect_blocks_match(testing::micro_transformer_pruned(), golden, "curve.t2_4x6");
  expect_blocks_match(testing::micro_transformer_pruned(), golden, "curve.keyframes");
}

// Demand W10: block 0 pushes the stream beyond f16 (65504), and the blocks behind it keep it
// finite.
TEST(DitBlock, ResidualPassesTheRangeOfHalfPrecision) {
  MemoryWeights weights = testing::micro_transformer();
  for (float& value : weights.values("blocks.0.mlp.fc2.weight")) {
    value *= 4e6F;
  }
  for (const std::vector<float>& state : run_blocks(weights, "t2_4x6")) {
    const float peak = *std::ranges::max_element(
        state, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    EXPECT_GT(std::fabs(peak), 65504.0F);
    EXPECT_TRUE(std::ranges::all_of(state, [](float value) { return std::isfinite(value); }));
  }
}

TEST(DitBlock, RefinerMatchesTheReference) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Golden golden("golden/dit.safetensors");
  for (const DitCase& dit_case : testing::all_dit_cases(golden, device)) {
    const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
    EXPECT_TRUE(close_to(refined.f32(), golden.floats(dit_case.name + ".refiner"), 1e-4))
        << dit_case.name;
  }
}

// What is computed by chunks of rows equals what one product gives, at the chunk's edges too.
TEST(RowChunks, LinearByRowsEqualsOneProduct) {
  CpuDevice device;
  OpContext ctx{device};
  const std::int64_t rows = kRowChunk + 3;
  const Tensor x = testing::random_tensor(device, {rows, 5}, 1);
  const Tensor w = testing::random_tensor(device, {4, 5}, 2);
  Tensor whole = empty_tensor(device, {rows, 4});
  Tensor parts = empty_tensor(device, {rows, 4});
  ops::linear(ctx, whole.view(), x.view(), {w.view(), {}, 0});
  linear_by_rows(ctx, parts.view(), x.view(), {w.view(), {}, 0});
  EXPECT_TRUE(close_to(parts.f32(), whole.f32(), 1e-6));
}

}  // namespace
}  // namespace miniacc
