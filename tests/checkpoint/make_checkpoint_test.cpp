#include "checkpoint/make_checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint/find_components.h"
#include "checkpoint/open_component.h"
#include "checkpoint/synthetic_outputs.h"
#include "checkpoint/weights_util.h"
#include "device/cpu_device.h"
#include "io/tokenizer.h"
#include "support/compare.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_weights;
using testing::open_or_fail;

/// One model in every format, made once for all tests of this file.
class MakeCheckpoint : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { shared_folder = std::make_unique<testing::TempDir>(); }
  static void TearDownTestSuite() { shared_folder.reset(); }

  static ModelFiles model(CheckpointFormat format, WeightStorage storage = WeightStorage::kBF16,
                          std::uint64_t seed = 7) {
    MakeCheckpointOptions options;
    options.format = format;
    options.storage = storage;
    options.seed = seed;
    options.out =
        *shared_folder / (std::to_string(static_cast<int>(format)) + "-" +
                          std::to_string(static_cast<int>(storage)) + "-" + std::to_string(seed));
    if (!fs::exists(options.out)) {
      const Status made = make_checkpoint(options);
      EXPECT_TRUE(made) << made.error().message;
    }
    auto files = find_components(options.out);
    EXPECT_TRUE(files) << files.error().message;
    return files.value_or(ModelFiles{});
  }

  static void expect_same_model(const ModelFiles& left, const ModelFiles& right) {
    for (const auto member : {&ModelFiles::transformer, &ModelFiles::text_encoder,
                              &ModelFiles::video_vae, &ModelFiles::audio_vae}) {
      const auto a = open_or_fail(left.*member);
      const auto b = open_or_fail(right.*member);
      ASSERT_TRUE(a && b);
      EXPECT_GT(expect_same_weights(*a, *b), 30) << left.*member;
    }
  }

  static std::unique_ptr<testing::TempDir> shared_folder;
};
std::unique_ptr<testing::TempDir> MakeCheckpoint::shared_folder;

TEST_F(MakeCheckpoint, DiffusersHoldsTheOfficialWeights) {
  expect_same_model(model(CheckpointFormat::kOfficial), model(CheckpointFormat::kDiffusers));
}

TEST_F(MakeCheckpoint, ComfyHoldsTheOfficialWeights) {
  const ModelFiles comfy = model(CheckpointFormat::kComfy);
  expect_same_model(model(CheckpointFormat::kOfficial), comfy);
  const auto transformer = open_or_fail(comfy.transformer);
  EXPECT_EQ(transformer->info().naming, Naming::kComfy);  // by the content test
  EXPECT_EQ(transformer->info().prefix, "model.diffusion_model.");
}

TEST_F(MakeCheckpoint, Float32FilesHoldTheSameWeights) {
  expect_same_model(model(CheckpointFormat::kOfficial),
                    model(CheckpointFormat::kComfy, WeightStorage::kF32));
}

TEST_F(MakeCheckpoint, GgufHoldsTheOfficialWeights) {
  const ModelFiles gguf = model(CheckpointFormat::kGguf);
  expect_same_model(model(CheckpointFormat::kOfficial), gguf);
  const auto encoder = open_or_fail(gguf.text_encoder);
  EXPECT_EQ(encoder->info().naming, Naming::kLlamaCpp);
  EXPECT_EQ(encoder->info().container, ContainerFormat::kGguf);
  EXPECT_EQ(encoder->config("mrope_section"), (std::vector<double>{6, 5, 5}));
}

TEST_F(MakeCheckpoint, PrunedDiffersInTheModulationOnly) {
  const auto full = open_or_fail(model(CheckpointFormat::kOfficial).transformer);
  const auto pruned = open_or_fail(model(CheckpointFormat::kComfyPruned).transformer);
  ASSERT_TRUE(full && pruned);
  EXPECT_TRUE(pruned->info().pruned);
  CpuDevice device;
  for (const std::string& name : full->names()) {
    if (name.find("adaln") != std::string::npos || name.starts_with("time_embedder.")) {
      continue;
    }
    const auto a = full->load(name, device);
    const auto b = pruned->load(name, device);
    ASSERT_TRUE(a && b) << name;
    EXPECT_TRUE(testing::identical_to(a->f32(), b->f32())) << name;
  }
  EXPECT_EQ(*pruned->shape("adaln_t_table"), (Shape{1025, 8}));
  EXPECT_EQ(*pruned->shape("blocks.0.adaln_proj.linear.weight"), (Shape{18 * 256, 8}));
}

struct Quantised {
  CheckpointFormat format;
  WeightStorage storage;
  double bound;  ///< relative error of a matrix against the bf16 values; measured beside each
};
class MakeQuantised : public MakeCheckpoint, public ::testing::WithParamInterface<Quantised> {};

TEST_P(MakeQuantised, StaysNearTheOfficialWeights) {
  const auto [format, storage, bound] = GetParam();
  const ModelFiles plain = model(CheckpointFormat::kOfficial);
  const ModelFiles quantised = model(format, storage);
  CpuDevice device;
  for (const auto& [left, right, name] :
       {std::tuple{plain.transformer, quantised.transformer, "blocks.1.attn.qkv_proj.weight"},
        std::tuple{plain.transformer, quantised.transformer, "blocks.2.mlp.fc2.weight"},
        std::tuple{plain.text_encoder, quantised.text_encoder, "layers.1.mlp.down_proj.weight"}}) {
    const auto a = open_or_fail(left);
    const auto b = open_or_fail(right);
    ASSERT_TRUE(a && b);
    const auto wanted = a->load(name, device);
    const auto got = b->load(name, device);
    ASSERT_TRUE(wanted && got) << name;
    EXPECT_TRUE(testing::close_to(got->f32(), wanted->f32(), bound)) << name;
    EXPECT_GT(testing::relative_error(got->f32(), wanted->f32()), 0.0) << name;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Storages, MakeQuantised,
    ::testing::Values(Quantised{CheckpointFormat::kComfy, WeightStorage::kFp8Scaled, 0.04},
                      Quantised{CheckpointFormat::kComfy, WeightStorage::kInt8ConvRot, 0.01},
                      Quantised{CheckpointFormat::kGguf, WeightStorage::kQ8_0, 0.01},
                      Quantised{CheckpointFormat::kGguf, WeightStorage::kQ4_0, 0.12},
                      Quantised{CheckpointFormat::kGguf, WeightStorage::kQ4_K, 0.10}));

TEST_F(MakeCheckpoint, SeedChangesEveryMatrix) {
  const auto a = open_or_fail(model(CheckpointFormat::kOfficial).transformer);
  const auto b =
      open_or_fail(model(CheckpointFormat::kOfficial, WeightStorage::kBF16, 8).transformer);
  ASSERT_TRUE(a && b);
  CpuDevice device;
  for (const std::string& name : a->names()) {
    if (name == "rope.inv_freq") {
      continue;
    }
    const auto left = a->load(name, device);
    const auto right = b->load(name, device);
    ASSERT_TRUE(left && right);
    EXPECT_GT(testing::max_abs_error(left->f32(), right->f32()), 0.0) << name;
  }
}

TEST_F(MakeCheckpoint, TokenizerFitsTheEmbedding) {
  const ModelFiles files = model(CheckpointFormat::kOfficial);
  const auto tokenizer = Tokenizer::open(files.tokenizer);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto encoder = open_or_fail(files.text_encoder);
  EXPECT_EQ((*encoder->shape("embed_tokens.weight"))[0], tokenizer->vocabulary_size());
  const auto ids = tokenizer->encode(" the camera<d> zyx\n");
  ASSERT_TRUE(ids) << ids.error().message;
  ASSERT_GE(ids->size(), 4U);
  EXPECT_EQ(tokenizer->token_text((*ids)[0]), "\xC4\xA0the");
  EXPECT_EQ(tokenizer->token_text((*ids)[1]),
            "\xC4\xA0"
            "camera");
  EXPECT_EQ(tokenizer->token_text((*ids)[2]), "<d>");
  EXPECT_EQ(*tokenizer->decode(*ids), " the camera<d> zyx\n");
}

TEST_F(MakeCheckpoint, RefusesAFolderThatExists) {
  MakeCheckpointOptions options;
  options.out = shared_folder->path();
  const Status made = make_checkpoint(options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(MakeCheckpoint, RefusesStorageThatTheFormatLacks) {
  MakeCheckpointOptions options;
  options.out = *shared_folder / "never";
  options.storage = WeightStorage::kQ4_K;
  EXPECT_EQ(make_checkpoint(options).error().code, ErrorCode::kInvalidArgument);
  options.storage = WeightStorage::kFp8Scaled;
  EXPECT_EQ(make_checkpoint(options).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(options.out));
}

TEST_F(MakeCheckpoint, CancelLeavesNothingBehind) {
  CancelToken cancel;
  cancel.cancel();
  MakeCheckpointOptions options;
  options.out = *shared_folder / "cancelled";
  options.cancel = &cancel;
  EXPECT_EQ(make_checkpoint(options).error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(fs::exists(*shared_folder / "cancelled"));
  EXPECT_FALSE(fs::exists(*shared_folder / "cancelled.partial"));
}

TEST(SyntheticOutputs, FullSizeIsThePublishedSize) {
  // Published index totals: spec model.md §2.1, text_encoder.md §1, vae.md §7.1 (diffusers) and
  // §7.3.
  const SyntheticModel model = synthetic_model(SyntheticSize::kFull, 0);
  MakeCheckpointOptions options;
  const auto expect_total = [&](Component component, std::size_t num_tensors, std::size_t bytes) {
    const auto outputs = synthetic_outputs(model, component, options);
    std::size_t total = 0;
    for (const SyntheticOutput& output : outputs) {
      total += storage_bytes(output.spec.dtype, output.spec.shape.num_elements()).value();
    }
    EXPECT_EQ(outputs.size(), num_tensors) << component_name(component);
    EXPECT_EQ(total, bytes) << component_name(component);
  };
  expect_total(Component::kTransformer, 535, 66'280'430'144);
  expect_total(Component::kTextEncoder, 1058, 66'714'780'128);
  expect_total(Component::kAudioVae, 1087, std::size_t{151'326'585} * 4);
  options.format = CheckpointFormat::kDiffusers;
  expect_total(Component::kTransformer, 638, 66'280'430'144 - 16 * 4);
  expect_total(Component::kVideoVae, 703, 10'415'475'936);
  options.format = CheckpointFormat::kComfyPruned;
  const auto pruned_outputs = synthetic_outputs(model, Component::kTransformer, options);
  EXPECT_EQ(pruned_outputs.size(), 532U);
  options.storage = WeightStorage::kInt8ConvRot;
  EXPECT_EQ(synthetic_outputs(model, Component::kTransformer, options).size(), 932U);
}

TEST_F(MakeCheckpoint, TinyIsSmall) {
  model(CheckpointFormat::kOfficial);
  std::uintmax_t total = 0;
  for (const auto& item : fs::recursive_directory_iterator(*shared_folder / "0-0-7")) {
    total += item.is_regular_file() ? item.file_size() : 0;
  }
  EXPECT_GT(total, std::uintmax_t{8} << 20);
  EXPECT_LT(total, std::uintmax_t{24} << 20);
}

}  // namespace
}  // namespace miniacc
