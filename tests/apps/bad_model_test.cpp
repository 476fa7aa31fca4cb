#include <gmock/gmock.h>

#include <cstring>
#include <utility>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

constexpr int kUsage = 2;

class BadModel : public Program {
 protected:
  void expect_refused(const Flags& changes, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(parts.front());
    expect_error(generate(changes), kUsage, parts);
    EXPECT_THAT(files(), IsEmpty());
  }
};

TEST_F(BadModel, NoModelSaysHowToNameOne) {
  expect_refused({{"--model", {}}}, {"no transformer", "--diffusion-model", "-m"});
  expect_refused({{"--model", {}}, {"--diffusion-model", (model() / "transformer").string()}},
                 {"no text encoder", "--text-encoder"});
}

TEST_F(BadModel, AbsentPathsAreNamed) {
  expect_refused({{"--model", "absent-model"}}, {"absent-model"});
  for (const std::string flag :
       {"--diffusion-model", "--text-encoder", "--tokenizer", "--vae", "--audio-vae"}) {
    expect_refused({{flag, "absent-part"}}, {"absent-part"});
  }
}

TEST_F(BadModel, FolderWithoutAPartNamesThePart) {
  for (const std::string missing :
       {"transformer", "text_encoder", "tokenizer", "video_vae", "audio_vae"}) {
    SCOPED_TRACE(missing);
    const TempDir copy;
    for (const auto& entry : fs::directory_iterator(model())) {
      if (entry.path().filename() != missing) {
        fs::create_symlink(entry.path(), copy / entry.path().filename());
      }
    }
    expect_refused({{"--model", copy.path().string()}}, {missing});
  }
}

TEST_F(BadModel, MixedUpPartsSayWhatTheyAre) {
  const std::string vae = (model() / "video_vae/source/model.safetensors").string();
  const std::string audio_vae = (model() / "audio_vae/model.safetensors").string();
  const std::string transformer = (model() / "transformer").string();
  const std::string text_encoder = (model() / "text_encoder").string();
  expect_refused({{"--diffusion-model", vae}}, {"--diffusion-model", "is a video VAE"});
  expect_refused({{"--diffusion-model", audio_vae}}, {"--diffusion-model", "is an audio VAE"});
  expect_refused({{"--diffusion-model", text_encoder}}, {"--diffusion-model", "is a text encoder"});
  expect_refused({{"--text-encoder", transformer}}, {"--text-encoder", "is a transformer"});
  expect_refused({{"--vae", audio_vae}}, {"--vae", "is an audio VAE"});
  expect_refused({{"--vae", transformer}}, {"--vae", "is a transformer"});
  expect_refused({{"--audio-vae", vae}}, {"--audio-vae", "is a video VAE"});
  expect_refused({{"--tokenizer", vae}}, {"model.safetensors"});
}

TEST_F(BadModel, PartOfAnotherModelIsRefused) {
  const fs::path other = fs::path(MINIACC_TEST_DATA) / "golden/h3-micro";
  expect_refused({{"--text-encoder", (other / "text_encoder").string()}}, {"not of one model"});
  expect_refused({{"--diffusion-model", (other / "transformer").string()}}, {"not of one model"});
}

/// Offset of a tensor's data in a safetensors file.
std::size_t tensor_offset(const std::string& bytes, const std::string& name) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const auto header = nlohmann::json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
  return sizeof(header_bytes) + header_bytes +
         header.at(name).at("data_offsets").at(0).get<std::size_t>();
}

struct NanCase {
  const char* name;
  const char* flag;
  const char* part;  // folder of the model
  const char* file;  // in it
  const char* tensor;
  const char* reported;  // the engine's own name of the tensor
  bool after_sampling;
};

class NanInWeights : public BadModel, public ::testing::WithParamInterface<NanCase> {};

TEST_P(NanInWeights, IsReportedWithTheTensorsName) {
  const NanCase& nan_case = GetParam();
  const TempDir copy;
  fs::copy(model() / nan_case.part, copy / "part", fs::copy_options::recursive);
  const fs::path file = copy / "part" / nan_case.file;
  std::string bytes = read(file);  // absolute: folder() / file is file
  // All bits set is NaN as F32, and as two values of BF16.
  std::memset(bytes.data() + tensor_offset(bytes, nan_case.tensor), 0xff, 4);
  write(file, bytes);

  const ProcessResult result = generate({{nan_case.flag, (copy / "part").string()}});
  expect_error(result, kUsage, {nan_case.reported, "NaN"});
  if (nan_case.after_sampling) {
    EXPECT_THAT(files(), ElementsAre("clip.mp4.latents.safetensors"));
    EXPECT_THAT(result.err, ::testing::HasSubstr("clip.mp4.latents.safetensors"));
  } else {
    EXPECT_THAT(files(), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parts, NanInWeights,
    ::testing::Values(
        NanCase{"TextEncoder", "--text-encoder", "text_encoder", "model-00001-of-00002.safetensors",
                "model.language_model.layers.0.mlp.down_proj.weight",
                "layers.0.mlp.down_proj.weight", false},
        NanCase{"Refiner", "--diffusion-model", "transformer", "model-00001-of-00002.safetensors",
                "token_refiner.blocks.0.attn.qkv_proj.weight",
                "token_refiner.blocks.0.attn.qkv_proj.weight", false},
        NanCase{"Block", "--diffusion-model", "transformer", "model-00001-of-00002.safetensors",
                "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc1.weight", false},
        NanCase{"Head", "--diffusion-model", "transformer", "model-00002-of-00002.safetensors",
                "final_layer.audio_out.bias", "final_layer.audio_out.bias", false},
        NanCase{"VideoVae", "--vae", "video_vae", "source/model.safetensors",
                "decoder.transformer_blocks.0.attn.to_qkv.weight",
                "decoder.transformer_blocks.0.attn.to_qkv.weight", true},
        NanCase{"AudioVae", "--audio-vae", "audio_vae", "model.safetensors",
                "decoder.conv_pre.weight_v", "decoder.conv_pre.weight", true}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace miniacc::testing
