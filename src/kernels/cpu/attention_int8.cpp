#include "kernels/attention_int8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <dnnl.hpp>
#include <limits>
#include <vector>

#include "core/float_convert.h"
#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {

constexpr std::int64_t kKeyTile = 64;
constexpr std::int64_t kGranules = 4;  // scales of k a tile
constexpr std::int64_t kGranuleKeys = kKeyTile / kGranules;
constexpr std::int64_t kQueryTile = 128;   // as in attention.cpp
constexpr float kNumeratorOne = 16384.0F;  // 2^14
constexpr std::int64_t kWgmmaTile = 128;   // keys
constexpr float kLargestE4m3 = 448.0F;
constexpr std::int64_t kChunk = 16;  // values that stay together in rows of the wgmma form

/// Where value `column` of row `row` lies in its row of 128 bytes, wgmma form.
std::int64_t swizzled(std::int64_t row, std::int64_t column) {
  return ((column / kChunk) ^ (row % 8)) * kChunk + column % kChunk;
}

/// Where a key's value lies in its tile of v, wgmma form: 0 1 8 9 2 3 10 11 ... in every 16.
std::int64_t value_place(std::int64_t channel, std::int64_t key) {
  const std::int64_t in_chunk = key % kChunk;
  const std::int64_t place = in_chunk % 8 / 2 * 4 + in_chunk / 8 * 2 + in_chunk % 2;
  return channel * kWgmmaTile + swizzled(channel, key % kWgmmaTile / kChunk * kChunk + place);
}

/// Key of a tile that is number `at` of the 16 that share scale `granule`.
std::int64_t key_of(std::int64_t granule, std::int64_t at) {
  return at / 2 * 8 + 2 * granule + at % 2;
}

template <int kLanes>
MINIACC_ISA_BODY float softmax_f16_body(float* row, const std::int32_t* products,
                                        const float* key_scale, std::int64_t keys, float factor) {
  float peak = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : peak)
  for (std::int64_t i = 0; i < keys; ++i) {
    row[i] = static_cast<float>(products[i]) * (factor * key_scale[i]);
    peak = row[i] > peak ? row[i] : peak;
  }
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < keys; ++i) {
    const float wide = kNumeratorOne * vector_exp(row[i] - peak);
    sum += wide;
    // Normal f16 numbers keep 10 bits of the mantissa, smaller ones are multiples of 2^-24.
    const auto bits = std::bit_cast<std::uint32_t>(wide);
    const float normal = std::bit_cast<float>((bits + 0xFFFU + ((bits >> 13) & 1U)) & 0xFFFFE000U);
    const float small = (wide + 0.75F) - 0.75F;
    row[i] = wide < 0x1.0p-14F ? small : normal;
    row[i] = wide != wide ? wide : row[i];
  }
  return 1.0F / sum;
}

/// row[i] ← f16(2^14 · exp(s[i] - max s)), s[i] = products[i] · factor · key_scale[i]; returns one
/// over the sum of the values before they were rounded.
MINIACC_ISA_VARIANTS(float, softmax_f16,
                     (float* row, const std::int32_t* products, const float* key_scale,
                      std::int64_t keys, float factor),
                     (row, products, key_scale, keys, factor))

template <int kLanes>
MINIACC_ISA_BODY float softmax_e4m3_body(float* row, const std::int32_t* products,
                                         const float* key_scale, std::int64_t keys, float factor) {
  constexpr std::int64_t kTile = kWgmmaTile;
  float peak = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : peak)
  for (std::int64_t i = 0; i < keys; ++i) {
    row[i] = static_cast<float>(products[i]) * (factor * key_scale[i]);
    peak = row[i] > peak ? row[i] : peak;
  }
  float sum = 0.0F;
  for (std::int64_t first = 0; first < keys; first += kTile) {
    const std::int64_t last = first + kTile < keys ? first + kTile : keys;
    float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = first; i < last; ++i) {
      largest = row[i] > largest ? row[i] : largest;
    }
    const float gain = vector_exp(largest - peak);
    float added = 0.0F;
#pragma omp simd reduction(+ : added)
    for (std::int64_t i = first; i < last; ++i) {
      const float wide = kLargestE4m3 * vector_exp(row[i] - largest);
      added += wide;
      // Normal e4m3 numbers keep 3 bits of the mantissa, smaller ones are multiples of 2^-9.
      const auto bits = std::bit_cast<std::uint32_t>(wide);
      const float normal =
          std::bit_cast<float>((bits + 0x7FFFFU + ((bits >> 20) & 1U)) & 0xFFF00000U);
      const float small = (wide + 16384.0F) - 16384.0F;
      row[i] = (wide < 0x1.0p-6F ? small : normal) * gain;
      row[i] = wide != wide ? wide : row[i];
    }
    sum += added * gain;
  }
  return 1.0F / sum;
}

/// The same for kWgmma: row[i] ← e4m3(448 · exp(s[i] - t)) · exp(t - max s), t the largest s of the
/// tile of i.
MINIACC_ISA_VARIANTS(float, softmax_e4m3,
                     (float* row, const std::int32_t* products, const float* key_scale,
                      std::int64_t keys, float factor),
                     (row, products, key_scale, keys, factor))

/// row ← row · S · H, see attention_int8.h; dim is 32, 64 or 128.
void rotate_head(float* row, std::int64_t dim) {
  const float norm = 1.0F / std::sqrt(static_cast<float>(dim));
  for (std::int64_t channel = 0; channel < dim; ++channel) {
    const std::uint64_t signs = channel < 64 ? kChannelSignsLow : kChannelSignsHigh;
    row[channel] *= (signs >> (channel & 63) & 1U) != 0 ? -norm : norm;
  }
  for (std::int64_t stride = 1; stride < dim; stride *= 2) {
    for (std::int64_t base = 0; base < dim; base += 2 * stride) {
      for (std::int64_t i = base; i < base + stride; ++i) {
        const float a = row[i];
        const float b = row[i + stride];
        row[i] = a + b;
        row[i + stride] = a - b;
      }
    }
  }
}

void rotate_heads(OpContext& ctx, Tensor& heads) {
  const std::int64_t dim = heads.shape()[2];
  float* data = heads.f32().data();
  parallel_for(ctx, heads.shape()[0] * heads.shape()[1], 16 * dim,
               [&](std::int64_t row) { rotate_head(data + row * dim, dim); });
}

/// q's heads as rows, padded with zeros: [heads, rows, dim].
Tensor gather_heads(OpContext& ctx, ConstTensorView x, std::int64_t dim) {
  const std::int64_t heads = x.dim(1);
  const std::int64_t head_dim = x.dim(2);
  Tensor gathered = empty_tensor(ctx.device, {heads, x.dim(0), dim});
  float* target = gathered.f32().data();
  const float* source = x.f32();
  parallel_for(ctx, x.dim(0), 2 * heads * dim, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      float* to = target + (head * x.dim(0) + row) * dim;
      std::memcpy(to, source + row * x.stride(0) + head * head_dim,
                  static_cast<std::size_t>(head_dim) * sizeof(float));
      std::fill(to + head_dim, to + dim, 0.0F);
    }
  });
  return gathered;
}

void quantize_queries(OpContext& ctx, QuantizedAttention& out, ConstTensorView q) {
  const Shape& shape = out.q.shape();
  const std::int64_t dim = shape[2];
  Tensor heads = gather_heads(ctx, q, dim);
  rotate_heads(ctx, heads);
  const Shape rows({shape[0] * out.q_rows, dim});
  const TensorView scales = out.q_scale.view().reshape({rows[0]});
  if (out.form == AttentionForm::kMmaSync) {
    quantize_rows(ctx, out.q.view().reshape(rows), scales, heads.view().reshape(rows));
    return;
  }
  Tensor codes = empty_tensor(ctx.device, rows, DType::kI8);
  quantize_rows(ctx, codes.view(), scales, heads.view().reshape(rows));
  const auto* from = codes.view().as<std::int8_t>();
  auto* to = out.q.view().as<std::int8_t>();
  parallel_for(ctx, shape[0], 2 * shape[1] * dim, [&](std::int64_t head) {
    for (std::int64_t row = 0; row < shape[1]; ++row) {
      for (std::int64_t i = 0; i < dim; ++i) {
        to[(head * shape[1] + row) * dim + swizzled(row, i)] =
            row < out.q_rows ? from[(head * out.q_rows + row) * dim + i] : std::int8_t{0};
      }
    }
  });
}

/// The 16 keys of a scale become one row for quantize_rows; keys beyond the last are zeros.
void quantize_keys(OpContext& ctx, QuantizedAttention& out, ConstTensorView k) {
  const std::int64_t kv_heads = out.k.shape()[0];
  const std::int64_t rows = out.kv_rows;
  const std::int64_t padded_rows = out.k.shape()[1];
  const std::int64_t dim = out.k.shape()[2];
  const std::int64_t tiles = out.k_scale.shape()[1];
  Tensor heads = gather_heads(ctx, k, dim);
  float* keys = heads.f32().data();
  parallel_for(ctx, kv_heads, 2 * rows * dim, [&](std::int64_t head) {
    for (std::int64_t channel = 0; channel < dim; ++channel) {
      float* column = keys + head * rows * dim + channel;
      double sum = 0.0;
      for (std::int64_t row = 0; row < rows; ++row) {
        sum += static_cast<double>(column[row * dim]);
      }
      const auto mean = static_cast<float>(sum / static_cast<double>(rows));
      for (std::int64_t row = 0; row < rows; ++row) {
        column[row * dim] -= mean;
      }
    }
  });
  rotate_heads(ctx, heads);
  const Shape granules({kv_heads * tiles * kGranules, kGranuleKeys * dim});
  Tensor gathered = empty_tensor(ctx.device, granules);
  Tensor codes = empty_tensor(ctx.device, granules, DType::kI8);
  float* wide = gathered.f32().data();
  const auto for_each_key = [&](const auto& body) {
    parallel_for(ctx, granules[0], 2 * granules[1], [&](std::int64_t granule) {
      const std::int64_t head = granule / (tiles * kGranules);
      const std::int64_t tile = granule / kGranules % tiles;
      for (std::int64_t at = 0; at < kGranuleKeys; ++at) {
        body(head, tile * kKeyTile + key_of(granule % kGranules, at),
             granule * granules[1] + at * dim);
      }
    });
  };
  for_each_key([&](std::int64_t head, std::int64_t key, std::int64_t place) {
    if (key < rows) {
      std::memcpy(wide + place, keys + (head * rows + key) * dim,
                  static_cast<std::size_t>(dim) * sizeof(float));
    } else {
      std::fill(wide + place, wide + place + dim, 0.0F);
    }
  });
  quantize_rows(ctx, codes.view(), out.k_scale.view().reshape({granules[0]}), gathered.view());
  const auto* narrow = codes.view().as<std::int8_t>();
  auto* target = out.k.view().as<std::int8_t>();
  for_each_key([&](std::int64_t head, std::int64_t key, std::int64_t place) {
    if (key >= padded_rows) {
      return;
    }
    std::int8_t* row = target + (head * padded_rows + key) * dim;
    if (out.form == AttentionForm::kMmaSync) {
      std::memcpy(row, narrow + place, static_cast<std::size_t>(dim));
      return;
    }
    for (std::int64_t i = 0; i < dim; ++i) {
      row[swizzled(key, i)] = narrow[place + i];
    }
  });
}

/// The largest magnitude of a channel, infinity and NaN included.
float peak_of_channel(const float* column, std::int64_t stride, std::int64_t rows) {
  float peak = 0.0F;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float magnitude = std::fabs(column[row * stride]);
    peak = magnitude > peak || std::isnan(magnitude) ? magnitude : peak;
    if (std::isnan(peak)) {
      break;
    }
  }
  return peak;
}

void quantize_values(OpContext& ctx, QuantizedAttention& out, ConstTensorView v) {
  const bool wgmma = out.form == AttentionForm::kWgmma;
  const std::int64_t rows = out.kv_rows;
  const std::int64_t padded_rows = out.k.shape()[1];
  const std::int64_t dim = out.k.shape()[2];
  const std::int64_t head_dim = out.head_dim;
  const float* source = v.f32();
  auto* halves = wgmma ? nullptr : out.v.view().as<std::uint16_t>();
  auto* bytes = wgmma ? out.v.view().as<std::uint8_t>() : nullptr;
  float* scales = out.v_scale.f32().data();
  parallel_for(ctx, out.v.shape()[0], 4 * rows * dim, [&](std::int64_t head) {
    for (std::int64_t channel = 0; channel < dim; ++channel) {
      const float* column = source + head * head_dim + channel;
      const float peak = channel < head_dim ? peak_of_channel(column, v.stride(0), rows) : 0.0F;
      const bool finite = std::isfinite(peak);
      const float step =
          wgmma ? std::max(peak / kLargestE4m3, std::numeric_limits<float>::denorm_min()) : peak;
      const float scale = peak > 0.0F ? step : 1.0F;
      scales[head * dim + channel] = finite ? scale : std::numeric_limits<float>::quiet_NaN();
      for (std::int64_t row = 0; row < padded_rows; ++row) {
        const bool inside = row < rows && channel < head_dim && finite;
        const float value = inside ? column[row * v.stride(0)] / scale : 0.0F;
        if (wgmma) {
          const std::int64_t tile = (head * padded_rows + row) / kWgmmaTile;
          bytes[tile * kWgmmaTile * dim + value_place(channel, row)] = float_to_f8e4m3(value);
        } else {
          halves[(head * rows + row) * dim + channel] = float_to_f16(value);
        }
      }
    }
  });
}

/// Scales of all keys of one head, one a key.
std::vector<float> scale_of_keys(const QuantizedAttention& in, std::int64_t head) {
  const std::int64_t rows = in.kv_rows;
  const std::int64_t tiles = in.k_scale.shape()[1];
  const float* scales = in.k_scale.f32().data() + head * tiles * kGranules;
  std::vector<float> result(static_cast<std::size_t>(rows));
  for (std::int64_t key = 0; key < rows; ++key) {
    result[static_cast<std::size_t>(key)] = scales[key / kKeyTile * kGranules + key % 8 / 2];
  }
  return result;
}

/// Codes of the first `rows` rows of a head, as matrix rows [rows, dim], whatever the form.
Tensor plain_codes(OpContext& ctx, const QuantizedAttention& in, const Tensor& codes,
                   std::int64_t head, std::int64_t rows) {
  const std::int64_t dim = codes.shape()[2];
  Tensor plain = empty_tensor(ctx.device, {rows, dim}, DType::kI8);
  const auto* from = codes.view().as<std::int8_t>() + head * codes.shape()[1] * dim;
  auto* to = plain.view().as<std::int8_t>();
  const bool moved = in.form == AttentionForm::kWgmma;
  parallel_for(ctx, rows, 2 * dim, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < dim; ++i) {
      to[row * dim + i] = from[row * dim + (moved ? swizzled(row, i) : i)];
    }
  });
  return plain;
}

/// Values of a head in units of v_scale, [kv_rows, dim].
Tensor plain_values(OpContext& ctx, const QuantizedAttention& in, std::int64_t head) {
  const std::int64_t dim = in.k.shape()[2];
  const std::int64_t first = head * in.k.shape()[1];
  Tensor values = empty_tensor(ctx.device, {in.kv_rows, dim});
  float* wide = values.f32().data();
  parallel_for(ctx, in.kv_rows, 8 * dim, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < dim; ++i) {
      if (in.form == AttentionForm::kWgmma) {
        const std::int64_t tile = (first + row) / kWgmmaTile;
        wide[row * dim + i] = f8e4m3_to_float(
            in.v.view().as<std::uint8_t>()[tile * kWgmmaTile * dim + value_place(i, row)]);
      } else {
        wide[row * dim + i] =
            f16_to_float(in.v.view().as<std::uint16_t>()[(first + row) * dim + i]);
      }
    }
  });
  return values;
}

}  // namespace

void quantize_attention(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                        ConstTensorView k, ConstTensorView v) {
  quantize_queries(ctx, out, q);
  quantize_keys(ctx, out, k);
  quantize_values(ctx, out, v);
}

void qk_norm_rope_quantize(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                           ConstTensorView k, ConstTensorView v, const QkNormRope& options) {
  Tensor queries = empty_tensor(ctx.device, q.shape);
  Tensor keys = empty_tensor(ctx.device, k.shape);
  rms_norm(ctx, queries.view(), q, options.q_norm, options.eps);
  rms_norm(ctx, keys.view(), k, options.k_norm, options.eps);
  if (!options.cos.empty()) {
    apply_rope(ctx, queries.view(), options.cos, options.sin);
    apply_rope(ctx, keys.view(), options.cos, options.sin);
  }
  cpu::quantize_attention(ctx, out, queries.view(), keys.view(), v);
}

void attention_int8(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale) {
  const DnnlThreads threads(1);
  const std::int64_t heads = in.q.shape()[0];
  const std::int64_t q_rows = in.q_rows;
  const std::int64_t dim = in.q.shape()[2];
  const std::int64_t kv_rows = in.kv_rows;
  const std::int64_t heads_per_kv = heads / in.k.shape()[0];
  const std::int64_t tiles = (q_rows + kQueryTile - 1) / kQueryTile;
  const float* q_scale = in.q_scale.f32().data();
  const float* v_scale = in.v_scale.f32().data();
  float* output = out.f32();
  // A whole head a time: what its keys and values become in f32 is shared by its query tiles.
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t kv_head = head / heads_per_kv;
    const std::vector<float> key_scale = scale_of_keys(in, kv_head);
    const Tensor k_plain = plain_codes(ctx, in, in.k, kv_head, kv_rows);
    const Tensor q_plain = plain_codes(ctx, in, in.q, head, q_rows);
    const ConstTensorView k_codes = k_plain.view();
    const ConstTensorView q_codes = q_plain.view();
    const Tensor values = plain_values(ctx, in, kv_head);
    const float* wide_values = values.f32().data();
    const std::int64_t work = std::min(q_rows, kQueryTile) * kv_rows * (dim / 4 + 8);
    parallel_tasks(ctx, tiles, work, [&](std::int64_t task) {
      const std::int64_t first = task * kQueryTile;
      const std::int64_t count = std::min(kQueryTile, q_rows - first);
      OpContext alone{.device = ctx.device, .num_threads = 1};
      Tensor products = empty_tensor(ctx.device, {count, kv_rows}, DType::kI32);
      matmul_int8(alone, products.view(), q_codes.narrow(0, first, count), k_codes);
      Tensor numerators = empty_tensor(ctx.device, {count, kv_rows});
      Tensor sums = empty_tensor(ctx.device, {count, dim});
      std::vector<float> inverse(static_cast<std::size_t>(count));
      for (std::int64_t row = 0; row < count; ++row) {
        float* target = numerators.f32().data() + row * kv_rows;
        const auto* source = products.view().as<std::int32_t>() + row * kv_rows;
        const float factor = scale * q_scale[head * q_rows + first + row];
        inverse[static_cast<std::size_t>(row)] =
            in.form == AttentionForm::kWgmma
                ? softmax_e4m3(target, source, key_scale.data(), kv_rows, factor)
                : softmax_f16(target, source, key_scale.data(), kv_rows, factor);
      }
      const dnnl_status_t status =
          dnnl_sgemm('N', 'N', count, dim, kv_rows, 1.0F, numerators.f32().data(), kv_rows,
                     wide_values, dim, 0.0F, sums.f32().data(), dim);
      MINIACC_REQUIRE(status == dnnl_success, "attention_int8: dnnl_sgemm failed");
      for (std::int64_t row = 0; row < count; ++row) {
        float* target = output + (first + row) * out.stride(0) + head * in.head_dim;
        for (std::int64_t i = 0; i < in.head_dim; ++i) {
          target[i] = sums.f32()[static_cast<std::size_t>(row * dim + i)] *
                      inverse[static_cast<std::size_t>(row)] * v_scale[kv_head * dim + i];
        }
      }
    });
  }
}

}  // namespace miniacc::ops::cpu
