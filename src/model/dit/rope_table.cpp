#include "model/dit/rope_table.h"

#include <cmath>

#include "kernels/copy.h"

namespace miniacc {

std::vector<float> rope_inv_freq(std::int64_t count, double theta) {
  std::vector<float> inv_freq(static_cast<std::size_t>(count));
  for (std::int64_t j = 0; j < count; ++j) {
    inv_freq[static_cast<std::size_t>(j)] = static_cast<float>(
        1.0 / std::pow(theta, static_cast<double>(j) / static_cast<double>(count)));
  }
  return inv_freq;
}

RopeTable make_rope_table(Device& device, std::span<const double> position_ids,
                          std::span<const float> inv_freq) {
  MINIACC_REQUIRE(position_ids.size() % 3 == 0, "rope table: positions are [S, 3]");
  const std::size_t freqs = inv_freq.size();
  const auto rows = static_cast<std::int64_t>(position_ids.size() / 3);
  const Shape shape = {rows, 3 * static_cast<std::int64_t>(freqs)};
  std::vector<float> cosines(position_ids.size() * freqs);
  std::vector<float> sines(cosines.size());
  for (std::size_t i = 0; i < position_ids.size(); ++i) {
    const auto position = static_cast<float>(position_ids[i]);
    for (std::size_t j = 0; j < freqs; ++j) {
      const float angle = position * inv_freq[j];
      cosines[i * freqs + j] = std::cos(angle);
      sines[i * freqs + j] = std::sin(angle);
    }
  }
  OpContext ctx{.device = device};
  return {upload(ctx, std::span<const float>(cosines), shape),
          upload(ctx, std::span<const float>(sines), shape)};
}

}  // namespace miniacc
