#include "adapters/known_adapters.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/adapter_files.h"
#include "io/sha256.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using testing::Metadata;
using testing::random_factor;

class KnownAdapters : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const AdapterTensors& tensors = kOne,
                              const Metadata& metadata = {}) {
    return write_adapter(folder_ / (name + ".safetensors"), tensors, metadata);
  }
  AdapterIdentity identify(const std::filesystem::path& path) {
    return identify_adapter(TensorFile::open(path).value()).value();
  }
  inline static const AdapterTensors kOne = {{"x", random_factor(1, 1, 1)}};
  testing::TempDir folder_;
};

TEST_F(KnownAdapters, NamesOfReleasesTellRecipeAndHalf) {
  struct Row {
    const char* name;
    const char* recipe;
    const char* half;
    bool sparse = false;
  };
  // Spec adapters.md §13 and model.md §6.3.
  for (const Row& row :
       {Row{"minimax_h3_fl2v_turbo_4step_v0.1", "lightx2v4", "fl2va"},
        Row{"minimax_h3_fl2v_turbo_4step_v1.0_768p_bf16", "lightx2v4-768p", "fl2va"},
        Row{"minimax_h3_fl2v_turbo_4step_v1.1_768p_bf16", "lightx2v4-768p", "fl2va"},
        Row{"minimax_h3_fl2v_turbo_4step_v1.2_768p_comfyui_bf16", "lightx2v4-768p", "fl2va"},
        Row{"minimax_h3_fl2v_turbo_8step_v1.0_bf16", "lightx2v8", "fl2va"},
        Row{"minimax_h3_fl2v_turbo_8step_v1.0_768p_bf16", "turbo8", "fl2va"},
        Row{"minimax_h3_ref2v_turbo_4step_v0.1_bf16", "lightx2v4", "ref2va"},
        Row{"minimax_h3_ref2v_turbo_8step_v1.0_768p_bf16", "turbo8", "ref2va"},
        Row{"minimax_h3_fl2v_turbo_4step_v0.1_768p_sla_comfyui_bf16", "lightx2v4-768p", "fl2va",
            true},
        Row{"MiniMax_H3_Turbo_v4_step600_ema", "larry6", "fl2va"},
        Row{"TaoMate-H3-comfy", "taomate3", "fl2va"}}) {
    const AdapterIdentity identity = identify(write(row.name));
    EXPECT_EQ(identity.recipe, row.recipe) << row.name;
    EXPECT_EQ(identity.half, row.half) << row.name;
    EXPECT_EQ(identity.sparse, row.sparse) << row.name;
    EXPECT_EQ(identity.recipe_by, KnownBy::kName) << row.name;
  }
  const AdapterIdentity other = identify(write("my_style"));
  EXPECT_TRUE(other.recipe.empty());
  EXPECT_TRUE(other.half.empty());
  EXPECT_FALSE(other.like_few_step);
}

TEST_F(KnownAdapters, ContentBeatsTheName) {
  const auto path = write("minimax_h3_fl2v_turbo_4step_v0.1");
  const std::string digest = sha256_of_file(path).value();
  const std::size_t size = std::filesystem::file_size(path);
  const std::string prefix = digest.substr(0, 8);
  const std::array table = {
      KnownAdapter{.sha256 = "00000000", .size_bytes = size, .stem = "other", .recipe = "base"},
      KnownAdapter{.sha256 = prefix, .size_bytes = size, .stem = "another", .recipe = "pdmd2"},
      KnownAdapter{.sha256 = "", .stem = "minimax_h3_fl2v_turbo_4step_v0.1", .recipe = "turbo8"}};
  const TensorFile file = TensorFile::open(path).value();
  const AdapterIdentity identity = identify_adapter(file, table).value();
  EXPECT_EQ(identity.recipe, "pdmd2");
  EXPECT_EQ(identity.known_by, KnownBy::kContent);
  // A digest of files of another size is not worth a hash.
  const std::array other = {
      KnownAdapter{.sha256 = prefix, .size_bytes = size + 1, .stem = "another", .recipe = "pdmd2"}};
  EXPECT_EQ(identify_adapter(file, other).value().known, nullptr);
}

TEST_F(KnownAdapters, MetadataAndTensorsTellWhereNamesDoNot) {
  EXPECT_EQ(identify(write("a", kOne, {{"recipe", "taomate3"}})).recipe, "taomate3");
  EXPECT_EQ(identify(write("a", kOne, {{"pdd_num_steps", "32"}})).recipe, "pdd8");
  const AdapterTensors bank = {{"proj_out.weight", {{2, 3, 4}, random_factor(6, 4, 1).values}}};
  const AdapterIdentity heads = identify(write("b", bank));
  EXPECT_EQ(heads.recipe, "pdd8");
  EXPECT_EQ(heads.recipe_by, KnownBy::kHeadBanks);

  // Only names, count and ranks matter: one column is enough.
  const auto blocks = [](const std::vector<std::string>& leaves, std::int64_t rank,
                         std::int64_t qkv_rank, const std::string& block) {
    AdapterTensors tensors;
    const auto add = [&](const std::string& module, std::int64_t r) {
      tensors[module + ".lora_A.weight"] = random_factor(r, 1, 1);
      tensors[module + ".lora_B.weight"] = random_factor(1, r, 1);
    };
    for (int i = 0; i < 52; ++i) {
      for (const std::string& leaf : leaves) {
        const std::string prefix =
            i < 50 ? fmt::format("{}.{}.", block, i)
                   : fmt::format("token_refiner.{}.{}.",
                                 block == "blocks" ? "blocks" : "refiner_blocks", i - 50);
        add(prefix + leaf, leaf == "attn.qkv_proj" ? qkv_rank : rank);
      }
    }
    return tensors;
  };
  const std::vector<std::string> fused = {"attn.qkv_proj", "attn.out_proj", "mlp.fc1", "mlp.fc2"};
  AdapterTensors larry = blocks(fused, 64, 64, "blocks");
  for (int i = 0; i < 51; ++i) {
    const std::string module = i < 50 ? fmt::format("blocks.{}.adaln_proj.linear", i)
                                      : std::string("final_layer.adaln_proj.linear");
    larry[module + ".lora_A.weight"] = random_factor(16, 1, 1);
    larry[module + ".lora_B.weight"] = random_factor(1, 16, 1);
  }
  ASSERT_EQ(larry.size(), 518U);
  const AdapterIdentity identity = identify(write("renamed", larry));
  EXPECT_EQ(identity.recipe, "larry6");
  EXPECT_EQ(identity.recipe_by, KnownBy::kTensors);

  const AdapterTensors split =
      blocks({"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "ff.net.0.proj", "ff.net.2"},
             128, 128, "transformer_blocks");
  ASSERT_EQ(split.size(), 624U);
  EXPECT_TRUE(identify(write("c", split)).like_few_step);
  EXPECT_TRUE(identify(write("c", split)).recipe.empty());
  EXPECT_FALSE(identify(write("minimax_h3_fl2v_turbo_4step_v0.1", split)).like_few_step);
  EXPECT_TRUE(identify(write("d", blocks(fused, 128, 384, "blocks"))).like_few_step);
  EXPECT_FALSE(identify(write("e", blocks(fused, 128, 128, "blocks"))).like_few_step);
}

}  // namespace
}  // namespace miniacc
