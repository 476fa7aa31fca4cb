#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace miniacc::testing {

/// Writes a file whose time lies back far enough that a reader need not wait for it to rest.
void write_old_file(const std::filesystem::path& path, std::string_view bytes);

/// A zlib stream (RFC 1950) of `data` in one fixed-Huffman block. Long runs of one byte shrink to
/// a thousandth, anything else does not.
std::string deflated(std::string_view data);

/// A PNG chunk with length and check sum.
std::string png_chunk(std::string_view type, std::string_view data);

/// A PNG of one colour, of which `rows` rows are there (all when -1).
std::string png_bytes(int width, int height, std::array<std::uint8_t, 3> rgb, int rows = -1);

/// A WAV file of float samples, [samples, channels].
std::string wav_bytes(const std::vector<float>& samples, int channels, int sample_rate_hz);

/// Runs the ffmpeg program with arguments for a shell; false when it fails.
bool run_ffmpeg(const std::string& arguments);

}  // namespace miniacc::testing
