#include <dnnl.hpp>
#include <unordered_map>

#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/ops.h"

namespace miniacc::ops::cpu {
namespace {

using dnnl::memory;

/// Reorders `data` to the layout the primitive chose, where it differs.
memory reordered(DnnlSession& session, const memory::desc& plain, const memory::desc& wanted,
                 const void* data) {
  memory source = dnnl_memory(plain, session.engine, data);
  if (plain == wanted) {
    return source;
  }
  memory target(wanted, session.engine);
  dnnl::reorder(source, target).execute(session.stream, source, target);
  return target;
}

/// Runs a convolution-like primitive whose descriptors left the layouts to oneDNN.
template <typename Primitive>
void run(DnnlSession& session, const typename Primitive::primitive_desc& desc,
         const memory::desc& src_desc, const void* src, const memory::desc& weights_desc,
         const void* weights, const void* bias, const memory::desc& dst_desc, void* dst) {
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, reordered(session, src_desc, desc.src_desc(), src)},
      {DNNL_ARG_WEIGHTS, reordered(session, weights_desc, desc.weights_desc(), weights)}};
  if (bias != nullptr) {
    arguments.emplace(DNNL_ARG_BIAS, dnnl_memory(desc.bias_desc(), session.engine, bias));
  }
  memory target(dst_desc, session.engine, dst);
  const bool direct = dst_desc == desc.dst_desc();
  memory result = direct ? target : memory(desc.dst_desc(), session.engine);
  arguments.emplace(DNNL_ARG_DST, result);
  Primitive(desc).execute(session.stream, arguments);
  if (!direct) {
    dnnl::reorder(result, target).execute(session.stream, result, target);
  }
  session.stream.wait();
}

struct Descs {
  memory::desc src, weights, bias, dst;        // as stored
  memory::desc any_src, any_weights, any_dst;  // layout left to oneDNN
};

Descs describe(ConstTensorView out, ConstTensorView x, ConstTensorView bias,
               const memory::dims& weights_dims, const memory::dims& weights_strides) {
  const auto f32 = memory::data_type::f32;
  const memory::dims src_dims = {x.dim(0), x.dim(1), x.dim(2)};
  const memory::dims dst_dims = {out.dim(0), out.dim(1), out.dim(2)};
  return {.src = memory::desc(src_dims, f32, memory::format_tag::ncw),
          .weights = memory::desc(weights_dims, f32, weights_strides),
          .bias = bias.empty() ? memory::desc()
                               : memory::desc({out.dim(1)}, f32, memory::format_tag::a),
          .dst = memory::desc(dst_dims, f32, memory::format_tag::ncw),
          .any_src = memory::desc(src_dims, f32, memory::format_tag::any),
          .any_weights = memory::desc(weights_dims, f32, memory::format_tag::any),
          .any_dst = memory::desc(dst_dims, f32, memory::format_tag::any)};
}

}  // namespace

void conv1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv1dOptions& options) {
  const DnnlThreads threads(ctx.num_threads);
  DnnlSession session;
  const Descs d = describe(out, x, bias, {weight.dim(0), weight.dim(1), weight.dim(2)},
                           {weight.stride(0), weight.stride(1), weight.stride(2)});
  const dnnl::convolution_forward::desc desc(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, d.any_src,
      d.any_weights, d.bias, d.any_dst, {options.stride}, {options.dilation - 1}, {options.padding},
      {options.padding});
  const dnnl::convolution_forward::primitive_desc primitive_desc(desc, session.engine);
  run<dnnl::convolution_forward>(session, primitive_desc, d.src, x.data, d.weights, weight.data,
                                 bias.data, d.dst, out.data);
}

void conv_transpose1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      ConstTensorView bias, const Conv1dOptions& options) {
  const DnnlThreads threads(ctx.num_threads);
  DnnlSession session;
  // oneDNN names a deconvolution's weight dims [out, in, k]; ours are stored [in, out, k].
  const Descs d = describe(out, x, bias, {weight.dim(1), weight.dim(0), weight.dim(2)},
                           {weight.stride(1), weight.stride(0), weight.stride(2)});
  const dnnl::deconvolution_forward::desc desc(dnnl::prop_kind::forward_inference,
                                               dnnl::algorithm::deconvolution_direct, d.any_src,
                                               d.any_weights, d.bias, d.any_dst, {options.stride},
                                               {0}, {options.padding}, {options.padding});
  const dnnl::deconvolution_forward::primitive_desc primitive_desc(desc, session.engine);
  run<dnnl::deconvolution_forward>(session, primitive_desc, d.src, x.data, d.weights, weight.data,
                                   bias.data, d.dst, out.data);
}

}  // namespace miniacc::ops::cpu
