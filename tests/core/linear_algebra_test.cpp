#include "core/linear_algebra.h"

#include <gtest/gtest.h>

#include <cmath>

namespace miniacc {
namespace {

/// Values without structure, repeatable.
MatrixF64 matrix(std::int64_t rows, std::int64_t columns) {
  MatrixF64 out(rows, columns);
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] = std::sin(static_cast<double>(i * i) * 0.37 + 1.0);
  }
  return out;
}

MatrixF64 rebuilt(const Svd& parts) {
  MatrixF64 scaled = parts.u;
  for (std::int64_t r = 0; r < scaled.rows; ++r) {
    for (std::int64_t k = 0; k < scaled.columns; ++k) {
      scaled.at(r, k) *= parts.s[static_cast<std::size_t>(k)];
    }
  }
  return product(scaled, transposed(parts.v));
}

void expect_orthonormal(const MatrixF64& m) {
  const MatrixF64 gram = product(transposed(m), m);
  for (std::int64_t i = 0; i < gram.rows; ++i) {
    for (std::int64_t j = 0; j < gram.columns; ++j) {
      EXPECT_NEAR(gram.at(i, j), i == j ? 1.0 : 0.0, 1e-12);
    }
  }
}

TEST(LinearAlgebra, SvdRebuildsTheMatrix) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {7, 1}, {5, 5}, {40, 9}}) {
    const MatrixF64 a = matrix(rows, columns);
    const Svd parts = svd(a);
    EXPECT_LT(norm(difference(rebuilt(parts), a)), 1e-12 * norm(a));
    expect_orthonormal(parts.u);
    expect_orthonormal(parts.v);
    for (std::size_t k = 1; k < parts.s.size(); ++k) {
      EXPECT_GE(parts.s[k - 1], parts.s[k]);
    }
  }
}

TEST(LinearAlgebra, SvdOfAKnownMatrix) {
  MatrixF64 a(2, 2);
  a.values = {3.0, 0.0, 4.0, 5.0};
  const Svd parts = svd(a);  // singular values sqrt(45), sqrt(5)
  EXPECT_NEAR(parts.s[0], std::sqrt(45.0), 1e-14);
  EXPECT_NEAR(parts.s[1], std::sqrt(5.0), 1e-14);
}

TEST(LinearAlgebra, SvdOfDeficientMatrices) {
  const MatrixF64 zero(4, 3);
  for (const double s : svd(zero).s) {
    EXPECT_EQ(s, 0.0);
  }
  MatrixF64 twice(6, 2);
  for (std::int64_t r = 0; r < 6; ++r) {
    twice.at(r, 0) = static_cast<double>(r);
    twice.at(r, 1) = 2.0 * static_cast<double>(r);
  }
  EXPECT_NEAR(svd(twice).s[1], 0.0, 1e-13);
}

TEST(LinearAlgebra, LeadingSvdAgreesOnASmoothCurve) {
  // The spectrum of a smooth curve falls fast, as that of a time embedding does.
  MatrixF64 curve(200, 30);
  for (std::int64_t g = 0; g < 200; ++g) {
    for (std::int64_t c = 0; c < 30; ++c) {
      curve.at(g, c) =
          std::cos(static_cast<double>(g) / 199.0 * (0.1 + 0.1 * static_cast<double>(c)));
    }
  }
  const Svd all = svd(curve);
  const Svd leading = leading_svd(curve, 6);
  ASSERT_EQ(leading.s.size(), 6U);
  for (std::size_t k = 0; k < 6; ++k) {
    EXPECT_NEAR(leading.s[k], all.s[k], 1e-10 * all.s[0]);
  }
  expect_orthonormal(leading.v);
  // Wide matrices too.
  EXPECT_NEAR(leading_svd(transposed(curve), 3).s[2], all.s[2], 1e-10 * all.s[0]);
}

TEST(LinearAlgebra, PseudoInverseSolvesLeastSquares) {
  const MatrixF64 a = matrix(20, 4);
  const MatrixF64 inverse = pseudo_inverse(a);
  const MatrixF64 one = product(inverse, a);
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(one.at(i, j), i == j ? 1.0 : 0.0, 1e-11);
    }
  }
  // The residual of a least-squares fit is orthogonal to the columns.
  const MatrixF64 y = matrix(20, 1);
  const MatrixF64 left = difference(y, product(a, product(inverse, y)));
  EXPECT_LT(norm(product(transposed(a), left)), 1e-11);
}

}  // namespace
}  // namespace miniacc
