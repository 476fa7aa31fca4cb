#include "runtime/request.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace miniacc {
namespace {

using ::testing::HasSubstr;

GenerateRequest sample_request() {
  GenerateRequest request;
  request.prompt = "a \"red\" fox, 镜头 🦊\n";
  request.width = 256;
  request.height = 160;
  request.num_frames = 39;
  request.seed = ~0ULL;
  request.sampling.recipe = "lightx2v4";
  request.sampling.noise = "comfy";
  request.sampling.video_shift = 7.5F;
  request.model.folder = "/models/h3";
  request.output = "out.mp4";
  return request;
}

TEST(Request, PreparedRequestCarriesTheEffectiveSettings) {
  GenerateRequest request = sample_request();
  request.num_frames = 38;
  const PreparedRequest prepared = prepare_request(request).value();
  EXPECT_EQ(prepared.request.num_frames, 39);
  EXPECT_EQ(prepared.geometry.latent_frames, 12);
  EXPECT_EQ(prepared.request.sampling.video_sigmas.size(), 5U);
  EXPECT_EQ(prepared.request.sampling.audio_sigmas, prepared.schedule.audio);
  EXPECT_EQ(prepared.noise, NoiseOrder::kComfy);
}

TEST(Request, JsonRoundTripKeepsEveryField) {
  const GenerateRequest request = prepare_request(sample_request()).value().request;
  const GenerateRequest read = request_from_json(request_to_json(request)).value();
  EXPECT_EQ(read.prompt, request.prompt);
  EXPECT_EQ(read.width, 256);
  EXPECT_EQ(read.height, 160);
  EXPECT_EQ(read.num_frames, 39);
  EXPECT_EQ(read.seed, ~0ULL);
  EXPECT_EQ(read.sampling.recipe, "lightx2v4");
  EXPECT_EQ(read.sampling.video_sigmas, request.sampling.video_sigmas);
  EXPECT_EQ(read.sampling.audio_sigmas, request.sampling.audio_sigmas);
  EXPECT_EQ(read.sampling.video_shift, 7.5F);
  EXPECT_EQ(read.sampling.noise, "comfy");
  EXPECT_EQ(read.model.folder, "/models/h3");
  // A request that was carried out can be carried out again, with the same schedule.
  GenerateRequest again = read;
  again.output = "again.mp4";
  EXPECT_EQ(prepare_request(again).value().schedule.video, request.sampling.video_sigmas);
}

TEST(Request, AdaptersRoundTripAndAreChecked) {
  GenerateRequest request = sample_request();
  EXPECT_THAT(request_to_json(request), ::testing::Not(HasSubstr("lora")));
  request.loras = {{"a.safetensors", 0.75F, std::nullopt}, {"b.safetensors", -1.0F, 8.0F}};
  request.lora_allow_partial = true;
  const GenerateRequest read = request_from_json(request_to_json(request)).value();
  ASSERT_EQ(read.loras.size(), 2U);
  EXPECT_EQ(read.loras[0].path, "a.safetensors");
  EXPECT_EQ(read.loras[0].strength, 0.75F);
  EXPECT_FALSE(read.loras[0].alpha);
  EXPECT_EQ(read.loras[1].strength, -1.0F);
  EXPECT_EQ(read.loras[1].alpha, 8.0F);
  EXPECT_TRUE(read.lora_allow_partial);
  ASSERT_TRUE(prepare_request(request));
  const auto refusal = [&](const LoraRequest& lora) {
    request.loras = {lora};
    const auto prepared = prepare_request(request);
    EXPECT_FALSE(prepared);
    return prepared ? std::string() : prepared.error().message;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal({"a.safetensors", nan, std::nullopt}), HasSubstr("strength"));
  EXPECT_THAT(refusal({"a.safetensors", std::numeric_limits<float>::infinity(), std::nullopt}),
              HasSubstr("strength"));
  EXPECT_THAT(refusal({"a.safetensors", 1.0F, 0.0F}), HasSubstr("alpha"));
  EXPECT_THAT(refusal({"a.safetensors", 1.0F, nan}), HasSubstr("alpha"));
  EXPECT_THAT(refusal({"", 1.0F, std::nullopt}), HasSubstr("no file"));
  for (const char* bad : {R"({"version":1,"loras":{}})", R"({"version":1,"loras":[7]})",
                          R"({"version":1,"loras":[{"path":"a","scale":1}]})",
                          R"({"version":1,"loras":[{"path":"a","strength":"1"}]})"}) {
    EXPECT_FALSE(request_from_json(bad)) << bad;
  }
}

TEST(Request, ConditionsRoundTrip) {
  using Kind = ReferenceInput::Kind;
  GenerateRequest request = sample_request();
  for (const char* absent :
       {"init_image", "references", "keyframe_fit", "picture_background", "half"}) {
    EXPECT_THAT(request_to_json(request), ::testing::Not(HasSubstr(absent)));
  }
  const std::string hash(64, 'a');
  request.init_image = {"first 画.png", hash};
  request.end_image = {"last.png", {}};
  request.keyframe_fit = "contain";
  request.picture_background = {1, 2, 255};
  request.references = {{Kind::kAudio, {"voice.wav", {}}, false},
                        {Kind::kVideo, {"dance.mp4", hash}, true},
                        {Kind::kVideo, {"mute.mp4", {}}, false},
                        {Kind::kImage, {"fox.png", {}}, false}};
  request.ref_image_size = "match";
  request.model.half = "ref2va";
  const GenerateRequest read = request_from_json(request_to_json(request)).value();
  EXPECT_EQ(read.init_image.path, "first 画.png");
  EXPECT_EQ(read.init_image.sha256, hash);
  EXPECT_EQ(read.end_image.path, "last.png");
  EXPECT_EQ(read.end_image.sha256, "");
  EXPECT_EQ(read.keyframe_fit, "contain");
  EXPECT_EQ(read.picture_background, request.picture_background);
  ASSERT_EQ(read.references.size(), 4U);
  EXPECT_EQ(read.references[0].kind, Kind::kAudio);
  EXPECT_EQ(read.references[1].kind, Kind::kVideo);
  EXPECT_TRUE(read.references[1].with_sound);
  EXPECT_EQ(read.references[1].file.sha256, hash);
  EXPECT_FALSE(read.references[2].with_sound);
  EXPECT_EQ(read.references[3].kind, Kind::kImage);
  EXPECT_EQ(read.references[3].file.path, "fox.png");
  EXPECT_EQ(read.ref_image_size, "match");
  EXPECT_EQ(read.model.half, "ref2va");
  // A keyframe may be just a path.
  EXPECT_EQ(request_from_json(R"({"version":1,"end_image":"b.png"})").value().end_image.path,
            "b.png");
}

TEST(Request, WrongConditionsAreErrors) {
  const auto message = [](const std::string& json) {
    const auto request = request_from_json(R"({"version":1,)" + json + "}");
    EXPECT_FALSE(request) << json;
    return request ? std::string() : request.error().message;
  };
  EXPECT_THAT(message(R"("init_image":7)"), HasSubstr("request.init_image"));
  EXPECT_THAT(message(R"("init_image":{"sha256":"a"})"), HasSubstr("'path' is missing"));
  EXPECT_THAT(message(R"("init_image":{"path":"a","sha256":"xyz"})"), HasSubstr("sha256"));
  EXPECT_THAT(message(R"("init_image":{"path":"a","kind":"image"})"), HasSubstr("no field 'kind'"));
  EXPECT_THAT(message(R"("references":{})"), HasSubstr("must be an array"));
  EXPECT_THAT(message(R"("references":["a.png"])"), HasSubstr("references[0] must be an object"));
  EXPECT_THAT(message(R"("references":[{"path":"a.png"}])"), HasSubstr("'kind' must be image"));
  EXPECT_THAT(message(R"("references":[{"path":"a","kind":"video","with_sond":true}])"),
              HasSubstr("no field 'with_sond'"));
  EXPECT_THAT(message(R"("references":[{"path":"a","kind":"video","with_sound":1}])"),
              HasSubstr("wrong type"));
  for (const char* color : {"[1,2]", "[1,2,256]", "[1,2,-3]", "[1,2,3.5]", "\"white\"", "7"}) {
    EXPECT_THAT(message(fmt::format(R"("picture_background":{})", color)),
                HasSubstr("three whole numbers"))
        << color;
  }
}

TEST(Request, UnknownAndWrongFieldsAreErrors) {
  const auto message = [](const std::string& json) {
    const auto request = request_from_json(json);
    EXPECT_FALSE(request) << json;
    return request ? std::string() : request.error().message;
  };
  EXPECT_THAT(message("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("{\"version\":1"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message(R"({"version":1,"promt":"x"})"), HasSubstr("no field 'promt'"));
  EXPECT_THAT(message(R"({"version":1,"width":"wide"})"), HasSubstr("'width' has the wrong type"));
  EXPECT_THAT(message(R"({"version":9})"), HasSubstr("version 9"));
  // A clip from elsewhere may hold any number; none is cut or wrapped into another one.
  for (const char* field :
       {R"("width":64.9)", R"("width":1e300)", R"("frames":18446744073709551615)", R"("seed":-1)",
        R"("seed":1e40)", R"("sampling":{"steps":2.5})"}) {
    EXPECT_THAT(message(fmt::format(R"({{"version":1,{}}})", field)),
                HasSubstr("not a whole number in range"))
        << field;
  }
  EXPECT_THAT(message(R"({"version":4294967297})"), HasSubstr("not a whole number in range"));
  EXPECT_THAT(message(R"({"version":1,"sampling":{"cfg":3}})"), HasSubstr("no field 'cfg'"));
  EXPECT_THAT(message(R"({"version":1,"sampling":7})"), HasSubstr("objects"));
}

TEST(Request, NamesTheFlagThatIsWrong) {
  GenerateRequest request = sample_request();
  request.sampling.noise = "philox";
  EXPECT_THAT(prepare_request(request).error().message, HasSubstr("--noise"));
  request = sample_request();
  request.output.clear();
  EXPECT_THAT(prepare_request(request).error().message, HasSubstr("-o"));
  EXPECT_FALSE(parse_precision("fp16"));
  EXPECT_EQ(parse_precision("bf16").value(), Precision::kBF16);
  request = sample_request();
  request.attention = "fp8";
  EXPECT_THAT(prepare_request(request).error().message,
              HasSubstr("--attention must be f32, bf16 or int8, got 'fp8'"));
}

TEST(Request, AttentionFollowsThePrecisionUnlessNamed) {
  EXPECT_EQ(prepare_request(sample_request()).value().attention, std::nullopt);
  for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kInt8}) {
    GenerateRequest named = sample_request();
    named.attention = precision_name(precision);
    EXPECT_EQ(prepare_request(named).value().attention, precision);
  }
  GenerateRequest request = sample_request();
  EXPECT_EQ(request_to_json(request).find("attention"), std::string::npos);
  request.attention = "int8";
  EXPECT_EQ(request_from_json(request_to_json(request)).value().attention, "int8");
}

TEST(Request, AttentionThatTakesNoSuchHeadsIsRefused) {
  EXPECT_TRUE(check_heads(128, Precision::kInt8, DeviceKind::kCuda));
  EXPECT_TRUE(check_heads(256, Precision::kF32, DeviceKind::kCuda));
  EXPECT_TRUE(check_heads(1024, Precision::kBF16, DeviceKind::kCpu));
  EXPECT_THAT(check_heads(129, Precision::kInt8, DeviceKind::kCpu).error().message,
              HasSubstr("heads have 129 channels, and int8 attention on the CPU takes at most 128; "
                        "use --attention bf16"));
  for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kInt8}) {
    const auto refused = check_heads(257, precision, DeviceKind::kCuda);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("use --device cpu"));
  }
}

}  // namespace
}  // namespace miniacc
