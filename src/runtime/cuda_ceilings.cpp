#include "runtime/cuda_ceilings.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "device/cuda_device.h"
#include "device/cuda_handles.h"
#include "kernels/copy.h"
#include "kernels/fused.h"
#include "kernels/linear.h"

namespace miniacc::cuda {
namespace {

/// Median seconds of one call of `body`, which puts work into ctx.stream; the first is not counted.
double median_seconds(OpContext& ctx, const std::function<void()>& body) {
  constexpr int kRepeats = 5;
  const int ordinal = ctx.device.id().ordinal;
  const Event start = make_event(ordinal, EventTiming::kOn);
  const Event stop = make_event(ordinal, EventTiming::kOn);
  std::vector<double> times;
  for (int i = 0; i <= kRepeats; ++i) {
    record(start, ctx.stream);
    body();
    record(stop, ctx.stream);
    synchronize(stop);
    if (i > 0) {
      times.push_back(static_cast<double>(elapsed_ms(start, stop)) * 1e-3);
    }
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

/// Bytes that are neither zero nor all alike: zeros multiply faster.
Result<Tensor> scrambled(OpContext& ctx, const Shape& shape, DType dtype) {
  MINIACC_ASSIGN(Tensor tensor, try_empty_tensor(ctx.device, shape, dtype));
  constexpr std::int64_t kPiece = std::int64_t{1} << 22;
  std::vector<std::uint8_t> piece(kPiece);
  std::uint64_t state = 1;
  for (std::uint8_t& byte : piece) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    byte = static_cast<std::uint8_t>(state >> 56);
  }
  if (dtype == DType::kBF16 || dtype == DType::kF32) {  // exponents near 1: finite values
    const std::size_t width = dtype == DType::kBF16 ? 2 : 4;
    for (std::size_t i = width - 1; i < piece.size(); i += width) {
      piece[i] = static_cast<std::uint8_t>((piece[i] & 0x80U) | 0x3FU);
    }
  }
  const auto bytes = static_cast<std::int64_t>(tensor.size_bytes());
  const TensorView flat(tensor.view().data, {bytes}, DType::kU8, ctx.device.id());
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    const std::int64_t count = std::min(kPiece, bytes - at);
    ops::copy(ctx, flat.narrow(0, at, count), ConstTensorView(piece.data(), {count}, DType::kU8));
  }
  return tensor;
}

Result<double> product_rate(OpContext& ctx, Precision precision) {
  // qkv_proj of the released transformer for 8,192 rows; f32 is too slow for that.
  const std::int64_t rows = precision == Precision::kF32 ? 1024 : 8192;
  constexpr std::int64_t kOut = 21504;
  constexpr std::int64_t kIn = 5376;
  const double operations = 2.0 * static_cast<double>(rows) * kOut * kIn;
  MINIACC_ASSIGN(Tensor out, try_empty_tensor(ctx.device, {rows, kOut}, DType::kF32));
  if (precision == Precision::kInt8) {
    MINIACC_ASSIGN(const Tensor x, scrambled(ctx, {rows, kIn}, DType::kI8));
    MINIACC_ASSIGN(const Tensor x_scale, scrambled(ctx, {rows}, DType::kF32));
    MINIACC_ASSIGN(const Tensor w, scrambled(ctx, {kOut, kIn}, DType::kI8));
    MINIACC_ASSIGN(const Tensor w_scale, scrambled(ctx, {kOut}, DType::kF32));
    return operations / median_seconds(ctx, [&] {
             ops::linear_quantized(ctx, out.view(), x.view(), x_scale.view(),
                                   {.values = w.view(), .row_scale = w_scale.view()});
           });
  }
  MINIACC_ASSIGN(const Tensor x, scrambled(ctx, {rows, kIn}, DType::kF32));
  MINIACC_ASSIGN(
      const Tensor w,
      scrambled(ctx, {kOut, kIn}, precision == Precision::kBF16 ? DType::kBF16 : DType::kF32));
  return operations /
         median_seconds(ctx, [&] { ops::linear(ctx, out.view(), x.view(), {.values = w.view()}); });
}

}  // namespace

Result<Ceilings> measure_ceilings(OpContext& ctx, Precision precision) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  Ceilings ceilings;
  MINIACC_ASSIGN(ceilings.operations_per_second, product_rate(ctx, precision));
  MINIACC_ASSIGN(const Tensor from, scrambled(ctx, {kBytes}, DType::kU8));
  MINIACC_ASSIGN(Tensor to, try_empty_tensor(ctx.device, {kBytes}, DType::kU8));
  ceilings.copy_bytes_per_second =
      2.0 * kBytes / median_seconds(ctx, [&] { ops::copy(ctx, to.view(), from.view()); });
  CudaPinnedHost pinned(static_cast<std::size_t>(2 * kBytes));
  MINIACC_ASSIGN(const Tensor host, try_empty_tensor(pinned, {kBytes}, DType::kU8));
  ceilings.upload_bytes_per_second = static_cast<double>(kBytes) / median_seconds(ctx, [&] {
                                       copy_async(to.view(), host.view(), ctx.stream);
                                     });
  return ceilings;
}

}  // namespace miniacc::cuda
