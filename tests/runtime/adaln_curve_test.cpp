#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "adapters/adapter_files.h"
#include "adapters/curve_basis.h"
#include "device/cpu_device.h"
#include "model/dit/dit.h"
#include "model/dit/time_embedding.h"
#include "runtime/lora_setup.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_factor;
using testing::relative_error;
using testing::test_data;

constexpr std::int64_t kGrid = 129;
constexpr std::int64_t kRank = 8;
// Polynomials of degree 8 fit the small model's curve to 1.9e-5; linear interpolation of the table
// between 129 points limits the agreement off the grid.
constexpr double kTableError = 2e-4;

/// A full transformer, and the same one pruned: its curve in the basis of a table of Chebyshev
/// polynomials, which any smooth curve fits.
class AdalnCurve : public ::testing::Test {
 protected:
  void SetUp() override {
    AdapterTensors table_only;
    testing::AdapterTensor& table = table_only["adaln_t_table"];
    table.shape = {kGrid, kRank};
    for (std::int64_t i = 0; i < kGrid; ++i) {
      const double x = 2.0 * static_cast<double>(i) / static_cast<double>(kGrid - 1) - 1.0;
      for (std::int64_t j = 1; j <= kRank; ++j) {
        table.values.push_back(static_cast<float>(std::cos(static_cast<double>(j) * std::acos(x))));
      }
    }
    AdapterTensors tensors = table_only;
    for (const std::string& name : full_->names()) {
      if (!name.starts_with("time_embedder.")) {
        const Tensor tensor = full_->load(name, device_).value();
        tensors[name] = {tensor.shape(), {tensor.f32().begin(), tensor.f32().end()}};
      }
    }
    // The fit needs the table alone, so that any weights may stand in until it is known.
    pruned_path_ = folder_ / "pruned.safetensors";
    const Reference reference = fit(table.values);
    for (auto& [name, tensor] : tensors) {
      if (name.ends_with("adaln_proj.linear.weight")) {
        testing::AdapterTensor& bias =
            tensors.at(name.substr(0, name.size() - std::string("weight").size()) + "bias");
        const std::int64_t rows = tensor.shape[0];
        const std::int64_t width = tensor.shape[1];
        std::vector<float> values(static_cast<std::size_t>(rows * kRank));
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t j = 0; j <= kRank; ++j) {
            double sum = 0.0;
            for (std::int64_t c = 0; c < width; ++c) {
              sum += static_cast<double>(tensor.values[static_cast<std::size_t>(row * width + c)]) *
                     reference[static_cast<std::size_t>(c * (kRank + 1) + j)];
            }
            if (j < kRank) {
              values[static_cast<std::size_t>(row * kRank + j)] = static_cast<float>(sum);
            } else {
              bias.values[static_cast<std::size_t>(row)] += static_cast<float>(sum);
            }
          }
        }
        tensor = {{rows, kRank}, values};
      }
    }
    write_adapter(pruned_path_, tensors);
    pruned_ = open_component(pruned_path_, Component::kTransformer).value();
  }
  using Reference = std::vector<double>;  ///< [width, kRank + 1]
  /// Coefficients of u(t) by discrete Chebyshev sums: nothing shared with the code under test but
  /// the model's own time embedding.
  Reference fit(const std::vector<float>& table) {
    Dit dit = Dit::open(*full_, device_, Precision::kF32, 0).value();
    const std::int64_t width = dit.config().time_embed_dim;
    std::vector<float> times(kGrid);
    for (std::int64_t i = 0; i < kGrid; ++i) {
      times[static_cast<std::size_t>(i)] = static_cast<float>(i) / static_cast<float>(kGrid - 1);
    }
    OpContext ctx{device_};
    const Tensor curve = adaln_input(ctx, dit.config(), dit.islands(), times);
    // Normal equations in double, well conditioned in this basis.
    constexpr std::int64_t n = kRank + 1;
    const auto basis = [&](std::int64_t i, std::int64_t j) {
      return j < kRank ? static_cast<double>(table[static_cast<std::size_t>(i * kRank + j)]) : 1.0;
    };
    std::vector<double> result(static_cast<std::size_t>(width * n));
    for (std::int64_t c = 0; c < width; ++c) {
      std::vector<std::vector<double>> a(n, std::vector<double>(n + 1));
      for (std::int64_t i = 0; i < kGrid; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          for (std::int64_t k = 0; k < n; ++k) {
            a[static_cast<std::size_t>(j)][static_cast<std::size_t>(k)] +=
                basis(i, j) * basis(i, k);
          }
          a[static_cast<std::size_t>(j)][n] +=
              basis(i, j) *
              static_cast<double>(curve.f32()[static_cast<std::size_t>(i * width + c)]);
        }
      }
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t k = 0; k < n; ++k) {
          if (k != j) {
            const double factor = a[k][j] / a[j][j];
            for (std::size_t l = j; l <= n; ++l) {
              a[k][l] -= factor * a[j][l];
            }
          }
        }
      }
      for (std::size_t j = 0; j < n; ++j) {
        result[static_cast<std::size_t>(c * n) + j] = a[j][n] / a[j][j];
      }
    }
    return result;
  }
  std::filesystem::path write(const AdapterTensors& tensors) {
    return write_adapter(folder_ / (std::to_string(++num_files_) + ".safetensors"), tensors);
  }
  Result<AdaptedTransformer> adapt(ComponentWeights& base, const std::filesystem::path& path,
                                   float strength, bool with_base, bool allow_partial = false) {
    return adapt_transformer(base,
                             {.loras = {{path, strength}},
                              .allow_partial = allow_partial,
                              .adaln_base = with_base ? full_path_ : std::filesystem::path()},
                             Precision::kF32);
  }
  /// All modulation values of block 1 and of the final layer, at times on and off the grid.
  std::vector<float> modulation(WeightSource& weights) {
    Dit dit = Dit::open(weights, device_, Precision::kF32, 0).value();
    OpContext ctx{device_};
    ModulationCache cache;
    const std::vector<float> times = {0.0F, 0.027027011F, 0.5F, 0.81234F, 0.999F, 1.0F};
    EXPECT_TRUE(dit.prepare_modulation(ctx, times, cache));
    std::vector<float> values;
    for (const float time : times) {
      for (const ConstTensorView& view : {cache.block(time, 1), cache.final_layer(time)}) {
        values.insert(values.end(), view.f32(), view.f32() + view.num_elements());
      }
    }
    return values;
  }
  AdapterTensors low_rank() {
    AdapterTensors tensors;
    for (const std::string module :
         {"blocks.1.adaln_proj.linear", "final_layer.adaln_proj.linear"}) {
      const Shape shape = full_->shape(module + ".weight").value();
      tensors[module + ".lora_A.weight"] = random_factor(3, shape[1], 5);
      tensors[module + ".lora_B.weight"] = random_factor(shape[0], 3, 6);
    }
    return tensors;
  }

  CpuDevice device_;
  testing::TempDir folder_;
  int num_files_ = 0;
  std::filesystem::path full_path_ = test_data("golden/h3-micro/transformer");
  std::filesystem::path pruned_path_;
  std::unique_ptr<ComponentWeights> full_ = open_component(full_path_).value();
  std::unique_ptr<ComponentWeights> pruned_;
};

TEST_F(AdalnCurve, TheTwoFormsAgreeWithoutAdapters) {
  EXPECT_LE(relative_error(modulation(*pruned_), modulation(*full_)), kTableError);
  OpContext ctx{device_};
  const Tensor table = pruned_->load("adaln_t_table", device_).value();
  const TimeMlp mlp = load_time_mlp(*full_, device_).value();
  EXPECT_LE(CurveBasis::fit(ctx, table.view(), mlp).value().residual(), 8e-5);
}

TEST_F(AdalnCurve, FullAndPrunedFormsAgreeUnderTheSameAdapter) {
  AdapterTensors dense;
  dense["blocks.1.adaln_proj.linear.diff"] =
      random_factor(full_->shape("blocks.1.adaln_proj.linear.weight").value()[0],
                    full_->shape("blocks.1.adaln_proj.linear.weight").value()[1], 8);
  dense["blocks.1.adaln_proj.linear.diff_b"] = {
      {full_->shape("blocks.1.adaln_proj.linear.bias").value()[0]},
      random_factor(1, full_->shape("blocks.1.adaln_proj.linear.bias").value()[0], 9).values};
  for (const AdapterTensors& tensors : {low_rank(), dense}) {
    const auto path = write(tensors);
    for (const float strength : {1.0F, -0.5F}) {
      AdaptedTransformer full = adapt(*full_, path, strength, false).value();
      AdaptedTransformer pruned = adapt(*pruned_, path, strength, true).value();
      EXPECT_GT(pruned.reports.front().projected, 0);
      EXPECT_EQ(full.reports.front().projected, 0);
      EXPECT_EQ(pruned.reports.front().matched, static_cast<std::int64_t>(tensors.size()));
      const auto wanted = modulation(*full.weights);
      EXPECT_LE(relative_error(modulation(*pruned.weights), wanted), kTableError);
      EXPECT_GT(relative_error(modulation(*full_), wanted), 1e-2);
      // Whatever caches modulation by identity must miss.
      EXPECT_TRUE(pruned.weights->changes_modulation());
      EXPECT_NE(pruned.weights->identity(), pruned_->identity());
      EXPECT_NE(pruned.weights->identity(),
                adapt(*pruned_, path, 0.25F, true).value().weights->identity());
    }
    AdaptedTransformer zero = adapt(*pruned_, path, 0.0F, true).value();
    EXPECT_TRUE(testing::identical_to(modulation(*zero.weights), modulation(*pruned_)));
    EXPECT_EQ(zero.weights->identity(), pruned_->identity());
  }
}

TEST_F(AdalnCurve, WithoutAFullTransformerTheChangeIsRefusedOrLeftOut) {
  AdapterTensors tensors = low_rank();
  const auto only_adaln = write(tensors);
  EXPECT_THAT(adapt(*pruned_, only_adaln, 1.0F, false).error().message,
              HasSubstr("none of its 4 tensors"));
  tensors["blocks.0.mlp.fc2.lora_A.weight"] = random_factor(2, 80, 1);
  tensors["blocks.0.mlp.fc2.lora_B.weight"] = random_factor(48, 2, 1);
  const auto path = write(tensors);
  EXPECT_THAT(adapt(*pruned_, path, 1.0F, false).error().message,
              AllOf(HasSubstr("4 of its 6"), HasSubstr("--adaln-base FULL")));
  const AdaptedTransformer partial = adapt(*pruned_, path, 1.0F, false, true).value();
  EXPECT_EQ(partial.reports.front().rejected, 4);
  EXPECT_FALSE(partial.weights->changes_modulation());
}

TEST_F(AdalnCurve, ChangesOfThePrunedWidthAreTakenAsTheyAre) {
  const std::int64_t rows = pruned_->shape("blocks.1.adaln_proj.linear.weight").value()[0];
  const AdapterTensors tensors = {
      {"blocks.1.adaln_proj.linear.lora_A.weight", random_factor(2, kRank, 1)},
      {"blocks.1.adaln_proj.linear.lora_B.weight", random_factor(rows, 2, 2)}};
  const auto path = write(tensors);
  const AdaptedTransformer adapted = adapt(*pruned_, path, 1.0F, false).value();
  EXPECT_EQ(adapted.reports.front().projected, 0);
  EXPECT_GT(relative_error(modulation(*adapted.weights), modulation(*pruned_)), 1e-3);
  EXPECT_THAT(adapt(*full_, path, 1.0F, false).error().message, HasSubstr("adaln lift"));
  AdapterTensors odd = tensors;
  odd["blocks.1.adaln_proj.linear.lora_A.weight"] = random_factor(2, kRank + 1, 1);
  EXPECT_THAT(adapt(*pruned_, write(odd), 1.0F, true).error().message,
              AllOf(HasSubstr("wanted 36 columns"), HasSubstr("or 8")));
}

TEST_F(AdalnCurve, AChangedTimeEmbeddingMovesTheWholeCurve) {
  AdapterTensors time;
  for (const std::string module : {"time_embedder.proj_in", "time_embedder.proj_out"}) {
    const Shape shape = full_->shape(module + ".weight").value();
    time[module + ".lora_A.weight"] = random_factor(2, shape[1], 11);
    time[module + ".lora_B.weight"] = random_factor(shape[0], 2, 12);
  }
  time["blocks.0.adaln_proj.linear.diff_b"] = {
      {full_->shape("blocks.0.adaln_proj.linear.bias").value()[0]},
      random_factor(1, full_->shape("blocks.0.adaln_proj.linear.bias").value()[0], 9).values};
  AdapterTensors with_adaln = time;
  with_adaln.merge(low_rank());
  for (const AdapterTensors& tensors : {time, with_adaln}) {
    const auto path = write(tensors);
    for (const float strength : {1.0F, 0.5F}) {
      AdaptedTransformer full = adapt(*full_, path, strength, false).value();
      auto carried = adapt(*pruned_, path, strength, true);
      ASSERT_TRUE(carried) << carried.error().message;
      AdaptedTransformer pruned = *std::move(carried);
      const auto wanted = modulation(*full.weights);
      EXPECT_LE(relative_error(modulation(*pruned.weights), wanted), kTableError);
      EXPECT_GT(relative_error(modulation(*full_), wanted), 1e-2);
      EXPECT_EQ(pruned.reports.front().matched, static_cast<std::int64_t>(tensors.size()));
    }
    EXPECT_EQ(adapt(*pruned_, path, 0.0F, true).value().weights->identity(), pruned_->identity());
    EXPECT_THAT(adapt(*pruned_, path, 1.0F, false).error().message, HasSubstr("--adaln-base FULL"));
  }
}

TEST_F(AdalnCurve, WholeAdalnTensorsReplaceThePrunedOnes) {
  const std::string module = "blocks.1.adaln_proj.linear";
  const Tensor weight = pruned_->load(module + ".weight", device_).value();
  const Tensor bias = pruned_->load(module + ".bias", device_).value();
  const Tensor table = pruned_->load("adaln_t_table", device_).value();
  AdapterTensors tensors;
  tensors[module + ".set_weight"] = {weight.shape(),
                                     random_factor(weight.shape()[0], weight.shape()[1], 3).values};
  tensors[module + ".bias"] = {bias.shape(), random_factor(1, bias.shape()[0], 4).values};
  tensors["adaln_t_table"] = {table.shape(), {table.f32().begin(), table.f32().end()}};
  const AdaptedTransformer whole = adapt(*pruned_, write(tensors), 1.0F, false).value();
  EXPECT_EQ(whole.reports.front().matched, 3);
  EXPECT_TRUE(whole.warnings.empty());
  EXPECT_LE(relative_error(whole.weights->load(module + ".weight", device_).value().f32(),
                           tensors[module + ".set_weight"].values),
            1e-6);
  EXPECT_LE(relative_error(whole.weights->load(module + ".bias", device_).value().f32(),
                           tensors[module + ".bias"].values),
            1e-6);
  const AdaptedTransformer half = adapt(*pruned_, write(tensors), 0.5F, false).value();
  std::vector<float> between(weight.f32().begin(), weight.f32().end());
  for (std::size_t i = 0; i < between.size(); ++i) {
    between[i] += 0.5F * (tensors[module + ".set_weight"].values[i] - between[i]);
  }
  EXPECT_LE(relative_error(half.weights->load(module + ".weight", device_).value().f32(), between),
            1e-6);

  EXPECT_EQ(adapt(*full_, write(tensors), 1.0F, false).error().code, ErrorCode::kUnsupported);
  AdapterTensors other_table = tensors;
  other_table["adaln_t_table"].values.back() += 0.01F;
  const AdaptedTransformer warned = adapt(*pruned_, write(other_table), 1.0F, false).value();
  ASSERT_EQ(warned.warnings.size(), 1U);
  EXPECT_THAT(warned.warnings.front(), HasSubstr("adaln_t_table differs"));
  other_table["adaln_t_table"] = random_factor(kGrid, kRank + 1, 1);
  EXPECT_THAT(adapt(*pruned_, write(other_table), 1.0F, false).error().message,
              HasSubstr("another basis"));
  AdapterTensors wrong = tensors;
  wrong[module + ".set_weight"] = random_factor(weight.shape()[0], kRank + 1, 3);
  EXPECT_THAT(adapt(*pruned_, write(wrong), 1.0F, false).error().message, HasSubstr(", 8]"));
}

TEST_F(AdalnCurve, ForeignBasesAreRefused) {
  const auto path = write(low_rank());
  const auto wrong =
      adapt_transformer(*pruned_, {.loras = {{path}}, .adaln_base = pruned_path_}, Precision::kF32);
  EXPECT_THAT(wrong.error().message, HasSubstr("must be a full transformer"));
  const auto other =
      open_component(test_data("golden/h3-micro-pruned/transformer.safetensors")).value();
  EXPECT_THAT(adapt(*other, path, 1.0F, true).error().message,
              HasSubstr("not the transformer that this one was pruned from"));
}

}  // namespace
}  // namespace miniacc
