#include "checkpoint/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/edit_file.h"
#include "checkpoint/inspect.h"
#include "checkpoint/make_checkpoint.h"
#include "checkpoint/open_component.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using testing::EditableFile;
using ::testing::HasSubstr;

const fs::path kGolden = fs::path(MINIACC_TEST_DATA) / "golden";

/// Copies of micro components with one change in config.json or in the tensors.
class Config : public ::testing::Test {
 protected:
  fs::path copy(const fs::path& component) {
    const fs::path to = folder_ / "component";
    fs::remove_all(to);
    fs::copy(kGolden / component, to, fs::copy_options::recursive);
    return to;
  }

  /// Sets `pointer` in `config` of a copy of `component` and returns how opening it fails.
  Error error_with(const fs::path& component, const char* pointer, const json& value,
                   const char* config = "config.json") {
    const fs::path path = copy(component);
    set(path / config, pointer, value);
    const auto opened = open_component(path);
    EXPECT_FALSE(opened) << component << " " << pointer << " " << value;
    return opened ? Error{} : opened.error();
  }

  static void set(const fs::path& path, const char* pointer, const json& value) {
    json root = json::parse(std::ifstream(path));
    root[json::json_pointer(pointer)] = value;
    std::ofstream(path) << root;
  }

  /// A copy of `component` without the tensors whose names hold `fragment`.
  fs::path without(const fs::path& component, const std::string& fragment) {
    const fs::path path = copy(component);
    EditableFile file = EditableFile::read(path);
    std::erase_if(file.tensors,
                  [&](const auto& item) { return item.first.find(fragment) != std::string::npos; });
    for (const auto& item : fs::recursive_directory_iterator(path)) {
      if (item.path().string().find(".safetensors") != std::string::npos) {
        fs::remove(item.path());
      }
    }
    file.write(path / "model.safetensors");
    return path;
  }

  testing::TempDir folder_;
};

TEST_F(Config, MissingTrailingBlockIsNamed) {
  const auto message = [](const fs::path& path) {
    const auto opened = open_component(path);
    EXPECT_FALSE(opened);
    return opened ? std::string() : opened.error().message;
  };
  EXPECT_THAT(
      message(without("h3-micro/transformer", "blocks.2.")),
      HasSubstr("config.json says num_layers 3, the file has blocks 0 to 1: blocks.2 is missing"));
  EXPECT_THAT(message(without("h3-micro-diffusers/transformer", "blocks.2.")),
              HasSubstr("says num_layers 3, the file has blocks 0 to 1: blocks.2 is missing"));
  EXPECT_THAT(message(without("h3-micro/transformer", "token_refiner.blocks.1.")),
              HasSubstr("says token_refiner_num_layers 2, the file has token_refiner.blocks 0 to "
                        "0: token_refiner.blocks.1 is missing"));
  EXPECT_THAT(message(without("h3-micro/video_vae", "transformer_blocks.2.")),
              HasSubstr("says vit_decoder_kwargs.num_layers 3, the file has "
                        "decoder.transformer_blocks 0 to 1"));
  EXPECT_THAT(message(without("h3-micro-diffusers/vae", "transformer_blocks.2.")),
              HasSubstr("says decoder_num_layers 3"));
}

TEST_F(Config, InspectListsTheMissingBlock) {
  const auto report = inspect(without("h3-micro/transformer", "blocks.2."));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->components.front().problems,
              ::testing::Contains(HasSubstr("blocks.2 is missing")));
  EXPECT_THAT(report->to_text(), HasSubstr("blocks.2 is missing"));
}

TEST_F(Config, TextEncoderNeedsTheLayersThatAreUsedAndNoMore) {
  // Three of five are used.
  EXPECT_TRUE(open_component(without("h3-micro/text_encoder", "layers.4.")));
  const fs::path path = without("h3-micro/text_encoder", "layers.2.");
  const auto opened = open_component(path);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message,
              AllOf(HasSubstr("says conditioning_layer 3"), HasSubstr("layers.2 is missing")));
  const auto report = inspect(path);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->components.front().problems,
              ::testing::Contains(HasSubstr("layers.2 is missing")));
  // Without conditioning_layer all of num_hidden_layers are used, 50 at most.
  EXPECT_THAT(error_with("h3-micro/text_encoder", "/conditioning_layer", 7).message,
              HasSubstr("says conditioning_layer 7, the file has layers 0 to 4"));
  const fs::path all = copy("h3-micro/text_encoder");
  set(all / "config.json", "/conditioning_layer", nullptr);
  EXPECT_EQ((*open_component(all))->config("miniacc_text_layers"), std::vector<double>{5});
  set(all / "config.json", "/text_config/num_hidden_layers", 64);
  EXPECT_THAT(open_component(all).error().message,
              HasSubstr("says text_config.num_hidden_layers 64, of which 50 are used, the file has "
                        "layers 0 to 4: layers.5 is missing"));
  set(all / "config.json", "/miniacc_text_layers", 4);
  EXPECT_EQ((*open_component(all))->config("miniacc_text_layers"), std::vector<double>{4});
}

struct Contradiction {
  const char* component;
  const char* pointer;
  const char* config = "config.json";
};

TEST_F(Config, SizesThatTheTensorsContradictAreRefused) {
  constexpr Contradiction kCases[] = {
      {"h3-micro/transformer", "/num_layers"},
      {"h3-micro/transformer", "/token_refiner_num_layers"},
      {"h3-micro/transformer", "/hidden_size"},
      {"h3-micro/transformer", "/num_attention_heads"},
      {"h3-micro/transformer", "/attention_head_dim"},
      {"h3-micro/transformer", "/ffn_hidden_size"},
      {"h3-micro/transformer", "/latents_dim"},
      {"h3-micro/transformer", "/audio_latents_dim"},
      {"h3-micro/transformer", "/text_dim"},
      {"h3-micro/transformer", "/timestep_input_dim"},
      {"h3-micro/transformer", "/time_embed_hidden_size"},
      {"h3-micro/transformer", "/time_embed_dim"},
      {"h3-micro/transformer", "/adaln_out_features"},
      {"h3-micro/transformer", "/final_adaln_out_features"},
      {"h3-micro-diffusers/transformer", "/num_refiner_layers"},
      {"h3-micro-diffusers/transformer", "/ffn_dim"},
      {"h3-micro-diffusers/transformer", "/in_channels"},
      {"h3-micro-diffusers/transformer", "/audio_in_channels"},
      {"h3-micro-diffusers/transformer", "/freq_dim"},
      {"h3-micro-diffusers/transformer", "/time_embed_hidden_dim"},
      {"h3-micro/text_encoder", "/text_config/hidden_size"},
      {"h3-micro/text_encoder", "/text_config/num_attention_heads"},
      {"h3-micro/text_encoder", "/text_config/num_key_value_heads"},
      {"h3-micro/text_encoder", "/text_config/head_dim"},
      {"h3-micro/text_encoder", "/text_config/intermediate_size"},
      {"h3-micro/text_encoder", "/text_config/vocab_size"},
      {"h3-micro/text_encoder", "/vision_config/depth"},
      {"h3-micro/text_encoder", "/vision_config/hidden_size"},
      {"h3-micro/text_encoder", "/vision_config/intermediate_size"},
      {"h3-micro/video_vae", "/latent_channels"},
      {"h3-micro/video_vae", "/vit_decoder_kwargs/num_layers", "source/config.json"},
      {"h3-micro/video_vae", "/vit_decoder_kwargs/dim_head", "source/config.json"},
      {"h3-micro-diffusers/vae", "/decoder_attention_head_dim"},
      {"h3-micro-diffusers/vae", "/decoder_num_layers"},
      {"h3-micro-diffusers/vae", "/decoder_num_register_tokens"},
      {"h3-micro-diffusers/vae", "/decoder_ffn_mult"},
      {"h3-micro/audio_vae", "/latent_channels"},
      {"h3-micro/audio_vae", "/metadata/kwargs/vae_latent_channels", "metadata.json"},
      {"h3-micro/audio_vae", "/metadata/kwargs/latent_dim", "metadata.json"},
      {"h3-micro/audio_vae", "/metadata/kwargs/decoder_dim", "metadata.json"},
      {"h3-micro-diffusers/audio_vae", "/latent_dim"},
      {"h3-micro-diffusers/audio_vae", "/decoder_dim"},
  };
  for (const Contradiction& item : kCases) {
    const json root = json::parse(std::ifstream(kGolden / item.component / item.config));
    const auto value = root.at(json::json_pointer(item.pointer)).get<std::int64_t>();
    for (const std::int64_t other : {value + 1, value - 1}) {
      const Error error = error_with(item.component, item.pointer, other, item.config);
      EXPECT_EQ(error.code, ErrorCode::kInvalidInput);
      EXPECT_THAT(error.message, AllOf(HasSubstr(fmt::format("{} says {} {}", item.config,
                                                             key_of_pointer(item.pointer), other)),
                                       AnyOf(HasSubstr(fmt::format("say {}", value)),
                                             HasSubstr(fmt::format("0 to {}", value - 1)),
                                             HasSubstr(fmt::format("gives {}", value)))));
    }
  }
}

TEST_F(Config, ListsOfWrongLengthAreRefused) {
  const json rates = {5, 5, 2, 2};
  EXPECT_THAT(error_with("h3-micro-diffusers/audio_vae", "/decoder_rates", rates).message,
              HasSubstr("config.json says decoder_rates with 4 values"));
  EXPECT_THAT(
      error_with("h3-micro/audio_vae", "/metadata/kwargs/decoder_rates", rates, "metadata.json")
          .message,
      HasSubstr("metadata.json says metadata.kwargs.decoder_rates with 4 values"));
  EXPECT_THAT(error_with("h3-micro-diffusers/audio_vae", "/resblock_kernel_sizes", {3, 7}).message,
              HasSubstr("says resblock_kernel_sizes [3, 7], the tensors say [3, 7, 11]"));
  EXPECT_THAT(error_with("h3-micro-diffusers/audio_vae", "/decoder_kernel_sizes", {9, 9}).message,
              HasSubstr("says decoder_kernel_sizes [9, 9]"));
  EXPECT_THAT(
      error_with("h3-micro-diffusers/audio_vae", "/resblock_dilation_sizes", {1, 3, 5}).message,
      HasSubstr("says resblock_dilation_sizes with 3 values, the tensors say 9"));
  for (const char* component : {"h3-micro/video_vae", "h3-micro-diffusers/audio_vae"}) {
    for (const char* key : {"/latents_mean", "/latents_std"}) {
      EXPECT_THAT(error_with(component, key, {1.0, 2.0}).message,
                  HasSubstr(std::string("config.json says ") + (key + 1) + " with 2 values"));
    }
  }
  EXPECT_THAT(
      error_with("h3-micro/text_encoder", "/text_config/rope_scaling/mrope_section", {4, 4})
          .message,
      HasSubstr("text_config.rope_scaling.mrope_section is 4, 4, wanted three whole numbers"));
}

TEST_F(Config, EmptyListsAreRefused) {
  for (const auto& [component, pointer] : {
           std::pair("h3-micro/video_vae", "/latents_mean"),
           std::pair("h3-micro/audio_vae", "/latents_std"),
           std::pair("h3-micro-diffusers/audio_vae", "/decoder_rates"),
           std::pair("h3-micro/text_encoder", "/text_config/rope_scaling/mrope_section"),
       }) {
    EXPECT_THAT(error_with(component, pointer, json::array()).message,
                AllOf(HasSubstr(key_of_pointer(pointer)), HasSubstr("is an empty list")));
  }
}

TEST_F(Config, NumberOfUsedLayersMustBeAWholeNumber) {
  for (const char* key : {"/conditioning_layer", "/miniacc_text_layers"}) {
    for (const json& value : {json(2.5), json(0), json(-1), json(1e300), json({2, 3})}) {
      const fs::path path = copy("h3-micro/text_encoder");
      set(path / "config.json", "/conditioning_layer", nullptr);
      set(path / "config.json", key, value);
      const auto opened = open_component(path);
      ASSERT_FALSE(opened) << key << " " << value;
      EXPECT_EQ(opened.error().code, ErrorCode::kInvalidInput);
      EXPECT_THAT(opened.error().message, AllOf(HasSubstr(std::string("config.json: ") + (key + 1)),
                                                HasSubstr("wanted one whole number from 1")));
    }
  }
}

TEST_F(Config, EpsAndThetaOutOfRangeAreRefused) {
  for (const double value : {0.0, -1e-5, 0.11, 1e-50, 1e300}) {
    for (const char* key : {"/norm_eps", "/qk_norm_eps", "/final_norm_eps"}) {
      EXPECT_THAT(error_with("h3-micro/transformer", key, value).message,
                  AllOf(HasSubstr(std::string("config.json: ") + (key + 1)), HasSubstr("0.1")));
    }
    EXPECT_THAT(error_with("h3-micro/text_encoder", "/text_config/rms_norm_eps", value).message,
                HasSubstr("text_config.rms_norm_eps"));
    EXPECT_THAT(error_with("h3-micro-diffusers/vae", "/decoder_norm_eps", value).message,
                HasSubstr("decoder_norm_eps"));
  }
  for (const double value : {0.0, 0.5, -10000.0, 1.1e12, 1e300}) {
    EXPECT_THAT(error_with("h3-micro-diffusers/transformer", "/rope_theta", value).message,
                AllOf(HasSubstr("rope_theta"), HasSubstr("1e12")));
    EXPECT_THAT(error_with("h3-micro/text_encoder", "/text_config/rope_theta", value).message,
                HasSubstr("text_config.rope_theta"));
    EXPECT_THAT(error_with("h3-micro-diffusers/vae", "/decoder_rope_theta", value).message,
                HasSubstr("decoder_rope_theta"));
  }
}

/// Lets this process open no further file while it lives.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit none = before_;
    none.rlim_cur = 0;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoMoreFiles() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

TEST_F(Config, FileThatCannotBeOpenedSaysWhy) {
  const fs::path file = copy("h3-micro/transformer") / "model.safetensors";
  const auto read = [&] {
    const NoMoreFiles limit;
    return read_component_config(Component::kTransformer, file, {});
  }();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kIo);
  EXPECT_THAT(read.error().message,
              AllOf(HasSubstr("config.json: cannot open"), HasSubstr("Too many open files")));
  EXPECT_TRUE(read_component_config(Component::kTransformer, file, {}));
}

TEST_F(Config, PathThatCannotBeLookedAtSaysWhy) {
  const fs::path folder = folder_ / "loop";
  fs::create_symlink("loop", folder);
  const auto read = read_component_config(Component::kTransformer, folder / "x.safetensors", {});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kIo);
  EXPECT_THAT(read.error().message, HasSubstr("config.json"));
}

TEST_F(Config, LlamaCppMetadataIsComparedToo) {
  const std::map<std::string, std::string> metadata = {{"general.architecture", "qwen3vl"},
                                                       {"qwen3vl.embedding_length", "64"},
                                                       {"qwen3vl.block_count", "5"}};
  const auto config =
      read_component_config(Component::kTextEncoder, folder_ / "x.gguf", metadata).value();
  EXPECT_EQ(config.values.at("num_hidden_layers"), std::vector<double>{5});
  EXPECT_THAT(contradictions(config.claims, {{"hidden_size", {{56}}}}),
              ::testing::ElementsAre(HasSubstr(
                  "x.gguf: metadata says qwen3vl.embedding_length 64, the tensors say 56")));
  EXPECT_TRUE(contradictions(config.claims, {{"hidden_size", {{64}}}}).empty());
  auto broken = metadata;
  broken["qwen3vl.attention.layer_norm_rms_epsilon"] = "0.5";
  EXPECT_THAT(
      read_component_config(Component::kTextEncoder, folder_ / "x.gguf", broken).error().message,
      HasSubstr("metadata qwen3vl.attention.layer_norm_rms_epsilon is 0.5"));
}

TEST_F(Config, SyntheticModelsOfEveryFormatOpen) {
  for (const CheckpointFormat format :
       {CheckpointFormat::kOfficial, CheckpointFormat::kDiffusers, CheckpointFormat::kComfy,
        CheckpointFormat::kComfyPruned, CheckpointFormat::kGguf}) {
    MakeCheckpointOptions options;
    options.format = format;
    options.out = folder_ / "model";
    fs::remove_all(options.out);
    ASSERT_TRUE(make_checkpoint(options));
    const auto report = inspect(options.out);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->components.size(), 4U);
    for (const ComponentReport& component : report->components) {
      EXPECT_TRUE(component.problems.empty()) << report->to_text();
    }
  }
}

TEST_F(Config, ShippedModelsHaveNoProblems) {
  for (const fs::path& path :
       {kGolden / "h3-micro", kGolden / "h3-micro-diffusers", kGolden / "h3-micro-pruned",
        fs::path(MINIACC_TEST_DATA) / "../models/h3-tiny"}) {
    const auto report = inspect(path);
    ASSERT_TRUE(report) << report.error().message;
    for (const ComponentReport& component : report->components) {
      EXPECT_TRUE(component.problems.empty()) << report->to_text();
    }
  }
}

}  // namespace
}  // namespace miniacc
