#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "checkpoint/edit_file.h"
#include "checkpoint/find_components.h"
#include "checkpoint/inspect.h"
#include "checkpoint/make_checkpoint.h"
#include "checkpoint/row_transforms.h"
#include "checkpoint/weights_util.h"
#include "device/cpu_device.h"
#include "support/compare.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using testing::EditableFile;
using testing::expect_same_weights;
using ::testing::HasSubstr;
using testing::open_or_fail;

const fs::path kGolden = fs::path(MINIACC_TEST_DATA) / "golden";

TEST(RowOrder, InterleavedRowsMatchTheWorkedExample) {
  // Spec model.md §9.14: projection 1, head 2, channel 3 is row 899 interleaved, 7427 plain.
  const TensorEntry entry{"w", DType::kBF16, {21504, 8}, 0, 0, 0};
  CanonicalTensor tensor{"w", {21504, 8}, RowLayout::kInterleavedQkv, 128, {{&entry, {}}}};
  const RowRun run = locate_row(tensor, 7427);
  EXPECT_EQ(run.stored_row, 899);
  EXPECT_EQ(run.length, 125);
  tensor.layout = RowLayout::kSwappedHalves;
  EXPECT_EQ(locate_row(tensor, 0).stored_row, 10752);
  EXPECT_EQ(locate_row(tensor, 10752).stored_row, 0);
}

TEST(RowOrder, EveryLayoutIsAPermutation) {
  const TensorEntry q{"q", DType::kBF16, {24, 8}, 0, 0, 0};
  for (const RowLayout layout :
       {RowLayout::kAsStored, RowLayout::kInterleavedQkv, RowLayout::kSwappedHalves}) {
    const CanonicalTensor tensor{"w", {24, 8}, layout, 4, {{&q, {}}}};
    std::set<std::int64_t> rows;
    for (std::int64_t row = 0; row < 24; ++row) {
      rows.insert(locate_row(tensor, row).stored_row);
    }
    EXPECT_EQ(rows.size(), 24U);
    EXPECT_EQ(*rows.rbegin(), 23);
  }
}

TEST(WeightNorm, FoldsToTheWorkedValues) {
  std::vector<float> row = {3.0F, 4.0F};
  fold_weight_norm(row, 10.0F);
  EXPECT_EQ(row, (std::vector<float>{6.0F, 8.0F}));
}

class Formats : public ::testing::Test {
 protected:
  fs::path make(CheckpointFormat format, WeightStorage storage = WeightStorage::kBF16) {
    MakeCheckpointOptions options;
    options.format = format;
    options.storage = storage;
    options.out = folder_ / "model";
    fs::remove_all(options.out);
    const Status made = make_checkpoint(options);
    EXPECT_TRUE(made) << made.error().message;
    return options.out;
  }
  testing::TempDir folder_;
};

TEST_F(Formats, PrefixesAreStripped) {
  const auto plain = open_or_fail(kGolden / "h3-micro-pruned");
  for (const char* prefix : {"model.diffusion_model.", "diffusion_model.", "transformer."}) {
    EditableFile file = EditableFile::read(kGolden / "h3-micro-pruned");
    file.add_prefix(prefix);
    file.write(folder_ / "prefixed.safetensors");
    const auto prefixed = open_or_fail(folder_ / "prefixed.safetensors");
    EXPECT_GT(expect_same_weights(*plain, *prefixed), 30) << prefix;
  }
  const auto vae =
      open_or_fail(make(CheckpointFormat::kComfy) / "minimax_h3_video_vae.safetensors");
  for (const char* prefix : {"first_stage_model.", "vae."}) {
    EditableFile file = EditableFile::read(vae->info().path);
    file.add_prefix(prefix);
    file.write(folder_ / "vae.safetensors");
    const auto prefixed = open_or_fail(folder_ / "vae.safetensors");
    EXPECT_GT(expect_same_weights(*vae, *prefixed), 30) << prefix;
    EXPECT_EQ(vae->config("latents_mean"), prefixed->config("latents_mean"));
  }
}

TEST_F(Formats, ParametrizationsAndFoldedFiltersAreTheSameAudioVae) {
  const auto plain = open_or_fail(kGolden / "h3-micro/audio_vae");
  EditableFile file = EditableFile::read(kGolden / "h3-micro/audio_vae");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors) {
    names.push_back(name);
  }
  for (const std::string& name : names) {
    if (name.ends_with(".weight_v")) {
      file.rename(name, name.substr(0, name.size() - 9) + ".parametrizations.weight.original1");
    } else if (name.ends_with(".weight_g")) {
      file.rename(name, name.substr(0, name.size() - 9) + ".parametrizations.weight.original0");
    }
  }
  file.write(folder_ / "audio.safetensors");
  const auto renamed = open_or_fail(folder_ / "audio.safetensors");
  EXPECT_GT(expect_same_weights(*plain, *renamed), 30);

  for (const std::string& name : names) {
    if (name.ends_with(".filter")) {
      file.tensors.erase(name);
    }
  }
  file.write(folder_ / "audio.safetensors");
  const auto computed = open_or_fail(folder_ / "audio.safetensors");
  CpuDevice device;
  const char* filter = "decoder.activation_post.downsample.lowpass.filter";
  EXPECT_TRUE(testing::close_to(computed->load(filter, device)->f32(),
                                plain->load(filter, device)->f32(), 1e-6));
}

TEST_F(Formats, ContentTestTellsInterleavedFromPlain) {
  // Without config.json only the content is left: once as the vendor stores it, once as ComfyUI.
  const auto official = open_or_fail(make(CheckpointFormat::kOfficial) / "transformer");
  EditableFile file = EditableFile::read(official->info().path);
  file.write(folder_ / "bare.safetensors");
  const auto bare = open_or_fail(folder_ / "bare.safetensors");
  EXPECT_TRUE(bare->info().interleaved_qkv);
  EXPECT_GT(expect_same_weights(*official, *bare), 30);
}

TEST_F(Formats, ContentTestRefusesToGuess) {
  // The micro model's q, k and v have one size, so nothing tells the orders apart.
  EditableFile file = EditableFile::read(kGolden / "h3-micro/transformer");
  file.write(folder_ / "bare.safetensors");
  const auto opened = open_component(folder_ / "bare.safetensors");
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("interleaved per head"));
}

TEST_F(Formats, TrimmedTextEncoderIsTheSame) {
  const auto full = open_or_fail(kGolden / "h3-micro/text_encoder");
  EditableFile file = EditableFile::read(kGolden / "h3-micro/text_encoder");
  for (auto place = file.tensors.begin(); place != file.tensors.end();) {
    const std::string& name = place->first;
    const bool unused = name.find("language_model.layers.3.") != std::string::npos ||
                        name.find("language_model.layers.4.") != std::string::npos ||
                        name.find("language_model.norm.") != std::string::npos ||
                        name.starts_with("lm_head.");
    place = unused ? file.tensors.erase(place) : std::next(place);
  }
  file.write(folder_ / "trimmed.safetensors");
  const auto trimmed = open_or_fail(folder_ / "trimmed.safetensors");
  EXPECT_GT(expect_same_weights(*full, *trimmed), 30);

  for (auto place = file.tensors.begin(); place != file.tensors.end();) {
    place = place->first.find("visual.") != std::string::npos ? file.tensors.erase(place)
                                                              : std::next(place);
  }
  file.write(folder_ / "text_only.safetensors");
  const auto text_only = open_or_fail(folder_ / "text_only.safetensors");
  EXPECT_FALSE(text_only->has("visual.pos_embed.weight"));
  EXPECT_TRUE(text_only->has("layers.2.mlp.up_proj.weight"));
}

TEST_F(Formats, MatricesComeInEveryPrecision) {
  const auto weights = open_or_fail(kGolden / "h3-micro/transformer");
  CpuDevice device;
  const char* name = "blocks.0.attn.qkv_proj.weight";
  const auto f32 = weights->load_matrix(name, Precision::kF32, device);
  const auto bf16 = weights->load_matrix(name, Precision::kBF16, device);
  const auto int8 = weights->load_matrix(name, Precision::kInt8, device);
  ASSERT_TRUE(f32 && bf16 && int8);
  EXPECT_EQ(bf16->values.dtype(), DType::kBF16);
  EXPECT_EQ(int8->values.dtype(), DType::kI8);
  EXPECT_EQ(int8->row_scale.shape(), (Shape{288}));
  EXPECT_EQ(int8->rotation_group, 0);
  const auto values = f32->values.f32();
  for (std::size_t i = 0; i < values.size(); ++i) {
    // The file is bf16, so nothing is lost.
    ASSERT_EQ(values[i],
              std::bit_cast<float>(
                  static_cast<std::uint32_t>(bf16->values.view().as<std::uint16_t>()[i]) << 16));
    const float step = int8->row_scale.f32()[i / 48];
    ASSERT_NEAR(values[i], step * int8->values.view().as<std::int8_t>()[i], 0.501 * step);
  }
}

TEST_F(Formats, StoredInt8IsKeptWithItsRotation) {
  const fs::path model = make(CheckpointFormat::kComfy, WeightStorage::kInt8ConvRot);
  const auto weights = open_or_fail(model / "minimax_h3.safetensors");
  EXPECT_EQ(weights->info().quantization, "int8_tensorwise+convrot");
  CpuDevice device;
  const std::string name = "blocks.0.mlp.fc1.weight";
  const auto matrix = weights->load_matrix(name, Precision::kInt8, device);
  ASSERT_TRUE(matrix);
  EXPECT_EQ(matrix->rotation_group, 256);
  const EditableFile file = EditableFile::read(model / "minimax_h3.safetensors");
  const auto& stored = file.tensors.at("model.diffusion_model." + name);
  ASSERT_EQ(stored.bytes.size(), matrix->values.size_bytes());
  EXPECT_EQ(std::memcmp(stored.bytes.data(), matrix->values.view().data, stored.bytes.size()), 0);
  const auto scales = file.f32("model.diffusion_model.blocks.0.mlp.fc1.weight_scale");
  EXPECT_TRUE(testing::identical_to(matrix->row_scale.f32(), scales));
}

TEST_F(Formats, RowsAreTheRowsOfTheWhole) {
  const auto weights = open_or_fail(kGolden / "h3-micro/text_encoder");
  CpuDevice device;
  const auto whole = weights->load("embed_tokens.weight", device);
  const auto rows = weights->load_rows("embed_tokens.weight", 17, 3, device);
  ASSERT_TRUE(whole && rows);
  EXPECT_EQ(rows->shape(), (Shape{3, 56}));
  EXPECT_TRUE(testing::identical_to(rows->f32(), whole->f32().subspan(17 * 56, 3 * 56)));
  EXPECT_FALSE(weights->load_rows("embed_tokens.weight", 575, 2, device));
  EXPECT_FALSE(weights->load_rows("embed_tokens.weight", -1, 2, device));
  EXPECT_EQ(weights->load("nothing", device).error().code, ErrorCode::kNotFound);
}

TEST_F(Formats, IdentityIsOfHeaderAndContent) {
  const auto official = open_or_fail(kGolden / "h3-micro/transformer");
  const auto again = open_or_fail(kGolden / "h3-micro/transformer/model.safetensors.index.json");
  const auto other = open_or_fail(kGolden / "h3-micro-diffusers/transformer");
  EXPECT_EQ(official->identity(), again->identity());
  EXPECT_NE(official->identity(), other->identity());
}

TEST_F(Formats, ComponentsAreFoundInEveryLayout) {
  const auto official = find_components(kGolden / "h3-micro");
  ASSERT_TRUE(official) << official.error().message;
  EXPECT_EQ(official->video_vae.filename(), "video_vae");
  EXPECT_EQ(official->tokenizer.filename(), "tokenizer");
  const auto diffusers = find_components(kGolden / "h3-micro-diffusers");
  ASSERT_TRUE(diffusers) << diffusers.error().message;
  EXPECT_EQ(diffusers->video_vae.filename(), "vae");

  // The vendor's repository holds two models; FL2VA makes video from text.
  fs::create_directories(folder_ / "repo");
  fs::create_directory_symlink(kGolden / "h3-micro", folder_ / "repo/FL2VA");
  fs::create_directory_symlink(kGolden / "h3-micro-diffusers", folder_ / "repo/Ref2VA");
  const auto both = find_components(folder_ / "repo");
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->transformer, folder_ / "repo/FL2VA/transformer");

  const fs::path flat = make(CheckpointFormat::kComfy);
  fs::rename(flat / "minimax_h3.safetensors", flat / "anything.safetensors");
  const auto single = find_components(flat);
  ASSERT_TRUE(single) << single.error().message;
  EXPECT_EQ(single->transformer, flat / "anything.safetensors");

  fs::create_hard_link(flat / "anything.safetensors", flat / "copy.safetensors");
  EXPECT_THAT(find_components(flat).error().message, HasSubstr("both a transformer"));
  fs::remove(flat / "copy.safetensors");
  fs::remove(flat / "minimax_h3_audio_vae.safetensors");
  EXPECT_THAT(find_components(flat).error().message, HasSubstr("no audio VAE"));
  fs::remove_all(flat / "tokenizer");
  EXPECT_EQ(find_tokenizer(flat / "qwen3vl_minimax_h3.safetensors").error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(find_components(folder_ / "nowhere").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find_components(flat / "anything.safetensors").error().code,
            ErrorCode::kInvalidArgument);
}

TEST_F(Formats, InspectReportsWhatIsThereAndWhatIsNot) {
  const auto whole = inspect(kGolden / "h3-micro");
  ASSERT_TRUE(whole) << whole.error().message;
  ASSERT_EQ(whole->components.size(), 4U);
  const ComponentReport& transformer = whole->components[0];
  EXPECT_EQ(transformer.info.component, Component::kTransformer);
  std::size_t parts = 0;
  for (const auto& [name, use] : transformer.by_part) {
    parts += use.size_bytes;
  }
  EXPECT_EQ(parts, transformer.total.size_bytes);
  EXPECT_GT(transformer.by_part.at("attention").size_bytes, 0U);
  EXPECT_GT(transformer.by_dtype.at("bf16").num_tensors, 20);
  EXPECT_THAT(whole->to_text(), HasSubstr("video VAE, official naming, safetensors"));
  EXPECT_THAT(whole->to_json(), HasSubstr("\"hidden_size\":48"));
  EXPECT_GT(whole->components[1].by_part.at("unused").num_tensors, 10);  // layers 3 and 4

  EditableFile file = EditableFile::read(kGolden / "h3-micro-pruned");
  file.tensors.erase("blocks.0.norm1.weight");
  file.set_f32("extra", {1}, {1});
  file.write(folder_ / "odd.safetensors");
  const auto odd = inspect(folder_ / "odd.safetensors");
  ASSERT_TRUE(odd) << odd.error().message;
  EXPECT_EQ(odd->components[0].missing, std::vector<std::string>{"blocks.0.norm1.weight"});
  EXPECT_EQ(odd->components[0].unknown, std::vector<std::string>{"extra"});
}

}  // namespace
}  // namespace miniacc
