#include "model/vision/patches.h"

#include "model/vision/vision_size.h"

namespace miniacc {
namespace {

constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kPatchPixels = kVisionPatchSize * kVisionPatchSize;
static_assert(kPatchRowSize == kChannels * kVisionFramesPerPatch * kPatchPixels);

void check_frames(std::span<const RgbImage> frames) {
  MINIACC_REQUIRE(frames.size() == 1 || frames.size() == 2,
                  "patch rows: one picture or two frames");
  for (const RgbImage& frame : frames) {
    MINIACC_REQUIRE(frame.width == frames[0].width && frame.height == frames[0].height,
                    "patch rows: both frames have one size");
    MINIACC_REQUIRE(
        static_cast<std::int64_t>(frame.pixels.size()) == kChannels * frame.width * frame.height,
        "patch rows: three bytes a pixel");
  }
}

/// The 16·16 values of one channel of one frame at `position`.
void write_channel(const RgbImage& frame, const PatchPosition& position, std::int64_t channel,
                   float* out) {
  for (std::int64_t y = 0; y < kVisionPatchSize; ++y) {
    const std::int64_t row = position.y * kVisionPatchSize + y;
    const std::uint8_t* source = frame.pixels.data() +
                                 (row * frame.width + position.x * kVisionPatchSize) * kChannels +
                                 channel;
    for (std::int64_t x = 0; x < kVisionPatchSize; ++x) {
      out[y * kVisionPatchSize + x] = (static_cast<float>(source[x * kChannels]) - 127.5F) / 127.5F;
    }
  }
}

}  // namespace

PatchPosition patch_position(const VisionGrid& grid, std::int64_t row) {
  const std::int64_t block = row / 4;
  const std::int64_t inside = row % 4;
  return {.y = 2 * (block / grid.token_columns()) + inside / 2,
          .x = 2 * (block % grid.token_columns()) + inside % 2};
}

VisionGrid grid_of(const RgbImage& image) {
  MINIACC_REQUIRE(image.width > 0 && image.height > 0 && image.width % kVisionTokenSize == 0 &&
                      image.height % kVisionTokenSize == 0,
                  "vision grid: sides are multiples of 32");
  return {.height = image.height / kVisionPatchSize, .width = image.width / kVisionPatchSize};
}

void write_patch_rows(std::span<const RgbImage> frames, std::int64_t first, TensorView out) {
  check_frames(frames);
  const VisionGrid grid = grid_of(frames[0]);
  MINIACC_REQUIRE(out.shape.rank() == 2 && out.dim(1) == kPatchRowSize && out.is_contiguous() &&
                      first >= 0 && first <= grid.num_patches() - out.dim(0),
                  "patch rows: out is [rows, 1536] inside the grid");
  float* target = out.f32();
  for (std::int64_t row = 0; row < out.dim(0); ++row) {
    const PatchPosition position = patch_position(grid, first + row);
    for (std::int64_t channel = 0; channel < kChannels; ++channel) {
      write_channel(frames.front(), position, channel, target);
      write_channel(frames.back(), position, channel, target + kPatchPixels);
      target += kVisionFramesPerPatch * kPatchPixels;
    }
  }
}

Tensor patch_rows(Device& device, std::span<const RgbImage> frames) {
  check_frames(frames);
  Tensor rows = empty_tensor(device, {grid_of(frames[0]).num_patches(), kPatchRowSize});
  write_patch_rows(frames, 0, rows.view());
  return rows;
}

}  // namespace miniacc
