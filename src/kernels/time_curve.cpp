#include "kernels/time_curve.h"

#include <cmath>
#include <vector>

#include "kernels/activation.h"
#include "kernels/copy.h"
#include "kernels/linear.h"

namespace miniacc {

Tensor time_features(Device& device, std::span<const float> times, std::int64_t size) {
  MINIACC_REQUIRE(size > 0 && size % 2 == 0, "time features: the size is even");
  constexpr float kLogMaxPeriod = 9.210340371976184F;  // ln(10000)
  const std::int64_t half = size / 2;
  std::vector<float> features(times.size() * static_cast<std::size_t>(size));
  float* row = features.data();
  for (const float time : times) {
    for (std::int64_t k = 0; k < half; ++k) {
      const float frequency =
          std::exp(-kLogMaxPeriod * static_cast<float>(k) / static_cast<float>(half));
      row[k] = std::cos(time * frequency);
      row[half + k] = std::sin(time * frequency);
    }
    row += size;
  }
  OpContext ctx{.device = device};
  return upload(ctx, std::span<const float>(features),
                {static_cast<std::int64_t>(times.size()), size});
}

Tensor time_mlp(OpContext& ctx, const TimeMlpView& mlp, std::span<const float> times) {
  const auto count = static_cast<std::int64_t>(times.size());
  const Tensor features = time_features(ctx.device, times, mlp.proj_in_weight.dim(1));
  Tensor hidden = empty_tensor(ctx.device, {count, mlp.proj_in_weight.dim(0)});
  Tensor temb = empty_tensor(ctx.device, {count, mlp.proj_out_weight.dim(0)});
  ops::linear(ctx, hidden.view(), features.view(), {mlp.proj_in_weight}, mlp.proj_in_bias);
  ops::silu(ctx, hidden.view(), hidden.view());
  ops::linear(ctx, temb.view(), hidden.view(), {mlp.proj_out_weight}, mlp.proj_out_bias);
  return temb;
}

}  // namespace miniacc
