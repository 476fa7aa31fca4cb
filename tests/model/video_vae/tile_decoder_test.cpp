#include "model/video_vae/tile_decoder.h"

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "kernels/copy.h"
#include "kernels/frames.h"
#include "model/support/vae_models.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

constexpr double kBound = 1e-4;  // relative; measured: at most 4e-7 in every stage

/// Adds a tile that is a picture of its own to `pixels`, which are zeros.
void place_alone(OpContext& ctx, TensorView pixels, ConstTensorView values, const TileShape& tile,
                 const VideoVaeConfig& config) {
  const std::vector<float> ones(static_cast<std::size_t>(pixels.dim(2) * pixels.dim(3)), 1.0F);
  const Tensor weights = upload<float>(ctx, ones, {pixels.dim(2), pixels.dim(3)});
  const Tensor frames = shown_frames(ctx, tile, config);
  ops::add_patches(ctx, pixels, values,
                   {.t = tile.t,
                    .h = tile.h,
                    .w = tile.w,
                    .frames = config.time.temporal_patch,
                    .patch = config.spatial_patch,
                    .frame_index = frames.view(),
                    .weights = weights.view()});
}

/// The golden tile: latents [24, 2, 3, 5], already denormalised.
class GoldenTile : public ::testing::Test {
 protected:
  GoldenTile() {
    auto read = read_config(source_);
    config_ = read.value();
    shell_ = load_shell(source_, config_, device_).value();
    workspace_ = std::make_unique<TileWorkspace>(ctx_, config_, kTile);
    const vae::LatentStatistics identity{std::vector<float>(24, 0.0F),
                                         std::vector<float>(24, 1.0F)};
    const Tensor latents = testing::make_tensor(device_, {24, 2, 3, 5}, golden("tile.latents"));
    tokens_ = empty_tensor(device_, {kTile.num_tokens(), 24});
    gather_tokens(tokens_.view(), latents.view(), identity, {}, kTile);
    hidden_ = empty_tensor(device_, {kTile.num_tokens() + 5, config_.hidden_size});
    embed_tile(ctx_, hidden_.view(), tokens_.view(), shell_, *workspace_);
  }

  std::vector<float> golden(const std::string& name) { return testing::golden_values(file_, name); }

  static constexpr TileShape kTile{.t = 2, .h = 3, .w = 5};
  CpuDevice device_;
  OpContext ctx_{device_, 2};
  testing::VaeMemorySource source_ = testing::micro_video_vae();
  TensorFile file_ = testing::open_golden("video_vae.safetensors");
  VideoVaeConfig config_;
  Shell shell_;
  std::unique_ptr<TileWorkspace> workspace_;
  Tensor tokens_;
  Tensor hidden_;
};

TEST_F(GoldenTile, EveryStageMatchesTheReference) {
  const RopeTable rope = make_rope_table(config_, kTile, device_);
  for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const OwnedLayer weights =
        load_layer(source_, block_stack(config_, Precision::kF32), layer, device_).value();
    run_block(ctx_, hidden_.view(), block_weights(weights.view()), rope, config_, Precision::kF32,
              *workspace_);
    if (layer == 0) {
      EXPECT_TRUE(testing::close_to(hidden_.f32(), golden("tile.block_0"), kBound));
    }
  }
  EXPECT_TRUE(testing::close_to(hidden_.f32(), golden("tile.block_last"), kBound));

  const ConstTensorView one = hidden_.view().reshape({1, hidden_.shape()[0], hidden_.shape()[1]});
  const TensorView values = project_tiles(ctx_, one, shell_, {}, config_, *workspace_);
  const std::int64_t tokens = kTile.num_tokens();
  const TensorView normed = workspace_->normed(tokens, config_.hidden_size);
  const std::vector<float> norm_out = golden("tile.norm_out");  // with the suffix tokens
  EXPECT_TRUE(testing::close_to(
      std::span<const float>(normed.f32(), static_cast<std::size_t>(normed.num_elements())),
      std::span<const float>(norm_out).first(static_cast<std::size_t>(normed.num_elements())),
      kBound));
  EXPECT_TRUE(testing::close_to(
      std::span<const float>(values.f32() + 7 * config_.values_per_token(),
                             static_cast<std::size_t>(config_.values_per_token())),
      golden("tile.proj_out_token_7"), kBound));

  // The golden holds every third pixel of all 8 frames; those shown are 3..7.
  const std::vector<float> wanted = golden("tile.pixels");  // [3, 8, 16, 27]
  Tensor pixels = empty_tensor(device_, {config_.time.kept_frames(), 3, 48, 80});
  std::fill(pixels.f32().begin(), pixels.f32().end(), 0.0F);
  place_alone(ctx_, pixels.view(), values, kTile, config_);
  std::vector<float> found;
  std::vector<float> expected;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t f = 3; f < 8; ++f) {
      for (std::size_t y = 0; y < 16; ++y) {
        for (std::size_t x = 0; x < 27; ++x) {
          found.push_back(pixels.f32()[(((f - 3) * 3 + c) * 48 + 3 * y) * 80 + 3 * x]);
          expected.push_back(wanted[((c * 8 + f) * 16 + y) * 27 + x]);
        }
      }
    }
  }
  EXPECT_TRUE(testing::close_to(found, expected, kBound));
}

TEST_F(GoldenTile, PostQuantConvMatchesTheReference) {
  // embed_tile leaves its first product in the workspace: [tokens, 24] against [24, tokens].
  const TensorView mixed = workspace_->narrow(kTile.num_tokens(), 24);
  const std::vector<float> wanted = golden("tile.post_quant_conv");
  std::vector<float> found;
  for (std::int64_t c = 0; c < 24; ++c) {
    for (std::int64_t token = 0; token < kTile.num_tokens(); ++token) {
      found.push_back(mixed.f32()[token * 24 + c]);
    }
  }
  EXPECT_TRUE(testing::close_to(found, wanted, kBound));
}

TEST_F(GoldenTile, SuffixIsRegistersThenZeros) {
  const std::vector<float> registers =
      testing::golden_values(testing::open_golden("h3-micro/video_vae/source/model.safetensors"),
                             "decoder.register_tokens");
  const std::size_t d = static_cast<std::size_t>(config_.hidden_size);
  const auto suffix = hidden_.f32().subspan(static_cast<std::size_t>(kTile.num_tokens()) * d);
  EXPECT_TRUE(testing::identical_to(suffix.first(4 * d), registers));
  EXPECT_TRUE(testing::identical_to(suffix.subspan(4 * d), std::vector<float>(d, 0.0F)));
}

TEST(TileDecoder, PatchesPutTheSpecsElementWhereItSays) {
  CpuDevice device;
  const VideoVaeConfig config;
  constexpr TileShape kTile{.t = 7, .h = 16, .w = 16};
  Tensor values = empty_tensor(device, {kTile.num_tokens(), 3072});
  std::fill(values.f32().begin(), values.f32().end(), 0.0F);
  // Token (1, 3, 15), element (c 1, pt 2, ph 5, pw 7): channel 1, frame 6, row 53, column 247.
  const std::size_t token = 256 + 63;
  values.f32()[token * 3072 + 1623] = 1.0F;
  Tensor pixels = empty_tensor(device, {22, 3, 256, 256});
  OpContext ctx{device, 2};
  std::fill(pixels.f32().begin(), pixels.f32().end(), 0.0F);
  place_alone(ctx, pixels.view(), values.view(), kTile, config);
  double sum = 0.0;
  for (const float value : pixels.f32()) {
    sum += value;
  }
  EXPECT_EQ(sum, 1.0);
  EXPECT_EQ(pixels.f32()[((6 - 3) * 3 + 1) * 65536 + 53 * 256 + 247], 1.0F);
}

TEST(TileDecoder, GatherDenormalisesAndRepeatsTheLastLatent) {
  CpuDevice device;
  // Two channels, 2 steps of 1 x 3; the tile takes columns 1 and 2 of steps 1, 2, 3.
  const Tensor latents =
      testing::make_tensor(device, {2, 2, 1, 3}, {0, 1, 2, 3, 0.5F, 5, 6, 7, 8, 9, -1.25F, 11});
  const vae::LatentStatistics statistics{{0.8580903F, -0.9606591F}, {1.2223774F, 1.2767264F}};
  Tensor tokens = empty_tensor(device, {6, 2});
  gather_tokens(tokens.view(), latents.view(), statistics, {.t = 1, .h = 0, .w = 1},
                {.t = 3, .h = 1, .w = 2});
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(tokens.f32()[step * 4], 1.4692791, 1e-6);  // spec vae.md §11.1
    EXPECT_NEAR(tokens.f32()[step * 4 + 1], -2.5565671, 1e-6);
    EXPECT_NEAR(tokens.f32()[step * 4 + 2], 5.0 * 1.2223774 + 0.8580903, 1e-5);
  }
}

}  // namespace
}  // namespace miniacc::video_vae
