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

}  // namespace
}  // namespace miniacc::testing
