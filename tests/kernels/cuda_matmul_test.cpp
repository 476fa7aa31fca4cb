#include "kernels/cuda/matmul.h"

#include "kernels/backend_test.h"
#include "kernels/linear.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

struct Case {
  std::int64_t rows, n, k;
  bool bias = false;
};

/// Both tile shapes of the products, which ops::linear chooses between by size, around their edges.
class CudaMatmul : public BackendTest {
 protected:
  // Tiles of 64×64 and 128×256, slabs of 64 bytes (32 bf16, 64 i8), four slabs in flight.
  static constexpr Case kCases[] = {
      {1, 1, 1},      {1, 257, 33, true}, {127, 255, 64},       {128, 256, 128, true},
      {129, 257, 65}, {130, 300, 31},     {64, 64, 16, true},   {65, 63, 320},
      {255, 520, 96}, {2100, 5, 64},      {17, 259, 257, true},
  };
};
INSTANTIATE_TEST_SUITE_P(Backends, CudaMatmul, ::testing::Values(Backend{DeviceKind::kCuda}),
                         backend_name);

TEST_P(CudaMatmul, Bf16TilesAgreeWithTheReferenceAndEachOther) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.n << "x" << c.k);
    const auto x = random_normal(c.rows * c.k, 1);
    const auto w = random_normal(c.n * c.k, 2);
    const auto bias = c.bias ? random_normal(c.n, 3) : std::vector<float>{};
    OpContext context = ctx();
    std::vector<float> results[2];
    for (int i = 0; i < 2; ++i) {
      TensorView out = empty({c.rows, c.n});
      ops::cuda::matmul_bf16(
          context, out, upload_bf16(x, {c.rows, c.k}), upload_bf16(w, {c.n, c.k}),
          c.bias ? upload(bias, {c.n}) : TensorView{},
          i == 0 ? ops::cuda::MatmulTile::k64x64 : ops::cuda::MatmulTile::k128x256);
      results[i] = download(out);
    }
    EXPECT_TRUE(identical_to(results[1], results[0]));
    expect_close(
        results[0],
        reference::linear(reference::to_bf16(x), reference::to_bf16(w), bias, c.rows, c.n, c.k),
        tolerance("linear", "bf16"));
  }
}

TEST_P(CudaMatmul, Int8TilesAreExact) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.n << "x" << c.k);
    std::vector<std::int8_t> x;
    std::vector<std::int8_t> w;
    for (std::int64_t i = 0; i < c.rows * c.k; ++i) {
      x.push_back(static_cast<std::int8_t>((i * 37) % 255 - 127));
    }
    for (std::int64_t i = 0; i < c.n * c.k; ++i) {
      w.push_back(static_cast<std::int8_t>((i * 91) % 255 - 127));
    }
    const auto x_scale = random_normal(c.rows, 4);
    const auto w_scale = random_normal(c.n, 5);
    const auto bias = c.bias ? random_normal(c.n, 3) : std::vector<float>{};
    std::vector<float> expected;
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t j = 0; j < c.n; ++j) {
        std::int32_t sum = 0;
        for (std::int64_t i = 0; i < c.k; ++i) {
          sum += std::int32_t{x[static_cast<std::size_t>(r * c.k + i)]} *
                 std::int32_t{w[static_cast<std::size_t>(j * c.k + i)]};
        }
        const float factor =
            x_scale[static_cast<std::size_t>(r)] * w_scale[static_cast<std::size_t>(j)];
        const float product = static_cast<float>(sum) * factor;
        expected.push_back(c.bias ? product + bias[static_cast<std::size_t>(j)] : product);
      }
    }
    OpContext context = ctx();
    for (const auto tile : {ops::cuda::MatmulTile::k64x64, ops::cuda::MatmulTile::k128x256}) {
      TensorView wide = empty({c.rows, c.n + 3});  // odd strides and addresses
      TensorView out = wide.narrow(1, 1, c.n);
      ops::cuda::matmul_int8(context, out, upload_i8(x, {c.rows, c.k}), upload(x_scale, {c.rows}),
                             upload_i8(w, {c.n, c.k}), upload(w_scale, {c.n}),
                             c.bias ? upload(bias, {c.n}) : TensorView{}, tile);
      EXPECT_TRUE(identical_to(download(out), expected));
      for (const std::int64_t column : {std::int64_t{0}, c.n + 1, c.n + 2}) {
        for (const float value : download(wide.narrow(1, column, 1))) {
          ASSERT_TRUE(std::isnan(value)) << "wrote outside its columns";
        }
      }
    }
  }
}

/// The forms for compute capability 9.0, against the mma.sync form that every card has.
class CudaMatmulWgmma : public CudaMatmul {
 protected:
  static constexpr ops::cuda::MatmulTile kForms[] = {ops::cuda::MatmulTile::kWgmma128x256,
                                                     ops::cuda::MatmulTile::kWgmmaPingPong128x128};
  static constexpr ops::cuda::MatmulRaster kRasters[] = {
      {1, true}, {3, true}, {8, false}, {5, false}};

  void SetUp() override {
    CudaMatmul::SetUp();
    if (!IsSkipped() && !ops::cuda::wgmma_takes(empty({4, 4}))) {
      GTEST_SKIP() << "needs a card of compute capability 9.0 and a build for it";
    }
  }

  /// An output [rows, n] whose rows the copy engine can write, inside a poisoned matrix.
  struct Output {
    TensorView wide, view;
  };
  Output output(std::int64_t rows, std::int64_t n) {
    const TensorView wide = empty({rows, n + 8});
    return {wide, wide.narrow(1, 4, n)};
  }
  void expect_untouched_beside(const Output& out) {
    const std::int64_t after = 4 + out.view.dim(1);
    for (const TensorView& part :
         {out.wide.narrow(1, 0, 4), out.wide.narrow(1, after, out.wide.dim(1) - after)}) {
      for (const float value : download(part)) {
        ASSERT_TRUE(std::isnan(value)) << "wrote outside its columns";
      }
    }
  }

  std::vector<std::int8_t> random_i8(std::int64_t count, std::uint64_t seed) {
    std::vector<std::int8_t> values(static_cast<std::size_t>(count));
    std::uint64_t state = seed * 2 + 1;
    for (std::int8_t& value : values) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      value = static_cast<std::int8_t>(static_cast<int>((state >> 33) % 255) - 127);
    }
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, CudaMatmulWgmma, ::testing::Values(Backend{DeviceKind::kCuda}),
                         backend_name);

TEST_P(CudaMatmulWgmma, Int8GivesTheBitsOfMmaSync) {
  // Odd sizes (columns in fours, as the rule has it), one tile and its neighbours, more tiles than
  // multiprocessors, the depth of the model (whose i32 sums pass 2^24) and depths that end inside a
  // slab.
  const Case cases[] = {
      {1, 4, 1},          {1, 260, 33, true},      {127, 252, 64},         {128, 256, 128, true},
      {129, 260, 65},     {257, 516, 16},          {3000, 132, 272, true}, {130, 5376, 7168},
      {2100, 4100, 1040}, {9001, 2820, 416, true}, {20001, 2820, 144},
  };
  std::uint64_t seed = 100;
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.n << "x" << c.k);
    const TensorView x = upload_i8(random_i8(c.rows * c.k, ++seed), {c.rows, c.k});
    const TensorView w = upload_i8(random_i8(c.n * c.k, ++seed), {c.n, c.k});
    const TensorView x_scale = upload(random_normal(c.rows, ++seed), {c.rows});
    const TensorView w_scale = upload(random_normal(c.n, ++seed), {c.n});
    const TensorView bias = c.bias ? upload(random_normal(c.n, ++seed), {c.n}) : TensorView{};
    OpContext context = ctx();
    const TensorView reference = empty({c.rows, c.n});
    ops::cuda::matmul_int8(context, reference, x, x_scale, w, w_scale, bias,
                           ops::cuda::MatmulTile::k128x256);
    const std::vector<float> expected = download(reference);
    for (std::size_t i = 0; i < std::size(kForms); ++i) {
      SCOPED_TRACE(ops::cuda::name(kForms[i]));
      const Output out = output(c.rows, c.n);
      ops::cuda::matmul_int8(context, out.view, x, x_scale, w, w_scale, bias, kForms[i],
                             kRasters[(i + seed) % std::size(kRasters)]);
      EXPECT_TRUE(identical_to(download(out.view), expected));
      expect_untouched_beside(out);
    }
  }
}

TEST_P(CudaMatmulWgmma, EveryRasterComputesEveryTileOnce) {
  constexpr std::int64_t kRows = 128 * 23 + 5;
  constexpr std::int64_t kColumns = 256 * 11 + 12;
  const TensorView x = upload_i8(random_i8(kRows * 64, 1), {kRows, 64});
  const TensorView w = upload_i8(random_i8(kColumns * 64, 2), {kColumns, 64});
  const TensorView x_scale = upload(random_normal(kRows, 3), {kRows});
  const TensorView w_scale = upload(random_normal(kColumns, 4), {kColumns});
  OpContext context = ctx();
  const TensorView reference = empty({kRows, kColumns});
  ops::cuda::matmul_int8(context, reference, x, x_scale, w, w_scale, {},
                         ops::cuda::MatmulTile::k64x64);
  const std::vector<float> expected = download(reference);
  for (const ops::cuda::MatmulTile form : kForms) {
    for (const int group : {0, 1, 2, 5, 16, 1000}) {
      for (const bool along_rows : {false, true}) {
        SCOPED_TRACE(::testing::Message() << ops::cuda::name(form) << " " << group << along_rows);
        const Output out = output(kRows, kColumns);
        ops::cuda::matmul_int8(context, out.view, x, x_scale, w, w_scale, {}, form,
                               {group, along_rows});
        EXPECT_TRUE(identical_to(download(out.view), expected));
      }
    }
  }
}

TEST_P(CudaMatmulWgmma, Bf16AgreesWithTheReference) {
  const Case cases[] = {
      {1, 4, 1},      {1, 260, 33, true}, {127, 252, 64},         {128, 256, 128, true},
      {129, 260, 65}, {65, 64, 320},      {300, 516, 2561, true}, {2100, 8, 64},
  };
  std::uint64_t seed = 200;
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.n << "x" << c.k);
    const auto x = random_normal(c.rows * c.k, ++seed);
    const auto w = random_normal(c.n * c.k, ++seed);
    const auto bias = c.bias ? random_normal(c.n, ++seed) : std::vector<float>{};
    const auto expected =
        reference::linear(reference::to_bf16(x), reference::to_bf16(w), bias, c.rows, c.n, c.k);
    OpContext context = ctx();
    for (std::size_t i = 0; i < std::size(kForms); ++i) {
      SCOPED_TRACE(ops::cuda::name(kForms[i]));
      const Output out = output(c.rows, c.n);
      ops::cuda::matmul_bf16(context, out.view, upload_bf16(x, {c.rows, c.k}),
                             upload_bf16(w, {c.n, c.k}),
                             c.bias ? upload(bias, {c.n}) : TensorView{}, kForms[i],
                             kRasters[(i + seed) % std::size(kRasters)]);
      expect_close(download(out.view), expected, tolerance("linear", "bf16"));
      expect_untouched_beside(out);
    }
  }
}

TEST_P(CudaMatmulWgmma, WithoutBiasZerosKeepTheirSign) {
  const TensorView x = upload_i8(std::vector<std::int8_t>(4 * 16, 0), {4, 16});
  const TensorView w = upload_i8(std::vector<std::int8_t>(4 * 16, 1), {4, 16});
  const TensorView out = empty({4, 4});
  OpContext context = ctx();
  ops::cuda::matmul_int8(context, out, x, upload({-1.0F, 1.0F, -1.0F, 1.0F}, {4}), w,
                         upload({1.0F, 1.0F, -1.0F, -1.0F}, {4}), {},
                         ops::cuda::MatmulTile::kWgmma128x256);
  const std::vector<float> expected = {-0.0F, -0.0F, 0.0F, 0.0F, 0.0F, 0.0F, -0.0F, -0.0F,
                                       -0.0F, -0.0F, 0.0F, 0.0F, 0.0F, 0.0F, -0.0F, -0.0F};
  EXPECT_TRUE(identical_to(download(out), expected));
}

TEST_P(CudaMatmulWgmma, IsChosenByTheRule) {
  using ops::cuda::chosen_tile;
  using ops::cuda::MatmulTile;
  EXPECT_EQ(chosen_tile(empty({4096, 4100})), MatmulTile::kWgmma128x256);
  EXPECT_EQ(chosen_tile(empty({2048, 1024})), MatmulTile::kWgmmaPingPong128x128);
  EXPECT_EQ(chosen_tile(empty({128, 1024})), MatmulTile::k64x64);
  // What the copy engine cannot write: an address, a stride, a number of columns.
  const TensorView large = empty({4096, 4100});
  EXPECT_EQ(chosen_tile(large.narrow(1, 1, 4096)), MatmulTile::k128x256);
  EXPECT_EQ(chosen_tile(empty({4096, 4099}).narrow(1, 0, 4096)), MatmulTile::k128x256);
  EXPECT_EQ(chosen_tile(large.narrow(1, 0, 4098)), MatmulTile::k128x256);
}

TEST_P(CudaMatmul, AWgmmaFormThatCannotBeIsRefused) {
  OpContext context = ctx();
  const TensorView out = empty({4, 8}).narrow(1, 1, 4);  // no address that the copy engine takes
  EXPECT_THROW(
      ops::cuda::matmul_int8(
          context, out, upload_i8(std::vector<std::int8_t>(64), {4, 16}),
          upload(std::vector<float>(4), {4}), upload_i8(std::vector<std::int8_t>(64), {4, 16}),
          upload(std::vector<float>(4), {4}), {}, ops::cuda::MatmulTile::kWgmma128x256),
      InternalError);
  EXPECT_THROW(ops::cuda::matmul_bf16(context, out, upload_bf16(std::vector<float>(64), {4, 16}),
                                      upload_bf16(std::vector<float>(64), {4, 16}), {},
                                      ops::cuda::MatmulTile::kWgmmaPingPong128x128),
               InternalError);
}

}  // namespace
}  // namespace miniacc::testing
