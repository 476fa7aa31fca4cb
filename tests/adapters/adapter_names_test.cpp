#include "adapters/adapter_names.h"

#include <gtest/gtest.h>

namespace miniacc {
namespace {

TEST(AdapterNames, EveryConventionNamesTheSameModule) {
  struct Case {
    const char* name;
    const char* module;
    AdapterVocabulary vocabulary;
    AdapterRole role;
    int part;
  };
  const auto official = AdapterVocabulary::kOfficial;
  const auto diffusers = AdapterVocabulary::kDiffusers;
  const auto flat = AdapterVocabulary::kFlat;
  const Case cases[] = {
      {"transformer_blocks.7.attn.to_k.lora_A.weight", "blocks.7.attn.qkv_proj", diffusers,
       AdapterRole::kDown, 1},
      {"transformer.transformer_blocks.7.attn.to_v.lora_B.default.weight", "blocks.7.attn.qkv_proj",
       diffusers, AdapterRole::kUp, 2},
      {"base_model.model.transformer.transformer_blocks.0.ff.net.2.lora_down.weight",
       "blocks.0.mlp.fc2", diffusers, AdapterRole::kDown, -1},
      {"token_refiner.refiner_blocks.1.attn.to_out.0.lora_up",
       "token_refiner.blocks.1.attn.out_proj", diffusers, AdapterRole::kUp, -1},
      {"diffusion_model.blocks.49.attn.qkv_proj.alpha", "blocks.49.attn.qkv_proj", official,
       AdapterRole::kAlpha, -1},
      {"diffusion_model.diffusion_model.blocks.4.mlp.fc1.lora_A", "blocks.4.mlp.fc1", official,
       AdapterRole::kDown, -1},
      {"model.diffusion_model.blocks.4.mlp.fc1.lora.up.weight", "blocks.4.mlp.fc1", official,
       AdapterRole::kUp, -1},
      {"blocks.12.adaln_proj.linear.diff_b", "blocks.12.adaln_proj.linear", official,
       AdapterRole::kDiffBias, -1},
      {"lora_unet_token_refiner_blocks_0_mlp_fc2.lora_down.weight",
       "token_refiner.blocks.0.mlp.fc2", flat, AdapterRole::kDown, -1},
      {"lora_unet_final_layer_adaln_proj_linear.alpha", "final_layer.adaln_proj.linear", flat,
       AdapterRole::kAlpha, -1},
      {"norm_out.linear.lora_B.weight", "final_layer.adaln_proj.linear", diffusers,
       AdapterRole::kUp, -1},
      {"blocks.0.attn.out_proj.dora_scale", "blocks.0.attn.out_proj", official,
       AdapterRole::kUnsupported, -1},
      {"proj_out.weight", "final_layer.video_out", diffusers, AdapterRole::kReplacement, -1},
  };
  for (const Case& c : cases) {
    const auto name = parse_adapter_name(c.name);
    ASSERT_TRUE(name) << c.name;
    EXPECT_EQ(name->module, c.module) << c.name;
    EXPECT_EQ(name->vocabulary, c.vocabulary) << c.name;
    EXPECT_EQ(name->role, c.role) << c.name;
    EXPECT_EQ(name->qkv_part.value_or(-1), c.part) << c.name;
  }
  EXPECT_TRUE(parse_adapter_name("transformer_blocks.0.ff.net.0.proj.lora_A.weight")->value_first);
  EXPECT_FALSE(parse_adapter_name("blocks.0.mlp.fc1.lora_A.weight")->value_first);
  EXPECT_EQ(parse_adapter_name("base_model.model.diffusion_model.condition_proj.diff")->prefix,
            "base_model.model.diffusion_model.");
}

TEST(AdapterNames, OtherNamesAreNoModules) {
  for (const char* name :
       {"", ".", ".alpha", "blocks", "blocks.0.attn.qkv_proj", "blocks.00.mlp.fc1.alpha",
        "blocks.x.mlp.fc1.alpha", "blocks..mlp.fc1.alpha", "blocks.123456.mlp.fc1.alpha",
        "blocks.0.attn.to_q.lora_A.weight", "transformer_blocks.0.attn1.to_q.lora_A.weight",
        "blocks.0.attn.qkv_proj.lora_C.weight", "lora_unet_blocks_0_attn_q.lora_down.weight",
        "lora_unet_blocks.0.mlp.fc1.alpha", "model.model.model.blocks.0.mlp.fc1.alpha"}) {
    EXPECT_FALSE(parse_adapter_name(name)) << name;
  }
  EXPECT_EQ(guess_other_family("diffusion_model.blocks.0.cross_attn.k.lora_A.weight"),
            "it looks like one for Wan");
  EXPECT_EQ(guess_other_family("blocks.0.attn.qkv_proj.lora_A.weight"), "");
}

}  // namespace
}  // namespace miniacc
