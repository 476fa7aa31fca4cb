#include <gmock/gmock.h>

#include <utility>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::HasSubstr;

/// What decides the clip, and what must not.
class Generate : public Program {
 protected:
  /// The bytes of a clip without metadata.
  [[nodiscard]] std::string bytes_of(const Flags& changes, const ProcessOptions& options = {},
                                     const Words& switches = {}) const {
    Words all = switches;
    all.insert(all.end(), {"--no-metadata", "--overwrite", "--quiet"});
    const ProcessResult result = generate(changes, all, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read("clip.mp4");
  }
  [[nodiscard]] nlohmann::json result_of(const Flags& changes) const {
    const ProcessResult result = generate(changes, {"--json", "--overwrite"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto events = json_lines(result.out);
    return events.empty() ? nlohmann::json() : events.back();
  }
};

TEST_F(Generate, SameRequestGivesTheSameBytes) {
  make_clip({{"--output", "a.mp4"}});
  make_clip({{"--output", "b.mp4"}});
  EXPECT_EQ(read("a.mp4"), read("b.mp4"));
}

TEST_F(Generate, PromptSeedNoiseAndRecipeChangeTheClip) {
  const std::string original = bytes_of({});
  EXPECT_NE(bytes_of({{"--prompt", "a whale"}}), original);
  EXPECT_NE(bytes_of({{"--prompt", "a fox "}}), original);
  EXPECT_NE(bytes_of({{"--seed", "1"}}), original);
  EXPECT_NE(bytes_of({{"--noise", "comfy"}}), original);
  EXPECT_NE(bytes_of({{"--steps", "3"}}), original);
  EXPECT_NE(bytes_of({{"--flow-shift", "6"}}), original);
  EXPECT_NE(bytes_of({{"--audio-flow-shift", "6"}}), original);
}

TEST_F(Generate, MemoryAndThreadsDoNotChangeTheClip) {
  const std::string original = bytes_of({});
  EXPECT_EQ(bytes_of({{"--weight-cache", "0"}}), original);
  EXPECT_EQ(bytes_of({{"--weight-cache", "1MiB"}}), original);
  EXPECT_EQ(bytes_of({{"--threads", "2"}}), original);
  EXPECT_EQ(bytes_of({{"--threads", "0"}}), original) << "every core";
}

TEST_F(Generate, LayoutOfTheCheckpointDoesNotChangeTheClip) {
  const std::string original = bytes_of({});
  for (const std::string format : {"diffusers", "comfy", "gguf"}) {
    SCOPED_TRACE(format);
    EXPECT_EQ(bytes_of({{"--model", model_in(format, "bf16").string()}}), original);
  }
}

TEST_F(Generate, PartsOneByOneAreTheSameModel) {
  const std::string original = bytes_of({});
  EXPECT_EQ(bytes_of({{"--model", {}},
                      {"--diffusion-model", (model() / "transformer").string()},
                      {"--text-encoder", (model() / "text_encoder").string()},
                      {"--tokenizer", (model() / "tokenizer/tokenizer.json").string()},
                      {"--vae", (model() / "video_vae").string()},
                      {"--audio-vae", (model() / "audio_vae/model.safetensors").string()}}),
            original);
  // A part beside a folder replaces the folder's.
  const auto comfy = model_in("comfy", "bf16");
  EXPECT_EQ(bytes_of({{"--diffusion-model", (comfy / "minimax_h3.safetensors").string()}}),
            original);
}

TEST_F(Generate, EveryPublishedStorageRuns) {
  const std::pair<const char*, const char*> kinds[] = {
      {"comfy-pruned", "bf16"}, {"comfy", "fp8_scaled"}, {"comfy", "int8_convrot"},
      {"gguf", "q8_0"},         {"gguf", "q4_0"},        {"gguf", "q4_k"}};
  for (const auto& [format, dtype] : kinds) {
    SCOPED_TRACE(std::string(format) + " " + dtype);
    const auto result = result_of({{"--model", model_in(format, dtype).string()}});
    EXPECT_EQ(result.at("event"), "result");
    EXPECT_EQ(result.at("audio"), "ok");
    EXPECT_EQ(clip("clip.mp4").num_frames, 5);
  }
}

TEST_F(Generate, LowerPrecisionsRunAndDiffer) {
  const std::string original = bytes_of({});
  const std::string bf16 = bytes_of({{"--precision", "bf16"}});
  const std::string int8 = bytes_of({{"--precision", "int8"}});
  EXPECT_NE(bf16, original);
  EXPECT_NE(int8, original);
  EXPECT_NE(int8, bf16);
}

TEST_F(Generate, AttentionIsChosenApartFromThePrecisionAndReported) {
  const auto attention = [&](const Flags& flags) { return result_of(flags).at("attention"); };
  EXPECT_EQ(attention({}), "f32");
  EXPECT_EQ(attention({{"--precision", "int8"}}), "bf16 cpu");
  EXPECT_EQ(attention({{"--precision", "int8"}, {"--attention", "int8"}}), "int8 cpu");
  EXPECT_NE(bytes_of({{"--attention", "int8"}}), bytes_of({}));
  EXPECT_EQ(bytes_of({{"--attention", "f32"}}), bytes_of({}));
  const ProcessResult summary = generate({{"--attention", "bf16"}}, {"--overwrite"});
  expect_success(summary);
  EXPECT_THAT(summary.err, HasSubstr("attention bf16 cpu, sound ok"));
}

TEST_F(Generate, EveryRecipeRunsWithItsForwards) {
  const ProcessResult listed = run({"recipes", "--json"});
  expect_success(listed);
  const auto recipes = nlohmann::json::parse(listed.out);
  ASSERT_EQ(recipes.size(), 11U);
  for (const auto& recipe : recipes) {
    const auto name = recipe.at("name").get<std::string>();
    SCOPED_TRACE(name);
    const auto result = result_of({{"--recipe", name}});
    EXPECT_EQ(result.at("forwards"), recipe.at("forwards"));
    EXPECT_EQ(result.at("step_seconds").size(), recipe.at("forwards").get<std::size_t>());
    const auto& sampling = result.at("request").at("sampling");
    EXPECT_EQ(sampling.at("sigmas"), recipe.at("sigmas"));
    EXPECT_EQ(sampling.at("audio_sigmas"), recipe.at("audio_sigmas"));
  }
}

TEST_F(Generate, ForwardsAreCountedAndPrinted) {
  const ProcessResult result = generate({{"--steps", "3"}});
  expect_success(result);
  EXPECT_THAT(result.err, HasSubstr("3 forwards, recipe pdmd2"));
  EXPECT_THAT(result.err, HasSubstr("step 3/3"));
  for (const std::string stage : {"load", "text encoding", "denoising", "audio decoding",
                                  "video decoding", "encode and save", "total"}) {
    EXPECT_THAT(result.err, HasSubstr("\n" + stage + " ")) << "the closing table";
  }
  EXPECT_EQ(result.out, "clip.mp4\n");
}

TEST_F(Generate, ExplicitSigmasOfARecipeAreTheRecipe) {
  const std::string original = bytes_of({});
  const auto sampling = result_of({}).at("request").at("sampling");
  EXPECT_EQ(bytes_of({{"--sigmas", "1,0.92307693,0"}}), original);
  EXPECT_EQ(bytes_of({{"--sigmas", "1,0.92307693,0"}, {"--audio-sigmas", "1,0.75,0"}}), original);
  EXPECT_NE(bytes_of({{"--sigmas", "1,0.92307693,0"}, {"--audio-sigmas", "1,0.5,0"}}), original);
  EXPECT_EQ(sampling.at("sigmas").size(), 3U);
}

TEST_F(Generate, PromptComesFromFlagFileOrInput) {
  const std::string prompt = "a fox, <d>écoute</d> 🦊";
  const std::string original = bytes_of({{"--prompt", prompt}});
  write("prompt.txt", prompt + "\n");
  EXPECT_EQ(bytes_of({{"--prompt", {}}, {"--prompt-file", "prompt.txt"}}), original);
  ProcessOptions input;
  input.input = prompt;
  EXPECT_EQ(bytes_of({{"--prompt", {}}, {"--prompt-file", "-"}}, input), original);
}

TEST_F(Generate, ShortFlagsAndAliasesAreTheSameFlags) {
  make_clip();
  const ProcessResult result = run({"generate",
                                    "-m",
                                    model().string(),
                                    "-p",
                                    "a fox",
                                    "-W",
                                    "64",
                                    "-H",
                                    "64",
                                    "--video-frames",
                                    "5",
                                    "--preset",
                                    "pdmd2",
                                    "-s",
                                    "0",
                                    "-o",
                                    "short.mp4",
                                    "-t",
                                    "1",
                                    "--llm",
                                    (model() / "text_encoder").string(),
                                    "-q"});
  expect_success(result);
  EXPECT_EQ(result.err, "");
  expect_same_clip(clip("short.mp4"), clip("clip.mp4"));
}

TEST_F(Generate, SeedCountsItsLow32BitsAsTorchDoes) {
  const std::string zero = bytes_of({{"--seed", "0"}});
  EXPECT_EQ(bytes_of({}), zero) << "0 is the default";
  EXPECT_EQ(bytes_of({{"--seed", "4294967296"}}), zero);
  EXPECT_EQ(bytes_of({{"--seed", "18446744073709551615"}}), bytes_of({{"--seed", "4294967295"}}));
}

TEST_F(Generate, LargestSeedIsStoredExactly) {
  make_clip({{"--seed", "18446744073709551615"}});
  const auto shown = nlohmann::json::parse(run({"show", "clip.mp4", "--json"}).out);
  EXPECT_EQ(shown.at("miniacc").at("request").at("seed").get<std::uint64_t>(),
            18446744073709551615U);
}

TEST_F(Generate, NegativeSeedDrawsOneAndPrintsIt) {
  const auto first = result_of({{"--seed", "-1"}}).at("request").at("seed").get<std::uint64_t>();
  const auto second = result_of({{"--seed", "-1"}}).at("request").at("seed").get<std::uint64_t>();
  EXPECT_NE(first, second);
  const ProcessResult drawn = generate({{"--seed", "-1"}}, {"--overwrite"});
  expect_success(drawn);
  const std::size_t at = drawn.err.find("\nseed ");
  ASSERT_NE(at, std::string::npos) << drawn.err;
  const std::string seed = drawn.err.substr(at + 6, drawn.err.find(',', at) - at - 6);
  const Clip original = clip("clip.mp4");
  make_clip({{"--seed", seed}, {"--output", "again.mp4"}});
  expect_same_clip(clip("again.mp4"), original);
}

TEST_F(Generate, ResumedLatentsGiveTheClipOfTheOriginalRun) {
  const std::string original = bytes_of({{"--save-latents", "l.safetensors"}});
  EXPECT_EQ(bytes_of({{"--resume-latents", "l.safetensors"}}), original);
  const auto resumed = result_of({{"--resume-latents", "l.safetensors"}});
  EXPECT_EQ(resumed.at("forwards"), 0);
}

}  // namespace
}  // namespace miniacc::testing
