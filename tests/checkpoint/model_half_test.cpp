#include "checkpoint/model_half.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/find_components.h"
#include "checkpoint/size_table.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::test_data;

class ModelHalfTest : public ::testing::Test {
 protected:
  fs::path make_folder(const std::string& name) const {
    fs::create_directories(folder_ / name);
    return folder_ / name;
  }
  fs::path make_file(const std::string& name, const std::string& text = "x") const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  testing::TempDir folder_;
};

TEST_F(ModelHalfTest, NamesOfFilesAndFoldersTell) {
  EXPECT_EQ(detect_half(make_folder("FL2VA/transformer")).half, ModelHalf::kFl2va);
  EXPECT_EQ(detect_half(make_folder("Ref2VA/transformer")).half, ModelHalf::kRef2va);
  EXPECT_EQ(detect_half(make_folder("Ref2VA/transformer") / "").half, ModelHalf::kRef2va);
  EXPECT_EQ(detect_half(make_file("Ref2VA/transformer/model.safetensors.index.json")).half,
            ModelHalf::kRef2va);
  EXPECT_EQ(detect_half(make_file("minimax_h3_ref2va_pruned_int8_convrot.safetensors")).half,
            ModelHalf::kRef2va);
  EXPECT_EQ(detect_half(make_file("MiniMax_H3_FL2VA-Q8_0.gguf")).half, ModelHalf::kFl2va);
  EXPECT_EQ(detect_half(make_file("h3.gguf")).half, std::nullopt);
  EXPECT_EQ(detect_half(make_file("h3_fl2va_and_ref2va_merge.gguf")).half, std::nullopt);
  // The nearest name counts.
  EXPECT_EQ(detect_half(make_file("FL2VA/h3_ref2va.gguf")).half, ModelHalf::kRef2va);
  EXPECT_THAT(detect_half(make_file("Ref2VA/h3.gguf")).reason, HasSubstr("folder is named Ref2VA"));
}

TEST_F(ModelHalfTest, TheIndexBesideATransformerTells) {
  make_file("a/model_index.json", R"({"_minimax_h3":{"partition":"ref2va"}})");
  EXPECT_EQ(detect_half(make_folder("a/transformer")).half, ModelHalf::kRef2va);
  make_file("b/model_index.json", R"({"_class_name":"MiniMaxH3ModularPipeline"})");
  EXPECT_EQ(detect_half(make_folder("b/transformer")).half, ModelHalf::kFl2va);
  EXPECT_EQ(detect_half(make_folder("b/transformer_ref")).half, ModelHalf::kRef2va);
  for (const char* broken :
       {"[1]", "{", R"({"_minimax_h3":7})", R"({"_minimax_h3":{"partition":3}})",
        R"({"_minimax_h3":{"partition":"other"}})"}) {
    make_file("c/model_index.json", broken);
    EXPECT_EQ(detect_half(make_folder("c/transformer")).half, std::nullopt) << broken;
  }
  make_folder("d/transformer_ref");
  EXPECT_EQ(detect_half(make_folder("d/transformer")).half, ModelHalf::kFl2va);
  EXPECT_EQ(detect_half(test_data("golden/h3-micro/transformer")).half, ModelHalf::kFl2va);
}

TEST_F(ModelHalfTest, WhereBothLieTheTaskChooses) {
  const fs::path micro = test_data("golden/h3-micro");
  make_folder("repo");
  fs::create_directory_symlink(micro, folder_ / "repo/FL2VA");
  make_folder("repo/Ref2VA");  // only the transformer was downloaded, the rest is the same
  fs::create_directory_symlink(micro / "transformer", folder_ / "repo/Ref2VA/transformer");
  const auto fl2va = find_components(folder_ / "repo", ModelHalf::kFl2va).value();
  EXPECT_EQ(fl2va.transformer, folder_ / "repo/FL2VA/transformer");
  const auto ref2va = find_components(folder_ / "repo", ModelHalf::kRef2va).value();
  EXPECT_EQ(ref2va.transformer, folder_ / "repo/Ref2VA/transformer");
  EXPECT_EQ(ref2va.text_encoder, folder_ / "repo/FL2VA/text_encoder");

  make_folder("diffusers");
  for (const char* part : {"transformer", "text_encoder", "tokenizer", "audio_vae", "video_vae"}) {
    fs::create_directory_symlink(micro / part, folder_ / "diffusers" / part);
  }
  EXPECT_EQ(find_components(folder_ / "diffusers", ModelHalf::kRef2va).value().transformer,
            folder_ / "diffusers/transformer");
  fs::create_directory_symlink(micro / "transformer", folder_ / "diffusers/transformer_ref");
  EXPECT_EQ(find_components(folder_ / "diffusers", ModelHalf::kRef2va).value().transformer,
            folder_ / "diffusers/transformer_ref");
  EXPECT_EQ(find_components(folder_ / "diffusers", ModelHalf::kFl2va).value().transformer,
            folder_ / "diffusers/transformer");
}

TEST(SizeTable, FoldersNameMadeUpModels) {
  EXPECT_EQ(parse_synthetic_folder("synthetic:full").value()->size, SyntheticSize::kFull);
  EXPECT_EQ(parse_synthetic_folder("synthetic:tiny-int8").value()->stored, Precision::kInt8);
  EXPECT_FALSE(parse_synthetic_folder("models/my-model").value());
  EXPECT_THAT(parse_synthetic_folder("synthetic:huge").error().message, HasSubstr("full"));
  const auto full =
      open_synthetic(*parse_synthetic_folder("synthetic:full").value(), Component::kTransformer)
          .value();
  std::size_t parameters = 0;
  for (const std::string& name : full->names()) {
    parameters += static_cast<std::size_t>(full->shape(name).value().num_elements());
  }
  EXPECT_EQ(parameters, 17'222'144U + 33'105'770'752U + 16U);  // spec model.md §2.1
}

TEST(SizeTable, AConfigurationWithoutWeightsStandsForTheReleasedSizes) {
  const testing::TempDir folder;
  const auto write = [&](const std::string& text) {
    std::ofstream(folder / "config.json") << text;
  };
  bool from_config = false;
  EXPECT_EQ(open_sizes(folder.path(), Component::kTransformer, from_config).error().code,
            ErrorCode::kNotFound);
  write(R"({"_class_name":"MiniMaxH3DiTModel","hidden_size":5376,"num_layers":50})");
  const auto table = open_sizes(folder.path(), Component::kTransformer, from_config);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_TRUE(from_config);
  EXPECT_TRUE((*table)->has("blocks.49.norm1.weight"));
  write(R"({"_class_name":"MiniMaxH3DiTModel","hidden_size":48,"num_layers":3})");
  const auto other = open_sizes(folder.path(), Component::kTransformer, from_config);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("without headers"));
  const auto weights =
      open_sizes(test_data("golden/h3-micro/transformer"), Component::kTransformer, from_config);
  ASSERT_TRUE(weights);
  EXPECT_FALSE(from_config);
}

}  // namespace
}  // namespace miniacc
