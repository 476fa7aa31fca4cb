#include "io/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <vector>

namespace miniacc {
namespace {

constexpr std::size_t kBlockBytes = 64;
constexpr std::size_t kLengthOffset = 56;

constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
    0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
    0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
    0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
    0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
    0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
    0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
    0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2};

}  // namespace

void Sha256::add(std::span<const std::byte> bytes) {
  std::size_t filled = num_bytes_ % kBlockBytes;
  num_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (filled == 0 && bytes.size() >= kBlockBytes) {
      add_block(bytes.data());
      bytes = bytes.subspan(kBlockBytes);
      continue;
    }
    const std::size_t count = std::min(kBlockBytes - filled, bytes.size());
    std::copy_n(bytes.begin(), count, pending_.begin() + static_cast<std::ptrdiff_t>(filled));
    bytes = bytes.subspan(count);
    filled += count;
    if (filled == kBlockBytes) {
      add_block(pending_.data());
      filled = 0;
    }
  }
}

std::string Sha256::hex() {
  const std::uint64_t num_bits = num_bytes_ * 8;
  const std::size_t filled = num_bytes_ % kBlockBytes;
  std::array<std::byte, 2 * kBlockBytes> tail{};
  tail[0] = std::byte{0x80};
  const std::size_t padding =
      (filled < kLengthOffset ? kLengthOffset : kLengthOffset + kBlockBytes) - filled;
  for (std::size_t i = 0; i < 8; ++i) {
    tail[padding + i] = static_cast<std::byte>(num_bits >> (56 - 8 * i));
  }
  add({tail.data(), padding + 8});
  std::string text;
  for (const std::uint32_t word : state_) {
    text += fmt::format("{:08x}", word);
  }
  return text;
}

void Sha256::add_block(const std::byte* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t byte = 0; byte < 4; ++byte) {
      w[i] = w[i] << 8 | std::to_integer<std::uint32_t>(block[4 * i + byte]);
    }
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                             ((e & f) ^ (~e & g)) + kRoundConstants[i] + w[i];
    const std::uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) {
    state_[i] += mixed[i];
  }
}

Result<std::string> sha256_of_file(const std::filesystem::path& path) {
  Sha256 hash;
  std::ifstream stream(path, std::ios::binary);
  std::vector<char> buffer(std::size_t{1} << 20);
  while (stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) ||
         stream.gcount() > 0) {
    hash.add(std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(stream.gcount()))));
  }
  if (!stream.eof()) {
    return fail(ErrorCode::kIo, path.string() + ": cannot be read to its end");
  }
  return hash.hex();
}

}  // namespace miniacc
