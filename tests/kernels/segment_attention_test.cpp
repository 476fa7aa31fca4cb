#include "kernels/segment_attention.h"

#include <cmath>

#include "kernels/attention.h"
#include "kernels/backend_test.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

struct Sizes {
  std::int64_t segments, rows, heads, head_dim, n;
};

class SegmentAttention : public BackendTest {
 protected:
  /// q, k, v as column ranges of one matrix, as a block has them.
  TensorView heads_of(const TensorView& matrix, std::int64_t part, const Sizes& sizes) {
    const TensorView columns =
        matrix.narrow(1, part * sizes.heads * sizes.head_dim, sizes.heads * sizes.head_dim);
    TensorView view(columns.data, {matrix.dim(0), sizes.heads, sizes.head_dim}, columns.dtype,
                    columns.device);
    view.strides[0] = matrix.stride(0);
    return view;
  }

  /// The op and the chain it stands for, segment by segment.
  void expect_the_chain(const Sizes& sizes, Precision precision, double bound) {
    const std::int64_t rows = sizes.segments * sizes.rows;
    const std::int64_t width = 3 * sizes.heads * sizes.head_dim;
    const auto qkv = random_normal(rows * width, 11);
    const auto angles = random_normal(sizes.rows * sizes.n, 12);
    std::vector<float> cos;
    std::vector<float> sin;
    for (const float angle : angles) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
    const TensorView cosines = upload(cos, {sizes.rows, sizes.n});
    const TensorView sines = upload(sin, {sizes.rows, sizes.n});
    const float scale = 1.0F / std::sqrt(static_cast<float>(sizes.head_dim));

    OpContext context = ctx();
    const Shape shape = {rows, sizes.heads, sizes.head_dim};
    const TensorView out = empty(shape);
    const TensorView in = upload(qkv, {rows, width});
    ops::segment_attention(context, out, heads_of(in, 0, sizes), heads_of(in, 1, sizes),
                           heads_of(in, 2, sizes),
                           {.segment_rows = sizes.rows,
                            .norm_eps = 1e-5F,
                            .cos = cosines,
                            .sin = sines,
                            .scale = scale,
                            .precision = precision});

    const TensorView wanted = empty(shape);
    for (std::int64_t i = 0; i < sizes.segments; ++i) {
      const TensorView part = upload(qkv, {rows, width}).narrow(0, i * sizes.rows, sizes.rows);
      for (const std::int64_t which : {0, 1}) {
        const TensorView heads = heads_of(part, which, sizes);
        ops::rms_norm(context, heads, heads, {}, 1e-5F);
        ops::apply_rope(context, heads, cosines, sines);
      }
      ops::attention(context, wanted.narrow(0, i * sizes.rows, sizes.rows),
                     heads_of(part, 0, sizes), heads_of(part, 1, sizes), heads_of(part, 2, sizes),
                     {.scale = scale, .precision = precision});
    }
    if (GetParam().kind == DeviceKind::kCpu) {
      EXPECT_TRUE(identical_to(download(out), download(wanted)));
    } else {
      EXPECT_TRUE(close_to(download(out), download(wanted), bound));
    }
  }
};
MINIACC_BACKEND_SUITE(SegmentAttention);

// Heads of all widths that the products take, padded ones, one row, odd lengths.
constexpr Sizes kSizes[] = {{1, 1, 1, 32, 12},
                            {3, 5, 2, 64, 24},
                            {2, 133, 3, 64, 24},
                            {2, 70, 2, 48, 0},
                            {2, 9, 9, 128, 64}};

TEST_P(SegmentAttention, InF32IsTheChainOfOps) {
  for (const Sizes& sizes : kSizes) {
    expect_the_chain(sizes, Precision::kF32, 1e-6);
  }
}

TEST_P(SegmentAttention, InBf16IsTheChainOfOps) {
  for (const Sizes& sizes : kSizes) {
    // A q or k that sits between two bf16 values may round to the other: the norm's squares are
    // added in another order.
    expect_the_chain(sizes, Precision::kBF16, 2e-4);
  }
}

TEST_P(SegmentAttention, BrokenContractsAreRefused) {
  OpContext context = ctx();
  const TensorView x = empty({6, 2, 8});
  const TensorView out = empty({6, 2, 8});
  const TensorView table = empty({4, 4});
  ops::SegmentAttention options{.segment_rows = 4, .cos = table, .sin = table};
  EXPECT_THROW(ops::segment_attention(context, out, x, x, x, options), InternalError)
      << "6 rows are no segments of 4";
  options.segment_rows = 3;
  EXPECT_THROW(ops::segment_attention(context, out, x, x, x, options), InternalError)
      << "tables of another length";
  options.cos = options.sin = empty({3, 5});
  EXPECT_THROW(ops::segment_attention(context, out, x, x, x, options), InternalError)
      << "more channels than a head has";
  options.cos = options.sin = empty({3, 4});
  options.precision = Precision::kInt8;
  EXPECT_THROW(ops::segment_attention(context, out, x, x, x, options), InternalError);
}

}  // namespace
}  // namespace miniacc::testing
