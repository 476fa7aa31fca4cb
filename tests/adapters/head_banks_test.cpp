#include "adapters/head_banks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "adapters/adapter_files.h"
#include "device/cpu_device.h"
#include "support/compare.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Metadata;
using testing::random_factor;

constexpr std::int64_t kSteps = 32;
constexpr std::int64_t kVideoRows = 6;
constexpr std::int64_t kAudioRows = 4;
constexpr std::int64_t kHidden = 10;

class HeadBank : public ::testing::Test {
 protected:
  static testing::AdapterTensor random(const Shape& shape, std::uint64_t seed) {
    return {shape, random_factor(1, shape.num_elements(), seed).values};
  }
  static AdapterTensors vendor() {
    return {{"proj_out.weight", random({kSteps, kVideoRows, kHidden}, 1)},
            {"proj_out.bias", random({kSteps, kVideoRows}, 2)},
            {"audio_proj_out.weight", random({kSteps, kAudioRows, kHidden}, 3)},
            {"audio_proj_out.bias", random({kSteps, kAudioRows}, 4)}};
  }
  TensorFile file(const AdapterTensors& tensors, const Metadata& metadata = kMetadata) {
    return TensorFile::open(
               write_adapter(folder_ / std::to_string(++num_files_), tensors, metadata))
        .value();
  }
  static Result<HeadBanks> read(const TensorFile& file) {
    return HeadBanks::read(file, kVideoRows, kAudioRows, kHidden);
  }
  /// The definition: Σ w_j · head_j over the block, w_j = Δσ_j / ΣΔσ on the shifted grid.
  static std::vector<double> defined(const std::vector<float>& bank, std::int64_t size,
                                     double shift, std::int64_t first, std::int64_t count) {
    const auto sigma = [&](std::int64_t n) {
      const double b = static_cast<double>(kSteps - n) / static_cast<double>(kSteps);
      return shift * b / (1.0 + (shift - 1.0) * b);
    };
    std::vector<double> out(static_cast<std::size_t>(size));
    for (std::int64_t n = first; n < first + count; ++n) {
      const double weight = (sigma(n) - sigma(n + 1)) / (sigma(first) - sigma(first + count));
      for (std::int64_t i = 0; i < size; ++i) {
        out[static_cast<std::size_t>(i)] +=
            weight * static_cast<double>(bank[static_cast<std::size_t>(n * size + i)]);
      }
    }
    return out;
  }

  inline static const Metadata kMetadata = {
      {"pdd_num_steps", "32"}, {"pdd_block_size", "4"}, {"lora_rank", "64"}, {"lora_alpha", "64"}};
  testing::TempDir folder_;
  int num_files_ = 0;
  CpuDevice device_;
};

TEST_F(HeadBank, WeightsOfEveryBlockAndStreamSumToOne) {
  for (const double shift : {kPddVideoShift, kPddAudioShift, 1.0}) {
    for (const std::int64_t block : {1, 2, 4, 8, 32}) {
      for (std::int64_t first = 0; first < kSteps; first += block) {
        const auto weights = interval_weights(shift, kSteps, first, block);
        EXPECT_EQ(weights.size(), static_cast<std::size_t>(block));
        EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1.0, 1e-14);
        EXPECT_TRUE(std::all_of(weights.begin(), weights.end(), [](double w) { return w > 0.0; }));
      }
    }
  }
  // Shift 12: later intervals are longer; shift 1: all alike.
  EXPECT_LT(interval_weights(12.0, kSteps, 0, 4).front(), 0.25);
  EXPECT_NEAR(interval_weights(1.0, kSteps, 0, 4).front(), 0.25, 1e-15);
}

TEST_F(HeadBank, FusedHeadsAreTheDefinitionForEveryPartition) {
  const AdapterTensors tensors = vendor();
  const TensorFile stored = file(tensors);
  const HeadBanks banks = read(stored).value();
  EXPECT_EQ(banks.num_steps(), 32);
  EXPECT_EQ(banks.block_size(), 4);
  EXPECT_FALSE(banks.video_is_offsets());
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{0, 4}, {28, 4}, {4, 8}, {17, 1}, {0, 32}, {5, 6}}) {
    const FusedHeads heads = banks.fuse(stored, first, count, device_).value();
    EXPECT_EQ(heads.video_weight.shape(), Shape({kVideoRows, kHidden}));
    const auto check = [&](const Tensor& fused, const std::string& name, double shift) {
      EXPECT_TRUE(testing::close_to(
          fused.f32(),
          defined(tensors.at(name).values, fused.shape().num_elements(), shift, first, count),
          6e-8));
    };
    check(heads.video_weight, "proj_out.weight", 12.0);
    check(heads.video_bias, "proj_out.bias", 12.0);
    check(heads.audio_weight, "audio_proj_out.weight", 3.0);
    check(heads.audio_bias, "audio_proj_out.bias", 3.0);
  }
}

TEST_F(HeadBank, EqualHeadsFuseToThatHead) {
  AdapterTensors tensors = vendor();
  for (auto& [name, tensor] : tensors) {
    const auto size = static_cast<std::size_t>(tensor.shape.num_elements() / kSteps);
    for (std::size_t i = size; i < tensor.values.size(); ++i) {
      tensor.values[i] = tensor.values[i % size];
    }
  }
  const TensorFile stored = file(tensors);
  const FusedHeads heads = read(stored).value().fuse(stored, 8, 4, device_).value();
  const auto& head = tensors.at("proj_out.weight").values;
  EXPECT_TRUE(
      testing::identical_to(heads.video_weight.f32(), std::span(head).first(kVideoRows * kHidden)));
}

TEST_F(HeadBank, OffsetBanksOfComfyUploadsGiveTheSameHeads) {
  // Heads that differ little from each other, as a trained bank's do.
  AdapterTensors absolute = vendor();
  for (auto& [name, tensor] : absolute) {
    const auto size = static_cast<std::size_t>(tensor.shape.num_elements() / kSteps);
    for (std::size_t i = size; i < tensor.values.size(); ++i) {
      tensor.values[i] = tensor.values[i % size] + 0.1F * tensor.values[i];
    }
  }
  AdapterTensors offsets;
  const std::pair<const char*, const char*> kNames[] = {
      {"proj_out.weight", "diffusion_model.final_layer.video_out.weight"},
      {"proj_out.bias", "diffusion_model.final_layer.video_out.bias"},
      {"audio_proj_out.weight", "diffusion_model.final_layer.audio_out.weight"},
      {"audio_proj_out.bias", "diffusion_model.final_layer.audio_out.bias"}};
  for (const auto& [vendor_name, comfy_name] : kNames) {
    testing::AdapterTensor tensor = absolute.at(vendor_name);
    const auto size = static_cast<std::size_t>(tensor.shape.num_elements() / kSteps);
    for (std::size_t i = tensor.values.size(); i-- > size;) {
      tensor.values[i] -= tensor.values[i % size];
    }
    tensor.shape = tensor.shape.rank() == 3 ? Shape({kSteps * tensor.shape[1], kHidden})
                                            : Shape({tensor.shape.num_elements()});
    offsets[comfy_name] = tensor;
  }
  const TensorFile as_vendor = file(absolute);
  const TensorFile as_comfy = file(offsets, {});
  const HeadBanks first = read(as_vendor).value();
  const HeadBanks second = read(as_comfy).value();
  EXPECT_FALSE(first.video_is_offsets());
  EXPECT_TRUE(second.video_is_offsets());
  EXPECT_TRUE(second.audio_is_offsets());
  for (const std::int64_t block : {0, 3, 7}) {
    const FusedHeads a = first.fuse(as_vendor, 4 * block, 4, device_).value();
    const FusedHeads b = second.fuse(as_comfy, 4 * block, 4, device_).value();
    EXPECT_TRUE(testing::close_to(b.video_weight.f32(), a.video_weight.f32(), 1e-6));
    EXPECT_TRUE(testing::close_to(b.video_bias.f32(), a.video_bias.f32(), 1e-6));
    EXPECT_TRUE(testing::close_to(b.audio_weight.f32(), a.audio_weight.f32(), 1e-6));
    EXPECT_TRUE(testing::close_to(b.audio_bias.f32(), a.audio_bias.f32(), 1e-6));
  }
}

TEST_F(HeadBank, MetadataAndShapesThatDisagreeAreErrors) {
  const auto refusal = [&](const AdapterTensors& tensors, const Metadata& metadata) {
    const TensorFile stored = file(tensors, metadata);
    const auto banks = read(stored);
    EXPECT_FALSE(banks);
    return banks ? std::string() : banks.error().message;
  };
  EXPECT_THAT(refusal(vendor(), {{"pdd_num_steps", "16"}}),
              AllOf(HasSubstr("32 heads"), HasSubstr("wanted 16")));
  EXPECT_THAT(refusal(vendor(), {{"pdd_num_steps", "32"}, {"pdd_block_size", "5"}}),
              HasSubstr("no whole blocks of 5"));
  for (const char* bad : {"", "x", "-4", "0", "4.5", "99999999999999999999"}) {
    EXPECT_THAT(refusal(vendor(), {{"pdd_num_steps", bad}}), HasSubstr("pdd_num_steps")) << bad;
  }
  for (const char* name :
       {"proj_out.weight", "proj_out.bias", "audio_proj_out.weight", "audio_proj_out.bias"}) {
    AdapterTensors tensors = vendor();
    tensors.erase(name);
    EXPECT_THAT(refusal(tensors, kMetadata), HasSubstr("head banks have no")) << name;
  }
  AdapterTensors wrong = vendor();
  wrong["audio_proj_out.weight"] = random({kSteps, kAudioRows, kHidden + 1}, 3);
  EXPECT_THAT(refusal(wrong, kMetadata), HasSubstr("audio_proj_out.weight"));
  wrong = vendor();
  wrong["audio_proj_out.bias"] = random({kSteps + 1, kAudioRows}, 3);
  EXPECT_THAT(refusal(wrong, kMetadata), HasSubstr("audio_proj_out.bias"));
  wrong = vendor();
  wrong["audio_proj_out.weight"] = random({16, kAudioRows, kHidden}, 3);
  wrong["audio_proj_out.bias"] = random({16, kAudioRows}, 3);
  EXPECT_THAT(refusal(wrong, kMetadata), HasSubstr("16 heads, wanted 32"));
}

}  // namespace
}  // namespace miniacc
