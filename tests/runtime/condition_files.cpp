#include "runtime/condition_files.h"

#include <fmt/format.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "io/media/picture_writer.h"

namespace miniacc::testing {
namespace {

void put(std::string& bytes, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
  }
}

}  // namespace

RgbImage formula_picture(std::int64_t width, std::int64_t height, std::int64_t number) {
  RgbImage image{width, height, {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        image.pixels.push_back(
            static_cast<std::uint8_t>((3 * x + 5 * y + 60 * c + 31 * number + x * y / 16) % 256));
      }
    }
  }
  return image;
}

std::filesystem::path write_formula_picture(const std::filesystem::path& path, std::int64_t width,
                                            std::int64_t height, std::int64_t number) {
  const Status written =
      write_picture(formula_picture(width, height, number), path, ExistingOutput::kReplace);
  if (!written) {
    throw std::runtime_error(written.error().message);
  }
  return path;
}

std::filesystem::path write_formula_sound(const std::filesystem::path& path,
                                          std::int64_t num_samples, std::int64_t number) {
  std::string bytes;
  const auto data_bytes = static_cast<std::uint64_t>(4 * num_samples);
  bytes += "RIFF";
  put(bytes, 36 + data_bytes, 4);
  bytes += "WAVEfmt ";
  put(bytes, 16, 4);
  put(bytes, 1, 2);  // PCM
  put(bytes, 2, 2);
  put(bytes, 32000, 4);
  put(bytes, 32000 * 4, 4);
  put(bytes, 4, 2);
  put(bytes, 16, 2);
  bytes += "data";
  put(bytes, data_bytes, 4);
  for (std::int64_t t = 0; t < num_samples; ++t) {
    for (std::int64_t side = 0; side < 2; ++side) {
      const std::int64_t value = t * (37 + 11 * side + number) % 2001 - 1000;
      put(bytes, static_cast<std::uint64_t>(16 * value), 2);  // value / 2048 of full scale
    }
  }
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::filesystem::path write_formula_video(const std::filesystem::path& folder, std::int64_t width,
                                          std::int64_t height, std::int64_t num_frames,
                                          std::int64_t number, std::int64_t num_samples) {
  std::filesystem::create_directories(folder);
  for (std::int64_t frame = 0; frame < num_frames; ++frame) {
    write_formula_picture(folder / fmt::format("frame_{:05}.png", frame), width, height,
                          number + frame);
  }
  if (num_samples > 0) {
    write_formula_sound(folder / "audio.wav", num_samples, number);
  }
  return folder;
}

}  // namespace miniacc::testing
