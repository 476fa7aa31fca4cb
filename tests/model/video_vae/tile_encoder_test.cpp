#include "model/video_vae/tile_encoder.h"

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "model/support/encode_inputs.h"
#include "model/support/vae_models.h"
#include "model/video_vae/pixels.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

constexpr double kBound = 1e-4;  // relative; measured: at most 6e-7 in every stage

/// The golden tile: 5 frames of 32 x 32 pixels.
class GoldenEncoderTile : public ::testing::Test {
 protected:
  GoldenEncoderTile() {
    const VideoVaeConfig config = read_config(source_).value();
    config_ = read_encoder_config(source_, config).value();
    weights_ = load_encoder_weights(source_, config_, device_).value();
    pixels_ = empty_tensor(device_, {5, 32, 32, 3});
    gather_pixels(pixels_.view(), testing::drawn_frames(5, 32, 32), 0, {});
  }

  /// A golden tensor [channels, T, h, w] as [1, T, h, w, channels].
  Tensor golden(const std::string& name) {
    const Shape shape = file_.find(name)->shape;
    const auto values = testing::golden_values(file_, name);
    const std::int64_t area = shape[1] * shape[2] * shape[3];
    Tensor result = empty_tensor(device_, {1, shape[1], shape[2], shape[3], shape[0]});
    for (std::int64_t c = 0; c < shape[0]; ++c) {
      for (std::int64_t p = 0; p < area; ++p) {
        result.f32()[static_cast<std::size_t>(p * shape[0] + c)] =
            values[static_cast<std::size_t>(c * area + p)];
      }
    }
    return result;
  }
  ConstTensorView pixels() { return pixels_.view().reshape(Shape({1, 5, 32, 32, 3})); }

  CpuDevice device_;
  OpContext ctx_{device_, 2};
  testing::VaeMemorySource source_ = testing::micro_video_vae();
  TensorFile file_ = testing::open_golden("video_encode.safetensors");
  VideoEncoderConfig config_;
  EncoderWeights weights_;
  Tensor pixels_;
};

TEST_F(GoldenEncoderTile, EveryStageMatchesTheReference) {
  Tensor x = golden("tile.conv_in");
  run_encoder_block(ctx_, x, weights_.levels[0].blocks[0], config_);
  EXPECT_TRUE(testing::close_to(x.f32(), golden("tile.block_0").f32(), kBound));

  x = golden("tile.conv_in");
  run_encoder_level(ctx_, x, weights_.levels[0], config_.levels[0], config_);
  EXPECT_TRUE(testing::close_to(x.f32(), golden("tile.level_0").f32(), kBound));
  // Wider blocks, and time halved together with the picture.
  run_encoder_level(ctx_, x, weights_.levels[1], config_.levels[1], config_);
  EXPECT_EQ(x.shape(), Shape({1, 3, 8, 8, 8}));
  EXPECT_TRUE(testing::close_to(x.f32(), golden("tile.level_1").f32(), kBound));
  for (std::size_t i = 2; i < config_.levels.size(); ++i) {
    if (i == 3) {
      Tensor block = empty_tensor(device_, x.shape());
      std::copy(x.f32().begin(), x.f32().end(), block.f32().begin());
      run_encoder_block(ctx_, block, weights_.levels[3].blocks[0], config_);
      EXPECT_TRUE(testing::close_to(block.f32(), golden("tile.block_3").f32(), kBound));
    }
    run_encoder_level(ctx_, x, weights_.levels[i], config_.levels[i], config_);
  }
  EXPECT_TRUE(testing::close_to(x.f32(), golden("tile.level_5").f32(), kBound));
}

TEST_F(GoldenEncoderTile, MomentsMatchTheReference) {
  const Tensor moments = encode_tiles(ctx_, pixels(), weights_, config_);
  EXPECT_EQ(moments.shape(), Shape({1, 2, 2, 2, 48}));
  EXPECT_TRUE(testing::close_to(moments.f32(), golden("tile.moments").f32(), kBound));
}

TEST_F(GoldenEncoderTile, TilesAreIndependentOfTheirNumberAndOfThreads) {
  Tensor two = empty_tensor(device_, {2, 5, 32, 32, 3});
  std::copy(pixels_.f32().begin(), pixels_.f32().end(), two.f32().begin());
  const auto half = static_cast<std::ptrdiff_t>(pixels_.f32().size());
  std::transform(pixels_.f32().begin(), pixels_.f32().end(), two.f32().begin() + half,
                 [](float value) { return -value; });
  const Tensor both = encode_tiles(ctx_, two.view(), weights_, config_);
  OpContext one_thread{device_, 1};
  const Tensor first = encode_tiles(one_thread, pixels(), weights_, config_);
  EXPECT_TRUE(testing::identical_to(both.f32().first(first.f32().size()), first.f32()));
  EXPECT_GT(testing::relative_error(both.f32().subspan(first.f32().size()),
                                    std::span<const float>(first.f32())),
            0.01);
}

}  // namespace
}  // namespace miniacc::video_vae
