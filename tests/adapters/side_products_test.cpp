#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/adapted_weights.h"
#include "adapters/adapter_files.h"
#include "checkpoint/find_components.h"
#include "checkpoint/make_checkpoint.h"
#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "kernels/linear.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/random.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using testing::close_to;
using testing::identical_to;
using testing::ModuleChange;
using testing::relative_error;
using testing::test_data;

constexpr std::int64_t kRank = 4;
constexpr std::int64_t kRows = 9;
constexpr float kStrength = 0.75F;
// Side product against merge, outputs of one layer. f32: both sum in f32, in another order
// (measured 3e-7). bf16: the merge rounds W + ΔW, the side product x, its inner activation and
// nothing of W (measured 2.7e-3).
constexpr double kF32Bound = 2e-6;
constexpr double kBf16Bound = 8e-3;

class SideProducts : public ::testing::Test {
 protected:
  AdaptedWeights adapted(const AdapterTensors& tensors, LoraMode mode, float strength = kStrength) {
    const auto path = write_adapter(folder_ / std::to_string(++num_files_), tensors);
    std::vector<Lora> loras;
    loras.push_back(Lora::open(*base_, {.path = path, .strength = strength}).value());
    return AdaptedWeights(*base_, std::move(loras), 1, mode);
  }
  std::vector<float> product(const OwnedWeightMatrix& matrix) {
    const Shape shape = matrix.values.shape();
    const auto values = testing::random_normal(kRows * shape[1], 77);
    Tensor out = empty_tensor(device_, {kRows, shape[0]});
    OpContext ctx{device_};
    ops::linear(ctx, out.view(), ConstTensorView(values.data(), {kRows, shape[1]}, DType::kF32),
                matrix.view());
    return {out.f32().begin(), out.f32().end()};
  }
  OwnedWeightMatrix matrix(WeightSource& weights, const std::string& module, Precision precision) {
    return weights.load_matrix(module + ".weight", precision, device_).value();
  }
  void use_int8_checkpoint() {
    ASSERT_TRUE(make_checkpoint({.size = SyntheticSize::kTiny,
                                 .format = CheckpointFormat::kComfy,
                                 .storage = WeightStorage::kInt8ConvRot,
                                 .seed = 3,
                                 .out = folder_ / "model",
                                 .progress = {}}));
    base_ = open_component(find_components(folder_ / "model").value().transformer).value();
    ASSERT_EQ(base_->info().quantization, "int8_tensorwise+convrot");
  }
  /// One change of `module` with factors that bf16 holds exactly.
  ModuleChange one_change(const std::string& module, int part, std::int64_t rank) {
    const Shape shape = base_->shape(module + ".weight").value();
    const std::int64_t rows = part < 0 ? shape[0] : shape[0] / 3;
    ModuleChange change{module, part, rank, testing::random_factor(rank, shape[1], 1),
                        testing::random_factor(rows, rank, 2)};
    for (auto* tensor : {&change.down, &change.up}) {
      tensor->dtype = DType::kBF16;
    }
    return change;
  }
  static std::size_t factor_bytes(const OwnedWeightMatrix& matrix) {
    std::size_t bytes = 0;
    for (const LowRankDelta& delta : matrix.low_rank) {
      bytes += delta.size_bytes();
    }
    return bytes;
  }

  CpuDevice device_;
  testing::TempDir folder_;
  int num_files_ = 0;
  std::unique_ptr<ComponentWeights> base_ =
      open_component(test_data("golden/h3-micro/transformer")).value();
};

TEST_F(SideProducts, EqualTheMergeWithinTheArithmeticsBound) {
  const auto changes = testing::random_changes(*base_, kRank, 7);
  const AdapterTensors split = diffusers_names(changes, "", ".lora_A.weight", ".lora_B.weight");
  const AdapterTensors fused = fused_names(changes, "", ".lora_A.weight", ".lora_B.weight");
  for (const AdapterTensors* tensors : {&split, &fused}) {
    AdaptedWeights merged = adapted(*tensors, LoraMode::kMerge);
    AdaptedWeights side = adapted(*tensors, LoraMode::kSide);
    for (const ModuleChange& change : changes) {
      for (const auto& [precision, bound] :
           {std::pair{Precision::kF32, kF32Bound}, std::pair{Precision::kBF16, kBf16Bound}}) {
        const OwnedWeightMatrix beside = matrix(side, change.module, precision);
        EXPECT_FALSE(beside.low_rank.empty());
        const auto wanted = product(matrix(merged, change.module, precision));
        EXPECT_TRUE(close_to(product(beside), wanted, bound)) << change.module;
        EXPECT_GT(relative_error(product(matrix(*base_, change.module, precision)), wanted),
                  10.0 * bound)
            << "the adapter must matter for the comparison to mean something";
      }
    }
  }
}

TEST_F(SideProducts, QkvIsThreeThinProductsAndASharedDownMatrixOne) {
  const auto changes = testing::random_changes(*base_, kRank, 7);
  const std::string module = "blocks.1.attn.qkv_proj";
  for (const bool fused : {false, true}) {
    AdaptedWeights side =
        adapted(fused ? fused_names(changes, "", ".lora_A.weight", ".lora_B.weight")
                      : diffusers_names(changes, "", ".lora_A.weight", ".lora_B.weight"),
                LoraMode::kSide);
    const OwnedWeightMatrix qkv = matrix(side, module, Precision::kF32);
    ASSERT_EQ(qkv.low_rank.size(), 3U);
    for (std::size_t part = 0; part < 3; ++part) {
      EXPECT_EQ(qkv.low_rank[part].first_row, static_cast<std::int64_t>(part) * 96);
      EXPECT_EQ(qkv.low_rank[part].down.shape(), Shape({kRank, 48}));
      EXPECT_EQ(qkv.low_rank[part].up.shape(), Shape({96, kRank}));
    }
  }
  AdaptedWeights shared = adapted({{module + ".lora_A.weight", testing::random_factor(5, 48, 1)},
                                   {module + ".lora_B.weight", testing::random_factor(288, 5, 2)}},
                                  LoraMode::kSide);
  const OwnedWeightMatrix qkv = matrix(shared, module, Precision::kF32);
  ASSERT_EQ(qkv.low_rank.size(), 1U);
  EXPECT_EQ(qkv.low_rank.front().up.shape(), Shape({288, 5}));
}

TEST_F(SideProducts, AQuantisedRotatedLayerStaysAsStoredBesideTheExactChange) {
  use_int8_checkpoint();
  for (const std::string module : {"blocks.0.mlp.fc1", "blocks.0.attn.qkv_proj"}) {
    const ModuleChange change = one_change(module, module.ends_with("fc1") ? -1 : 1, 3);
    AdaptedWeights side =
        adapted(testing::diffusers_names({change}, "", ".lora_A.weight", ".lora_B.weight"),
                LoraMode::kSide);
    const OwnedWeightMatrix before = matrix(*base_, module, Precision::kInt8);
    const OwnedWeightMatrix after = matrix(side, module, Precision::kInt8);
    ASSERT_GT(before.rotation_group, 0);
    EXPECT_EQ(after.rotation_group, before.rotation_group);
    EXPECT_TRUE(identical_to(after.row_scale.f32(), before.row_scale.f32()));
    EXPECT_TRUE(std::equal(before.values.view().as<std::int8_t>(),
                           before.values.view().as<std::int8_t>() + before.values.size_bytes(),
                           after.values.view().as<std::int8_t>()));
    const auto plain = product(before);
    const auto with = product(after);
    std::vector<float> difference(plain.size());
    std::transform(with.begin(), with.end(), plain.begin(), difference.begin(), std::minus<>());
    const Shape shape = before.values.shape();
    const auto x = testing::random_normal(kRows * shape[1], 77);
    std::vector<double> wanted(difference.size());
    const std::int64_t first = std::max(change.part, 0) * change.up.shape[0];
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t r = 0; r < change.rank; ++r) {
        double inner = 0.0;
        for (std::int64_t i = 0; i < shape[1]; ++i) {
          inner +=
              static_cast<double>(x[static_cast<std::size_t>(row * shape[1] + i)]) *
              static_cast<double>(change.down.values[static_cast<std::size_t>(r * shape[1] + i)]);
        }
        for (std::int64_t o = 0; o < change.up.shape[0]; ++o) {
          wanted[static_cast<std::size_t>(row * shape[0] + first + o)] +=
              static_cast<double>(kStrength) * inner *
              static_cast<double>(change.up.values[static_cast<std::size_t>(o * change.rank + r)]);
        }
      }
    }
    // Factors that bf16 rounds to 2^-9 (write_adapter stores bf16), x and the inner activation too.
    EXPECT_TRUE(close_to(difference, wanted, 2e-2)) << module;
  }
}

TEST_F(SideProducts, MemoryIsTheAdapterAndASmallWorkspace) {
  use_int8_checkpoint();
  const std::string module = "blocks.0.mlp.fc2";
  const ModuleChange change = one_change(module, -1, 16);
  AdaptedWeights side = adapted(
      testing::diffusers_names({change}, "", ".lora_A.weight", ".lora_B.weight"), LoraMode::kSide);
  const std::size_t adapter_bytes =
      2 * (change.down.values.size() + change.up.values.size());  // bf16, as in the file
  std::size_t base_bytes = 0;
  std::size_t base_peak = 0;
  {
    CpuDevice device;
    const auto plain = base_->load_matrix(module + ".weight", Precision::kInt8, device).value();
    base_bytes = device.bytes_in_use();
    base_peak = device.peak_bytes();
  }
  CpuDevice device;
  const auto with = side.load_matrix(module + ".weight", Precision::kInt8, device).value();
  EXPECT_EQ(factor_bytes(with), adapter_bytes);
  EXPECT_LE(device.bytes_in_use(), base_bytes + adapter_bytes + 256);  // alignment of two tensors
  // While the factors are converted they also exist in f32; the weights never do.
  EXPECT_LE(device.peak_bytes(), std::max(base_peak, base_bytes + 3 * adapter_bytes + 1024));

  // The product itself: what linear takes without an adapter, the inner activation and the bf16
  // copies of it and of 512 rows of the input.
  const std::int64_t rows = 1500;
  const Shape shape = with.values.shape();
  const auto values = testing::random_normal(rows * shape[1], 5);
  const ConstTensorView x(values.data(), {rows, shape[1]}, DType::kF32);
  const auto peak = [&](const WeightMatrix& w) {
    CpuDevice work;
    Tensor out = empty_tensor(work, {rows, shape[0]});
    OpContext ctx{work};
    ops::linear(ctx, out.view(), x, w);
    return work.peak_bytes();
  };
  WeightMatrix plain = with.view();
  plain.low_rank = {};
  const auto workspace = static_cast<std::size_t>(512 * (16 * (4 + 2) + shape[1] * 2));
  EXPECT_LE(peak(with.view()), peak(plain) + workspace);
}

TEST_F(SideProducts, DenseChangesAndOtherLayersAreMergedInBothModes) {
  AdapterTensors tensors;
  tensors["blocks.0.mlp.fc2.diff"] = testing::random_factor(48, 80, 1);
  tensors["blocks.0.mlp.fc2.lora_A.weight"] = testing::random_factor(2, 80, 2);
  tensors["blocks.0.mlp.fc2.lora_B.weight"] = testing::random_factor(48, 2, 3);
  tensors["blocks.1.adaln_proj.linear.lora_A.weight"] = testing::random_factor(2, 36, 4);
  tensors["blocks.1.adaln_proj.linear.lora_B.weight"] = testing::random_factor(864, 2, 5);
  AdaptedWeights merged = adapted(tensors, LoraMode::kMerge);
  AdaptedWeights side = adapted(tensors, LoraMode::kSide);
  EXPECT_TRUE(side.changes_modulation());
  const auto adaln = matrix(side, "blocks.1.adaln_proj.linear", Precision::kF32);
  EXPECT_TRUE(adaln.low_rank.empty());
  EXPECT_TRUE(
      identical_to(adaln.values.f32(),
                   matrix(merged, "blocks.1.adaln_proj.linear", Precision::kF32).values.f32()));
  const auto fc2 = matrix(side, "blocks.0.mlp.fc2", Precision::kF32);
  ASSERT_EQ(fc2.low_rank.size(), 1U);
  EXPECT_TRUE(close_to(product(fc2), product(matrix(merged, "blocks.0.mlp.fc2", Precision::kF32)),
                       kF32Bound));
  EXPECT_NE(side.identity(), merged.identity());
  EXPECT_EQ(adapted(tensors, LoraMode::kSide, 0.0F).identity(), base_->identity());
}

}  // namespace
}  // namespace miniacc
