#include "emulated/ptx.h"

#include "emulated/float_bits.h"

namespace cuda_emulation {
namespace {

constexpr unsigned kAll = 0xFFFFFFFF;

struct Operands {
  unsigned a[4];
  unsigned b[2];
};

/// Value `index` of a register that holds values of kBits bits, lowest first.
template <int kBits>
unsigned part(unsigned word, unsigned index) {
  return word >> (index * kBits) & ((1U << kBits) - 1);
}

// The element that lane and position hold, by the formulae of the PTX ISA. With values of kBits
// bits a register holds n = 32 / kBits of them; A is 16 x 4n·2, B 4n·2 x 8.

/// A[row][column] of the warp's fragments.
template <int kBits>
unsigned element_a(const LaneInputs<Operands>& inputs, unsigned row, unsigned column) {
  constexpr unsigned kPerWord = 32 / kBits;
  constexpr unsigned kHalf = 4 * kPerWord;
  const unsigned lane = row % 8 * 4 + column % kHalf / kPerWord;
  const unsigned word = row / 8 + 2 * (column / kHalf);
  return part<kBits>(inputs[lane]->a[word], column % kPerWord);
}

/// B[row][column].
template <int kBits>
unsigned element_b(const LaneInputs<Operands>& inputs, unsigned row, unsigned column) {
  constexpr unsigned kPerWord = 32 / kBits;
  constexpr unsigned kHalf = 4 * kPerWord;
  const unsigned lane = column * 4 + row % kHalf / kPerWord;
  return part<kBits>(inputs[lane]->b[row / kHalf], row % kPerWord);
}

/// d[i] += sum over k of value(A)·value(B), summed as Sum.
template <int kBits, typename Sum, typename T, typename Value>
void multiply(const char* name, T (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
              const Value& value, const std::source_location& where) {
  struct Result {
    Sum sums[4];
  };
  const Operands operands{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const unsigned lane = this_thread->lane;
  const Result result = warp_collective<Result>(
      name, kAll, operands,
      [&](const LaneInputs<Operands>& inputs) {
        Result out{};
        for (unsigned i = 0; i < 32; ++i) {
          if (inputs[i] == nullptr) {
            stop_kernel("mma needs all 32 lanes", where);
          }
        }
        for (unsigned i = 0; i < 4; ++i) {
          const unsigned row = lane / 4 + (i < 2 ? 0 : 8);
          const unsigned column = lane % 4 * 2 + i % 2;
          for (unsigned k = 0; k < 8 * (32 / kBits); ++k) {
            out.sums[i] += static_cast<Sum>(value(element_a<kBits>(inputs, row, k))) *
                           static_cast<Sum>(value(element_b<kBits>(inputs, k, column)));
          }
        }
        return out;
      },
      where);
  for (unsigned i = 0; i < 4; ++i) {
    d[i] = static_cast<T>(static_cast<Sum>(d[i]) + result.sums[i]);
  }
}

}  // namespace

void mma_16bit(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bool bf16,
               const std::source_location& where) {
  const auto value = [bf16](unsigned bits) {
    return bf16 ? bf16_value(static_cast<std::uint16_t>(bits))
                : half_value(static_cast<std::uint16_t>(bits));
  };
  multiply<16, double>(bf16 ? "mma bf16" : "mma f16", d, a, b, value, where);
}

void mma_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
            const std::source_location& where) {
  const auto value = [](unsigned bits) { return static_cast<std::int8_t>(bits); };
  multiply<8, std::int64_t>("mma s8", d, a, b, value, where);
}

void mma_e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
              const std::source_location& where) {
  if (compute_capability() < 89) {
    stop_kernel("mma e4m3 needs compute capability 8.9", where);
  }
  const auto value = [](unsigned bits) { return e4m3_value(static_cast<std::uint8_t>(bits)); };
  multiply<8, double>("mma e4m3", d, a, b, value, where);
}

void ldmatrix(unsigned* d, int num, const void* row, bool transposed,
              const std::source_location& where) {
  struct Result {
    unsigned words[4];
  };
  const unsigned lane = this_thread->lane;
  const Result result = warp_collective<Result>(
      "ldmatrix", kAll, row,
      [&](const LaneInputs<const void*>& inputs) {
        Result out{};
        for (unsigned matrix = 0; matrix < static_cast<unsigned>(num); ++matrix) {
          for (unsigned half = 0; half < 2; ++half) {
            const unsigned along = lane % 4 * 2 + half;
            const unsigned in_row = transposed ? along : lane / 4;
            const unsigned in_column = transposed ? lane / 4 : along;
            const void* const* address = inputs[matrix * 8 + in_row];
            if (address == nullptr || reinterpret_cast<std::uintptr_t>(*address) % 16 != 0 ||
                !is_shared_memory(*address, 16)) {
              stop_kernel("ldmatrix needs a 16-byte aligned row of shared memory of each lane",
                          where);
            }
            std::uint16_t value = 0;
            std::memcpy(&value, static_cast<const std::byte*>(*address) + 2 * in_column, 2);
            out.words[matrix] |= static_cast<unsigned>(value) << (16 * half);
          }
        }
        return out;
      },
      where);
  std::copy_n(result.words, num, d);
}

void copy_later(void* shared, const void* global, unsigned bytes,
                const std::source_location& where) {
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    stop_kernel("cp.async of 16 bytes needs 16-byte aligned addresses", where);
  }
  if (!is_shared_memory(shared, 16) || is_shared_memory(global, 16)) {
    stop_kernel("cp.async copies from global to shared memory", where);
  }
  if (bytes > 16) {
    stop_kernel("cp.async reads at most 16 bytes", where);
  }
  this_thread->open_copies.push_back({shared, global, bytes});
}

void close_copies() {
  this_thread->copy_groups.push_back(std::move(this_thread->open_copies));
  this_thread->open_copies.clear();
}

void wait_for_copies(std::size_t pending) {
  auto& groups = this_thread->copy_groups;
  while (groups.size() > pending) {
    for (const PendingCopy& copy : groups.front()) {
      std::byte buffer[16] = {};
      std::memcpy(buffer, copy.from, copy.bytes);
      std::memcpy(copy.to, buffer, sizeof(buffer));
    }
    groups.erase(groups.begin());
  }
}

unsigned pack_16bit(float low, float high, bool bf16) {
  const auto bits = [bf16](float value) -> unsigned {
    return bf16 ? bf16_bits(value) : half_bits(value);
  };
  return bits(low) | bits(high) << 16;
}

unsigned short pack_8bit(float low, float high) {
  if (compute_capability() < 89) {
    stop_kernel("conversion to e4m3 needs compute capability 8.9", std::source_location::current());
  }
  return static_cast<unsigned short>(e4m3_bits(low) | e4m3_bits(high) << 8);
}

}  // namespace cuda_emulation
