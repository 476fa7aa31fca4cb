#include "model/dit/dit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "model/support/dit_case.h"
#include "support/compare.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::DitCase;
using testing::Golden;
using ::testing::HasSubstr;
using testing::identical_to;
using testing::last_rows;
using testing::MemoryWeights;
using testing::relative_error;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

/// Runs every step of every case that `results` has under `prefix` and returns the worst error.
double worst_error(MemoryWeights& weights, Precision precision, const Golden& results,
                   const std::string& prefix, const std::vector<std::string>& names) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden inputs("golden/dit.safetensors");
  Dit dit = *Dit::open(weights, device, precision, kUnlimited);
  ModulationCache modulation;
  double worst = 0.0;
  for (const std::string& name : names) {
    const DitCase dit_case = testing::dit_case(name, inputs, device);
    const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
    for (std::size_t k = 0; k < dit_case.times.size(); ++k) {
      const auto output = dit.forward(ctx, dit_case.input(refined, k), modulation);
      if (!output) {
        ADD_FAILURE() << output.error().message;
        return std::numeric_limits<double>::infinity();
      }
      const std::string step = prefix + dit_case.step(k);
      const std::int64_t video_rows = dit_case.sequence.target_video().count;
      const std::int64_t audio_rows = dit_case.sequence.target_audio().count;
      worst = std::max(worst, relative_error(output->video.f32(),
                                             last_rows(results.floats(step + ".video_velocity"),
                                                       video_rows, 96)));
      worst = std::max(worst, relative_error(output->audio.f32(),
                                             last_rows(results.floats(step + ".audio_velocity"),
                                                       audio_rows, 32)));
    }
  }
  return worst;
}

const std::vector<std::string> kAllCases = {"t2_4x6", "t7_6x4", "t12_4x6", "keyframes"};
const std::vector<std::string> kCurveCases = {"t2_4x6", "keyframes"};

// Measured 1.0e-6; the reference itself is off by 6e-7 against f64.
TEST(Dit, VelocitiesMatchTheReference) {
  MemoryWeights weights = testing::micro_transformer();
  const Golden golden("golden/dit.safetensors");
  EXPECT_LE(worst_error(weights, Precision::kF32, golden, "", kAllCases), 1e-5);
}

// Measured 4.9e-7.
TEST(Dit, CurveFormVelocitiesMatchTheReference) {
  MemoryWeights weights = testing::micro_transformer_pruned();
  const Golden golden("golden/dit_curve.safetensors");
  EXPECT_LE(worst_error(weights, Precision::kF32, golden, "curve.", kCurveCases), 1e-5);
}

// The micro model's weights are bf16 already, so this is the rounding of activations alone.
// Measured 8.4e-3.
TEST(Dit, Bf16StaysNearTheReference) {
  MemoryWeights weights = testing::micro_transformer();
  const Golden golden("golden/dit.safetensors");
  const double error = worst_error(weights, Precision::kBF16, golden, "", kAllCases);
  EXPECT_LE(error, 1.2e-2);
  EXPECT_GE(error, 1e-4);  // otherwise this was not bf16
}

// Measured 3.7e-2, and 2.5e-2 in the curve form: rows of 48 values leave int8 little to average.
TEST(Dit, Int8StaysNearTheReference) {
  MemoryWeights weights = testing::micro_transformer();
  const Golden golden("golden/dit.safetensors");
  const double error = worst_error(weights, Precision::kInt8, golden, "", kAllCases);
  EXPECT_LE(error, 5e-2);
  EXPECT_GE(error, 1e-2);
  MemoryWeights curve = testing::micro_transformer_pruned();
  const Golden curve_golden("golden/dit_curve.safetensors");
  EXPECT_LE(worst_error(curve, Precision::kInt8, curve_golden, "curve.", kCurveCases), 3.5e-2);
}

// What the checkpoint layer serves, whatever the naming and row order of the file, is what the
// independent conversion of these tests gives, to the last bit of a velocity.
TEST(Dit, EveryFileLayoutGivesTheSameVelocities) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case("t7_6x4", golden, device);
  const auto run = [&](WeightSource& weights) {
    Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
    const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
    ModulationCache modulation;
    return *dit.forward(ctx, dit_case.input(refined, 1), modulation);
  };
  const auto open = [](const std::string& folder) {
    auto weights = open_component(testing::test_data("golden/" + folder), Component::kTransformer);
    EXPECT_TRUE(weights) << weights.error().message;
    return *std::move(weights);
  };
  MemoryWeights memory = testing::micro_transformer();
  const DitOutput wanted = run(memory);
  for (const char* folder : {"h3-micro/transformer", "h3-micro-diffusers/transformer"}) {
    const auto weights = open(folder);
    const DitOutput got = run(*weights);
    EXPECT_TRUE(identical_to(got.video.f32(), wanted.video.f32())) << folder;
    EXPECT_TRUE(identical_to(got.audio.f32(), wanted.audio.f32())) << folder;
  }
  MemoryWeights memory_pruned = testing::micro_transformer_pruned();
  const auto pruned = open("h3-micro-pruned/transformer.safetensors");
  EXPECT_TRUE(identical_to(run(*pruned).video.f32(), run(memory_pruned).video.f32()));
}

/// One step of t7_6x4 under a cache budget.
struct BudgetRun {
  DitOutput output;
  std::int64_t loads = 0;
  std::size_t resident_bytes = 0;
};

BudgetRun run_with_budget(std::size_t budget, Precision precision, int num_threads = 1) {
  CpuDevice device;
  OpContext ctx{device, num_threads};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, precision, budget);
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case("t7_6x4", golden, device);
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  ModulationCache modulation;
  auto first = dit.forward(ctx, dit_case.input(refined, 1), modulation);
  auto second = dit.forward(ctx, dit_case.input(refined, 1), modulation);
  EXPECT_TRUE(identical_to(first->video.f32(), second->video.f32()));
  // Buffers return to their device, so results are copied to one that outlives this function.
  static CpuDevice results;
  BudgetRun run;
  run.output = {empty_tensor(results, second->video.shape()),
                empty_tensor(results, second->audio.shape())};
  std::ranges::copy(second->video.f32(), run.output.video.f32().begin());
  std::ranges::copy(second->audio.f32(), run.output.audio.f32().begin());
  run.loads = dit.num_block_loads();
  run.resident_bytes = dit.resident_bytes();
  return run;
}

TEST(Dit, CacheBudgetChangesNoBit) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kInt8}) {
    const BudgetRun all = run_with_budget(kUnlimited, precision);
    const BudgetRun none = run_with_budget(0, precision);
    const BudgetRun some = run_with_budget(all.resident_bytes / 2, precision);
    EXPECT_EQ(all.loads, 3);
    EXPECT_EQ(none.loads, 6);
    EXPECT_EQ(some.loads, 5);
    EXPECT_EQ(none.resident_bytes, 0U);
    EXPECT_EQ(some.resident_bytes, all.resident_bytes / 3);
    EXPECT_TRUE(identical_to(none.output.video.f32(), all.output.video.f32()));
    EXPECT_TRUE(identical_to(some.output.video.f32(), all.output.video.f32()));
    EXPECT_TRUE(identical_to(none.output.audio.f32(), all.output.audio.f32()));
    EXPECT_TRUE(identical_to(some.output.audio.f32(), all.output.audio.f32()));
  }
}

TEST(Dit, NumberOfThreadsChangesNothingThatCounts) {
  const BudgetRun one = run_with_budget(0, Precision::kF32, 1);
  const BudgetRun two = run_with_budget(0, Precision::kF32, 2);
  // Matrix products may split their sums by threads; everything else may not.
  EXPECT_TRUE(close_to(two.output.video.f32(), one.output.video.f32(), 1e-6));
  EXPECT_TRUE(close_to(two.output.audio.f32(), one.output.audio.f32(), 1e-6));
}

TEST(Dit, ModulationFromAScheduleChangesNoBit) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  ModulationCache schedule;
  const std::vector<float> times = {0.0F, 0.0270270109F, 0.100000024F, 0.199999988F, 0.5F, 0.8F};
  ASSERT_TRUE(dit.prepare_modulation(ctx, times, schedule));
  for (std::size_t k = 0; k < dit_case.times.size(); ++k) {
    ModulationCache fresh;
    const auto prepared = dit.forward(ctx, dit_case.input(refined, k), schedule);
    const auto computed = dit.forward(ctx, dit_case.input(refined, k), fresh);
    ASSERT_TRUE(prepared && computed);
    EXPECT_TRUE(identical_to(prepared->video.f32(), computed->video.f32()));
    EXPECT_TRUE(identical_to(prepared->audio.f32(), computed->audio.f32()));
  }
  EXPECT_EQ(schedule.num_reads(), 3);
}

TEST(Dit, ReportsProgressAfterEachBlock) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  ModulationCache modulation;
  std::vector<std::int64_t> finished;
  ASSERT_TRUE(dit.forward(ctx, dit_case.input(refined, 0), modulation,
                          [&](std::int64_t done, std::int64_t total) {
                            EXPECT_EQ(total, 3);
                            finished.push_back(done);
                          }));
  EXPECT_THAT(finished, ::testing::ElementsAre(1, 2, 3));
}

TEST(Dit, StopsBetweenBlocksWhenCancelled) {
  CpuDevice device;
  CancelToken cancel;
  OpContext ctx{device, 1, &cancel};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  ModulationCache modulation;
  std::int64_t last = 0;
  EXPECT_THROW((void)dit.forward(ctx, dit_case.input(refined, 0), modulation,
                                 [&](std::int64_t done, std::int64_t) {
                                   last = done;
                                   cancel.cancel();
                                 }),
               ErrorException);
  EXPECT_EQ(last, 1);
}

/// The error of one step whose weights or inputs were spoiled.
template <typename Spoil>
std::string forward_error(const Spoil& spoil) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  weights.allow_non_finite = true;
  const Golden golden("golden/dit.safetensors");
  DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
  spoil(weights, dit_case);
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  ModulationCache modulation;
  const auto output = dit.forward(ctx, dit_case.input(refined, 1), modulation);
  return output ? "no error" : output.error().message;
}

TEST(Dit, NamesTheBlockBehindWhichAVelocityIsNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(forward_error([](MemoryWeights& weights, DitCase&) {
                weights.values("blocks.1.mlp.fc2.weight")[3] = kNan;
              }),
              HasSubstr("non-finite velocity: NaN or infinity after block 1 of 3"));
  EXPECT_THAT(forward_error([](MemoryWeights&, DitCase& dit_case) {
                dit_case.audio_rows.f32()[7] = std::numeric_limits<float>::infinity();
              }),
              HasSubstr("non-finite velocity: NaN or infinity in the input rows"));
  EXPECT_THAT(forward_error([](MemoryWeights& weights, DitCase&) {
                weights.values("final_layer.audio_out.bias")[0] = kNan;
              }),
              HasSubstr("non-finite velocity: NaN or infinity behind the final layer"));
  EXPECT_EQ(forward_error([](MemoryWeights&, DitCase&) {}), "no error");
}

// Demand W10: a residual stream far beyond f16 is no trouble, and stays what f32 makes of it.
TEST(Dit, ResidualBeyondHalfPrecisionStaysFinite) {
  const auto run = [](Precision precision) {
    CpuDevice device;
    OpContext ctx{device};
    MemoryWeights weights = testing::micro_transformer();
    for (float& value : weights.values("blocks.0.mlp.fc2.weight")) {
      value *= 4e6F;
    }
    Dit dit = *Dit::open(weights, device, precision, 0);
    const Golden golden("golden/dit.safetensors");
    const DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
    const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
    ModulationCache modulation;
    const auto output = dit.forward(ctx, dit_case.input(refined, 1), modulation);
    EXPECT_TRUE(output) << output.error().message;
    return std::vector<float>(output->video.f32().begin(), output->video.f32().end());
  };
  EXPECT_LE(relative_error(run(Precision::kBF16), run(Precision::kF32)), 6e-3);  // measured 3.9e-3
}

TEST(Dit, RefusesFrequenciesOfAnotherTheta) {
  CpuDevice device;
  MemoryWeights weights = testing::micro_transformer();
  weights.config_values["rope_theta"] = {500.0};
  const auto dit = Dit::open(weights, device, Precision::kF32, 0);
  ASSERT_FALSE(dit);
  EXPECT_THAT(dit.error().message, HasSubstr("rope.inv_freq"));
}

TEST(Dit, RefusesNonFiniteText) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Golden golden("golden/dit.safetensors");
  DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
  dit_case.text_states.f32()[0] = std::numeric_limits<float>::quiet_NaN();
  const auto refined = dit.refine_text(ctx, dit_case.text_states.view());
  ASSERT_FALSE(refined);
  EXPECT_THAT(refined.error().message, HasSubstr("non-finite text"));
}

TEST(Dit, ReturnsTheSourceErrorOfABlock) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  weights.values("blocks.2.attn.out_proj.weight")[0] = std::numeric_limits<float>::infinity();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  ModulationCache modulation;
  const auto output = dit.forward(ctx, dit_case.input(refined, 0), modulation);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(output.error().message, HasSubstr("blocks.2.attn.out_proj.weight"));
}

TEST(Dit, RequiresRowsOfTheSequence) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  const Golden golden("golden/dit.safetensors");
  const DitCase dit_case = testing::dit_case("t2_4x6", golden, device);
  const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
  ModulationCache modulation;
  DitInput input = dit_case.input(refined, 0);
  input.video_rows = input.video_rows.narrow(0, 0, 11);
  EXPECT_THROW((void)dit.forward(ctx, input, modulation), InternalError);
  EXPECT_THROW((void)dit.refine_text(ctx, refined.view()), InternalError);
}

// The measured peak of a pass, against what the memory plan is told.
TEST(Dit, ActivationBytesCoverAPass) {
  const Precision all[] = {Precision::kF32, Precision::kBF16, Precision::kInt8};
  for (const Precision linear : all) {
    for (const Precision attention : all) {
      CpuDevice device;
      OpContext ctx{device};
      MemoryWeights weights = testing::micro_transformer();
      Dit dit = *Dit::open(weights, device, linear, kUnlimited, nullptr, attention);
      const Golden golden("golden/dit.safetensors");
      const DitCase dit_case = testing::dit_case("t12_4x6", golden, device);
      const Tensor refined = *dit.refine_text(ctx, dit_case.text_states.view());
      ModulationCache modulation;
      ASSERT_TRUE(dit.forward(ctx, dit_case.input(refined, 0), modulation));
      const std::size_t before = device.bytes_in_use();
      std::size_t during = 0;
      ASSERT_TRUE(dit.forward(ctx, dit_case.input(refined, 0), modulation,
                              [&](std::int64_t, std::int64_t) { during = device.bytes_in_use(); }));
      const std::size_t planned = Dit::activation_bytes(dit.config(), dit_case.sequence.num_rows(),
                                                        {linear, attention}, device.id().kind);
      EXPECT_LE(during - before, planned);
      // The plan counts the velocities too, which are not there yet between blocks.
      EXPECT_GE(during - before, planned - planned * 15 / 100);
    }
  }
}

}  // namespace
}  // namespace miniacc
