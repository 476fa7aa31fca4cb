#include <gmock/gmock.h>

#include <csignal>

#include "apps/program.h"
#include "core/float_convert.h"
#include "io/dequantize.h"
#include "io/tensor_file.h"
#include "io/tensor_writer.h"
#include "support/compare.h"

namespace miniacc::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

const fs::path kRoot = fs::path(MINIACC_TEST_DATA).parent_path();
const fs::path kTiny = kRoot / "models/h3-tiny";

class ConvertTools : public Program {
 protected:
  /// Latents of a short clip of h3-tiny's world, made in f32.
  std::map<std::string, std::vector<float>> latents(const fs::path& model) const {
    const std::string name = model.filename().string() + ".latents.safetensors";
    expect_success(generate({{"--model", model.string()},
                             {"--prompt", "a small red circle moves left on a blue background"},
                             {"--width", "64"},
                             {"--height", "64"},
                             {"--frames", "22"},
                             {"--recipe", "lightx2v4"},
                             {"--save-latents", name},
                             {"--output", model.filename().string() + ".wav"}}));
    std::map<std::string, std::vector<float>> read;
    const auto file = TensorFile::open(*this / name);
    EXPECT_TRUE(file) << file.error().message;
    for (const TensorEntry& entry : file->entries()) {
      auto& values = read[entry.name];
      values.resize(static_cast<std::size_t>(entry.shape.num_elements()));
      dequantize(entry.dtype, *file->bytes(entry), entry.shape.num_elements(), values.data());
    }
    EXPECT_FALSE(read.empty());
    return read;
  }
};

TEST_F(ConvertTools, CopiesOfTheSmallModelMakeItsClips) {
  const ProcessResult made = run_process({(kRoot / "scripts/copy-h3-tiny").string(),
                                          MINIACC_BIN_DIR "/miniacc", (*this / "copies").string()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto wanted = latents(kTiny);
  struct Case {
    const char* name;
    double bound;  ///< relative error of latents after four steps
  };
  for (const Case& copy : {Case{"comfy", 0.0},          // the same bits in other places
                           Case{"pruned", 2e-3},        // measured 3.5e-4
                           Case{"int8_convrot", 0.04},  // measured 1.2e-2
                           Case{"gguf-q8_0", 0.04}}) {  // measured 1.1e-2
    SCOPED_TRACE(copy.name);
    const auto got = latents(*this / "copies" / copy.name);
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [name, values] : wanted) {
      ASSERT_TRUE(got.contains(name)) << name;
      const double error = relative_error(got.at(name), values);
      RecordProperty(std::string(copy.name) + "_" + name, std::to_string(error));
      if (copy.bound == 0.0) {
        EXPECT_EQ(got.at(name), values) << name;
      } else {
        EXPECT_LT(error, copy.bound) << name;
        EXPECT_GT(error, 0.0) << name;
      }
    }
  }
}

TEST_F(ConvertTools, QuantizePrintsAndStoresTheErrors) {
  const ProcessResult result = run({"quantize", "-q", (kTiny / "transformer").string(),
                                    "int8.safetensors", "--json", "report.json"});
  expect_success(result);
  EXPECT_THAT(result.out, HasSubstr("24 layers in int8, against the original: weights off by"));
  const auto report = nlohmann::json::parse(read("report.json")).at("components").at(0);
  EXPECT_EQ(report.at("int8_layers").size(), 24U);
  for (const auto& layer : report.at("int8_layers")) {
    EXPECT_GT(layer.at("weight_error").get<double>(), 1e-3);
    EXPECT_LT(layer.at("weight_error").get<double>(), 0.015);
  }
  // Its own output is quantised: there is no original to measure against.
  expect_error(run({"quantize", "-q", "int8.safetensors", "again.safetensors"}), 2,
               {"quantised already", "against the original"});
  EXPECT_THAT(files(), ElementsAre("int8.safetensors", "report.json"));
}

TEST_F(ConvertTools, WrongFlagsAreUsageErrors) {
  const std::string in = kTiny.string();
  expect_error(run({"convert", in, "out", "--to", "onnx"}), 2, {"--to", "'onnx'"});
  expect_error(run({"convert", in, "out", "--to", "gguf", "--dtype", "q3_k"}), 2, {"'q3_k'"});
  expect_error(run({"convert", in, "out", "--to", "official", "--dtype", "q8_0"}), 2, {"gguf"});
  expect_error(run({"convert", in, "out", "--to", "comfy", "--component", "unet"}), 2, {"'unet'"});
  expect_error(run({"convert", in, "out", "--to", "comfy-pruned", "--rank", "0"}), 2, {"--rank"});
  expect_error(run({"convert", in, "out"}), 2, {"--to"});
  expect_error(run({"convert", "absent", "out", "--to", "comfy"}), 2, {"absent"});
  expect_error(run({"convert", in, "no/out", "--to", "comfy"}), 2, {"no folder no"});
  expect_error(run({"quantize", in, "out", "--rotation-group", "100"}), 2, {"100"});
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(ConvertTools, ExistingOutputsAreKept) {
  write("out.safetensors", "precious");
  const Words words = {"convert",         "-q",   (kTiny / "transformer").string(),
                       "out.safetensors", "--to", "comfy"};
  expect_error(run(words), 2, {"--overwrite"});
  EXPECT_EQ(read("out.safetensors"), "precious");
  Words told = words;
  told.emplace_back("--overwrite");
  expect_success(run(told));
  EXPECT_NE(read("out.safetensors"), "precious");
  fs::create_directory(*this / "folder");
  expect_error(run({"convert", kTiny.string(), "folder", "--to", "comfy", "--overwrite"}), 2,
               {"folder"});
  EXPECT_THAT(files(), ElementsAre("out.safetensors"));
}

TEST_F(ConvertTools, AReportTakesNoOtherFilesPlace) {
  const Words words = {"convert",       "-q",   (kTiny / "transformer").string(),
                       "a.safetensors", "--to", "comfy"};
  const auto with_report = [&](const char* name) {
    Words all = words;
    all.insert(all.end(), {"--json", name});
    return run(all);
  };
  write("precious", "kept");
  expect_error(with_report("precious"), 2, {"precious", "exists already"});
  EXPECT_EQ(read("precious"), "kept");
  EXPECT_THAT(files(), ::testing::ElementsAre("precious")) << "nothing is written before";
  // The output's own name: the output stays what it is.
  expect_error(with_report("a.safetensors"), 2, {"a.safetensors"});
  expect_success(run({"inspect", "a.safetensors"}));
}

TEST_F(ConvertTools, AFullDiskLeavesNothing) {
  ProcessOptions small;
  small.max_file_bytes = 1'000'000;
  const ProcessResult result =
      run({"convert", "-q", kTiny.string(), "out", "--to", "comfy"}, small);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("miniacc: error: "));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(ConvertTools, RebaseOfAnUnchangedModelSaysWhatItMeasures) {
  expect_success(run({"convert", "-q", (kTiny / "transformer").string(), "pruned.safetensors",
                      "--to", "comfy-pruned", "--rank", "3", "--max-rel-resid", "1"}));
  // What the table leaves of the modulation is no change that the table could carry.
  const ProcessResult none = run({"adaln", "rebase", "-q", kTiny.string(), "pruned.safetensors",
                                  "out.safetensors", "--stats", "stats.json"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("miniacc: problem: "));
  EXPECT_THAT(files(), ElementsAre("pruned.safetensors", "stats.json"));
  EXPECT_EQ(nlohmann::json::parse(read("stats.json")).at("layers").size(), 7U);
  expect_success(run({"adaln", "rebase", "-q", kTiny.string(), "pruned.safetensors",
                      "out.safetensors", "--max-rel-resid", "2"}));
  expect_error(run({"adaln", "rebase", "-q", kTiny.string(), kTiny.string(), "x.safetensors"}), 2,
               {"adaln_t_table"});
  expect_error(
      run({"adaln", "rebase", "-q", "pruned.safetensors", "pruned.safetensors", "x.safetensors"}),
      2, {"time_embedder"});
  expect_error(run({"adaln", "rebase", "-q", kTiny.string(), "pruned.safetensors", "x.safetensors",
                    "--max-rel-resid", "nan"}),
               2, {"--max-rel-resid"});
}

TEST_F(ConvertTools, LiftedChangesFitTheFullModel) {
  expect_success(run({"convert", "-q", (kTiny / "transformer").string(), "pruned.safetensors",
                      "--to", "comfy-pruned"}));
  const std::string module = "diffusion_model.blocks.2.adaln_proj.linear";
  auto writer = create_safetensors(*this / "in.safetensors",
                                   {{module + ".lora_A.weight", DType::kF32, {2, 8}},
                                    {module + ".lora_B.weight", DType::kF32, {4608, 2}}},
                                   {});
  ASSERT_TRUE(writer);
  std::vector<float> values(2 * 8 + 4608 * 2, 0.01F);
  ASSERT_TRUE((*writer)->append(std::as_bytes(std::span(values))));
  ASSERT_TRUE((*writer)->finish());
  const ProcessResult lifted = run({"adaln", "lift", "-q", "in.safetensors", kTiny.string(),
                                    "pruned.safetensors", "out.safetensors"});
  expect_success(lifted);
  EXPECT_THAT(lifted.out, HasSubstr("1 AdaLN changes lifted"));
  const auto file = TensorFile::open(*this / "out.safetensors");
  EXPECT_EQ(file->find(module + ".lora_A.weight")->shape, (Shape{2, 16}));
  // The converter checks every shape against the full model.
  expect_success(run({"lora", "convert", "-q", "out.safetensors", "--to", "diffusers", "--model",
                      kTiny.string()}));
  EXPECT_EQ(run({"lora", "convert", "-q", "in.safetensors", "--to", "diffusers", "--model",
                 kTiny.string()})
                .exit_code,
            1);
}

}  // namespace
}  // namespace miniacc::testing
