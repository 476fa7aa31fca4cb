#include "kernels/bench_data.h"
#include "kernels/conv3d.h"

namespace miniacc::bench {
namespace {

/// Arguments: frames, pixels of a side, in channels, out channels: a convolution of the video
/// encoder on one tile (spec vae.md §3.6), normalised on the way. Floor: 2·27·in·out operations an
/// output pixel; a lone frame meets 9 of the 27 taps.
void conv3d(benchmark::State& state) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = all_threads()};
  const std::int64_t frames = state.range(0);
  const std::int64_t side = state.range(1);
  const std::int64_t in = state.range(2);
  const std::int64_t out_channels = state.range(3);
  const Tensor x = uniform_tensor(device, {1, frames, side, side, in}, 1);
  const Tensor weight = uniform_tensor(device, {out_channels, in, 3, 3, 3}, 2);
  const Tensor bias = uniform_tensor(device, {out_channels}, 3);
  const Tensor scale = uniform_tensor(device, {frames, in}, 4);
  const Tensor shift = uniform_tensor(device, {frames, in}, 5);
  Tensor out = empty_tensor(device, {1, frames, side, side, out_channels});
  for (auto _ : state) {
    ops::conv3d(ctx, out.view(), x.view(), weight.view(), bias.view(),
                {.past_frames = 2,
                 .pad_before = 1,
                 .pad_after = 1,
                 .normalize = {scale.view(), shift.view()}});
    benchmark::ClobberMemory();
  }
  const std::int64_t taps = frames == 1 ? 9 : 27;
  report_flops(state, 2.0 * static_cast<double>(taps * in * out_channels) *
                          static_cast<double>(frames * side * side));
}

BENCHMARK(conv3d)
    ->Args({17, 256, 128, 128})
    ->Args({9, 64, 256, 256})
    ->Args({5, 16, 1024, 1024})
    ->Args({1, 256, 128, 128})
    ->Args({17, 128, 32, 32})  // h3-tiny
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace miniacc::bench
