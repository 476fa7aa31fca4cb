#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Tools : public Program {};

TEST_F(Tools, VersionNamesCommitAndBackend) {
  const ProcessResult result = run({"--version"});
  expect_success(result);
  EXPECT_THAT(result.out, AllOf(StartsWith("miniacc 0."), HasSubstr("cpu)")));
}

TEST_F(Tools, EveryCommandHasHelp) {
  for (const std::string command :
       {"generate", "show", "sheet", "inspect", "tokenize", "recipes", "lora", "make-checkpoint"}) {
    SCOPED_TRACE(command);
    const ProcessResult result = run({command, "--help"});
    expect_success(result);
    EXPECT_THAT(result.out, HasSubstr("Usage: miniacc " + command));
  }
}

TEST_F(Tools, InspectRecognisesEveryLayout) {
  const std::pair<const char*, const char*> kinds[] = {{"official", "bf16"},
                                                       {"diffusers", "bf16"},
                                                       {"comfy", "bf16"},
                                                       {"comfy-pruned", "bf16"},
                                                       {"gguf", "q8_0"}};
  for (const auto& [format, dtype] : kinds) {
    SCOPED_TRACE(format);
    const auto path = model_in(format, dtype).string();
    const ProcessResult text = run({"inspect", path});
    expect_success(text);
    for (const std::string part : {"transformer", "text encoder", "video VAE", "audio VAE"}) {
      EXPECT_THAT(text.out, HasSubstr("  " + part + ","));
    }
    const ProcessResult json = run({"inspect", path, "--json"});
    expect_success(json);
    EXPECT_FALSE(nlohmann::json::parse(json.out).empty());
    EXPECT_EQ(lines_of(json.out).size(), 1U) << "one document on one line";
  }
}

TEST_F(Tools, InspectOfWhatIsNoCheckpointIsAnError) {
  write("text.safetensors", "this is no checkpoint");
  expect_error(run({"inspect", "text.safetensors"}), 2, {"text.safetensors"});
  expect_error(run({"inspect", "absent"}), 2, {"absent"});
  std::filesystem::create_directory(*this / "empty");
  expect_error(run({"inspect", "empty"}), 2, {"empty"});
}

TEST_F(Tools, TokenizePrintsIds) {
  const std::string text = "A fox <d>hi</d>";
  const ProcessResult ids = run({"tokenize", "-m", model().string(), text});
  expect_success(ids);
  const ProcessResult json = run({"tokenize", "-m", model().string(), text, "--json"});
  expect_success(json);
  const auto document = nlohmann::json::parse(json.out);
  std::string joined;
  for (const auto& id : document.at("ids")) {
    joined += (joined.empty() ? "" : " ") + std::to_string(id.get<int>());
  }
  EXPECT_EQ(ids.out, joined + "\n");
  const auto tokens = document.at("tokens").get<Words>();
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), "<d>"), 1) << "one token, not three pieces";
  // A tokenizer folder and the file itself are the same tokenizer.
  for (const std::string name : {"tokenizer", "tokenizer/tokenizer.json"}) {
    EXPECT_EQ(run({"tokenize", "-m", (model() / name).string(), text}).out, ids.out);
  }
  EXPECT_EQ(run({"tokenize", "-m", model().string(), ""}).out, "\n");
}

TEST_F(Tools, TokenizeRefusesWhatItCannotRead) {
  expect_error(run({"tokenize", "-m", model().string(), "a\xff"}), 2, {"byte 1", "UTF-8"});
  expect_error(run({"tokenize", "-m", "absent", "a"}), 2, {"absent"});
  expect_error(run({"tokenize", "a"}), 2, {"--model"});
}

TEST_F(Tools, SheetShowsClipsBelowEachOther) {
  make_clip();
  make_clip({{"--output", "frames/"}});
  expect_success(run({"sheet", "clip.mp4", "frames", "-o", "sheets.png", "--frames", "3"}));
  // A picture is read as a clip of one frame: 3 frames and their gaps wide; two bands of frames and
  // two waveforms.
  std::filesystem::create_directory(*this / "sheet");
  std::filesystem::copy(*this / "sheets.png", *this / "sheet/1.png");
  const Clip sheet = clip("sheet");
  EXPECT_EQ(sheet.width, 3 * 64 + 2 * 4);
  EXPECT_EQ(sheet.height, 2 * (64 + 2 * (4 + 36)) + 12);
  // The folder's frames are lossless: the sheet's second band starts with the first of them.
  const Clip frames = clip("frames");
  const std::size_t band = 3 * static_cast<std::size_t>(sheet.width) * (64 + 2 * 40 + 12);
  EXPECT_TRUE(std::equal(frames.frames.begin(), frames.frames.begin() + 3 * 64,
                         sheet.frames.begin() + static_cast<std::ptrdiff_t>(band)));
}

TEST_F(Tools, SheetRefusesWhatItCannotShow) {
  make_clip();
  write("text.mp4", "no clip");
  expect_error(run({"sheet", "text.mp4", "-o", "a.png"}), 2, {"text.mp4"});
  expect_error(run({"sheet", "clip.mp4", "-o", "a.jpg"}), 2, {"a.jpg", ".png"});
  expect_error(run({"sheet", "clip.mp4", "-o", "a.png", "--frames", "0"}), 2, {"--frames"});
  expect_error(run({"sheet", "-o", "a.png"}), 2, {"clips"});
  write("a.png", "precious");
  expect_error(run({"sheet", "clip.mp4", "-o", "a.png"}), 2, {"a.png"});
  EXPECT_EQ(read("a.png"), "precious");
  expect_success(run({"sheet", "clip.mp4", "-o", "a.png", "--overwrite"}));
  EXPECT_THAT(read("a.png"), StartsWith("\x89PNG"));
}

TEST_F(Tools, RecipesAreListed) {
  const ProcessResult text = run({"recipes"});
  expect_success(text);
  const ProcessResult json = run({"recipes", "--json"});
  expect_success(json);
  const auto recipes = nlohmann::json::parse(json.out);
  std::set<std::string> names;
  for (const auto& recipe : recipes) {
    names.insert(recipe.at("name").get<std::string>());
    EXPECT_THAT(text.out, HasSubstr("\n" + recipe.at("name").get<std::string>() + " "));
    EXPECT_EQ(recipe.at("sigmas").size(), recipe.at("forwards").get<std::size_t>() + 1);
    EXPECT_EQ(recipe.at("audio_sigmas").size(), recipe.at("sigmas").size());
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"base", "lightx2v4", "lightx2v4-768p", "lightx2v8", "larry6",
                                   "turbo4", "turbo8", "fasth3-4", "taomate3", "pdmd2", "pdd8"}));
}

TEST_F(Tools, MakeCheckpointRefusesWhatItCannotMake) {
  expect_error(run({"make-checkpoint", "--size", "huge", "out"}), 2, {"--size", "'huge'"});
  expect_error(run({"make-checkpoint", "--format", "onnx", "out"}), 2, {"--format", "'onnx'"});
  expect_error(run({"make-checkpoint", "--dtype", "q3_k", "out"}), 2, {"--dtype", "'q3_k'"});
  expect_error(run({"make-checkpoint", "--format", "official", "--dtype", "q8_0", "out"}), 2,
               {"q8_0"});
  EXPECT_THAT(files(), IsEmpty());
  write("out", "precious");
  expect_error(run({"make-checkpoint", "out"}), 2, {"out"});
  EXPECT_EQ(read("out"), "precious");
}

TEST_F(Tools, MakeCheckpointOfOneSeedIsOneModel) {
  for (const std::string name : {"a", "b"}) {
    expect_success(run({"make-checkpoint", "--size", "tiny", "--seed", "5", name}));
  }
  const std::string file = "transformer/model-00001-of-00002.safetensors";
  EXPECT_EQ(read("a/" + file), read("b/" + file));
  expect_success(run({"make-checkpoint", "--size", "tiny", "--seed", "6", "c"}));
  EXPECT_NE(read("a/" + file), read("c/" + file));
}

}  // namespace
}  // namespace miniacc::testing
