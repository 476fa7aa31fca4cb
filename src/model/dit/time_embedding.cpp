#include "model/dit/time_embedding.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/cpu_device.h"
#include "kernels/activation.h"
#include "kernels/copy.h"

namespace miniacc {

Tensor curve_lookup(Device& device, std::span<const float> times, ConstTensorView table) {
  MINIACC_REQUIRE(table.shape.rank() == 2 && table.dim(0) >= 2 && table.is_contiguous(),
                  "curve lookup: the table is [grid >= 2, rank]");
  const std::int64_t grid = table.dim(0);
  const std::int64_t rank = table.dim(1);
  CpuDevice host;
  OpContext ctx{.device = device, .host = &host};
  const Placed host_table = on_host(ctx, table);
  std::vector<float> rows(times.size() * static_cast<std::size_t>(rank));
  float* out = rows.data();
  for (const float time : times) {
    const float position = std::clamp(time, 0.0F, 1.0F) * static_cast<float>(grid - 1);
    const auto index = std::min(static_cast<std::int64_t>(std::floor(position)), grid - 2);
    const float weight = position - static_cast<float>(index);
    const float* low = host_table.view.f32() + index * rank;
    const float* high = low + rank;
    for (std::int64_t i = 0; i < rank; ++i) {
      out[i] = low[i] + weight * (high[i] - low[i]);
    }
    out += rank;
  }
  return upload(ctx, std::span<const float>(rows), {static_cast<std::int64_t>(times.size()), rank});
}

Tensor time_embedding(OpContext& ctx, const DitConfig& config, const DitIslands& islands,
                      std::span<const float> times) {
  MINIACC_REQUIRE(!config.has_curve_table(), "time embedding: the file has no time MLP");
  return time_mlp(ctx,
                  {islands.time_proj_in.weight.view().values, islands.time_proj_in.bias.view(),
                   islands.time_proj_out.weight.view().values, islands.time_proj_out.bias.view()},
                  times);
}

Tensor adaln_input(OpContext& ctx, const DitConfig& config, const DitIslands& islands,
                   std::span<const float> times) {
  if (config.has_curve_table()) {
    return curve_lookup(ctx.device, times, islands.adaln_t_table.view());
  }
  Tensor temb = time_embedding(ctx, config, islands, times);
  ops::silu(ctx, temb.view(), temb.view());
  return temb;
}

}  // namespace miniacc
