#include "core/linear_algebra.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace miniacc {
namespace {

constexpr int kMaxSweeps = 60;
constexpr double kOrthogonal = 1e-15;      // of two columns, relative to their lengths
constexpr std::int64_t kOversampling = 8;  // extra directions of the subspace iteration
constexpr int kPowerSteps = 4;

std::uint64_t mix(std::uint64_t x) {
  // splitmix64 (Steele, Lea & Flood 2014)
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Makes the columns orthonormal (modified Gram-Schmidt, twice); dependent ones become zero.
void orthonormalise(MatrixF64& matrix) {
  for (std::int64_t j = 0; j < matrix.columns; ++j) {
    double before = 0.0;
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      before += matrix.at(r, j) * matrix.at(r, j);
    }
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t i = 0; i < j; ++i) {
        double dot = 0.0;
        for (std::int64_t r = 0; r < matrix.rows; ++r) {
          dot += matrix.at(r, i) * matrix.at(r, j);
        }
        for (std::int64_t r = 0; r < matrix.rows; ++r) {
          matrix.at(r, j) -= dot * matrix.at(r, i);
        }
      }
    }
    double squares = 0.0;
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      squares += matrix.at(r, j) * matrix.at(r, j);
    }
    const double scale = squares > 1e-28 * before && squares > 0.0 ? 1.0 / std::sqrt(squares) : 0.0;
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      matrix.at(r, j) *= scale;
    }
  }
}

}  // namespace

MatrixF64::MatrixF64(std::int64_t num_rows, std::int64_t num_columns)
    : rows(num_rows),
      columns(num_columns),
      values(static_cast<std::size_t>(num_rows * num_columns)) {}

MatrixF64 to_f64(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  MINIACC_REQUIRE(static_cast<std::int64_t>(values.size()) == rows * columns,
                  "to_f64: size of the matrix");
  MatrixF64 matrix(rows, columns);
  std::copy(values.begin(), values.end(), matrix.values.begin());
  return matrix;
}

std::vector<float> to_f32(const MatrixF64& matrix) {
  std::vector<float> values(matrix.values.size());
  std::transform(matrix.values.begin(), matrix.values.end(), values.begin(),
                 [](double value) { return static_cast<float>(value); });
  return values;
}

MatrixF64 transposed(const MatrixF64& matrix) {
  MatrixF64 out(matrix.columns, matrix.rows);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      out.at(c, r) = matrix.at(r, c);
    }
  }
  return out;
}

MatrixF64 product(const MatrixF64& a, const MatrixF64& b) {
  MINIACC_REQUIRE(a.columns == b.rows, "product: inner dimensions");
  MatrixF64 out(a.rows, b.columns);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    double* row = out.values.data() + r * b.columns;
    for (std::int64_t k = 0; k < a.columns; ++k) {
      const double factor = a.at(r, k);
      const double* other = b.values.data() + k * b.columns;
      for (std::int64_t c = 0; c < b.columns; ++c) {
        row[c] += factor * other[c];
      }
    }
  }
  return out;
}

double norm(const MatrixF64& matrix) {
  return std::sqrt(
      std::inner_product(matrix.values.begin(), matrix.values.end(), matrix.values.begin(), 0.0));
}

MatrixF64 difference(const MatrixF64& a, const MatrixF64& b) {
  MINIACC_REQUIRE(a.rows == b.rows && a.columns == b.columns, "difference: shapes");
  MatrixF64 out = a;
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] -= b.values[i];
  }
  return out;
}

Svd svd(const MatrixF64& matrix) {
  MINIACC_REQUIRE(matrix.rows >= matrix.columns, "svd: at least as many rows as columns");
  const std::int64_t n = matrix.columns;
  // Rows of these are the columns that are rotated against each other.
  MatrixF64 a = transposed(matrix);
  MatrixF64 v(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    v.at(i, i) = 1.0;
  }
  const auto dot = [](const MatrixF64& m, std::int64_t i, std::int64_t j) {
    const double* x = m.values.data() + i * m.columns;
    const double* y = m.values.data() + j * m.columns;
    return std::inner_product(x, x + m.columns, y, 0.0);
  };
  const auto rotate = [](MatrixF64& m, std::int64_t i, std::int64_t j, double c, double s) {
    double* x = m.values.data() + i * m.columns;
    double* y = m.values.data() + j * m.columns;
    for (std::int64_t k = 0; k < m.columns; ++k) {
      const double old = x[k];
      x[k] = c * old - s * y[k];
      y[k] = s * old + c * y[k];
    }
  };
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool rotated = false;
    for (std::int64_t i = 0; i + 1 < n; ++i) {
      for (std::int64_t j = i + 1; j < n; ++j) {
        const double alpha = dot(a, i, i);
        const double beta = dot(a, j, j);
        const double gamma = dot(a, i, j);
        if (std::fabs(gamma) <= kOrthogonal * std::sqrt(alpha * beta)) {
          continue;
        }
        rotated = true;
        const double zeta = (beta - alpha) / (2.0 * gamma);
        const double t =
            (zeta >= 0.0 ? 1.0 : -1.0) / (std::fabs(zeta) + std::sqrt(1.0 + zeta * zeta));
        const double c = 1.0 / std::sqrt(1.0 + t * t);
        rotate(a, i, j, c, c * t);
        rotate(v, i, j, c, c * t);
      }
    }
    if (!rotated) {
      break;
    }
  }
  std::vector<double> lengths(static_cast<std::size_t>(n));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    lengths[static_cast<std::size_t>(i)] = std::sqrt(dot(a, i, i));
    order[static_cast<std::size_t>(i)] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t x, std::int64_t y) {
    return lengths[static_cast<std::size_t>(x)] > lengths[static_cast<std::size_t>(y)];
  });
  Svd out{MatrixF64(matrix.rows, n), {}, MatrixF64(n, n)};
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t from = order[static_cast<std::size_t>(k)];
    const double length = lengths[static_cast<std::size_t>(from)];
    out.s.push_back(length);
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      out.u.at(r, k) = length > 0.0 ? a.at(from, r) / length : 0.0;
    }
    for (std::int64_t r = 0; r < n; ++r) {
      out.v.at(r, k) = v.at(from, r);
    }
  }
  return out;
}

Svd leading_svd(const MatrixF64& matrix, std::int64_t count) {
  const std::int64_t smaller = std::min(matrix.rows, matrix.columns);
  const std::int64_t kept = std::min(count, smaller);
  const std::int64_t width = std::min(kept + kOversampling, smaller);
  const MatrixF64 flipped = transposed(matrix);
  MatrixF64 basis(matrix.columns, width);
  for (std::size_t i = 0; i < basis.values.size(); ++i) {
    basis.values[i] = static_cast<double>(mix(i) >> 11) * 0x1.0p-53 - 0.5;
  }
  orthonormalise(basis);
  for (int step = 0; step < kPowerSteps; ++step) {
    MatrixF64 image = product(matrix, basis);
    orthonormalise(image);
    basis = product(flipped, image);
    orthonormalise(basis);
  }
  const Svd small = svd(product(matrix, basis));  // [rows, width]
  const MatrixF64 right = product(basis, small.v);
  Svd out{MatrixF64(matrix.rows, kept), {}, MatrixF64(matrix.columns, kept)};
  out.s.assign(small.s.begin(), small.s.begin() + kept);
  for (std::int64_t k = 0; k < kept; ++k) {
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      out.u.at(r, k) = small.u.at(r, k);
    }
    for (std::int64_t r = 0; r < matrix.columns; ++r) {
      out.v.at(r, k) = right.at(r, k);
    }
  }
  return out;
}

MatrixF64 pseudo_inverse(const MatrixF64& matrix, double cutoff) {
  Svd parts = svd(matrix);
  const double smallest = parts.s.empty() ? 0.0 : cutoff * parts.s.front();
  for (std::int64_t k = 0; k < matrix.columns; ++k) {
    const double s = parts.s[static_cast<std::size_t>(k)];
    for (std::int64_t r = 0; r < matrix.columns; ++r) {
      parts.v.at(r, k) *= s > smallest ? 1.0 / s : 0.0;
    }
  }
  return product(parts.v, transposed(parts.u));
}

}  // namespace miniacc
