#pragma once

/// CUDA's small vectors.

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)  // NOLINT
      : x(x_size), y(y_size), z(z_size) {}
};

#define MINIACC_EMULATED_VECTORS(T, name, align2, align4)            \
  struct name##2 {                                                   \
    T x, y;                                                          \
  }                                                                  \
  __attribute__((aligned(align2)));                                  \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct name##4 {                                                   \
    T x, y, z, w;                                                    \
  }                                                                  \
  __attribute__((aligned(align4)));                                  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

MINIACC_EMULATED_VECTORS(signed char, char, 2, 4)
MINIACC_EMULATED_VECTORS(unsigned char, uchar, 2, 4)
MINIACC_EMULATED_VECTORS(short, short, 4, 8)
MINIACC_EMULATED_VECTORS(unsigned short, ushort, 4, 8)
MINIACC_EMULATED_VECTORS(int, int, 8, 16)
MINIACC_EMULATED_VECTORS(unsigned, uint, 8, 16)
MINIACC_EMULATED_VECTORS(long long, longlong, 16, 16)
MINIACC_EMULATED_VECTORS(float, float, 8, 16)
MINIACC_EMULATED_VECTORS(double, double, 16, 16)
#undef MINIACC_EMULATED_VECTORS
