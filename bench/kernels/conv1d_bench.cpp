#include "kernels/bench_data.h"
#include "kernels/conv1d.h"

namespace miniacc::bench {
namespace {

/// Arguments: channels, length, kernel, dilation. A resblock convolution of the audio decoder
/// (spec vae.md §4.1): channels stay, length stays, batch 2 (stereo).
void conv1d(benchmark::State& state) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const std::int64_t channels = state.range(0);
  const std::int64_t length = state.range(1);
  const std::int64_t kernel = state.range(2);
  const std::int64_t dilation = state.range(3);
  const Tensor x = uniform_tensor(device, {2, channels, length}, 1);
  const Tensor weight = uniform_tensor(device, {channels, channels, kernel}, 2);
  const Tensor bias = uniform_tensor(device, {channels}, 3);
  Tensor out = empty_tensor(device, {2, channels, length});
  for (auto _ : state) {
    ops::conv1d(ctx, out.view(), x.view(), weight.view(), bias.view(),
                {.stride = 1, .padding = dilation * (kernel - 1) / 2, .dilation = dilation});
    benchmark::ClobberMemory();
  }
  report_flops(state, 2.0 * 2.0 * static_cast<double>(channels * channels * kernel * length));
  report_bytes(state, 2.0 * 2.0 * 4.0 * static_cast<double>(channels * length));
}

/// Arguments: in channels, length, kernel, stride: an upsampler of the audio decoder.
void conv_transpose1d(benchmark::State& state) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const std::int64_t in = state.range(0);
  const std::int64_t out_channels = in / 2;
  const std::int64_t length = state.range(1);
  const std::int64_t kernel = state.range(2);
  const std::int64_t stride = state.range(3);
  const std::int64_t padding = (kernel - stride) / 2;
  const Tensor x = uniform_tensor(device, {2, in, length}, 1);
  const Tensor weight = uniform_tensor(device, {in, out_channels, kernel}, 2);
  const Tensor bias = uniform_tensor(device, {out_channels}, 3);
  Tensor out = empty_tensor(device, {2, out_channels, length * stride});
  for (auto _ : state) {
    ops::conv_transpose1d(ctx, out.view(), x.view(), weight.view(), bias.view(),
                          {.stride = stride, .padding = padding});
    benchmark::ClobberMemory();
  }
  report_flops(state, 2.0 * 2.0 * static_cast<double>(in * out_channels * kernel * length));
}

// 207 latents are 5.2 s of sound: the real decoder's lengths.
BENCHMARK(conv1d)
    ->Args({512, 1035, 11, 5})
    ->Args({256, 5175, 11, 5})
    ->Args({128, 10350, 11, 5})
    ->Args({64, 20700, 11, 5})
    ->Args({32, 41400, 11, 5})
    ->Args({16, 82800, 11, 5})
    ->Args({8, 165600, 3, 1})
    ->Args({8, 165600, 11, 5})
    ->Args({8, 4000, 7, 3})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(conv_transpose1d)
    ->Args({1024, 207, 9, 5})
    ->Args({128, 10350, 4, 2})
    ->Args({16, 82800, 4, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace miniacc::bench
