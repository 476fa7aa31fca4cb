#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace miniacc {

/// A small dense matrix in f64, row-major. For fits of a few hundred columns at most.
struct MatrixF64 {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;

  MatrixF64() = default;
  MatrixF64(std::int64_t num_rows, std::int64_t num_columns);
  [[nodiscard]] double& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

[[nodiscard]] MatrixF64 to_f64(std::span<const float> values, std::int64_t rows,
                               std::int64_t columns);
[[nodiscard]] std::vector<float> to_f32(const MatrixF64& matrix);
[[nodiscard]] MatrixF64 transposed(const MatrixF64& matrix);
[[nodiscard]] MatrixF64 product(const MatrixF64& a, const MatrixF64& b);
/// Frobenius norm.
[[nodiscard]] double norm(const MatrixF64& matrix);
/// a - b.
[[nodiscard]] MatrixF64 difference(const MatrixF64& a, const MatrixF64& b);

/// a = u · diag(s) · vᵀ with s falling; u [rows, k] and v [columns, k] have orthonormal columns.
struct Svd {
  MatrixF64 u;
  std::vector<double> s;
  MatrixF64 v;
};
/// All singular values, by one-sided Jacobi rotations; needs rows >= columns. Columns of u that
/// belong to a singular value of zero are zero. Source: Hestenes 1958; Golub & Van Loan, §8.6.3.
[[nodiscard]] Svd svd(const MatrixF64& matrix);
/// The `count` largest ones of a matrix of any shape, by subspace iteration with oversampling
/// (Halko, Martinsson & Tropp 2011, algorithm 4.4). Exact to rounding where the spectrum falls
/// fast, as that of a smooth curve does. Deterministic.
[[nodiscard]] Svd leading_svd(const MatrixF64& matrix, std::int64_t count);
/// Moore-Penrose inverse; singular values below cutoff times the largest count as zero. Needs
/// rows >= columns.
[[nodiscard]] MatrixF64 pseudo_inverse(const MatrixF64& matrix, double cutoff = 1e-12);

}  // namespace miniacc
