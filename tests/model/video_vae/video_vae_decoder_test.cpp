#include "model/video_vae/video_vae_decoder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/cpu_device.h"
#include "model/support/vae_models.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

using ::testing::HasSubstr;
using testing::VaeMemorySource;

/// A whole decoded clip.
struct Clip {
  ClipShape shape;
  std::vector<float> pixels;      // [frames, 3, H, W]
  std::vector<std::uint8_t> rgb;  // [frames, H, W, 3]
  std::vector<std::int64_t> batches;

  [[nodiscard]] std::size_t frame_size() const {
    return static_cast<std::size_t>(3 * shape.height * shape.width);
  }
  [[nodiscard]] std::span<const float> frame(std::int64_t index) const {
    return std::span(pixels).subspan(static_cast<std::size_t>(index) * frame_size(), frame_size());
  }
};

class VideoVae : public ::testing::Test {
 protected:
  VideoVaeDecoder open(VaeMemorySource& source, Precision precision = Precision::kF32,
                       std::size_t cache = std::numeric_limits<std::size_t>::max()) {
    return VideoVaeDecoder::open(source, device_, precision, cache).value();
  }

  Result<Clip> try_decode(VideoVaeDecoder& decoder, const Tensor& latents,
                          const DecodeOptions& options = {.pixels = PixelSpace::kNetwork}) {
    Clip clip;
    const auto collect = [&](const FrameBatch& batch) -> Status {
      EXPECT_EQ(batch.first_frame * 3 * batch.pixels.dim(2) * batch.pixels.dim(3),
                static_cast<std::int64_t>(clip.pixels.size()));
      clip.batches.push_back(batch.pixels.dim(0));
      clip.pixels.insert(clip.pixels.end(), batch.pixels.f32(),
                         batch.pixels.f32() + batch.pixels.num_elements());
      if (!batch.rgb.empty()) {
        const auto* bytes = batch.rgb.as<std::uint8_t>();
        clip.rgb.insert(clip.rgb.end(), bytes, bytes + batch.rgb.num_elements());
      }
      return {};
    };
    MINIACC_ASSIGN(clip.shape, decoder.decode(ctx_, latents.view(), collect, options));
    EXPECT_EQ(clip.pixels.size(),
              static_cast<std::size_t>(clip.shape.num_frames) * clip.frame_size());
    return clip;
  }
  Clip decode(VideoVaeDecoder& decoder, const Tensor& latents,
              const DecodeOptions& options = {.pixels = PixelSpace::kNetwork}) {
    return try_decode(decoder, latents, options).value();
  }

  Tensor tiny_latents(std::int64_t t, std::int64_t h, std::int64_t w, std::uint64_t seed = 7,
                      float scale = 1.0F) {
    return testing::random_tensor(device_, {6, t, h, w}, seed, scale);
  }
  /// Steps [first, first + count) of the time axis; past the end the last one is repeated.
  Tensor steps(const Tensor& latents, std::int64_t first, std::int64_t count) {
    const Shape& shape = latents.shape();
    Tensor part = empty_tensor(device_, {shape[0], count, shape[2], shape[3]});
    const std::int64_t area = shape[2] * shape[3];
    for (std::int64_t c = 0; c < shape[0]; ++c) {
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t step = std::min(first + t, shape[1] - 1);
        std::copy_n(latents.f32().data() + (c * shape[1] + step) * area, area,
                    part.f32().data() + (c * count + t) * area);
      }
    }
    return part;
  }

  CpuDevice device_;
  OpContext ctx_{device_, 2};
};

// ------------------------------------------------------------------ against the reference

class GoldenVideo : public VideoVae, public ::testing::WithParamInterface<const char*> {};

TEST_P(GoldenVideo, MatchesTheReference) {
  const std::string name = GetParam();
  const TensorFile golden = testing::open_golden("video_vae.safetensors");
  VaeMemorySource source = testing::micro_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Shape latent_shape = golden.find(name + ".latents")->shape;
  const Tensor latents = testing::make_tensor(device_, latent_shape,
                                              testing::golden_values(golden, name + ".latents"));
  const Clip clip = decode(decoder, latents);
  const auto shape = testing::golden_integers(golden, name + ".shape");  // [3, F, H, W]
  ASSERT_EQ(clip.shape.num_frames, shape[1]);
  ASSERT_EQ(clip.shape.height, shape[2]);
  ASSERT_EQ(clip.shape.width, shape[3]);

  const std::int64_t stride = testing::golden_integers(golden, name + ".stride")[0];
  const auto frames = testing::golden_integers(golden, name + ".frames");
  std::vector<float> sampled;
  for (std::int64_t c = 0; c < 3; ++c) {
    for (const std::int64_t frame : frames) {
      for (std::int64_t y = 0; y < shape[2]; y += stride) {
        for (std::int64_t x = 0; x < shape[3]; x += stride) {
          sampled.push_back(
              clip.frame(frame)[static_cast<std::size_t>((c * shape[2] + y) * shape[3] + x)]);
        }
      }
    }
  }
  const auto wanted = testing::golden_values(golden, name + ".pixels");
  // Measured: at most 3e-7.
  EXPECT_TRUE(testing::close_to(sampled, wanted, 1e-4));
  const auto far = std::count_if(sampled.begin(), sampled.end(), [&](const float& value) {
    // One step of 8 bits is at least 1 / 255 / 0.229 in the network's space.
    const float other = wanted[static_cast<std::size_t>(&value - sampled.data())];
    return std::abs(value - other) > 1.0F / 255.0F / 0.229F;
  });
  EXPECT_EQ(far, 0);

  // The sample leaves most pixels out; moments of all of them do not.
  const auto mean = testing::golden_values(golden, name + ".mean");
  const auto mean_square = testing::golden_values(golden, name + ".mean_square");
  for (std::int64_t c = 0; c < 3; ++c) {
    double sum = 0.0;
    double squares = 0.0;
    const std::int64_t area = shape[2] * shape[3];
    for (std::int64_t frame = 0; frame < shape[1]; ++frame) {
      for (std::int64_t i = 0; i < area; ++i) {
        const double value = clip.frame(frame)[static_cast<std::size_t>(c * area + i)];
        sum += value;
        squares += value * value;
      }
    }
    const auto count = static_cast<double>(shape[1] * area);
    EXPECT_NEAR(sum / count, mean[static_cast<std::size_t>(c)], 1e-5);
    EXPECT_NEAR(squares / count, mean_square[static_cast<std::size_t>(c)],
                1e-5 * mean_square[static_cast<std::size_t>(c)]);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenVideo,
                         ::testing::Values("t2_4x6", "t7_4x6", "t12_6x4", "t8_2x2", "t7_18x30",
                                           "t2_17x20"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(VideoVae, UnitPixelsMatchTheReference) {
  const TensorFile golden = testing::open_golden("video_vae.safetensors");
  VaeMemorySource source = testing::micro_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Tensor latents = testing::make_tensor(device_, golden.find("t2_4x6.latents")->shape,
                                              testing::golden_values(golden, "t2_4x6.latents"));
  const Clip clip = decode(decoder, latents, {.rgb = true});
  const auto wanted = testing::golden_values(golden, "t2_4x6.unit_pixels");  // [3, 5, 13, 20]
  std::size_t at = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::int64_t frame = 0; frame < 5; ++frame) {
      for (std::size_t y = 0; y < 64; y += 5) {
        for (std::size_t x = 0; x < 96; x += 5) {
          const float pixel = clip.frame(frame)[(c * 64 + y) * 96 + x];
          ASSERT_NEAR(pixel, wanted[at], 1e-5);
          const std::size_t byte = ((static_cast<std::size_t>(frame) * 64 + y) * 96 + x) * 3 + c;
          ASSERT_NEAR(clip.rgb[byte], 255.0 * wanted[at], 0.51);
          ++at;
        }
      }
    }
  }
  EXPECT_EQ(at, wanted.size());
}

// ------------------------------------------------------------------ memory and weights

TEST_F(VideoVae, TilesAtOnceDoNotChangeTheResult) {
  VaeMemorySource source = testing::tiny_video_vae();
  for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kInt8}) {
    VideoVaeDecoder decoder = open(source, precision);
    const Tensor latents = tiny_latents(12, 7, 10);  // 2 windows of 2 x 3 tiles
    const Clip all = decode(decoder, latents);
    for (const std::int64_t tiles : {1, 2, 4}) {
      const Clip some =
          decode(decoder, latents, {.pixels = PixelSpace::kNetwork, .max_tiles_at_once = tiles});
      EXPECT_TRUE(testing::identical_to(some.pixels, all.pixels)) << tiles;
    }
    const Clip least =
        decode(decoder, latents, {.pixels = PixelSpace::kNetwork, .activation_budget_bytes = 0});
    EXPECT_TRUE(testing::identical_to(least.pixels, all.pixels));
  }
}

TEST_F(VideoVae, TilesThatShareAProductDoNotChangeTheResult) {
  VaeMemorySource source = testing::tiny_video_vae();
  for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kInt8}) {
    VideoVaeDecoder decoder = open(source, precision);
    const Tensor latents = tiny_latents(12, 7, 10);  // 2 windows of 2 x 3 tiles of 116 rows
    const Clip one_by_one = decode(decoder, latents);
    for (const std::int64_t rows : {118, 400, 100000}) {
      DecodeOptions options{.pixels = PixelSpace::kNetwork, .rows_at_once = rows};
      const Clip together = decode(decoder, latents, options);
      EXPECT_TRUE(testing::identical_to(together.pixels, one_by_one.pixels)) << rows;
      options.max_tiles_at_once = 4;
      const Clip four = decode(decoder, latents, options);
      EXPECT_TRUE(testing::identical_to(four.pixels, one_by_one.pixels)) << rows;
    }
  }
}

TEST_F(VideoVae, TheBudgetGoesToProductsFirst) {
  const VideoVaeConfig released;
  DecodeOptions options{.rgb = true};
  EXPECT_EQ(decode_sizes(released, 768, 1344, options).tiles_a_product, 1);
  options = decode_options_for(DeviceKind::kCuda);
  const DecodeSizes sizes = decode_sizes(released, 768, 1344, options);
  EXPECT_EQ(sizes.tiles_at_once, 28);
  EXPECT_EQ(sizes.tiles_a_product, 10);  // 10 + 10 + 8 tiles of 1797 rows
  EXPECT_LE(sizes.bytes, options.activation_budget_bytes);
  options.activation_budget_bytes = std::size_t{2} << 30;
  const DecodeSizes less = decode_sizes(released, 768, 1344, options);
  EXPECT_LE(less.bytes, options.activation_budget_bytes);
  EXPECT_GT(less.tiles_a_product, 4);
  options.activation_budget_bytes = 0;
  EXPECT_EQ(decode_sizes(released, 768, 1344, options).tiles_at_once, 1);
}

TEST_F(VideoVae, BuffersOfTheCallerTakeTurns) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Tensor latents = tiny_latents(17, 7, 10);  // 3 windows
  const Clip wanted = decode(decoder, latents, {.rgb = true});
  std::vector<Tensor> buffers;
  for (int i = 0; i < 2; ++i) {
    buffers.push_back(empty_tensor(device_, decoder.rgb_shape(7, 10), DType::kU8));
  }
  std::vector<std::uint8_t> bytes;
  std::vector<ConstTensorView> batches;
  const auto append = [&](const ConstTensorView& rgb) {
    bytes.insert(bytes.end(), rgb.as<std::uint8_t>(), rgb.as<std::uint8_t>() + rgb.num_elements());
  };
  const auto late = [&](const FrameBatch& batch) -> Status {
    EXPECT_TRUE(batch.pixels.empty());
    if (!batches.empty()) {
      append(batches.back());  // still there, a call later
    }
    batches.push_back(batch.rgb);
    return {};
  };
  ASSERT_TRUE(decoder.decode(ctx_, latents.view(), late,
                             {.rgb = true, .float_pixels = false, .rgb_buffers = buffers}));
  append(batches.back());
  EXPECT_EQ(bytes, wanted.rgb);
  EXPECT_NE(batches[0].data, batches[1].data);
  EXPECT_EQ(batches[0].data, batches[2].data);
  buffers[1] = empty_tensor(device_, {1, 2, 3, 3}, DType::kU8);
  EXPECT_THROW(static_cast<void>(decoder.decode(ctx_, latents.view(), late,
                                                {.rgb = true, .rgb_buffers = buffers})),
               InternalError);
}

TEST_F(VideoVae, ASmallBudgetUsesLessMemory) {
  VaeMemorySource source = testing::tiny_video_vae();
  const auto peak_with = [&](std::size_t budget) {
    CpuDevice device;
    OpContext ctx{device, 2};
    auto decoder = VideoVaeDecoder::open(source, device, Precision::kF32, 0).value();
    const Tensor latents = tiny_latents(7, 20, 20);
    EXPECT_TRUE(decoder.decode(ctx, latents.view(), [](const FrameBatch&) -> Status { return {}; },
                               {.activation_budget_bytes = budget}));
    return device.peak_bytes();
  };
  const std::size_t hidden_of_a_tile = (7 * 4 * 4 + 4) * 32 * sizeof(float);
  // 7 x 7 tiles (20 latents: 40 px in tiles of 8 with overlaps of 2).
  EXPECT_GT(peak_with(std::size_t{1} << 30), peak_with(0) + 40 * hidden_of_a_tile);
}

TEST_F(VideoVae, WeightsAreReadOnceAWindow) {
  VaeMemorySource source = testing::tiny_video_vae();
  const std::string name = "decoder.transformer_blocks.1.ff.w1.weight";
  VideoVaeDecoder uncached = open(source, Precision::kF32, 0);
  decode(uncached, tiny_latents(12, 7, 10));
  EXPECT_EQ(source.reads(name), 2);
  EXPECT_EQ(uncached.layer_loads(), 4);
  VideoVaeDecoder cached = open(source);
  decode(cached, tiny_latents(12, 7, 10));
  EXPECT_EQ(source.reads(name), 3);
}

TEST_F(VideoVae, FramesArriveAWindowAtATime) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  EXPECT_THAT(decode(decoder, tiny_latents(17, 2, 2)).batches, ::testing::ElementsAre(17, 17, 22));
  EXPECT_THAT(decode(decoder, tiny_latents(8, 2, 2)).batches, ::testing::ElementsAre(17, 9));
}

// ------------------------------------------------------------------ time

TEST_F(VideoVae, WindowsAreCrossFadedAsTheSpecMapsThem) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Tensor latents = tiny_latents(12, 3, 3);
  const Clip clip = decode(decoder, latents);
  // Each window alone is a clip of 7 latents: its 22 kept frames are F[3..19] and F[23..27].
  const Clip first = decode(decoder, steps(latents, 0, 7));
  const Clip second = decode(decoder, steps(latents, 5, 7));
  ASSERT_EQ(clip.shape.num_frames, 39);
  for (std::int64_t frame = 0; frame < 39; ++frame) {
    if (frame < 17) {
      EXPECT_TRUE(testing::identical_to(clip.frame(frame), first.frame(frame))) << frame;
    } else if (frame < 22) {
      const float w = static_cast<float>(frame - 17) / 5.0F;
      std::vector<float> mixed;
      for (std::size_t i = 0; i < clip.frame_size(); ++i) {
        mixed.push_back(first.frame(frame)[i] * (1.0F - w) + second.frame(frame - 17)[i] * w);
      }
      EXPECT_TRUE(testing::close_to(clip.frame(frame), mixed, 1e-6)) << frame;
    } else {
      EXPECT_TRUE(testing::identical_to(clip.frame(frame), second.frame(frame - 17))) << frame;
    }
  }
}

TEST_F(VideoVae, OffGridLengthsAreThePrefixOfThePaddedClip) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  struct Row {
    std::int64_t latents, padded, frames;
  };
  for (const Row& row : {Row{1, 7, 1}, Row{2, 7, 5}, Row{3, 7, 9}, Row{5, 7, 17}, Row{8, 12, 26},
                         Row{11, 12, 38 - 3}}) {
    const Tensor latents = tiny_latents(row.latents, 3, 5);
    const Clip clip = decode(decoder, latents);
    const Clip padded = decode(decoder, steps(latents, 0, row.padded));
    EXPECT_EQ(clip.shape.num_frames, row.frames) << row.latents;
    EXPECT_TRUE(testing::identical_to(
        clip.pixels, std::span<const float>(padded.pixels).first(clip.pixels.size())))
        << row.latents;
  }
}

TEST_F(VideoVae, ConstantLatentsHaveNoStepBetweenWindows) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Clip clip = decode(decoder, steps(tiny_latents(1, 3, 3), 0, 17));
  // Every window decodes the same latents, so from the second on the clip repeats every 17 frames.
  for (std::int64_t frame = 22; frame < 34; ++frame) {
    EXPECT_TRUE(testing::close_to(clip.frame(frame + 17), clip.frame(frame), 1e-6)) << frame;
  }
  EXPECT_TRUE(testing::close_to(clip.frame(17), clip.frame(34), 1e-6));
}

// ------------------------------------------------------------------ space

/// The spec's stitch done pixel by pixel from tiles that were decoded alone.
TEST_F(VideoVae, PictureIsStitchedFromTilesDecodedAlone) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Tensor latents = tiny_latents(7, 9, 6);
  const Clip clip = decode(decoder, latents);
  const AxisTiles vertical = split_axis(18, 8, 2, 2);
  const AxisTiles horizontal = split_axis(12, 8, 2, 2);
  const auto rows = pixel_owners(vertical);
  const auto columns = pixel_owners(horizontal);
  Tensor canvas = empty_tensor(device_, {22 * 3, 18, 12});
  std::fill(canvas.f32().begin(), canvas.f32().end(), 0.0F);
  for (std::int64_t row = 0; row < vertical.count(); ++row) {
    for (std::int64_t column = 0; column < horizontal.count(); ++column) {
      const std::int64_t top = vertical.starts[static_cast<std::size_t>(row)] / 2;
      const std::int64_t left = horizontal.starts[static_cast<std::size_t>(column)] / 2;
      Tensor part = empty_tensor(device_, {6, 7, 4, 4});
      std::size_t at = 0;
      for (std::int64_t plane = 0; plane < 6 * 7; ++plane) {
        for (std::int64_t y = 0; y < 4; ++y) {
          for (std::int64_t x = 0; x < 4; ++x) {
            part.f32()[at++] =
                latents.f32()[static_cast<std::size_t>((plane * 9 + top + y) * 6 + left + x)];
          }
        }
      }
      const Tensor tile =
          testing::make_tensor(device_, {22 * 3, 8, 8}, decode(decoder, part).pixels);
      add_tile(canvas.view(), tile.view(), vertical, horizontal, rows, columns, row, column,
               BlendMode::kRawNeighbours);
    }
  }
  EXPECT_TRUE(testing::identical_to(clip.pixels, canvas.f32()));
}

/// The same network with height and width exchanged: rotary channels of the two axes swap places in
/// Q and K, and a token's patch of pixels is transposed.
VaeMemorySource transposed_model(VaeMemorySource source, const VideoVaeConfig& config) {
  const auto permute_rows = [&](const std::string& name, auto source_row) {
    auto& entry = source.at(name);
    const std::int64_t columns = entry.shape.rank() == 2 ? entry.shape[1] : 1;
    const std::vector<float> before = entry.values;
    for (std::int64_t row = 0; row < entry.shape[0]; ++row) {
      std::copy_n(before.begin() + source_row(row) * columns, columns,
                  entry.values.begin() + row * columns);
    }
  };
  const std::int64_t n = config.num_rope_frequencies;
  const auto swap_axes = [&](std::int64_t row) {
    if (row >= 2 * config.hidden_size) {
      return row;  // values carry no position
    }
    const std::int64_t channel = row % config.head_dim;
    const std::int64_t axis = channel / n % 3;
    if (channel >= 6 * n || axis == 0) {
      return row;
    }
    return row + (axis == 1 ? n : -n);
  };
  const std::int64_t patch = config.spatial_patch;
  const auto transpose_patch = [&](std::int64_t row) {
    const std::int64_t pixel = row % (patch * patch);
    return row - pixel + pixel % patch * patch + pixel / patch;
  };
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const char* leaf : {"weight", "bias"}) {
      permute_rows(fmt::format("decoder.transformer_blocks.{}.attn.to_qkv.{}", layer, leaf),
                   swap_axes);
    }
  }
  permute_rows("decoder.proj_out.weight", transpose_patch);
  permute_rows("decoder.proj_out.bias", transpose_patch);
  return source;
}

std::vector<float> transposed(std::span<const float> values, std::int64_t height,
                              std::int64_t width) {
  std::vector<float> result(values.size());
  const std::int64_t area = height * width;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
    const std::int64_t pixel = i % area;
    result[static_cast<std::size_t>(i - pixel + pixel % width * height + pixel / width)] =
        values[static_cast<std::size_t>(i)];
  }
  return result;
}

TEST_F(VideoVae, PortraitIsTheTransposeOfLandscape) {
  VaeMemorySource landscape_source = testing::tiny_video_vae();
  VideoVaeDecoder landscape = open(landscape_source);
  VaeMemorySource portrait_source = transposed_model(testing::tiny_video_vae(), landscape.config());
  VideoVaeDecoder portrait = open(portrait_source);
  const Tensor latents = tiny_latents(7, 5, 13);
  const Tensor turned =
      testing::make_tensor(device_, {6, 7, 13, 5}, transposed(latents.f32(), 5, 13));
  // Separable, since the reference's stitch treats the two axes differently where four tiles meet.
  const DecodeOptions separable{.blend = BlendMode::kSeparable, .pixels = PixelSpace::kNetwork};
  const Clip wide = decode(landscape, latents, separable);
  const Clip tall = decode(portrait, turned, separable);
  EXPECT_TRUE(testing::close_to(transposed(tall.pixels, 26, 10), wide.pixels, 1e-5));
  // Without the exchange the pictures differ: the test sees the axes.
  const Clip wrong = decode(landscape, turned, separable);
  EXPECT_GT(testing::relative_error(transposed(wrong.pixels, 26, 10),
                                    std::span<const float>(wide.pixels)),
            0.1);

  // The reference's stitch agrees with it wherever at most two tiles meet.
  const Clip raw = decode(landscape, latents);
  const auto rows = pixel_owners(split_axis(10, 8, 2, 2));
  const auto columns = pixel_owners(split_axis(26, 8, 2, 2));
  std::size_t corner_differences = 0;
  for (std::size_t i = 0; i < raw.pixels.size(); ++i) {
    const bool four = rows[i / 26 % 10].previous_weight > 0 && columns[i % 26].previous_weight > 0;
    if (four) {
      corner_differences += std::abs(raw.pixels[i] - wide.pixels[i]) > 1e-3F ? 1 : 0;
    } else {
      ASSERT_NEAR(raw.pixels[i], wide.pixels[i], 1e-5);
    }
  }
  EXPECT_GT(corner_differences, 0U);
}

// ------------------------------------------------------------------ extremes and errors

TEST_F(VideoVae, OutlierLatentsStayFiniteInEveryPrecision) {
  VaeMemorySource source = testing::tiny_video_vae();
  for (const float deviations : {8.0F, 16.0F}) {
    const Tensor latents = tiny_latents(7, 5, 5, 3, deviations);
    VideoVaeDecoder exact = open(source);
    const Clip reference = decode(exact, latents);
    for (const float value : reference.pixels) {
      ASSERT_TRUE(std::isfinite(value));
    }
    VideoVaeDecoder rounded = open(source, Precision::kBF16);
    // Measured: 8e-4 and 4e-4.
    EXPECT_TRUE(testing::close_to(decode(rounded, latents).pixels, reference.pixels, 3e-3));
  }
}

TEST_F(VideoVae, NonFiniteTileIsNamed) {
  VaeMemorySource source = testing::tiny_video_vae();
  // Finite weights whose product overflows for any token.
  for (float& value : source.at("decoder.proj_out.weight").values) {
    value *= 3e38F;
  }
  VideoVaeDecoder decoder = open(source);
  const auto clip = try_decode(decoder, tiny_latents(12, 5, 5));
  ASSERT_FALSE(clip);
  EXPECT_EQ(clip.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(clip.error().message, HasSubstr("window 1 of 2, tile (row 0, column 0) of 2 x 2"));
}

TEST_F(VideoVae, NonFiniteLatentsAreNamedBeforeAnyWork) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  Tensor latents = tiny_latents(7, 2, 2);
  latents.f32()[2 * 28 + 5] = std::numeric_limits<float>::quiet_NaN();
  const auto clip = try_decode(decoder, latents);
  ASSERT_FALSE(clip);
  EXPECT_THAT(clip.error().message, HasSubstr("channel 2 at position 5"));
  EXPECT_EQ(decoder.layer_loads(), 0);
}

TEST_F(VideoVae, SinkErrorEndsTheDecode) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Tensor latents = tiny_latents(17, 2, 2);
  int calls = 0;
  const auto result = decoder.decode(ctx_, latents.view(), [&](const FrameBatch&) -> Status {
    ++calls;
    return fail(ErrorCode::kIo, "disk full");
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "disk full");
  EXPECT_EQ(calls, 1);
}

TEST_F(VideoVae, CancelStopsBetweenLayers) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  CancelToken token;
  OpContext ctx{device_, 2, &token};
  const Tensor latents = tiny_latents(12, 5, 5);
  int reports = 0;
  DecodeOptions options;
  options.progress = [&](const Progress&) {
    ++reports;
    token.cancel();
  };
  const auto sink = [](const FrameBatch&) -> Status { return {}; };
  try {
    static_cast<void>(decoder.decode(ctx, latents.view(), sink, options));
    FAIL() << "not cancelled";
  } catch (const ErrorException& exception) {
    EXPECT_EQ(exception.error().code, ErrorCode::kCancelled);
  }
  EXPECT_EQ(reports, 1);
}

TEST_F(VideoVae, ProgressGrowsToOne) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  double fraction = 0.0;
  int reports = 0;
  DecodeOptions options{.pixels = PixelSpace::kNetwork, .max_tiles_at_once = 3};
  options.progress = [&](const Progress& progress) {
    EXPECT_GT(progress.fraction, fraction);
    fraction = progress.fraction;
    ++reports;
  };
  decode(decoder, tiny_latents(12, 5, 5), options);
  EXPECT_DOUBLE_EQ(fraction, 1.0);
  EXPECT_EQ(reports, 2 * 2 * 2);  // windows, groups of tiles, layers
}

TEST_F(VideoVae, MemoryCeilingIsAnErrorNotACrash) {
  VaeMemorySource source = testing::tiny_video_vae();
  CpuDevice small(std::size_t{512} << 10);
  OpContext ctx{small, 1};
  auto decoder = VideoVaeDecoder::open(source, small, Precision::kF32, 0).value();
  const Tensor latents = tiny_latents(7, 40, 40);
  EXPECT_THROW(static_cast<void>(decoder.decode(ctx, latents.view(),
                                                [](const FrameBatch&) -> Status { return {}; })),
               ErrorException);
}

TEST_F(VideoVae, BrokenContractsAreRefused) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  const auto sink = [](const FrameBatch&) -> Status { return {}; };
  const Tensor wrong = testing::random_tensor(device_, {5, 7, 2, 2}, 1);
  EXPECT_THROW(static_cast<void>(decoder.decode(ctx_, wrong.view(), sink)), InternalError);
  const Tensor latents = tiny_latents(7, 2, 2);
  EXPECT_THROW(static_cast<void>(decoder.decode(ctx_, latents.view(), sink,
                                                {.pixels = PixelSpace::kNetwork, .rgb = true})),
               InternalError);
}

/// W15: any permutation of the query, key and value rows changes the picture far above tolerance.
TEST_F(VideoVae, SwappedProjectionsChangeThePicture) {
  VaeMemorySource source = testing::tiny_video_vae();
  VideoVaeDecoder decoder = open(source);
  const Tensor latents = tiny_latents(7, 3, 3);
  const Clip right = decode(decoder, latents);
  for (const auto& [a, b] : {std::pair<int, int>{0, 1}, {1, 2}, {0, 2}}) {
    VaeMemorySource swapped = testing::tiny_video_vae();
    auto& weight = swapped.at("decoder.transformer_blocks.0.attn.to_qkv.weight").values;
    const std::ptrdiff_t third = static_cast<std::ptrdiff_t>(weight.size()) / 3;
    std::swap_ranges(weight.begin() + a * third, weight.begin() + (a + 1) * third,
                     weight.begin() + b * third);
    VideoVaeDecoder wrong = open(swapped);
    const double difference = testing::relative_error(decode(wrong, latents).pixels,
                                                      std::span<const float>(right.pixels));
    if (a == 0 && b == 1) {
      // Scores q·k hardly change when both are exchanged, yet softmax runs over the other axis.
      EXPECT_GT(difference, 1e-2);
    } else {
      EXPECT_GT(difference, 1e-1);
    }
  }
}

}  // namespace
}  // namespace miniacc::video_vae
