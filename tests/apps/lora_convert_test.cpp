#include <gmock/gmock.h>
#include <sys/resource.h>

#include "apps/program.h"
#include "apps/sparse_checkpoint.h"
#include "io/tensor_writer.h"

namespace miniacc::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

const fs::path kTiny = fs::path(MINIACC_TEST_DATA).parent_path() / "models/h3-tiny";

/// Seconds of processor time that the children of this program have used.
double children_seconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class LoraConvert : public Program {
 protected:
  static std::string adapter(const std::string& naming) {
    return (kTiny / "adapters" / ("h3-tiny-4step-" + naming + ".safetensors")).string();
  }
  [[nodiscard]] ProcessResult convert(Words words) const {
    words.insert(words.begin(), {"lora", "convert", "-q", "--model", kTiny.string()});
    return run(words);
  }
  /// A pair of zeros for one module.
  void write_pair(const std::string& name, const std::string& module, const Shape& down,
                  const Shape& up) const {
    auto writer = create_safetensors(*this / name,
                                     {{module + ".lora_A.weight", DType::kF32, down},
                                      {module + ".lora_B.weight", DType::kF32, up}},
                                     {});
    ASSERT_TRUE(writer) << writer.error().message;
    const auto values = static_cast<std::size_t>(down.num_elements() + up.num_elements());
    ASSERT_TRUE((*writer)->append(std::vector<std::byte>(4 * values)));
    ASSERT_TRUE((*writer)->finish());
  }
};

TEST_F(LoraConvert, TheShippedTwinsAreOneAdapter) {
  // Both were exported by the program that trained them; neither was made from the other here.
  ProcessResult result = convert({adapter("diffusers"), "comfy.safetensors", "--to", "comfy",
                                  "--alpha", "file", "--compare", adapter("comfy")});
  expect_success(result);
  EXPECT_THAT(result.out, HasSubstr("48 tensors are equal"));
  result = convert({adapter("comfy"), "back.safetensors", "--to", "diffusers", "--alpha", "file",
                    "--compare", adapter("diffusers"), "--json", "report.json"});
  expect_success(result);
  const auto report = nlohmann::json::parse(read("report.json"));
  EXPECT_EQ(report.at("compared_equal"), 72);
  EXPECT_EQ(report.at("written"), 72);
  EXPECT_EQ(report.at("alpha_source"), "alpha tensors");
  EXPECT_THAT(report.at("problems"), IsEmpty());
  // What was written is read as an adapter of the same scale.
  expect_success(convert({"comfy.safetensors", "again.safetensors", "--to", "diffusers",
                          "--compare", adapter("diffusers")}));
}

TEST_F(LoraConvert, ProblemsAreListedAndNothingIsWritten) {
  const ProcessResult result = convert({adapter("diffusers"), "out.safetensors", "--to", "comfy"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("miniacc: problem: transformer_blocks.0.attn"));
  EXPECT_THAT(result.err, HasSubstr("--alpha file"));
  EXPECT_THAT(result.err, HasSubstr("miniacc: error: 1 problem, nothing was written"));
  EXPECT_THAT(files(), IsEmpty());
  write_pair("other.safetensors", "blocks.0.mlp.fc2", {2, 99}, {256, 2});
  EXPECT_EQ(convert({"other.safetensors", "out.safetensors", "--to", "diffusers"}).exit_code, 1);
  EXPECT_THAT(files(), ElementsAre("other.safetensors"));
}

TEST_F(LoraConvert, WrongFlagsAndInputsAreUsageErrors) {
  const std::string in = adapter("comfy");
  expect_error(convert({in, "out", "--to", "kohya"}), 2, {"--to", "'kohya'"});
  for (const std::string alpha : {"zero", "0", "-1", "nan", "inf", "1x"}) {
    expect_error(convert({in, "out", "--to", "comfy", "--alpha", alpha}), 2, {"--alpha", alpha});
  }
  expect_error(convert({in, "out", "--to", "comfy", "--force-base", "both"}), 2, {"--force-base"});
  expect_error(convert({"absent", "out", "--to", "comfy"}), 2, {"absent"});
  expect_error(run({"lora", "convert", in, "out", "--to", "comfy"}), 2, {"--model"});
  expect_error(run({"lora", "convert", in, "out", "--to", "comfy", "--model",
                    (kTiny / "audio_vae").string()}),
               2, {"audio VAE"});
  expect_error(convert({in, "no/out", "--to", "comfy"}), 2, {"no folder no"});
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(LoraConvert, ExistingOutputsAreKeptUnlessTold) {
  write("out.safetensors", "precious");
  const Words words = {adapter("comfy"), "out.safetensors", "--to", "diffusers", "--alpha", "file"};
  expect_error(convert(words), 2, {"out.safetensors", "--overwrite"});
  EXPECT_EQ(read("out.safetensors"), "precious");
  Words told = words;
  told.emplace_back("--overwrite");
  expect_success(convert(told));
  EXPECT_NE(read("out.safetensors"), "precious");
  // The input itself is never replaced.
  const std::string before = read("out.safetensors");
  expect_error(convert({"out.safetensors", "out.safetensors", "--to", "comfy", "--overwrite"}), 2,
               {"is the input"});
  EXPECT_EQ(read("out.safetensors"), before);
}

TEST_F(LoraConvert, AFullDiskLeavesNothing) {
  ProcessOptions small;
  small.max_file_bytes = 100'000;
  const ProcessResult result =
      run({"lora", "convert", "-q", adapter("comfy"), "out.safetensors", "--to", "diffusers",
           "--alpha", "file", "--model", kTiny.string()},
          small);
  expect_error(result, 1, {"out.safetensors"});
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(LoraConvert, OnlyTheHeaderOfALargeModelIsRead) {
  const std::uintmax_t size = write_sparse_transformer(*this / "h3.safetensors");
  EXPECT_GT(size, 20'000'000'000U);
  const double begin = children_seconds();
  const ProcessResult inspected = run({"inspect", "h3.safetensors", "--json"});
  expect_success(inspected);
  const auto report = nlohmann::json::parse(inspected.out).at("components").at(0);
  EXPECT_THAT(report.at("missing"), IsEmpty());
  EXPECT_THAT(report.at("unknown"), IsEmpty());
  EXPECT_THAT(report.at("problems"), IsEmpty());
  const double inspect_seconds = children_seconds() - begin;
  write_pair("in.safetensors", "blocks.49.mlp.fc2", {4, 14336}, {5376, 4});
  expect_success(run({"lora", "convert", "-q", "in.safetensors", "out.safetensors", "--to",
                      "diffusers", "--model", "h3.safetensors"}));
  const double convert_seconds = children_seconds() - begin - inspect_seconds;
  RecordProperty("inspect_ms", static_cast<int>(1e3 * inspect_seconds));
  RecordProperty("convert_ms", static_cast<int>(1e3 * convert_seconds));
  // Processor time, not time on the clock; reading 21 GB would take far more.
  EXPECT_LT(inspect_seconds, 1.0);
  EXPECT_LT(convert_seconds, 1.0);
}

}  // namespace
}  // namespace miniacc::testing
