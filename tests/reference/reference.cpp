#include "reference/reference.h"

#include <cmath>
#include <cstring>
#include <numbers>

namespace miniacc::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t rows_of(const Floats& x, std::int64_t hidden) {
  return static_cast<std::int64_t>(x.size()) / hidden;
}

double sigmoid_times(double x) { return x / (1.0 + std::exp(-x)); }

}  // namespace

Doubles linear(const Floats& x, const Floats& w, const Floats& bias, std::int64_t rows,
               std::int64_t n, std::int64_t k) {
  Doubles out(at(rows * n));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      double sum = bias.empty() ? 0.0 : bias[at(c)];
      for (std::int64_t i = 0; i < k; ++i) {
        sum += static_cast<double>(x[at(r * k + i)]) * w[at(c * k + i)];
      }
      out[at(r * n + c)] = sum;
    }
  }
  return out;
}

Floats to_bf16(const Floats& values) {
  Floats out;
  for (const float value : values) {
    int exponent = 0;
    std::frexp(value, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 8, -133));
    out.push_back(static_cast<float>(std::nearbyint(value / unit) * unit));
  }
  return out;
}

Doubles rotate(const Floats& x, std::int64_t rows, std::int64_t k, std::int64_t group) {
  static constexpr double kBlock[4][4] = {
      {1, 1, 1, -1}, {1, 1, -1, 1}, {1, -1, 1, 1}, {-1, 1, 1, 1}};
  const auto entry = [&](std::int64_t a, std::int64_t b) {
    double product = 1.0 / std::sqrt(static_cast<double>(group));
    for (std::int64_t size = group; size > 1; size /= 4, a /= 4, b /= 4) {
      product *= kBlock[a % 4][b % 4];
    }
    return product;
  };
  Doubles out(at(rows * k));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < k; ++c) {
      double sum = 0.0;
      const std::int64_t first = c / group * group;
      for (std::int64_t i = 0; i < group; ++i) {
        sum += x[at(r * k + first + i)] * entry(i, c % group);
      }
      out[at(r * k + c)] = sum;
    }
  }
  return out;
}

Doubles rms_norm(const Floats& x, const Floats& weight, std::int64_t hidden, double eps) {
  Doubles out;
  for (std::int64_t r = 0; r < rows_of(x, hidden); ++r) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      sum += std::pow(static_cast<double>(x[at(r * hidden + i)]), 2);
    }
    for (std::int64_t i = 0; i < hidden; ++i) {
      out.push_back(x[at(r * hidden + i)] / std::sqrt(sum / static_cast<double>(hidden) + eps) *
                    (weight.empty() ? 1.0 : weight[at(i)]));
    }
  }
  return out;
}

Doubles modulated_rms_norm(const Floats& x, const Floats& weight, const Floats& shift,
                           const Floats& scale, const std::vector<std::int32_t>& index,
                           std::int64_t hidden, double eps) {
  Doubles out = rms_norm(x, weight, hidden, eps);
  for (std::int64_t r = 0; r < rows_of(x, hidden); ++r) {
    for (std::int64_t i = 0; i < hidden; ++i) {
      const std::size_t entry = at(index[at(r)] * hidden + i);
      double& value = out[at(r * hidden + i)];
      value = value * (1.0 + static_cast<double>(scale[entry])) + shift[entry];
    }
  }
  return out;
}

Doubles layer_norm(const Floats& x, const Floats& weight, const Floats& bias, std::int64_t hidden,
                   double eps) {
  Doubles out;
  for (std::int64_t r = 0; r < rows_of(x, hidden); ++r) {
    double mean = 0.0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      mean += x[at(r * hidden + i)] / static_cast<double>(hidden);
    }
    double variance = 0.0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      variance += std::pow(x[at(r * hidden + i)] - mean, 2) / static_cast<double>(hidden);
    }
    for (std::int64_t i = 0; i < hidden; ++i) {
      out.push_back((x[at(r * hidden + i)] - mean) / std::sqrt(variance + eps) * weight[at(i)] +
                    bias[at(i)]);
    }
  }
  return out;
}

Doubles silu(const Floats& x) {
  Doubles out;
  for (const float value : x) {
    out.push_back(sigmoid_times(value));
  }
  return out;
}

Doubles gelu_exact(const Floats& x) {
  Doubles out;
  for (const double value : x) {
    out.push_back(0.5 * value * std::erfc(-value / std::sqrt(2.0)));
  }
  return out;
}

Doubles gelu_tanh(const Floats& x) {
  const double root = std::sqrt(2.0 / std::acos(-1.0));
  Doubles out;
  for (const double value : x) {
    const double inner = root * (value + 0.044715 * value * value * value);
    out.push_back(0.5 * value * (1.0 + std::tanh(inner)));
  }
  return out;
}

Doubles silu_mul(const Floats& gate, const Floats& value) {
  Doubles out = silu(gate);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] *= value[i];
  }
  return out;
}

Doubles gated_add(const Floats& h, const Floats& x, const Floats& gate,
                  const std::vector<std::int32_t>& index, std::int64_t hidden) {
  Doubles out;
  for (std::int64_t r = 0; r < rows_of(x, hidden); ++r) {
    const std::int64_t row = index.empty() ? 0 : index[at(r)];
    for (std::int64_t i = 0; i < hidden; ++i) {
      out.push_back(h[at(r * hidden + i)] +
                    static_cast<double>(gate[at(row * hidden + i)]) * x[at(r * hidden + i)]);
    }
  }
  return out;
}

Doubles rope(const Floats& x, const Floats& cos, const Floats& sin, std::int64_t rows,
             std::int64_t heads, std::int64_t head_dim, std::int64_t n) {
  Doubles out(x.begin(), x.end());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t low = (r * heads + h) * head_dim + i;
        const double c = cos[at(r * n + i)];
        const double s = sin[at(r * n + i)];
        out[at(low)] = x[at(low)] * c - x[at(low + n)] * s;
        out[at(low + n)] = x[at(low + n)] * c + x[at(low)] * s;
      }
    }
  }
  return out;
}

Doubles attention(const Floats& q, const Floats& k, const Floats& v, const AttentionShape& shape,
                  double scale, bool causal) {
  const std::int64_t d = shape.head_dim;
  Doubles out(at(shape.q_rows * shape.heads * d), 0.0);
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    const std::int64_t kv = h / (shape.heads / shape.kv_heads);
    for (std::int64_t r = 0; r < shape.q_rows; ++r) {
      const std::int64_t keys = causal ? r + 1 : shape.kv_rows;
      Doubles weights(at(keys));
      double peak = -INFINITY;
      for (std::int64_t j = 0; j < keys; ++j) {
        double dot = 0.0;
        for (std::int64_t i = 0; i < d; ++i) {
          dot += static_cast<double>(q[at((r * shape.heads + h) * d + i)]) *
                 k[at((j * shape.kv_heads + kv) * d + i)];
        }
        weights[at(j)] = dot * scale;
        peak = std::max(peak, weights[at(j)]);
      }
      double sum = 0.0;
      for (double& weight : weights) {
        weight = std::exp(weight - peak);
        sum += weight;
      }
      for (std::int64_t j = 0; j < keys; ++j) {
        for (std::int64_t i = 0; i < d; ++i) {
          out[at((r * shape.heads + h) * d + i)] +=
              weights[at(j)] / sum * v[at((j * shape.kv_heads + kv) * d + i)];
        }
      }
    }
  }
  return out;
}

Doubles conv1d(const Floats& x, const Floats& weight, const Floats& bias, const ConvShape& s) {
  const std::int64_t length =
      (s.length + 2 * s.padding - s.dilation * (s.kernel - 1) - 1) / s.stride + 1;
  Doubles out;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t o = 0; o < s.out; ++o) {
      for (std::int64_t j = 0; j < length; ++j) {
        double sum = bias.empty() ? 0.0 : bias[at(o)];
        for (std::int64_t i = 0; i < s.in; ++i) {
          for (std::int64_t t = 0; t < s.kernel; ++t) {
            const std::int64_t sample = j * s.stride + t * s.dilation - s.padding;
            if (sample >= 0 && sample < s.length) {
              sum += static_cast<double>(weight[at((o * s.in + i) * s.kernel + t)]) *
                     x[at((b * s.in + i) * s.length + sample)];
            }
          }
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

Doubles conv3d(const Doubles& x, const Floats& weight, const Floats& bias, const Conv3dShape& s) {
  // The padded input in full, [batch, past + frames, height, width, in].
  const std::int64_t frames = s.past_frames + s.frames;
  const std::int64_t height = s.height + s.pad_before + s.pad_after;
  const std::int64_t width = s.width + s.pad_before + s.pad_after;
  const auto mirror = [](std::int64_t i, std::int64_t size) {
    i = std::abs(i);
    return i < size ? i : 2 * size - 2 - i;
  };
  Doubles padded;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t t = 0; t < frames; ++t) {
      for (std::int64_t h = 0; h < height; ++h) {
        for (std::int64_t w = 0; w < width; ++w) {
          const std::int64_t row = mirror(h - s.pad_before, s.height);
          const std::int64_t column = mirror(w - s.pad_before, s.width);
          for (std::int64_t i = 0; i < s.in; ++i) {
            const std::int64_t frame = b * s.frames + t - s.past_frames;
            padded.push_back(t < s.past_frames
                                 ? 0.0
                                 : x[at(((frame * s.height + row) * s.width + column) * s.in + i)]);
          }
        }
      }
    }
  }
  const std::int64_t out_frames = (frames - s.kernel_t) / s.stride_t + 1;
  const std::int64_t out_height = (height - s.kernel_hw) / s.stride_hw + 1;
  const std::int64_t out_width = (width - s.kernel_hw) / s.stride_hw + 1;
  Doubles out;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t t = 0; t < out_frames; ++t) {
      for (std::int64_t h = 0; h < out_height; ++h) {
        for (std::int64_t w = 0; w < out_width; ++w) {
          for (std::int64_t o = 0; o < s.out; ++o) {
            double sum = bias.empty() ? 0.0 : bias[at(o)];
            for (std::int64_t kt = 0; kt < s.kernel_t; ++kt) {
              for (std::int64_t kh = 0; kh < s.kernel_hw; ++kh) {
                for (std::int64_t kw = 0; kw < s.kernel_hw; ++kw) {
                  const std::int64_t frame = b * frames + t * s.stride_t + kt;
                  const std::int64_t row = h * s.stride_hw + kh;
                  const std::int64_t column = w * s.stride_hw + kw;
                  const std::int64_t pixel = ((frame * height + row) * width + column) * s.in;
                  for (std::int64_t i = 0; i < s.in; ++i) {
                    const std::int64_t tap =
                        (((o * s.in + i) * s.kernel_t + kt) * s.kernel_hw + kh) * s.kernel_hw + kw;
                    sum += padded[at(pixel + i)] * static_cast<double>(weight[at(tap)]);
                  }
                }
              }
            }
            out.push_back(sum);
          }
        }
      }
    }
  }
  return out;
}

Doubles group_norm(const Floats& x, const Floats& weight, const Floats& bias, std::int64_t frames,
                   std::int64_t positions, std::int64_t channels, std::int64_t num_groups,
                   double eps) {
  const std::int64_t size = channels / num_groups;
  Doubles out(x.size());
  for (std::int64_t f = 0; f < frames; ++f) {
    for (std::int64_t g = 0; g < num_groups; ++g) {
      const auto index = [&](std::int64_t p, std::int64_t c) {
        return at((f * positions + p) * channels + g * size + c);
      };
      double mean = 0.0;
      double variance = 0.0;
      const auto count = static_cast<double>(positions * size);
      for (std::int64_t p = 0; p < positions; ++p) {
        for (std::int64_t c = 0; c < size; ++c) {
          mean += static_cast<double>(x[index(p, c)]) / count;
        }
      }
      for (std::int64_t p = 0; p < positions; ++p) {
        for (std::int64_t c = 0; c < size; ++c) {
          const double distance = static_cast<double>(x[index(p, c)]) - mean;
          variance += distance * distance / count;
        }
      }
      for (std::int64_t p = 0; p < positions; ++p) {
        for (std::int64_t c = 0; c < size; ++c) {
          out[index(p, c)] = (static_cast<double>(x[index(p, c)]) - mean) /
                                 std::sqrt(variance + eps) * weight[at(g * size + c)] +
                             bias[at(g * size + c)];
        }
      }
    }
  }
  return out;
}

Doubles snake(const Floats& x, const Floats& alpha, std::int64_t batch, std::int64_t channels,
              std::int64_t length) {
  Doubles out;
  for (std::int64_t row = 0; row < batch * channels; ++row) {
    const double a = alpha[at(row % channels)];
    for (std::int64_t i = 0; i < length; ++i) {
      const double value = x[at(row * length + i)];
      out.push_back(value + std::sin(a * value) * std::sin(a * value) / (a + 1e-9));
    }
  }
  return out;
}

Doubles conv_transpose1d(const Floats& x, const Floats& weight, const Floats& bias,
                         const ConvShape& s) {
  const std::int64_t length = (s.length - 1) * s.stride - 2 * s.padding + s.kernel;
  Doubles out(at(s.batch * s.out * length));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t o = 0; o < s.out; ++o) {
      double* row = out.data() + (b * s.out + o) * length;
      for (std::int64_t j = 0; j < length; ++j) {
        row[j] = bias.empty() ? 0.0 : bias[at(o)];
      }
      for (std::int64_t i = 0; i < s.in; ++i) {
        for (std::int64_t n = 0; n < s.length; ++n) {
          for (std::int64_t t = 0; t < s.kernel; ++t) {
            const std::int64_t j = n * s.stride + t - s.padding;
            if (j >= 0 && j < length) {
              row[j] += static_cast<double>(weight[at((i * s.out + o) * s.kernel + t)]) *
                        x[at((b * s.in + i) * s.length + n)];
            }
          }
        }
      }
    }
  }
  return out;
}

Doubles antialiased_snake_beta(const Floats& x, const Floats& alpha, const Floats& beta,
                               const Floats& up, const Floats& down, std::int64_t batch,
                               std::int64_t channels, std::int64_t length) {
  Doubles out;
  for (std::int64_t row = 0; row < batch * channels; ++row) {
    const float* source = x.data() + row * length;
    const std::int64_t padded = length + 10;
    Doubles scattered(at((padded - 1) * 2 + 12), 0.0);
    for (std::int64_t i = 0; i < padded; ++i) {
      const std::int64_t from = std::min(std::max<std::int64_t>(i - 5, 0), length - 1);
      for (std::int64_t t = 0; t < 12; ++t) {
        scattered[at(2 * i + t)] += 2.0 * up[at(t)] * source[from];
      }
    }
    const double a = std::exp(static_cast<double>(alpha[at(row % channels)]));
    const double b = std::exp(static_cast<double>(beta[at(row % channels)])) + 1e-9;
    Doubles wide;
    for (std::size_t i = 15; i + 15 < scattered.size(); ++i) {
      wide.push_back(scattered[i] + std::pow(std::sin(a * scattered[i]), 2) / b);
    }
    Doubles edged(5, wide.front());
    edged.insert(edged.end(), wide.begin(), wide.end());
    edged.insert(edged.end(), 6, wide.back());
    for (std::int64_t q = 0; q < length; ++q) {
      double sum = 0.0;
      for (std::int64_t t = 0; t < 12; ++t) {
        sum += down[at(t)] * edged[at(2 * q + t)];
      }
      out.push_back(sum);
    }
  }
  return out;
}

Doubles antialiasing_taps() {
  const auto bessel = [](double x) {  // I0 by its power series
    double term = 1.0;
    double sum = 1.0;
    for (int k = 1; k < 40; ++k) {
      term *= (x / 2.0 / k) * (x / 2.0 / k);
      sum += term;
    }
    return sum;
  };
  const double attenuation = 2.285 * 5.0 * std::numbers::pi * 1.2 + 7.95;
  const double beta = 0.1102 * (attenuation - 8.7);
  Doubles taps;
  double total = 0.0;
  for (int n = 0; n < 12; ++n) {
    const double window =
        bessel(beta * std::sqrt(1.0 - std::pow(2.0 * n / 11.0 - 1.0, 2))) / bessel(beta);
    const double angle = std::numbers::pi * 0.5 * (n - 5.5);
    taps.push_back(0.5 * window * std::sin(angle) / angle);
    total += taps.back();
  }
  for (double& tap : taps) {
    tap /= total;
  }
  return taps;
}

}  // namespace miniacc::reference
