#include "checkpoint/convert.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>

#include "checkpoint/find_components.h"
#include "checkpoint/open_component.h"
#include "checkpoint/weights_util.h"
#include "device/cpu_device.h"
#include "io/tensor_file.h"
#include "kernels/time_curve.h"
#include "support/compare.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_weights;
using ::testing::HasSubstr;
using testing::open_or_fail;

const fs::path kTiny = fs::path(MINIACC_TEST_DATA).parent_path() / "models/h3-tiny";
constexpr auto kParts = {&ModelFiles::transformer, &ModelFiles::text_encoder,
                         &ModelFiles::video_vae, &ModelFiles::audio_vae};

class Convert : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { made_ = std::make_unique<testing::TempDir>(); }
  static void TearDownTestSuite() { made_.reset(); }

  static fs::path made(CheckpointFormat format, WeightStorage storage) {
    MakeCheckpointOptions options;
    options.format = format;
    options.storage = storage;
    options.seed = 3;
    options.out = *made_ / (std::to_string(static_cast<int>(format)) + "-" +
                            std::to_string(static_cast<int>(storage)));
    if (!fs::exists(options.out)) {
      const Status status = make_checkpoint(options);
      EXPECT_TRUE(status) << status.error().message;
    }
    return options.out;
  }

  std::vector<ConvertedComponent> convert(const fs::path& in, const std::string& out,
                                          ConvertOptions options) const {
    options.in = in;
    options.out = folder_ / out;
    auto done = convert_checkpoint(options);
    EXPECT_TRUE(done) << done.error().message;
    return done.value_or(std::vector<ConvertedComponent>{});
  }
  void expect_error(const fs::path& in, ConvertOptions options, ErrorCode code,
                    const std::string& part) const {
    options.in = in;
    options.out = options.out.empty() ? folder_ / "refused" : options.out;
    const auto done = convert_checkpoint(options);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, code) << done.error().message;
    EXPECT_THAT(done.error().message, HasSubstr(part));
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
    EXPECT_FALSE(fs::exists(folder_ / "refused.partial"));
  }

  /// `unfolded`: weight norm was folded on the way, which rounds.
  static void expect_same_model(const fs::path& left, const fs::path& right,
                                bool unfolded = false) {
    const auto a = find_components(left);
    const auto b = find_components(right);
    ASSERT_TRUE(a && b) << left << " " << right;
    for (const auto part : kParts) {
      const auto one = open_or_fail((*a).*part);
      const auto other = open_or_fail((*b).*part);
      ASSERT_TRUE(one && other);
      if (unfolded && part == &ModelFiles::audio_vae) {
        expect_close_weights(*one, *other);
      } else {
        EXPECT_GT(expect_same_weights(*one, *other), 30);
      }
      expect_same_config(*one, *other);
    }
  }

  static void expect_close_weights(ComponentWeights& left, ComponentWeights& right) {
    ASSERT_EQ(left.names(), right.names());
    CpuDevice device;
    for (const std::string& name : left.names()) {
      const auto a = left.load(name, device);
      const auto b = right.load(name, device);
      ASSERT_TRUE(a && b) << name;
      EXPECT_LE(testing::max_abs_error(a->f32(), b->f32()), 1e-6) << name;
    }
  }

  /// What the models read from configurations.
  static void expect_same_config(ComponentWeights& left, ComponentWeights& right) {
    for (const char* key :
         {"norm_eps", "qk_norm_eps", "final_norm_eps", "rms_norm_eps", "rope_theta",
          "mrope_section", "miniacc_text_layers", "num_heads", "rope_dim_ratio", "latents_mean",
          "latents_std", "clip_length", "token_drop", "tile_size", "tile_overlap_min",
          "decoder_rates", "resblock_dilation_sizes", "sampling_rate"}) {
      const auto a = left.config(key);
      const auto b = right.config(key);
      if (!a || !b) {
        continue;  // a default of one of the two layouts
      }
      ASSERT_EQ(a->size(), b->size()) << key;
      for (std::size_t i = 0; i < a->size(); ++i) {
        EXPECT_FLOAT_EQ(static_cast<float>((*a)[i]), static_cast<float>((*b)[i])) << key;
      }
    }
  }

  /// The same stored tensors, byte for byte, in whatever files they lie.
  static void expect_same_bytes(const fs::path& left, const fs::path& right) {
    const auto a = TensorFile::open(component_file(left).value());
    const auto b = TensorFile::open(component_file(right).value());
    ASSERT_TRUE(a && b);
    ASSERT_EQ(a->entries().size(), b->entries().size());
    for (const TensorEntry& entry : a->entries()) {
      const TensorEntry* other = b->find(entry.name);
      ASSERT_NE(other, nullptr) << entry.name;
      EXPECT_EQ(entry.dtype, other->dtype) << entry.name;
      EXPECT_EQ(entry.shape, other->shape) << entry.name;
      const auto x = a->bytes(entry).value();
      const auto y = b->bytes(*other).value();
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << entry.name;
    }
  }

  testing::TempDir folder_;
  static std::unique_ptr<testing::TempDir> made_;
};
std::unique_ptr<testing::TempDir> Convert::made_;

TEST_F(Convert, TheHalfOfTheModelIsCarriedAlong) {
  const fs::path source = made(CheckpointFormat::kOfficial, WeightStorage::kBF16);
  const fs::path ref2va = folder_ / "Ref2VA";
  fs::create_directory(ref2va);
  for (const char* part : {"transformer", "text_encoder", "tokenizer", "video_vae", "audio_vae"}) {
    fs::create_directory_symlink(source / part, ref2va / part);
  }
  for (const auto& [in, wanted] :
       {std::pair(source, ModelHalf::kFl2va), std::pair(ref2va, ModelHalf::kRef2va)}) {
    const std::string out = std::string(half_name(wanted)) + "-converted";
    convert(in, out + "-d", {.format = CheckpointFormat::kDiffusers});
    EXPECT_EQ(detect_half(folder_ / (out + "-d") / "transformer").half, wanted);
    convert(folder_ / (out + "-d"), out + "-o", {.format = CheckpointFormat::kOfficial});
    EXPECT_EQ(detect_half(folder_ / (out + "-o") / "transformer").half, wanted);
  }
}

TEST_F(Convert, EveryFormatHoldsTheSameBits) {
  for (const fs::path& source : {kTiny, made(CheckpointFormat::kOfficial, WeightStorage::kBF16)}) {
    for (const auto& [name, format] : {std::pair{"diffusers", CheckpointFormat::kDiffusers},
                                       {"comfy", CheckpointFormat::kComfy}}) {
      SCOPED_TRACE(source.string() + " as " + name);
      const std::string out = source.filename().string() + name;
      EXPECT_EQ(convert(source, out, {.format = format}).size(), 4U);
      expect_same_model(source, folder_ / out);
      // And back: bf16 stays bf16, f32 stays f32, rows return to their places.
      convert(folder_ / out, out + "-back", {.format = CheckpointFormat::kOfficial});
      expect_same_model(source, folder_ / (out + "-back"), format == CheckpointFormat::kComfy);
      expect_same_bytes(source / "transformer", folder_ / (out + "-back") / "transformer");
    }
  }
}

TEST_F(Convert, FoldersKeepWhatNothingReads) {
  // Layers beyond those used, the output head: the same names in both layouts, the same bytes.
  convert(kTiny, "diffusers", {.format = CheckpointFormat::kDiffusers});
  expect_same_bytes(kTiny / "text_encoder", folder_ / "diffusers/text_encoder");
  expect_same_bytes(kTiny / "audio_vae", folder_ / "diffusers/audio_vae");
  for (const char* name : {"tokenizer.json", "merges.txt", "vocab.json"}) {
    EXPECT_TRUE(fs::exists(folder_ / "diffusers/tokenizer" / name)) << name;
  }
}

TEST_F(Convert, Float32IsExactInEveryContainer) {
  const fs::path source = made(CheckpointFormat::kOfficial, WeightStorage::kBF16);
  for (const auto& [name, format] : {std::pair{"gguf", CheckpointFormat::kGguf},
                                     {"comfy", CheckpointFormat::kComfy},
                                     {"official", CheckpointFormat::kOfficial}}) {
    convert(source, name, {.format = format, .storage = WeightStorage::kF32});
    expect_same_model(source, folder_ / name);
  }
  const auto file = TensorFile::open(component_file(folder_ / "official/transformer").value());
  EXPECT_EQ(file->find("blocks.0.mlp.fc1.weight")->dtype, DType::kF32);
}

TEST_F(Convert, GgufTypesStayNearTheSource) {
  const fs::path source = made(CheckpointFormat::kOfficial, WeightStorage::kBF16);
  const auto exact = open_or_fail(find_components(source)->transformer);
  CpuDevice device;
  const auto wanted = exact->load("blocks.1.attn.qkv_proj.weight", device);
  struct Case {
    const char* name;
    WeightStorage storage;
    DType dtype;
    double bound;
  };
  for (const Case& test : {Case{"f16", WeightStorage::kF16, DType::kF16, 3e-4},
                           Case{"q8_0", WeightStorage::kQ8_0, DType::kQ8_0, 0.01},
                           Case{"q4_k", WeightStorage::kQ4_K, DType::kQ4_K, 0.10}}) {
    SCOPED_TRACE(test.name);
    convert(source, test.name, {.format = CheckpointFormat::kGguf, .storage = test.storage});
    const auto files = find_components(folder_ / test.name);
    const auto file = TensorFile::open(files->transformer);
    EXPECT_EQ(file->find("blocks.1.attn.qkv_proj.weight")->dtype, test.dtype);
    const auto read = open_or_fail(files->transformer);
    const auto got = read->load("blocks.1.attn.qkv_proj.weight", device);
    ASSERT_TRUE(got);
    EXPECT_TRUE(testing::close_to(got->f32(), wanted->f32(), test.bound));
    // And out of GGUF again: what was lost is lost, the rest is as it was.
    convert(folder_ / test.name, std::string(test.name) + "-back",
            {.format = CheckpointFormat::kDiffusers, .storage = WeightStorage::kF32});
    expect_same_model(folder_ / test.name, folder_ / (std::string(test.name) + "-back"), true);
  }
}

TEST_F(Convert, Int8ValuesAreCopied) {
  // The pruned target rewrites the file, but its int8 layers keep values and scales.
  const fs::path source = made(CheckpointFormat::kComfy, WeightStorage::kInt8ConvRot);
  const auto done = convert(source, "pruned", {.format = CheckpointFormat::kComfyPruned});
  ASSERT_FALSE(done.empty());
  EXPECT_FALSE(done.front().copied);
  const auto before = TensorFile::open(find_components(source)->transformer);
  const auto after = TensorFile::open(find_components(folder_ / "pruned")->transformer);
  int compared = 0;
  for (const TensorEntry& entry : before->entries()) {
    if (entry.name.find(".mlp.fc1.") == std::string::npos) {
      continue;
    }
    const TensorEntry* other = after->find(entry.name);
    ASSERT_NE(other, nullptr) << entry.name;
    const auto x = before->bytes(entry).value();
    const auto y = after->bytes(*other).value();
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << entry.name;
    ++compared;
  }
  EXPECT_GE(compared, 9);
  EXPECT_EQ(open_or_fail(find_components(folder_ / "pruned")->transformer)->info().quantization,
            "int8_tensorwise+convrot");
}

TEST_F(Convert, ThePrunedFormModulatesAsTheFullOne) {
  for (const auto& [source, rank] :
       {std::pair{kTiny, 8}, std::pair{kTiny, 16},
        std::pair{made(CheckpointFormat::kOfficial, WeightStorage::kBF16), 12}}) {
    const std::string name = source.filename().string() + std::to_string(rank);
    const auto done = convert(
        source, name,
        {.format = CheckpointFormat::kComfyPruned, .storage = WeightStorage::kF32, .rank = rank});
    ASSERT_TRUE(!done.empty() && done.front().prune);
    const PruneReport& report = *done.front().prune;
    EXPECT_EQ(report.rank, rank);
    const auto full = open_or_fail(find_components(source)->transformer);
    const auto pruned = open_or_fail(find_components(folder_ / name)->transformer);
    ASSERT_TRUE(full && pruned);
    EXPECT_TRUE(pruned->info().pruned);
    // Between points of the grid, by definition, in double.
    CpuDevice device;
    OpContext ctx{device};
    const std::vector<float> times = {0.0F, 0.1234F, 0.5017F, 0.777F, 0.9995F, 1.0F};
    const auto load = [&](ComponentWeights& weights, const char* tensor) {
      return weights.load(tensor, device).value();
    };
    const Tensor in = load(*full, "time_embedder.proj_in.weight");
    const Tensor in_bias = load(*full, "time_embedder.proj_in.bias");
    const Tensor out = load(*full, "time_embedder.proj_out.weight");
    const Tensor out_bias = load(*full, "time_embedder.proj_out.bias");
    const Tensor temb =
        time_mlp(ctx, {in.view(), in_bias.view(), out.view(), out_bias.view()}, times);
    const Tensor table = load(*pruned, "adaln_t_table");
    const Tensor w_full = load(*full, "blocks.1.adaln_proj.linear.weight");
    const Tensor b_full = load(*full, "blocks.1.adaln_proj.linear.bias");
    const Tensor w_pruned = load(*pruned, "blocks.1.adaln_proj.linear.weight");
    const Tensor b_pruned = load(*pruned, "blocks.1.adaln_proj.linear.bias");
    const std::int64_t width = w_full.shape()[1];
    double wanted_squares = 0.0;
    double off_squares = 0.0;
    for (std::size_t t = 0; t < times.size(); ++t) {
      const double position = times[t] * 1024.0;
      const auto low = static_cast<std::size_t>(std::min(std::floor(position), 1023.0));
      const double part = position - static_cast<double>(low);
      for (std::int64_t row = 0; row < w_full.shape()[0]; ++row) {
        const auto r = static_cast<std::size_t>(row);
        double wanted = b_full.f32()[r];
        for (std::int64_t c = 0; c < width; ++c) {
          const double x =
              temb.f32()[t * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)];
          wanted +=
              w_full.f32()[r * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)] *
              (x / (1.0 + std::exp(-x)));
        }
        double got = b_pruned.f32()[r];
        for (std::size_t k = 0; k < static_cast<std::size_t>(rank); ++k) {
          const auto columns = static_cast<std::size_t>(rank);
          got += w_pruned.f32()[r * columns + k] * ((1.0 - part) * table.f32()[low * columns + k] +
                                                    part * table.f32()[(low + 1) * columns + k]);
        }
        wanted_squares += wanted * wanted;
        off_squares += (got - wanted) * (got - wanted);
      }
    }
    const double relative = std::sqrt(off_squares / wanted_squares);
    EXPECT_LT(relative, 2.0 * report.worst_rel_resid + 1e-5) << name;
    EXPECT_LT(report.worst_rel_resid, 1e-3) << name;
    if (rank == 16 && width == 16) {  // nothing is left out
      EXPECT_LT(report.worst_rel_resid, 1e-5);
    }
  }
}

TEST_F(Convert, APoorFitIsRefused) {
  expect_error(kTiny, {.format = CheckpointFormat::kComfyPruned, .rank = 1, .max_rel_resid = 1e-4},
               ErrorCode::kInvalidInput, "a larger --rank fits better");
  expect_error(kTiny, {.format = CheckpointFormat::kComfyPruned, .rank = 17},
               ErrorCode::kInvalidArgument, "--rank is 17, wanted 1 to 16");
}

TEST_F(Convert, QuantisingReportsTheErrorAgainstTheOriginal) {
  const auto done = convert(kTiny, "int8",
                            {.format = CheckpointFormat::kComfy,
                             .storage = WeightStorage::kInt8ConvRot,
                             .measure_int8 = true});
  ASSERT_FALSE(done.empty());
  const auto full = open_or_fail(kTiny / "transformer");
  const auto int8 = open_or_fail(find_components(folder_ / "int8")->transformer);
  EXPECT_EQ(int8->info().quantization, "int8_tensorwise+convrot");
  EXPECT_EQ(done.front().int8_errors.size(), 24U);
  CpuDevice device;
  for (const Int8Error& error : done.front().int8_errors) {
    const auto wanted = full->load(error.name, device);
    const auto got = int8->load(error.name, device);  // dequantised, rotated back
    ASSERT_TRUE(wanted && got) << error.name;
    const double relative = testing::relative_error(got->f32(), wanted->f32());
    EXPECT_NEAR(error.weight_error, relative, 1e-5) << error.name;
    EXPECT_LT(error.weight_error, 0.015) << error.name;
    EXPECT_EQ(error.rotation_group, 256) << error.name;
    // Rounding of weights and of activations are independent and of one size.
    EXPECT_NEAR(error.output_error / error.weight_error, 1.0, 0.15) << error.name;
    EXPECT_GT(error.int8_output_error, error.output_error) << error.name;
    EXPECT_LT(error.int8_output_error, 0.02) << error.name;
  }
}

TEST_F(Convert, QuantisingSmallerGroupsAndNone) {
  for (const std::int64_t group : {0, 16}) {
    const std::string out = "group" + std::to_string(group) + ".safetensors";
    const auto done = convert(kTiny / "transformer", out,
                              {.format = CheckpointFormat::kComfy,
                               .storage = WeightStorage::kInt8ConvRot,
                               .rotation_group = group,
                               .measure_int8 = true});
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done.front().int8_errors.front().rotation_group, group);
    EXPECT_LT(done.front().int8_errors.front().weight_error, 0.02);
    EXPECT_TRUE(open_or_fail(folder_ / out));
  }
  expect_error(kTiny,
               {.format = CheckpointFormat::kComfy,
                .storage = WeightStorage::kInt8ConvRot,
                .rotation_group = 100},
               ErrorCode::kInvalidArgument, "--rotation-group is 100");
}

TEST_F(Convert, QuantisedSourcesAreRefusedForMeasuring) {
  for (const auto& [format, storage] :
       {std::pair{CheckpointFormat::kComfy, WeightStorage::kInt8ConvRot},
        {CheckpointFormat::kComfy, WeightStorage::kFp8Scaled},
        {CheckpointFormat::kGguf, WeightStorage::kQ8_0}}) {
    expect_error(find_components(made(format, storage))->transformer,
                 {.out = folder_ / "refused.safetensors",
                  .format = CheckpointFormat::kComfy,
                  .storage = WeightStorage::kInt8ConvRot,
                  .measure_int8 = true},
                 ErrorCode::kInvalidInput, "must be measured against the original");
  }
}

TEST_F(Convert, SingleComponentsAndTheirNames) {
  const auto done = convert(kTiny / "video_vae", "vae.safetensors", {});
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done.front().component, Component::kVideoVae);
  const auto a = open_or_fail(kTiny / "video_vae");
  const auto b = open_or_fail(folder_ / "vae.safetensors");
  EXPECT_GT(expect_same_weights(*a, *b), 30);
  expect_same_config(*a, *b);
  // One part of a model folder.
  EXPECT_EQ(convert(kTiny, "text.gguf",
                    {.format = CheckpointFormat::kGguf, .component = Component::kTextEncoder})
                .size(),
            1U);
  EXPECT_TRUE(open_or_fail(folder_ / "text.gguf"));
  convert(kTiny / "transformer", "folder", {.format = CheckpointFormat::kDiffusers});
  const auto c = open_or_fail(kTiny / "transformer");
  const auto d = open_or_fail(folder_ / "folder");
  EXPECT_GT(expect_same_weights(*c, *d), 30);
}

TEST_F(Convert, WhatCannotBeIsRefused) {
  const fs::path pruned = made(CheckpointFormat::kComfyPruned, WeightStorage::kBF16);
  expect_error(pruned, {.format = CheckpointFormat::kOfficial}, ErrorCode::kInvalidArgument,
               "is pruned");
  expect_error(kTiny, {.format = CheckpointFormat::kOfficial, .storage = WeightStorage::kQ8_0},
               ErrorCode::kInvalidArgument, "gguf only");
  expect_error(kTiny, {.format = CheckpointFormat::kGguf, .storage = WeightStorage::kFp8Scaled},
               ErrorCode::kInvalidArgument, "comfy and comfy-pruned only");
  expect_error(kTiny / "transformer", {.format = CheckpointFormat::kComfy},
               ErrorCode::kInvalidArgument, "ends in .safetensors");
  expect_error(kTiny / "transformer",
               {.format = CheckpointFormat::kComfy, .component = Component::kAudioVae},
               ErrorCode::kInvalidInput, "--component asks for an audio VAE");
  expect_error(folder_ / "absent", {}, ErrorCode::kNotFound, "absent");
  expect_error(kTiny, {.out = folder_.path()}, ErrorCode::kInvalidArgument, "exists already");
  CancelToken cancelled;
  cancelled.cancel();
  expect_error(kTiny, {.cancel = &cancelled}, ErrorCode::kCancelled, "cancelled");
}

TEST_F(Convert, Fp8KeepsAScaleThatFits) {
  convert(kTiny, "fp8", {.format = CheckpointFormat::kComfy, .storage = WeightStorage::kFp8Scaled});
  const auto a = open_or_fail(kTiny / "transformer");
  const auto b = open_or_fail(find_components(folder_ / "fp8")->transformer);
  EXPECT_EQ(b->info().quantization, "fp8_scaled");
  CpuDevice device;
  const auto wanted = a->load("blocks.3.mlp.fc2.weight", device);
  const auto got = b->load("blocks.3.mlp.fc2.weight", device);
  EXPECT_TRUE(testing::close_to(got->f32(), wanted->f32(), 0.04));
}

}  // namespace
}  // namespace miniacc
