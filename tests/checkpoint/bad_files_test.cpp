#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/edit_file.h"
#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::EditableFile;
using ::testing::HasSubstr;

const fs::path kGolden = fs::path(MINIACC_TEST_DATA) / "golden";

/// Files made from the micro model by one change each.
class BadFiles : public ::testing::Test {
 protected:
  /// The pruned transformer needs no config.json to be understood.
  EditableFile transformer_ = EditableFile::read(kGolden / "h3-micro-pruned");

  Error error_of(const EditableFile& file, std::optional<Component> wanted = std::nullopt) {
    const fs::path path = folder_ / "file.safetensors";
    file.write(path);
    const auto opened = open_component(path, wanted);
    EXPECT_FALSE(opened);
    return opened ? Error{} : opened.error();
  }

  testing::TempDir folder_;
};

TEST_F(BadFiles, UnchangedCopyOpens) {
  transformer_.write(folder_ / "file.safetensors");
  EXPECT_TRUE(open_component(folder_ / "file.safetensors", Component::kTransformer));
}

TEST_F(BadFiles, MissingTensorIsNamed) {
  transformer_.tensors.erase("blocks.1.norm1.weight");
  EXPECT_THAT(
      error_of(transformer_).message,
      AllOf(HasSubstr("1 missing tensor: blocks.1.norm1.weight"), HasSubstr("file.safetensors")));
}

TEST_F(BadFiles, MissingTensorsAreCountedAndTheFirstFiveNamed) {
  for (const char* tail : {"attn.q_norm", "attn.k_norm", "attn.out_proj", "mlp.fc2", "norm1",
                           "norm2", "adaln_proj.linear"}) {
    transformer_.tensors.erase(std::string("blocks.2.") + tail + ".weight");
  }
  EXPECT_THAT(error_of(transformer_).message,
              AllOf(HasSubstr("7 missing tensors"), HasSubstr(" and 2 more")));
}

TEST_F(BadFiles, UnknownTensorIsNamed) {
  transformer_.set_f32("blocks.0.mystery.weight", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(error_of(transformer_).message,
              HasSubstr("1 unknown tensor: blocks.0.mystery.weight"));
}

TEST_F(BadFiles, GapInTheBlocksIsReported) {
  for (auto place = transformer_.tensors.begin(); place != transformer_.tensors.end();) {
    place = place->first.starts_with("blocks.1.") ? transformer_.tensors.erase(place)
                                                  : std::next(place);
  }
  EXPECT_THAT(error_of(transformer_).message,
              AllOf(HasSubstr("unknown tensors"), HasSubstr("blocks.2.")));
}

TEST_F(BadFiles, WrongShapeSaysGotAndWanted) {
  transformer_.set_f32("blocks.1.norm1.weight", {47}, std::vector<float>(47, 1.0F));
  EXPECT_THAT(error_of(transformer_).message,
              AllOf(HasSubstr("blocks.1.norm1.weight is [47]"), HasSubstr("wanted [48]")));
}

TEST_F(BadFiles, IntegerWeightsAreRefused) {
  auto& norm = transformer_.tensors["blocks.1.norm1.weight"];
  norm.dtype = DType::kI32;
  norm.bytes.resize(48 * 4);
  EXPECT_THAT(error_of(transformer_).message,
              AllOf(HasSubstr("blocks.1.norm1.weight is i32"), HasSubstr("floating-point")));
}

TEST_F(BadFiles, Int8WithoutScaleIsRefused) {
  auto& weight = transformer_.tensors["blocks.1.mlp.fc2.weight"];
  weight.dtype = DType::kI8;
  weight.bytes.resize(weight.bytes.size() / 2);
  EXPECT_THAT(error_of(transformer_).message,
              AllOf(HasSubstr("blocks.1.mlp.fc2.weight"), HasSubstr("without a weight_scale")));
}

TEST_F(BadFiles, NanIsReportedWithTheTensorWhenItIsRead) {
  const Shape shape = transformer_.tensors["blocks.1.mlp.fc2.weight"].shape;
  auto values = transformer_.f32("blocks.1.mlp.fc2.weight");
  values[static_cast<std::size_t>(shape[1] * 3 + 2)] = std::numeric_limits<float>::quiet_NaN();
  transformer_.set_f32("blocks.1.mlp.fc2.weight", shape, values);
  transformer_.write(folder_ / "file.safetensors");
  auto weights = open_component(folder_ / "file.safetensors");
  ASSERT_TRUE(weights);
  CpuDevice device;
  for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kInt8}) {
    const auto matrix = (*weights)->load_matrix("blocks.1.mlp.fc2.weight", precision, device);
    ASSERT_FALSE(matrix);
    EXPECT_THAT(matrix.error().message,
                AllOf(HasSubstr("blocks.1.mlp.fc2.weight"), HasSubstr("NaN"), HasSubstr("row 3")));
  }
  EXPECT_FALSE((*weights)->load("blocks.1.mlp.fc2.weight", device));
  // Other rows are untouched and can be read.
  EXPECT_TRUE((*weights)->load_rows("blocks.1.mlp.fc2.weight", 4, 2, device));
  EXPECT_FALSE((*weights)->load_rows("blocks.1.mlp.fc2.weight", 2, 2, device));
}

TEST_F(BadFiles, InfinityInStoredBf16IsReported) {
  auto& weight = transformer_.tensors["blocks.1.mlp.fc2.weight"];
  ASSERT_EQ(weight.dtype, DType::kBF16);
  weight.bytes[0] = std::byte{0x80};
  weight.bytes[1] = std::byte{0x7F};
  transformer_.write(folder_ / "file.safetensors");
  auto weights = open_component(folder_ / "file.safetensors");
  ASSERT_TRUE(weights);
  CpuDevice device;
  EXPECT_FALSE((*weights)->load_matrix("blocks.1.mlp.fc2.weight", Precision::kBF16, device));
}

TEST_F(BadFiles, MixedUpFilesSayWhatTheyAre) {
  const auto wrong = [](const fs::path& path, Component wanted) {
    return open_component(path, wanted).error().message;
  };
  EXPECT_THAT(wrong(kGolden / "h3-micro/video_vae", Component::kTransformer),
              HasSubstr("given as --diffusion-model but this file is a video VAE"));
  EXPECT_THAT(wrong(kGolden / "h3-micro/audio_vae", Component::kVideoVae),
              HasSubstr("given as --vae but this file is an audio VAE"));
  EXPECT_THAT(wrong(kGolden / "h3-micro/transformer", Component::kTextEncoder),
              HasSubstr("given as --text-encoder but this file is a transformer"));
  EXPECT_THAT(wrong(kGolden / "h3-micro/text_encoder", Component::kAudioVae),
              HasSubstr("given as --audio-vae but this file is a text encoder"));
}

TEST_F(BadFiles, SomethingElseIsNotAComponent) {
  EditableFile other;
  other.set_f32("double_blocks.0.img_attn.qkv.weight", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(error_of(other).message, HasSubstr("no transformer, text encoder or VAE"));
}

TEST_F(BadFiles, AdapterIsNamedAsSuch) {
  EditableFile adapter;
  adapter.set_f32("diffusion_model.blocks.0.mlp.fc1.lora_A.weight", {1, 2}, {1, 2});
  const Error error = error_of(adapter);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("LoRA adapter"));
}

TEST_F(BadFiles, SparseAttentionGatesAreRefusedByName) {
  transformer_.set_f32("blocks.0.attn.to_gate_compress.weight", {2, 2}, {1, 2, 3, 4});
  const Error error = error_of(transformer_);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("FastH3"));
}

TEST_F(BadFiles, HeadBankIsRefusedByName) {
  const std::int64_t hidden = 48;
  transformer_.set_f32("final_layer.video_out.weight", {4 * 96, hidden},
                       std::vector<float>(4 * 96 * 48, 0.1F));
  const Error error = error_of(transformer_);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("PDD head bank"));
}

TEST_F(BadFiles, UnknownQuantisationIsRefusedByName) {
  auto nvfp4 = transformer_;
  nvfp4.set_f32("blocks.0.mlp.fc1.weight_scale_2", {1}, {1});
  Error error = error_of(nvfp4);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("nvfp4"));

  const std::string record = R"({"format": "mxfp6"})";
  testing::EditableTensor blob{DType::kU8, {static_cast<std::int64_t>(record.size())}, {}};
  for (const char c : record) {
    blob.bytes.push_back(static_cast<std::byte>(c));
  }
  transformer_.tensors["blocks.0.mlp.fc1.comfy_quant"] = blob;
  error = error_of(transformer_);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("mxfp6"));
}

TEST_F(BadFiles, TensorStoredTwiceIsRefused) {
  EditableFile encoder = EditableFile::read(kGolden / "h3-micro/audio_vae");
  const auto folded = encoder.tensors.at("decoder.conv_pre.weight_v");
  encoder.tensors["decoder.conv_pre.weight"] = folded;
  EXPECT_THAT(error_of(encoder).message, HasSubstr("decoder.conv_pre.weight is stored twice"));
}

TEST_F(BadFiles, HalfAWeightNormIsMissingAPart) {
  EditableFile audio = EditableFile::read(kGolden / "h3-micro/audio_vae");
  audio.tensors.erase("decoder.conv_pre.weight_g");
  EXPECT_THAT(error_of(audio).message, HasSubstr("decoder.conv_pre.weight"));
}

TEST_F(BadFiles, NameOutsideThePrefixIsUnknown) {
  transformer_.add_prefix("model.diffusion_model.");
  transformer_.set_f32("first_stage_model.decoder.bias", {1}, {1});
  EXPECT_THAT(error_of(transformer_).message,
              HasSubstr("1 unknown tensor: first_stage_model.decoder.bias"));
}

TEST_F(BadFiles, AbsentPathsAndEmptyFoldersAreNotFound) {
  EXPECT_EQ(open_component(folder_ / "nowhere").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(open_component(folder_.path()).error().code, ErrorCode::kNotFound);
}

TEST_F(BadFiles, ConfigThatIsNotJsonIsNamed) {
  transformer_.write(folder_ / "model.safetensors");
  FILE* config = fopen((folder_ / "config.json").c_str(), "w");
  fputs("{\"norm_eps\": ", config);
  fclose(config);
  EXPECT_THAT(open_component(folder_.path()).error().message, HasSubstr("config.json"));
}

}  // namespace
}  // namespace miniacc
