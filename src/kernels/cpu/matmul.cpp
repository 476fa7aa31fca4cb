#include "kernels/cpu/matmul.h"

#include <unordered_map>

#include "core/float_convert.h"
#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

using dnnl::memory;

void matmul(const OpContext& ctx, TensorView dst, memory::data_type dst_type, ConstTensorView src,
            memory::data_type src_type, ConstTensorView weights, memory::data_type weights_type,
            ConstTensorView bias, MatmulOutput output) {
  const std::int64_t m = src.dim(0);
  const std::int64_t k = src.dim(1);
  const std::int64_t n = weights.dim(0);
  const DnnlThreads threads(useful_threads(ctx, m * n * k / 16));
  DnnlSession session;
  const memory::desc src_desc({m, k}, src_type, memory::dims{src.stride(0), 1});
  const memory::desc weights_desc({k, n}, weights_type, memory::format_tag::ba);
  const memory::desc dst_desc({m, n}, dst_type, memory::dims{dst.stride(0), 1});
  const memory::desc bias_desc =
      bias.empty() ? memory::desc()
                   : memory::desc({1, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::desc op_desc =
      bias.empty() ? dnnl::matmul::desc(src_desc, weights_desc, dst_desc)
                   : dnnl::matmul::desc(src_desc, weights_desc, bias_desc, dst_desc);
  dnnl::primitive_attr attributes;
  if (output == MatmulOutput::kAdd) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc primitive_desc(op_desc, attributes, session.engine);
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, dnnl_memory(src_desc, session.engine, src.data)},
      {DNNL_ARG_WEIGHTS, dnnl_memory(weights_desc, session.engine, weights.data)},
      {DNNL_ARG_DST, dnnl_memory(dst_desc, session.engine, dst.data)}};
  if (!bias.empty()) {
    arguments.emplace(DNNL_ARG_BIAS, dnnl_memory(bias_desc, session.engine, bias.data));
  }
  dnnl::matmul(primitive_desc).execute(session.stream, arguments);
  session.stream.wait();
}

Tensor round_rows_to_bf16(OpContext& ctx, ConstTensorView x) {
  Tensor rounded = empty_tensor(ctx.device, x.shape, DType::kBF16);
  auto* bits = rounded.view().as<std::uint16_t>();
  const std::int64_t k = x.dim(1);
  const float* input = x.f32();
  parallel_for(ctx, x.dim(0), k, [&](std::int64_t row) {
    const float* source = input + row * x.stride(0);
    for (std::int64_t c = 0; c < k; ++c) {
      bits[row * k + c] = float_to_bf16(source[c]);
    }
  });
  return rounded;
}

}  // namespace miniacc::ops::cpu
