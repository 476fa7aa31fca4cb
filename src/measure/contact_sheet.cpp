#include "measure/contact_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace miniacc::measure {
namespace {

using Color = std::array<std::uint8_t, 3>;
constexpr Color kPaper = {255, 255, 255};
constexpr Color kStrip = {238, 240, 243};
constexpr std::array<Color, 2> kWave = {Color{46, 98, 170}, Color{190, 84, 48}};
/// A clip of sound alone has no frames to take its width from.
constexpr std::int64_t kSoundWidth = 640;

/// Where one clip's parts lie.
struct Band {
  std::int64_t top = 0;
  std::int64_t num_frames = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;
};

Band measure_band(const Clip& clip, const ContactSheetOptions& options) {
  Band band;
  band.num_frames = std::min(clip.num_frames, options.num_frames);
  if (band.num_frames > 0) {
    band.width = band.num_frames * (clip.width + options.gap) - options.gap;
    band.height = clip.height;
  } else {
    band.width = kSoundWidth;
  }
  for (int channel = 0; channel < std::min(clip.channels, 2); ++channel) {
    band.height += (band.height > 0 ? options.gap : 0) + options.wave_height;
  }
  return band;
}

class Sheet {
 public:
  Sheet(std::int64_t width, std::int64_t height)
      : image_{width, height,
               std::vector<std::uint8_t>(static_cast<std::size_t>(3 * width * height))} {
    fill(0, 0, width, height, kPaper);
  }

  void fill(std::int64_t left, std::int64_t top, std::int64_t width, std::int64_t height,
            const Color& color) {
    for (std::int64_t y = top; y < top + height; ++y) {
      for (std::int64_t x = left; x < left + width; ++x) {
        std::copy(color.begin(), color.end(), at(x, y));
      }
    }
  }

  void place_frame(std::int64_t left, std::int64_t top, const Clip& clip, std::int64_t frame) {
    const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(clip.width);
    const std::uint8_t* source =
        clip.frames.data() + static_cast<std::size_t>(frame * clip.height) * row_bytes;
    for (int y = 0; y < clip.height; ++y) {
      std::memcpy(at(left, top + y), source + static_cast<std::size_t>(y) * row_bytes, row_bytes);
    }
  }

  /// A column shows the lowest and the highest sample of its share of the time.
  void place_wave(std::int64_t top, std::int64_t width, std::int64_t height,
                  std::span<const float> samples, const Color& color) {
    fill(0, top, width, height, kStrip);
    const auto count = static_cast<std::int64_t>(samples.size());
    const auto row_of = [&](float sample) {
      const double level = std::isfinite(sample) ? std::clamp(sample, -1.0F, 1.0F) : 0.0;
      return top + std::llround((1.0 - level) / 2.0 * static_cast<double>(height - 1));
    };
    for (std::int64_t x = 0; x < width && count > 0; ++x) {
      const std::int64_t first = std::min(x * count / width, count - 1);
      const std::int64_t end = std::clamp((x + 1) * count / width, first + 1, count);
      const auto [low, high] = std::minmax_element(samples.begin() + first, samples.begin() + end);
      fill(x, row_of(*high), 1, row_of(*low) - row_of(*high) + 1, color);
    }
  }

  RgbImage take() && { return std::move(image_); }

 private:
  std::uint8_t* at(std::int64_t x, std::int64_t y) {
    return image_.pixels.data() + static_cast<std::size_t>(3 * (y * image_.width + x));
  }

  RgbImage image_;
};

void place_clip(Sheet& sheet, const Band& band, const Clip& clip,
                const ContactSheetOptions& options) {
  std::int64_t top = band.top;
  for (std::int64_t i = 0; i < band.num_frames; ++i) {
    const std::int64_t frame =
        band.num_frames == 1 ? 0 : i * (clip.num_frames - 1) / (band.num_frames - 1);
    sheet.place_frame(i * (clip.width + options.gap), top, clip, frame);
  }
  top += band.num_frames > 0 ? clip.height + options.gap : 0;
  const auto samples = static_cast<std::size_t>(clip.num_samples());
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(std::min(clip.channels, 2));
       ++channel) {
    sheet.place_wave(top, band.width, options.wave_height,
                     std::span(clip.audio).subspan(channel * samples, samples), kWave[channel]);
    top += options.wave_height + options.gap;
  }
}

}  // namespace

Result<RgbImage> contact_sheet(std::span<const Clip> clips, const ContactSheetOptions& options) {
  MINIACC_REQUIRE(
      !clips.empty() && options.num_frames > 0 && options.gap >= 0 && options.wave_height > 0,
      "contact_sheet: needs clips, frames and a height");
  std::vector<Band> bands;
  std::int64_t width = 0;
  std::int64_t height = 0;
  for (const Clip& clip : clips) {
    Band band = measure_band(clip, options);
    if (band.height == 0) {
      return fail(ErrorCode::kInvalidInput, "a clip with neither frames nor sound has no sheet");
    }
    band.top = height + (bands.empty() ? 0 : 3 * options.gap);
    width = std::max(width, band.width);
    height = band.top + band.height;
    bands.push_back(band);
    if (width > options.max_pixels / height) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("the sheet would have more than {} pixels: take fewer clips or frames",
                      options.max_pixels));
    }
  }
  Sheet sheet(width, height);
  for (std::size_t i = 0; i < clips.size(); ++i) {
    place_clip(sheet, bands[i], clips[i], options);
  }
  return std::move(sheet).take();
}

}  // namespace miniacc::measure
