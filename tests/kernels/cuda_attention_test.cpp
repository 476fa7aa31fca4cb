#include "kernels/cuda/attention.h"

#include "kernels/attention_int8.h"
#include "kernels/backend_test.h"
#include "support/compare.h"
#include "support/random.h"

// What the CUDA backend's attention promises beyond the op's contract.
namespace miniacc::testing {
namespace {

class CudaAttention : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, CudaAttention, ::testing::Values(Backend{DeviceKind::kCuda}),
                         backend_name);

TEST_P(CudaAttention, LayoutsGiveTheSameBits) {
  for (const auto& [q_rows, kv_rows, heads, kv_heads] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>{1, 1, 1, 1},
        {129, 65, 2, 1},
        {128, 64, 1, 1},
        {300, 257, 1, 1}}) {
    constexpr std::int64_t kDim = 128;
    OpContext context = ctx();
    auto quantized = ops::empty_quantized_attention(device(), q_rows, heads, kv_rows, kv_heads,
                                                    kDim, ops::AttentionForm::kMmaSync);
    ops::quantize_attention(
        context, quantized, upload(random_normal(q_rows * heads * kDim, 1), {q_rows, heads, kDim}),
        upload(random_normal(kv_rows * kv_heads * kDim, 2), {kv_rows, kv_heads, kDim}),
        upload(random_normal(kv_rows * kv_heads * kDim, 3), {kv_rows, kv_heads, kDim}));
    std::vector<std::vector<float>> results;
    for (const auto layout : ops::cuda::kAttentionLayouts) {
      TensorView out = empty({q_rows, heads, kDim});
      ops::cuda::attention_int8_mma(context, out, quantized, 0.09F, layout);
      results.push_back(download(out));
    }
    EXPECT_TRUE(identical_to(results[1], results[0])) << q_rows << "x" << kv_rows;
    EXPECT_TRUE(identical_to(results[2], results[0])) << q_rows << "x" << kv_rows;
    EXPECT_TRUE(identical_to(results[3], results[0])) << q_rows << "x" << kv_rows;
    EXPECT_EQ(results[0][0], results[0][0]) << "not a number";
  }
}

}  // namespace
}  // namespace miniacc::testing
