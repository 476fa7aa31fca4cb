#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint/edit_file.h"
#include "checkpoint/inspect.h"
#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "support/temp_dir.h"

// A VAE whose encoder is absent, incomplete or contradicted decodes all the same; what is wrong is
// said as soon as a tensor of the encoder is asked for.

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using testing::EditableFile;
using ::testing::HasSubstr;

const fs::path kGolden = fs::path(MINIACC_TEST_DATA) / "golden";

struct Half {
  const char* folder;
  const char* first;    ///< a tensor of the encoder that every use of it reads
  const char* decoder;  ///< one of the decoder
};
constexpr Half kVideo{"h3-micro/video_vae", "encoder.conv_in.weight", "decoder.norm_out.weight"};
constexpr Half kAudio{"h3-micro/audio_vae", "encoder.block.0.weight", "decoder.conv_pre.weight"};

class EncoderHalf : public ::testing::Test {
 protected:
  using Edit = std::function<void(EditableFile&)>;

  /// A copy of the component with its tensors edited.
  fs::path edited(const Half& half, const Edit& edit) {
    const fs::path path = copy(half.folder);
    EditableFile file = EditableFile::read(path);
    edit(file);
    for (const auto& item : fs::recursive_directory_iterator(path)) {
      if (item.path().string().find(".safetensors") != std::string::npos) {
        fs::remove(item.path());
      }
    }
    file.write(path / "model.safetensors");
    return path;
  }
  fs::path copy(const fs::path& component) {
    const fs::path to = folder_ / "component";
    fs::remove_all(to);
    fs::copy(kGolden / component, to, fs::copy_options::recursive);
    return to;
  }
  fs::path with_config(const Half& half, const char* config, const char* pointer,
                       const json& value) {
    const fs::path path = copy(half.folder);
    json root = json::parse(std::ifstream(path / config));
    EXPECT_TRUE(root.contains(json::json_pointer(pointer))) << pointer;
    root[json::json_pointer(pointer)] = value;
    std::ofstream(path / config) << root;
    return path;
  }

  /// The component opens, its decoder is read, and this is what reading the encoder says.
  std::string encoder_error(const fs::path& path, const Half& half) {
    const auto opened = open_component(path);
    EXPECT_TRUE(opened) << opened.error().message;
    if (!opened) {
      return "did not open";
    }
    EXPECT_TRUE((*opened)->load(half.decoder, device_));
    const auto shape = (*opened)->shape(half.first);
    const auto loaded = (*opened)->load(half.first, device_);
    EXPECT_EQ(static_cast<bool>(shape), static_cast<bool>(loaded));
    return shape ? "none" : shape.error().message;
  }

  testing::TempDir folder_;
  CpuDevice device_;
};

TEST_F(EncoderHalf, IsReadWhereItIsWhole) {
  for (const Half& half : {kVideo, kAudio}) {
    EXPECT_EQ(encoder_error(kGolden / half.folder, half), "none");
  }
}

TEST_F(EncoderHalf, MayBeAbsent) {
  const auto drop = [](std::initializer_list<const char*> stems) {
    return [stems = std::vector<std::string>(stems.begin(), stems.end())](EditableFile& file) {
      std::erase_if(file.tensors, [&](const auto& item) {
        return std::ranges::any_of(
            stems, [&](const std::string& stem) { return item.first.starts_with(stem); });
      });
    };
  };
  EXPECT_THAT(encoder_error(edited(kVideo, drop({"encoder.", "quant_conv."})), kVideo),
              HasSubstr("has no tensor encoder.conv_in.weight"));
  EXPECT_THAT(
      encoder_error(edited(kAudio, drop({"encoder.", "pre_block.", "mean_proj.", "logs_proj."})),
                    kAudio),
      HasSubstr("has no tensor encoder.block.0.weight"));
}

TEST_F(EncoderHalf, MissingTensorsAreSaidWhenItIsRead) {
  const auto erase = [](const char* name) {
    return [name](EditableFile& file) { ASSERT_EQ(file.tensors.erase(name), 1U) << name; };
  };
  EXPECT_THAT(encoder_error(edited(kVideo, erase("encoder.down.2.block.1.norm2.bias")), kVideo),
              AllOf(HasSubstr("tensor encoder.down.2.block.1.norm2.bias of the encoder is missing"),
                    HasSubstr("decodes, but cannot encode")));
  EXPECT_THAT(encoder_error(edited(kVideo, erase("encoder.conv_in.weight")), kVideo),
              HasSubstr("tensor encoder.conv_in.weight of the encoder is missing: this file"));
  EXPECT_THAT(encoder_error(edited(kVideo, erase("quant_conv.weight")), kVideo),
              HasSubstr("tensor quant_conv.weight of the encoder is missing"));
  // The last level as a whole: the configuration knows of it.
  EXPECT_THAT(encoder_error(edited(kVideo,
                                   [](EditableFile& file) {
                                     std::erase_if(file.tensors, [](const auto& item) {
                                       return item.first.starts_with("encoder.down.5.");
                                     });
                                   }),
                            kVideo),
              HasSubstr("says ch_mult [1, 2, 2, 3, 3, 4], the tensors say [1, 2, 2, 3, 3]"));
  EXPECT_THAT(
      encoder_error(edited(kAudio, erase("encoder.block.3.block.1.block.3.weight_g")), kAudio),
      HasSubstr("part 2 of encoder.block.3.block.1.block.3.weight of the encoder is "
                "missing"));
  EXPECT_THAT(encoder_error(edited(kAudio, erase("pre_block.attn.v_bias")), kAudio),
              HasSubstr("tensor pre_block.attn.v_bias of the encoder is missing"));
  // logs_proj is not used.
  EXPECT_EQ(encoder_error(edited(kAudio, erase("logs_proj.bias")), kAudio), "none");
}

TEST_F(EncoderHalf, OddTensorsAreSaidWhenItIsRead) {
  EXPECT_THAT(encoder_error(edited(kVideo,
                                   [](EditableFile& file) {
                                     file.set_f32("encoder.conv_out.bias", {47},
                                                  std::vector<float>(47));
                                   }),
                            kVideo),
              HasSubstr("encoder.conv_out.bias is [47], wanted [48]"));
  EXPECT_THAT(
      encoder_error(
          edited(kVideo,
                 [](EditableFile& file) {
                   file.set_f32("encoder.conv_in.weight", {4, 3, 9}, std::vector<float>(108));
                 }),
          kVideo),
      HasSubstr("encoder.conv_in.weight is [4, 3, 9]"));
  EXPECT_THAT(
      encoder_error(
          edited(kAudio, [](EditableFile& file) { file.set_f32("encoder.extra", {1}, {1.0F}); }),
          kAudio),
      HasSubstr("tensor encoder.extra of the encoder is unknown"));
  EXPECT_THAT(
      encoder_error(edited(kAudio,
                           [](EditableFile& file) {
                             file.set_f32("pre_block.mlp.w1.bias", {2, 32}, std::vector<float>(64));
                             file.set_f32("mean_proj.bias", {3}, {1.0F, 1.0F, 1.0F});
                           }),
                    kAudio),
      HasSubstr("and 1 more problems of the encoder"));
}

TEST_F(EncoderHalf, ContradictedSizesAreSaidWhenItIsRead) {
  struct Case {
    Half half;
    const char* config;
    const char* pointer;
    json value;
    const char* said;
  };
  const Case cases[] = {
      {kVideo, "source/config.json", "/ch", 5, "says ch 5, the tensors say 4"},
      {kVideo, "source/config.json", "/ch_mult", {1, 2, 2, 3, 4, 4}, "says ch_mult [1, 2, 2, 3, 4"},
      {kVideo, "source/config.json", "/num_res_blocks", 3, "says num_res_blocks 3, the tensors"},
      {kAudio, "metadata.json", "/metadata/kwargs/encoder_dim", 3, "encoder_dim 3, the tensors"},
      {kAudio,
       "metadata.json",
       "/metadata/kwargs/encoder_rates",
       {2, 4, 5, 4, 5},
       "encoder_rates [2, 4, 5, 4, 5], the tensors say [2, 4, 4, 5, 5]"},
  };
  for (const Case& item : cases) {
    EXPECT_THAT(
        encoder_error(with_config(item.half, item.config, item.pointer, item.value), item.half),
        HasSubstr(item.said));
  }
  constexpr Half kDiffusersVideo{"h3-micro-diffusers/vae", "encoder.conv_in.weight",
                                 "decoder.norm_out.weight"};
  EXPECT_THAT(encoder_error(with_config(kDiffusersVideo, "config.json", "/block_out_channels",
                                        {4, 8, 8, 12, 12, 12}),
                            kDiffusersVideo),
              HasSubstr("says block_out_channels [4, 8, 8, 12, 12, 12], the tensors say [4, 8, 8, "
                        "12, 12, 16]"));
  EXPECT_THAT(encoder_error(with_config(kDiffusersVideo, "config.json", "/layers_per_block", 1),
                            kDiffusersVideo),
              HasSubstr("says layers_per_block 1, the tensors say 2"));
}

TEST_F(EncoderHalf, ItsChoicesAreKnown) {
  for (const char* folder : {"h3-micro/video_vae", "h3-micro-diffusers/vae"}) {
    const auto opened = open_component(kGolden / folder);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->config("encoder_norm_groups"), std::vector<double>{2.0});
    EXPECT_EQ((*opened)->config("encoder_padding_is_reflect"), std::vector<double>{1.0});
    EXPECT_EQ((*opened)->config("encoder_time_down"), (std::vector<double>{1, 2, 2, 1, 1, 1}));
    EXPECT_EQ((*opened)->config("encoder_space_down"), (std::vector<double>{2, 2, 2, 2, 1, 1}));
  }
  const auto other =
      open_component(with_config(kVideo, "source/config.json", "/padding_mode", "zeros"));
  ASSERT_TRUE(other);
  EXPECT_EQ((*other)->config("encoder_padding_is_reflect"), std::vector<double>{0.0});
  for (const char* folder : {"h3-micro/audio_vae", "h3-micro-diffusers/audio_vae"}) {
    const auto opened = open_component(kGolden / folder);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->config("encoder_num_heads"), std::vector<double>{2.0});
  }
}

TEST_F(EncoderHalf, InspectListsWhatIsWrongWithIt) {
  const auto report = inspect(
      edited(kVideo, [](EditableFile& file) { file.tensors.erase("encoder.norm_out.bias"); }));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->components.front().problems.empty());
  EXPECT_TRUE(report->components.front().missing.empty());
  EXPECT_THAT(report->to_text(),
              AllOf(HasSubstr("wrong with the encoder (1)"), HasSubstr("encoder.norm_out.bias")));
}

}  // namespace
}  // namespace miniacc
