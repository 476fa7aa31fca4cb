#include <gmock/gmock.h>

#include "adapters/adapter_files.h"
#include "apps/program.h"
#include "io/tensor_file.h"

namespace miniacc::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LoraCommands : public Program {
 protected:
  /// An adapter for one layer of the tiny model; up · `size`.
  void write_lora(const std::string& name, float size = 1.0F, const Metadata& metadata = {}) const {
    Shape shape;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(model_in("comfy", "bf16"))) {
      if (entry.path().extension() == ".safetensors") {
        const TensorFile file = TensorFile::open(entry.path()).value();
        for (const TensorEntry& tensor : file.entries()) {
          if (tensor.name.ends_with("blocks.0.mlp.fc2.weight") &&
              tensor.name.find("refiner") == std::string::npos) {
            shape = tensor.shape;
          }
        }
      }
    }
    ASSERT_EQ(shape.rank(), 2) << "the tiny model has no blocks.0.mlp.fc2";
    AdapterTensor up = random_factor(shape[0], 2, 2);
    for (float& value : up.values) {
      value *= size;
    }
    write_adapter(*this / name,
                  {{"blocks.0.mlp.fc2.lora_A.weight", random_factor(2, shape[1], 1)},
                   {"blocks.0.mlp.fc2.lora_B.weight", up}},
                  metadata);
  }
};

TEST_F(LoraCommands, ShowSaysWhatAnAdapterHolds) {
  write_lora("a.safetensors", 1.0F, {{"alpha", "1"}, {"recipe", "taomate3"}});
  const ProcessResult text = run({"lora", "show", "a.safetensors", "-m", model().string()});
  expect_success(text);
  EXPECT_THAT(text.out, AllOf(HasSubstr("official"), HasSubstr("0.5 (metadata)"),
                              HasSubstr("2 matched"), HasSubstr("taomate3 (its metadata)")));
  const ProcessResult json =
      run({"lora", "show", "a.safetensors", "-m", model().string(), "--json"});
  expect_success(json);
  EXPECT_EQ(json_lines(json.out).front().at("matched"), 2);
}

TEST_F(LoraCommands, VerifyPassesWhatWorksAndFailsWhatChangesNothing) {
  write_lora("good.safetensors");
  write_lora("zero.safetensors", 0.0F);
  for (const std::string mode : {"merge", "side"}) {
    const ProcessResult good =
        run({"lora", "verify", "good.safetensors", "-m", model().string(), "--lora-mode", mode});
    expect_success(good);
    EXPECT_THAT(good.out, AllOf(HasSubstr("layers: 1 to change, 1 change"),
                                HasSubstr("latents after one step"), HasSubstr("\nverified\n")));
  }
  const ProcessResult json =
      run({"lora", "verify", "good.safetensors", "-m", model().string(), "--json"});
  expect_success(json);
  const auto document = json_lines(json.out).front();
  EXPECT_TRUE(document.at("verified").get<bool>());
  EXPECT_GT(document.at("video_difference").get<double>(), 0.0);
  for (const std::string lora : {"zero.safetensors", "good.safetensors:0"}) {
    const ProcessResult nothing = run({"lora", "verify", lora, "-m", model().string()});
    EXPECT_EQ(nothing.exit_code, 1);
    EXPECT_THAT(nothing.out, AllOf(HasSubstr("same latents"), HasSubstr("NOT verified")));
  }
}

TEST_F(LoraCommands, BadInputIsOneSentence) {
  write_lora("good.safetensors");
  write_adapter(*this / "wan.safetensors",
                {{"diffusion_model.blocks.0.cross_attn.k.lora_A.weight", random_factor(2, 48, 1)}});
  const std::string model_path = model().string();
  expect_error(run({"lora", "verify", "wan.safetensors", "-m", model_path}), 2, {"Wan"});
  expect_error(run({"lora", "show", "absent.safetensors", "-m", model_path}), 2, {"absent"});
  expect_error(run({"lora", "show", "good.safetensors:nan", "-m", model_path}), 2,
               {"strength must be a finite number"});
  expect_error(run({"lora", "show", "good.safetensors:1:inf", "-m", model_path}), 2,
               {"alpha must be a number above 0"});
  expect_error(run({"lora", "verify", "good.safetensors", "-m", model_path, "--lora-mode", "x"}), 2,
               {"auto, merge or side"});
  expect_error(run({"lora"}), 2, {"subcommand"});
  expect_error(generate({{"--lora", "good.safetensors:nan"}}), 2, {"finite"});
  expect_error(generate({{"--lora", "good.safetensors"}, {"--lora-mode", "x"}}), 2,
               {"auto, merge or side"});
  expect_error(generate({{"--prompt", "a <lora:goood> fox"}}), 2, {"--lora-dir"});
  expect_error(generate({{"--prompt", "a <lora:goood> fox"}, {"--lora-dir", "."}}), 2,
               {"goood", "it holds good"});
  expect_error(generate({{"--prompt", "a <lora:../good> fox"}, {"--lora-dir", "."}}), 2,
               {"not a path"});
  EXPECT_FALSE(std::filesystem::exists(*this / "clip.mp4"));
}

TEST_F(LoraCommands, TagsOfThePromptAndWishesOfTheAdapterShapeTheClip) {
  write_lora("pdmd.safetensors", 1.0F, {{"recipe", "pdmd2"}});
  const ProcessResult tagged = generate(
      {{"--prompt", "a <lora:pdmd:0.5> fox"}, {"--lora-dir", "."}, {"--recipe", std::nullopt}});
  expect_success(tagged);
  EXPECT_THAT(tagged.err, AllOf(HasSubstr("asks for recipe pdmd2 (2 forwards"),
                                HasSubstr("2 forwards, recipe pdmd2")));
  expect_success(generate({{"--prompt", "a fox"},
                           {"--lora", "pdmd.safetensors:0.5"},
                           {"--recipe", std::nullopt},
                           {"--output", "same.mp4"}}));
  expect_same_clip(clip("clip.mp4"), clip("same.mp4"));
  const ProcessResult shown = run({"show", "clip.mp4"});
  expect_success(shown);
  EXPECT_THAT(shown.out, AllOf(Not(HasSubstr("<lora:")), HasSubstr("pdmd.safetensors")));
}

}  // namespace
}  // namespace miniacc::testing
