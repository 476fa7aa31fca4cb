#include "io/dequantize.h"

#include <array>
#include <cstring>

#include "core/error.h"
#include "core/float_convert.h"
#include "io/block_scales.h"

namespace miniacc {
namespace {

template <typename T>
T read(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

float read_f16(const std::byte* bytes) { return f16_to_float(read<std::uint16_t>(bytes)); }

int byte_at(const std::byte* bytes, int index) { return std::to_integer<int>(bytes[index]); }
int low_nibble(std::byte value) { return std::to_integer<int>(value) & 0xF; }
int high_nibble(std::byte value) { return std::to_integer<int>(value) >> 4; }

template <typename T, typename Convert>
void convert_each(const std::byte* bytes, std::int64_t count, float* out, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = convert(read<T>(bytes + static_cast<std::size_t>(i) * sizeof(T)));
  }
}

/// All 256 values of an 8-bit float format.
using Table = std::array<float, 256>;
Table make_table(float (*to_float)(std::uint8_t)) {
  Table table{};
  for (std::size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = to_float(static_cast<std::uint8_t>(bits));
  }
  return table;
}

// The products below are exact in float (f16 scale times 6-bit scale times at most 6-bit value is
// at most 24 bits), so fused and separate multiply-add give one result.

/// 32 values: f16 scale, 32 signed bytes.
void block_q8_0(const std::byte* block, float* out) {
  const float scale = read_f16(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<std::int8_t>(byte_at(block, 2 + i))) * scale;
  }
}

/// 32 values: f16 scale, 16 bytes; low nibbles are values 0..15, high nibbles 16..31, offset 8.
void block_q4_0(const std::byte* block, float* out) {
  const float scale = read_f16(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(low_nibble(block[2 + i]) - 8) * scale;
    out[i + 16] = static_cast<float>(high_nibble(block[2 + i]) - 8) * scale;
  }
}

/// 256 values: f16 scale of scales, f16 scale of minima, 12 bytes of packed 6-bit scales and minima
/// (8 each, one pair per 32 values), 128 bytes of nibbles: each 32 bytes hold 64 values, low
/// nibbles first.
void block_q4_k(const std::byte* block, float* out) {
  const float scale = read_f16(block);
  const float min_scale = read_f16(block + 2);
  const std::byte* nibbles = block + 16;
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMin packed = unpack_scale_and_min(block + 4, part);
    const float step = scale * static_cast<float>(packed.scale);
    const float minimum = min_scale * static_cast<float>(packed.minimum);
    for (int i = 0; i < 32; ++i) {
      const std::byte both = nibbles[(part / 2) * 32 + i];
      const int value = part % 2 == 0 ? low_nibble(both) : high_nibble(both);
      out[part * 32 + i] = step * static_cast<float>(value) - minimum;
    }
  }
}

/// As q4_k with a fifth bit: 32 bytes between scales and nibbles, whose bit p belongs to part p.
void block_q5_k(const std::byte* block, float* out) {
  const float scale = read_f16(block);
  const float min_scale = read_f16(block + 2);
  const std::byte* high_bits = block + 16;
  const std::byte* nibbles = block + 48;
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMin packed = unpack_scale_and_min(block + 4, part);
    const float step = scale * static_cast<float>(packed.scale);
    const float minimum = min_scale * static_cast<float>(packed.minimum);
    for (int i = 0; i < 32; ++i) {
      const std::byte both = nibbles[(part / 2) * 32 + i];
      const int low = part % 2 == 0 ? low_nibble(both) : high_nibble(both);
      const int value = low + (((byte_at(high_bits, i) >> part) & 1) << 4);
      out[part * 32 + i] = step * static_cast<float>(value) - minimum;
    }
  }
}

/// 256 values: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales (one per 16
/// values), f16 scale of scales. Each half of 128 values is 4 quarters of 32: quarters 0 and 1 use
/// the low nibbles of 64 bytes, 2 and 3 the high ones; quarter q has bits 2q of the 32 pair bytes.
void block_q6_k(const std::byte* block, float* out) {
  const float scale = read_f16(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* nibbles = block + half * 64;
    const std::byte* pairs = block + 128 + half * 32;
    const std::byte* scales = block + 192 + half * 8;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const std::byte both = nibbles[(quarter % 2) * 32 + i];
        const int low = quarter < 2 ? low_nibble(both) : high_nibble(both);
        const int high = (byte_at(pairs, i) >> (2 * quarter)) & 3;
        const auto part = static_cast<std::int8_t>(byte_at(scales, quarter * 2 + i / 16));
        out[half * 128 + quarter * 32 + i] =
            scale * static_cast<float>(part) * static_cast<float>(low + (high << 4) - 32);
      }
    }
  }
}

void convert_blocks(DType dtype, const std::byte* bytes, std::int64_t count, float* out,
                    void (*convert)(const std::byte*, float*)) {
  const std::int64_t elements = block_elements(dtype);
  const std::size_t size = block_bytes(dtype);
  for (std::int64_t block = 0; block < count / elements; ++block) {
    convert(bytes + static_cast<std::size_t>(block) * size, out + block * elements);
  }
}

template <typename T>
float by_value(T value) {
  return static_cast<float>(value);
}

}  // namespace

void dequantize(DType dtype, std::span<const std::byte> bytes, std::int64_t count, float* out) {
  MINIACC_REQUIRE(storage_bytes(dtype, count) == bytes.size(), "dequantize: size of the bytes");
  static const Table e4m3 = make_table(f8e4m3_to_float);
  static const Table e5m2 = make_table(f8e5m2_to_float);
  const std::byte* data = bytes.data();
  switch (dtype) {
    case DType::kF64:
      return convert_each<double>(data, count, out, by_value<double>);
    case DType::kF32:
      if (count > 0) {
        std::memcpy(out, data, bytes.size());
      }
      return;
    case DType::kF16:
      return convert_each<std::uint16_t>(data, count, out, f16_to_float);
    case DType::kBF16:
      return convert_each<std::uint16_t>(data, count, out,
                                         [](std::uint16_t bits) { return bf16_to_float(bits); });
    case DType::kF8E4M3:
      return convert_each<std::uint8_t>(data, count, out,
                                        [](std::uint8_t bits) { return e4m3[bits]; });
    case DType::kF8E5M2:
      return convert_each<std::uint8_t>(data, count, out,
                                        [](std::uint8_t bits) { return e5m2[bits]; });
    case DType::kI64:
      return convert_each<std::int64_t>(data, count, out, by_value<std::int64_t>);
    case DType::kI32:
      return convert_each<std::int32_t>(data, count, out, by_value<std::int32_t>);
    case DType::kI16:
      return convert_each<std::int16_t>(data, count, out, by_value<std::int16_t>);
    case DType::kI8:
      return convert_each<std::int8_t>(data, count, out, by_value<std::int8_t>);
    case DType::kU8:
      return convert_each<std::uint8_t>(data, count, out, by_value<std::uint8_t>);
    case DType::kBool:
      return convert_each<std::uint8_t>(
          data, count, out, [](std::uint8_t value) { return value != 0 ? 1.0F : 0.0F; });
    case DType::kQ4_0:
      return convert_blocks(dtype, data, count, out, block_q4_0);
    case DType::kQ8_0:
      return convert_blocks(dtype, data, count, out, block_q8_0);
    case DType::kQ4_K:
      return convert_blocks(dtype, data, count, out, block_q4_k);
    case DType::kQ5_K:
      return convert_blocks(dtype, data, count, out, block_q5_k);
    case DType::kQ6_K:
      return convert_blocks(dtype, data, count, out, block_q6_k);
  }
  MINIACC_REQUIRE(false, "dequantize: unknown dtype");
}

}  // namespace miniacc
