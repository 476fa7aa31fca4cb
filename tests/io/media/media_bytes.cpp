#include "io/media/media_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "io/file_util.h"

namespace miniacc::testing {
namespace {

/// Bits of a DEFLATE stream (RFC 1951): the lowest bit of a byte comes first.
class BitWriter {
 public:
  /// `count` bits of a number, the lowest first.
  void number(std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) {
      bit(value >> i & 1U);
    }
  }
  /// `count` bits of a Huffman code, the highest first.
  void code(std::uint32_t value, int count) {
    for (int i = count - 1; i >= 0; --i) {
      bit(value >> i & 1U);
    }
  }
  /// The fixed code of a literal byte or of a length symbol.
  void symbol(std::uint32_t value) {
    if (value < 144) {
      code(0x30 + value, 8);
    } else if (value < 256) {
      code(0x190 + value - 144, 9);
    } else if (value < 280) {
      code(value - 256, 7);
    } else {
      code(0xC0 + value - 280, 8);
    }
  }
  std::string finish() {
    number(0, (8 - num_bits_) % 8);
    return std::move(bytes_);
  }

 private:
  void bit(std::uint32_t value) {
    if (num_bits_ == 0) {
      bytes_ += '\0';
    }
    bytes_.back() = static_cast<char>(static_cast<unsigned char>(bytes_.back()) |
                                      static_cast<unsigned char>(value << num_bits_));
    num_bits_ = (num_bits_ + 1) % 8;
  }
  std::string bytes_;
  int num_bits_ = 0;
};

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift & 0xFFU);
  }
  return bytes;
}

std::uint32_t crc32(std::string_view data) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) {
      crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    }
  }
  return ~crc;
}

}  // namespace

void write_old_file(const std::filesystem::path& path, std::string_view bytes) {
  write_file(path, bytes);
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);
}

std::string deflated(std::string_view data) {
  constexpr std::size_t kLongest = 258;
  BitWriter bits;
  bits.number(1, 1);  // the last block
  bits.number(1, 2);  // of fixed codes
  for (std::size_t i = 0; i < data.size();) {
    std::size_t run = 0;
    while (i > 0 && run < kLongest && i + run < data.size() && data[i + run] == data[i - 1]) {
      ++run;
    }
    if (run == kLongest) {
      bits.symbol(285);
      bits.code(0, 5);  // one byte back
      i += run;
    } else {
      bits.symbol(static_cast<unsigned char>(data[i]));
      ++i;
    }
  }
  bits.symbol(256);
  std::uint32_t low = 1;
  std::uint32_t high = 0;
  for (const char c : data) {  // Adler-32
    low = (low + static_cast<unsigned char>(c)) % 65521;
    high = (high + low) % 65521;
  }
  return "\x78\x01" + bits.finish() + big_endian(high << 16U | low);
}

std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string content = std::string(type) + std::string(data);
  return big_endian(static_cast<std::uint32_t>(data.size())) + content + big_endian(crc32(content));
}

std::string png_bytes(int width, int height, std::array<std::uint8_t, 3> rgb, int rows) {
  std::string header = big_endian(static_cast<std::uint32_t>(width)) +
                       big_endian(static_cast<std::uint32_t>(height));
  header += std::string("\x08\x02\0\0\0", 5);  // 8 bits of RGB
  std::string raw;
  for (int y = 0; y < (rows < 0 ? height : rows); ++y) {
    if (y > 0) {
      raw += '\x02';  // the same as the row above
      raw.append(static_cast<std::size_t>(width) * 3, '\0');
      continue;
    }
    raw += '\0';
    for (int x = 0; x < width; ++x) {
      raw.append(rgb.begin(), rgb.end());
    }
  }
  return "\x89PNG\r\n\x1A\n" + png_chunk("IHDR", header) + png_chunk("IDAT", deflated(raw)) +
         png_chunk("IEND", "");
}

std::string wav_bytes(const std::vector<float>& samples, int channels, int sample_rate_hz) {
  const auto rate = static_cast<std::uint32_t>(sample_rate_hz);
  const auto frame_bytes = static_cast<std::uint16_t>(channels * 4);
  const auto data_bytes = static_cast<std::uint32_t>(samples.size() * sizeof(float));
  std::string data(data_bytes, '\0');
  std::copy_n(reinterpret_cast<const char*>(samples.data()), data_bytes, data.begin());
  constexpr std::uint16_t kFloat = 3;
  return "RIFF" + little_endian(36 + data_bytes) + "WAVEfmt " + little_endian(std::uint32_t{16}) +
         little_endian(kFloat) + little_endian(static_cast<std::uint16_t>(channels)) +
         little_endian(rate) + little_endian(rate * frame_bytes) + little_endian(frame_bytes) +
         little_endian(std::uint16_t{32}) + "data" + little_endian(data_bytes) + data;
}

bool run_ffmpeg(const std::string& arguments) {
  const std::string command = "ffmpeg -hide_banner -loglevel error -nostdin -y " + arguments;
  return std::system(command.c_str()) == 0;
}

}  // namespace miniacc::testing
