#include "checkpoint/adaln_rebase.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "device/cpu_device.h"
#include "support/random.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;

/// Tensors in memory; nothing else of a checkpoint is asked here.
class MapSource final : public WeightSource {
 public:
  struct Entry {
    Shape shape;
    std::vector<float> values;
  };
  std::map<std::string, Entry, std::less<>> tensors;

  void set(const std::string& name, const Shape& shape, std::vector<float> values) {
    tensors[name] = {shape, std::move(values)};
  }
  [[nodiscard]] bool has(std::string_view name) const override {
    return tensors.find(name) != tensors.end();
  }
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      return fail(ErrorCode::kNotFound, "no " + std::string(name));
    }
    return found->second.shape;
  }
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view) const override {
    return std::nullopt;
  }
  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override {
    MINIACC_ASSIGN(const Shape dims, shape(name));
    return load_rows(name, 0, dims[0], device);
  }
  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override {
    MINIACC_ASSIGN(Shape dims, shape(name));
    const std::int64_t columns = dims.num_elements() / dims[0];
    dims.set(0, count);
    Tensor out = empty_tensor(device, dims, DType::kF32);
    const auto& values = tensors.find(name)->second.values;
    std::copy_n(values.begin() + first * columns, count * columns, out.f32().begin());
    return out;
  }
  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view, Precision,
                                                      Device&) override {
    return fail(ErrorCode::kUnsupported, "no matrices");
  }
  [[nodiscard]] std::string identity() const override { return "map"; }
};

constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kWidth = 20;
constexpr std::int64_t kFeatures = 16;
constexpr std::int64_t kGrid = 65;
constexpr std::int64_t kRows = 30;
const std::string kBlock = "blocks.0.adaln_proj.linear";
const std::string kFinal = "final_layer.adaln_proj.linear";

class AdalnRebaseTest : public ::testing::Test {
 protected:
  AdalnRebaseTest() {
    const auto set = [&](const std::string& name, const Shape& shape, float gain) {
      auto values = testing::random_normal(shape.num_elements(), ++seed_);
      for (float& value : values) {
        value *= gain;
      }
      full_.set(name, shape, std::move(values));
    };
    set("time_embedder.proj_in.weight", {kHidden, kFeatures}, 0.5F);
    set("time_embedder.proj_in.bias", {kHidden}, 0.1F);
    set("time_embedder.proj_out.weight", {kWidth, kHidden}, 0.3F);
    set("time_embedder.proj_out.bias", {kWidth}, 0.1F);
    for (const std::string& layer : {kBlock, kFinal}) {
      set(layer + ".weight", {kRows, kWidth}, 0.2F);
      set(layer + ".bias", {kRows}, 0.2F);
    }
    OpContext ctx{device_};
    curve_ = to_f64(time_curve(full_, kGrid, ctx)->f32(), kGrid, kWidth);
  }

  /// A pruned twin of full_ with a table of that rank.
  MapSource prune(std::int64_t rank) {
    const CurveTable fit = fit_curve_table(curve_, rank);
    MapSource pruned;
    pruned.set("adaln_t_table", {kGrid, rank}, fit.table);
    const MatrixF64 projection = to_f64(fit.projection, rank + 1, kWidth);
    for (const std::string& layer : {kBlock, kFinal}) {
      const MatrixF64 both = product(to_f64(full_.tensors[layer + ".weight"].values, kRows, kWidth),
                                     transposed(projection));
      std::vector<float> weight;
      std::vector<float> bias = full_.tensors[layer + ".bias"].values;
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t k = 0; k < rank; ++k) {
          weight.push_back(static_cast<float>(both.at(r, k)));
        }
        bias[static_cast<std::size_t>(r)] += static_cast<float>(both.at(r, rank));
      }
      pruned.set(layer + ".weight", {kRows, rank}, std::move(weight));
      pruned.set(layer + ".bias", {kRows}, std::move(bias));
    }
    return pruned;
  }

  /// Changes the full weights by a known ΔW in the span of the table's directions and a bias.
  std::vector<float> finetune(std::int64_t rank) {
    const CurveTable fit = fit_curve_table(curve_, rank);
    const auto delta = testing::random_normal(kRows * rank, 77);
    const MatrixF64 directions = to_f64(
        std::span(fit.projection).first(static_cast<std::size_t>(rank * kWidth)), rank, kWidth);
    const MatrixF64 change = product(to_f64(delta, kRows, rank), directions);
    auto& weight = full_.tensors[kBlock + ".weight"].values;
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] += static_cast<float>(change.values[i]);
    }
    return delta;
  }

  std::uint64_t seed_ = 100;
  CpuDevice device_;
  MapSource full_;
  MatrixF64 curve_;
};

TEST_F(AdalnRebaseTest, RecoversAKnownChange) {
  for (const std::int64_t rank : {8, 5}) {  // the rank is the table's, not a constant
    MapSource pruned = prune(rank);
    const auto before = full_.tensors;
    const std::vector<float> delta = finetune(rank);
    OpContext ctx{device_};
    const auto fit = rebase_adaln(full_, pruned, ctx);
    ASSERT_TRUE(fit) << fit.error().message;
    ASSERT_EQ(fit->layers.size(), 2U);
    EXPECT_EQ(fit->layers[0].layer, kBlock);
    EXPECT_EQ(fit->layers[1].layer, kFinal);
    double off = 0.0;
    double scale = 0.0;
    for (std::size_t i = 0; i < delta.size(); ++i) {
      off += std::pow(fit->layers[0].weight[i] - delta[i], 2);
      scale += std::pow(delta[i], 2);
    }
    EXPECT_LT(std::sqrt(off / scale), rank == 8 ? 1e-3 : 2e-2) << rank;
    EXPECT_LT(fit->layers[0].sums.relative(), 1e-2);
    EXPECT_GT(fit->layers[0].sums.wanted_rms(), 0.01);
    full_.tensors = before;
  }
}

TEST_F(AdalnRebaseTest, AChangeOutsideTheBasisIsSeen) {
  MapSource pruned = prune(2);
  // A change along the direction that two columns describe worst.
  const Svd parts = leading_svd(curve_, 6);
  auto& weight = full_.tensors[kBlock + ".weight"].values;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      weight[static_cast<std::size_t>(r * kWidth + c)] +=
          static_cast<float>(50.0 * parts.v.at(c, 5));
    }
  }
  OpContext ctx{device_};
  const auto fit = rebase_adaln(full_, pruned, ctx);
  ASSERT_TRUE(fit);
  ASSERT_EQ(fit->layers[0].layer, kBlock);
  EXPECT_GT(fit->layers[0].sums.relative(), 1e-2);
  EXPECT_GE(fit->worst()->sums.relative(), fit->layers[0].sums.relative());
}

TEST_F(AdalnRebaseTest, NoChangeHasNoResidual) {
  MapSource pruned = prune(4);
  for (MapSource* source : {&full_, &pruned}) {
    for (const std::string& layer : {kBlock, kFinal}) {
      for (const char* tail : {".weight", ".bias"}) {
        auto& values = source->tensors[layer + tail].values;
        values.assign(values.size(), 0.0F);
      }
    }
  }
  OpContext ctx{device_};
  const auto fit = rebase_adaln(full_, pruned, ctx);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->worst()->sums.relative(), 0.0);
}

TEST_F(AdalnRebaseTest, NanIsWorseThanAnyNumber) {
  AdalnRebase rebase;
  rebase.layers.resize(3);
  rebase.layers[0].sums = {1.0, 100.0, 0.0, 1};
  rebase.layers[1].sums = {std::nan(""), 1.0, 0.0, 1};
  rebase.layers[1].layer = "nan";
  rebase.layers[2].sums = {4.0, 100.0, 0.0, 1};
  EXPECT_EQ(rebase.worst()->layer, "nan");
}

TEST_F(AdalnRebaseTest, MissingPiecesAreNamed) {
  MapSource pruned = prune(4);
  OpContext ctx{device_};
  const auto expect = [&](MapSource full, MapSource other, const char* part) {
    const auto fit = rebase_adaln(full, other, ctx);
    ASSERT_FALSE(fit) << part;
    EXPECT_THAT(fit.error().message, HasSubstr(part));
  };
  expect(full_, full_, "adaln_t_table");
  MapSource none = full_;
  none.tensors.erase("time_embedder.proj_in.weight");
  expect(none, pruned, "time_embedder.proj_in.weight");
  none = full_;
  for (const std::string& layer : {kBlock, kFinal}) {
    none.tensors.erase(layer + ".weight");
  }
  expect(none, pruned, "no AdaLN layers");
  none = pruned;
  none.set(kFinal + ".weight", {kRows - 1, 4}, std::vector<float>(4 * (kRows - 1)));
  expect(full_, none, kFinal.c_str());
}

TEST_F(AdalnRebaseTest, LiftThenProjectIsTheIdentity) {
  MapSource pruned = prune(6);
  OpContext ctx{device_};
  const auto lift = fit_lift(full_, pruned, ctx);
  ASSERT_TRUE(lift) << lift.error().message;
  EXPECT_LT(lift->rel_resid, 1e-4);
  // ΔW·q(·u) seen through the table again: least squares gives ΔW back.
  const MatrixF64 delta = to_f64(testing::random_normal(kRows * 6, 5), kRows, 6);
  const MatrixF64 wide = product(delta, to_f64(lift->q, 6, kWidth));
  MatrixF64 on_grid = product(curve_, transposed(wide));  // [grid, rows]
  const MatrixF64 table = to_f64(pruned.tensors["adaln_t_table"].values, kGrid, 6);
  if (!lift->c.empty()) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      double shift = 0.0;
      for (std::int64_t k = 0; k < 6; ++k) {
        shift += delta.at(r, k) * lift->c[static_cast<std::size_t>(k)];
      }
      for (std::int64_t g = 0; g < kGrid; ++g) {
        on_grid.at(g, r) += shift;
      }
    }
  }
  const MatrixF64 wanted = product(table, transposed(delta));
  EXPECT_LT(norm(difference(on_grid, wanted)) / norm(wanted), 1e-3);
  const MatrixF64 back = transposed(product(pseudo_inverse(table), on_grid));
  // The weakest direction of the table weighs least on the grid.
  EXPECT_LT(norm(difference(back, delta)) / norm(delta), 0.05);
}

TEST(FitLift, FindsAConstantWhereOneIsNeeded) {
  // u has no constant in its span: two odd curves around zero.
  MatrixF64 curve(11, 2);
  MatrixF64 table(11, 1);
  for (std::int64_t g = 0; g < 11; ++g) {
    const double t = static_cast<double>(g) / 10.0 - 0.5;
    curve.at(g, 0) = t;
    curve.at(g, 1) = t * t * t;
    table.at(g, 0) = 3.0 * t - 2.0 * t * t * t + 0.75;
  }
  const CurveLift lift = fit_lift(table, curve);
  ASSERT_EQ(lift.c.size(), 1U);
  EXPECT_NEAR(lift.c[0], 0.75, 1e-6);
  EXPECT_NEAR(lift.q[0], 3.0, 1e-5);
  EXPECT_NEAR(lift.q[1], -2.0, 1e-5);
  EXPECT_LT(lift.rel_resid, 1e-6);
}

TEST(FitLift, ATableOfAnotherCurveIsSeen) {
  MatrixF64 curve(33, 2);
  MatrixF64 table(33, 1);
  for (std::int64_t g = 0; g < 33; ++g) {
    const double t = static_cast<double>(g) / 32.0;
    curve.at(g, 0) = t;
    curve.at(g, 1) = t * t;
    table.at(g, 0) = std::sin(20.0 * t);
  }
  EXPECT_GT(fit_lift(table, curve).rel_resid, 0.1);
}

}  // namespace
}  // namespace miniacc
