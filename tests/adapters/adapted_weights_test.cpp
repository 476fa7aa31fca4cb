#include "adapters/adapted_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "adapters/adapter_files.h"
#include "checkpoint/find_components.h"
#include "checkpoint/make_checkpoint.h"
#include "checkpoint/open_component.h"
#include "core/float_convert.h"
#include "device/cpu_device.h"
#include "kernels/linear.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using testing::identical_to;
using testing::Metadata;
using testing::ModuleChange;
using testing::test_data;

constexpr std::int64_t kRank = 4;

class Merge : public ::testing::Test {
 protected:
  AdaptedWeights merged(const AdapterTensors& tensors, float strength = 1.0F,
                        const Metadata& metadata = {}, int num_threads = 1) {
    std::vector<Lora> loras;
    loras.push_back(open(tensors, strength, metadata));
    return AdaptedWeights(*base_, std::move(loras), num_threads);
  }
  Lora open(const AdapterTensors& tensors, float strength, const Metadata& metadata = {}) {
    const auto path = write_adapter(folder_ / std::to_string(++num_files_), tensors, metadata);
    auto lora = Lora::open(*base_, {.path = path, .strength = strength});
    if (!lora) {
      throw std::runtime_error(lora.error().message);
    }
    return *std::move(lora);
  }
  /// The definition: W + Σ factor · (up · down), f32, ascending rank index.
  std::vector<float> defined(const std::string& module,
                             const std::vector<std::pair<std::vector<ModuleChange>, float>>& sets) {
    const Tensor weight = base_->load(module + ".weight", device_).value();
    const auto values = weight.f32();
    std::vector<float> out(values.begin(), values.end());
    const std::int64_t columns = weight.shape()[1];
    for (std::int64_t row = 0; row < weight.shape()[0]; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        float total = 0.0F;
        bool any = false;
        for (const auto& [changes, factor] : sets) {
          for (const ModuleChange& change : changes) {
            const std::int64_t local = row - std::max(change.part, 0) * change.up.shape[0];
            if (change.module != module || local < 0 || local >= change.up.shape[0]) {
              continue;
            }
            volatile float product = 0.0F;  // no multiply-add may be fused
            for (std::int64_t r = 0; r < change.rank; ++r) {
              const volatile float term =
                  change.up.values[static_cast<std::size_t>(local * change.rank + r)] *
                  change.down.values[static_cast<std::size_t>(r * columns + column)];
              product = product + term;
            }
            const volatile float scaled = factor * product;
            total = any ? total + scaled : scaled;
            any = true;
          }
        }
        if (any) {
          out[static_cast<std::size_t>(row * columns + column)] += total;
        }
      }
    }
    return out;
  }
  std::vector<float> loaded(AdaptedWeights& weights, const std::string& module) {
    const Tensor tensor = weights.load(module + ".weight", device_).value();
    return {tensor.f32().begin(), tensor.f32().end()};
  }
  static std::set<std::string> modules_of(const std::vector<ModuleChange>& changes) {
    std::set<std::string> modules;
    for (const ModuleChange& change : changes) {
      modules.insert(change.module);
    }
    return modules;
  }

  CpuDevice device_;
  testing::TempDir folder_;
  int num_files_ = 0;
  std::unique_ptr<ComponentWeights> base_ =
      open_component(test_data("golden/h3-micro/transformer")).value();
  std::vector<ModuleChange> changes_ = testing::random_changes(*base_, kRank, 7);
};

TEST_F(Merge, EveryNamingGivesTheBitsOfTheDefinition) {
  const std::string down = ".lora_A.weight";
  const std::string up = ".lora_B.weight";
  const AdapterTensors fused = fused_names(changes_, "", down, up);
  std::map<std::string, AdapterTensors> files = {
      {"diffusers", diffusers_names(changes_, "", down, up)},
      {"peft", diffusers_names(changes_, "base_model.model.", ".lora_A.default.weight",
                               ".lora_B.default.weight")},
      {"prefixed",
       diffusers_names(changes_, "transformer.", ".lora_down.weight", ".lora_up.weight")},
      {"without .weight", diffusers_names(changes_, "", ".lora_down", ".lora_up")},
      {"comfy", fused_names(changes_, "diffusion_model.", ".lora_A.weight", ".lora_B.weight")},
      {"comfy without .weight", fused_names(changes_, "diffusion_model.", ".lora_A", ".lora_B")},
      {"bare official", fused},
      {"doubled prefix", fused_names(changes_, "diffusion_model.diffusion_model.", down, up)},
      {"flat", flat_names(fused_names(changes_, "", ".lora_down.weight", ".lora_up.weight"))},
      {"diffsynth",
       interleave_heads(
           fused_names(changes_, "", ".lora_A.default.weight", ".lora_B.default.weight"), 32)},
  };
  for (const auto& [name, tensors] : files) {
    AdaptedWeights weights = merged(tensors, 1.0F, {}, 3);
    EXPECT_EQ(weights.loras().front().report().matched, static_cast<std::int64_t>(tensors.size()));
    for (const std::string& module : modules_of(changes_)) {
      const auto wanted = defined(module, {{changes_, 1.0F}});
      EXPECT_TRUE(identical_to(loaded(weights, module), wanted)) << name << " " << module;
      const auto matrix = weights.load_matrix(module + ".weight", Precision::kF32, device_).value();
      EXPECT_TRUE(identical_to(matrix.values.f32(), wanted)) << name << " " << module;
    }
  }
}

TEST_F(Merge, SharedDownMatrixOfAFusedQkvIsTheSameAsThreeCopies) {
  AdapterTensors fused;
  std::vector<ModuleChange> split;
  split.reserve(3);
  const std::string module = "blocks.1.attn.qkv_proj";
  fused[module + ".lora_A.weight"] = testing::random_factor(kRank, 48, 1);
  fused[module + ".lora_B.weight"] = testing::random_factor(288, kRank, 2);
  const auto& up = fused[module + ".lora_B.weight"].values;
  for (int part = 0; part < 3; ++part) {
    split.push_back(
        {module,
         part,
         kRank,
         fused[module + ".lora_A.weight"],
         {{96, kRank}, {up.begin() + part * 96 * kRank, up.begin() + (part + 1) * 96 * kRank}}});
  }
  AdaptedWeights weights = merged(fused);
  EXPECT_TRUE(identical_to(loaded(weights, module), defined(module, {{split, 1.0F}})));
}

TEST_F(Merge, StrengthAndAlphaMultiply) {
  const AdapterTensors plain = diffusers_names(changes_, "", ".lora_A.weight", ".lora_B.weight");
  const std::string module = "blocks.2.mlp.fc1";
  AdaptedWeights from_metadata = merged(plain, 0.5F, {{"alpha", "3"}});
  const auto factor = static_cast<float>(3.0 / kRank * 0.5);
  EXPECT_TRUE(identical_to(loaded(from_metadata, module), defined(module, {{changes_, factor}})));
  AdapterTensors with_alpha = plain;
  for (const auto& [name, tensor] : plain) {
    if (name.ends_with(".lora_A.weight")) {
      with_alpha[name.substr(0, name.size() - 14) + ".alpha"] = {Shape(), {3.0F}};
    }
  }
  AdaptedWeights from_tensors = merged(with_alpha, -1.0F, {{"alpha", "77"}});
  EXPECT_TRUE(identical_to(loaded(from_tensors, module), defined(module, {{changes_, -0.75F}})));
  EXPECT_EQ(from_tensors.loras().front().report().alpha_source, "alpha tensors");
  EXPECT_EQ(from_tensors.loras().front().report().max_scale, 0.75);
}

TEST_F(Merge, TwoAdaptersAreSummedInOrderBeforeTheWeight) {
  const auto second = testing::random_changes(*base_, 7, 99);
  std::vector<Lora> loras;
  loras.reserve(2);
  loras.push_back(open(diffusers_names(changes_, "", ".lora_A.weight", ".lora_B.weight"), 1.0F));
  loras.push_back(open(fused_names(second, "", ".lora_A.weight", ".lora_B.weight"), 0.25F));
  AdaptedWeights weights(*base_, std::move(loras));
  for (const std::string& module : modules_of(changes_)) {
    EXPECT_TRUE(identical_to(loaded(weights, module),
                             defined(module, {{changes_, 1.0F}, {second, 0.25F}})));
  }
}

TEST_F(Merge, LowerPrecisionsRoundTheMergedMatrixOnce) {
  AdaptedWeights weights = merged(fused_names(changes_, "", ".lora_A.weight", ".lora_B.weight"));
  const std::string module = "blocks.0.attn.qkv_proj";
  const auto wanted = defined(module, {{changes_, 1.0F}});
  const auto bf16 = weights.load_matrix(module + ".weight", Precision::kBF16, device_).value();
  const auto* bits = bf16.values.view().as<std::uint16_t>();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(bits[i], float_to_bf16(wanted[i])) << i;
  }
  const auto int8 = weights.load_matrix(module + ".weight", Precision::kInt8, device_).value();
  const Shape shape = int8.values.shape();
  Tensor values = empty_tensor(device_, shape, DType::kI8);
  Tensor scale = empty_tensor(device_, {shape[0]});
  OpContext ctx{device_};
  ops::quantize_rows(ctx, values.view(), scale.view(),
                     ConstTensorView(wanted.data(), shape, DType::kF32));
  EXPECT_TRUE(identical_to(int8.row_scale.f32(), scale.f32()));
  EXPECT_TRUE(std::equal(int8.values.view().as<std::int8_t>(),
                         int8.values.view().as<std::int8_t>() + shape.num_elements(),
                         values.view().as<std::int8_t>()));
  const Tensor rows = weights.load_rows(module + ".weight", 90, 20, device_).value();
  EXPECT_TRUE(identical_to(rows.f32(), std::span(wanted).subspan(90 * 48, 20 * 48)));
}

TEST_F(Merge, AQuantisedRotatedLayerIsMergedInF32AndRotatedAgain) {
  ASSERT_TRUE(make_checkpoint({.size = SyntheticSize::kTiny,
                               .format = CheckpointFormat::kComfy,
                               .storage = WeightStorage::kInt8ConvRot,
                               .seed = 3,
                               .out = folder_ / "model",
                               .progress = {}}));
  base_ = open_component(find_components(folder_ / "model").value().transformer).value();
  ASSERT_EQ(base_->info().quantization, "int8_tensorwise+convrot");
  const std::string module = "blocks.0.mlp.fc1";
  const Shape shape = base_->shape(module + ".weight").value();
  const std::vector<ModuleChange> changes = {{module, -1, 2, testing::random_factor(2, shape[1], 1),
                                              testing::random_factor(shape[0], 2, 2)}};
  AdaptedWeights weights = merged(fused_names(changes, "", ".lora_A.weight", ".lora_B.weight"));
  const auto wanted = defined(module, {{changes, 1.0F}});
  EXPECT_TRUE(identical_to(loaded(weights, module), wanted));

  const auto before = base_->load_matrix(module + ".weight", Precision::kInt8, device_).value();
  const auto after = weights.load_matrix(module + ".weight", Precision::kInt8, device_).value();
  ASSERT_GT(before.rotation_group, 0);
  EXPECT_EQ(after.rotation_group, before.rotation_group);
  Tensor values = empty_tensor(device_, shape);
  const auto* stored = after.values.view().as<std::int8_t>();
  for (std::int64_t i = 0; i < shape.num_elements(); ++i) {
    values.f32()[static_cast<std::size_t>(i)] =
        static_cast<float>(stored[i]) *
        after.row_scale.f32()[static_cast<std::size_t>(i / shape[1])];
  }
  OpContext ctx{device_};
  ops::rotate_rows(ctx, values.view(), after.rotation_group);
  // Seven bits and a scale a row; the adapter itself is far larger than that.
  EXPECT_TRUE(testing::close_to(values.f32(), wanted, 1.5e-2));
  const Tensor unchanged = base_->load(module + ".weight", device_).value();
  EXPECT_GT(testing::relative_error(values.f32(), unchanged.f32()), 3e-2);
}

TEST_F(Merge, DenseChangesAreAddedToWeightsVectorsAndBiases) {
  AdapterTensors tensors;
  tensors["transformer_blocks.0.ff.net.0.proj.diff"] = testing::random_factor(160, 48, 5);
  tensors["transformer_blocks.1.norm1.diff"] = {{48}, testing::random_factor(1, 48, 6).values};
  tensors["audio_proj_in.diff_b"] = {{48}, testing::random_factor(1, 48, 8).values};
  AdaptedWeights weights = merged(tensors, 2.0F);
  const auto expect_added = [&](const std::string& name, const std::vector<float>& change,
                                std::size_t rotate_by) {
    const Tensor before = base_->load(name, device_).value();
    const Tensor after = weights.load(name, device_).value();
    for (std::size_t i = 0; i < change.size(); ++i) {
      ASSERT_EQ(after.f32()[i], before.f32()[i] + 2.0F * change[(i + rotate_by) % change.size()]);
    }
  };
  expect_added("blocks.0.mlp.fc1.weight", tensors["transformer_blocks.0.ff.net.0.proj.diff"].values,
               80 * 48);
  expect_added("blocks.1.norm1.weight", tensors["transformer_blocks.1.norm1.diff"].values, 0);
  expect_added("audio_patch_proj.bias", tensors["audio_proj_in.diff_b"].values, 0);
}

TEST_F(Merge, AdalnAndTimeEmbeddingOfAFullBaseAreMerged) {
  std::vector<ModuleChange> time;
  for (const std::string module :
       {"blocks.1.adaln_proj.linear", "final_layer.adaln_proj.linear", "time_embedder.proj_in"}) {
    const Shape shape = base_->shape(module + ".weight").value();
    time.push_back({module, -1, 2, testing::random_factor(2, shape[1], 31),
                    testing::random_factor(shape[0], 2, 32)});
  }
  AdaptedWeights weights = merged(fused_names(time, "", ".lora_A.weight", ".lora_B.weight"));
  for (const ModuleChange& change : time) {
    EXPECT_TRUE(
        identical_to(loaded(weights, change.module), defined(change.module, {{time, 1.0F}})));
  }
}

TEST_F(Merge, NothingElseChangesAndStrengthZeroIsTheBase) {
  const AdapterTensors one = {{"blocks.0.mlp.fc2.lora_A.weight", testing::random_factor(2, 80, 1)},
                              {"blocks.0.mlp.fc2.lora_B.weight", testing::random_factor(48, 2, 2)}};
  AdaptedWeights weights = merged(one);
  AdaptedWeights zero = merged(one, 0.0F);
  EXPECT_TRUE(weights.changes("blocks.0.mlp.fc2.weight"));
  EXPECT_FALSE(zero.changes("blocks.0.mlp.fc2.weight"));
  for (const std::string& name : base_->names()) {
    const Tensor before = base_->load(name, device_).value();
    const Tensor after = weights.load(name, device_).value();
    const Tensor at_zero = zero.load(name, device_).value();
    EXPECT_TRUE(identical_to(at_zero.f32(), before.f32())) << name;
    EXPECT_EQ(bool(identical_to(after.f32(), before.f32())), name != "blocks.0.mlp.fc2.weight");
  }
  EXPECT_EQ(zero.identity(), base_->identity());
  EXPECT_NE(weights.identity(), base_->identity());
  EXPECT_NE(weights.identity(), merged(one, 0.5F).identity());
  EXPECT_EQ(weights.identity(), merged(one).identity());
  AdapterTensors other = one;
  other.begin()->second.values.front() += 1.0F;  // same names and shapes
  EXPECT_NE(weights.identity(), merged(other).identity());
}

}  // namespace
}  // namespace miniacc
