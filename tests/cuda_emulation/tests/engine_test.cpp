// Whole requests of the micro model on the emulated device: against the CPU, and under faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "cuda_emulation/emulation.h"
#include "device/cpu_device.h"
#include "device/cuda_device.h"
#include "miniacc/miniacc.h"
#include "miniacc/tools.h"
#include "runtime/compute_device.h"
#include "runtime/pipeline.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using cuda_emulation::Call;
using cuda_emulation::Held;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::identical_to;
using testing::relative_error;
using testing::test_data;

/// Latents and sound of one request, on the CPU (choice "cpu") or the emulated device.
struct Made {
  std::vector<float> video;
  std::vector<float> audio;
  std::vector<float> sound;
  std::vector<std::uint8_t> pixels;
};

Made run(Pipeline& pipeline, OpContext& ctx, const GenerateRequest& request,
         const PreparedRequest& prepared) {
  JobProgress progress({{kLoadStage, 1.0},
                        {kTextStage, 1.0},
                        {kDenoiseStage, 1.0},
                        {kAudioStage, 1.0},
                        {kVideoStage, 1.0},
                        {kSaveStage, 1.0}},
                       nullptr);
  const Tensor hidden =
      pipeline.encode_text(ctx, pipeline.tokenize(request.prompt).value(), progress).value();
  std::vector<double> step_seconds;
  const ClipLatents latents =
      pipeline.denoise(ctx, prepared, hidden.view(), progress, step_seconds).value();
  const Tensor sound = pipeline.decode_audio(ctx, latents, progress).value();
  Made made;
  EXPECT_TRUE(pipeline.decode_video(
      ctx, latents,
      [&](const video_vae::FrameBatch& batch) -> Status {
        const auto* bytes = batch.rgb.as<std::uint8_t>();
        made.pixels.insert(made.pixels.end(), bytes, bytes + batch.rgb.num_elements());
        return {};
      },
      progress));
  const auto values = [](const Tensor& tensor) {
    return std::vector<float>(tensor.f32().begin(), tensor.f32().end());
  };
  made.video = values(latents.video);
  made.audio = values(latents.audio);
  made.sound = values(sound);
  return made;
}

/// How the layers reach the emulated device.
struct Residency {
  bool streams = true;
  std::optional<std::size_t> vram_bytes = {};
  StreamOptions options = {};
  int requests = 1;    ///< of which the last one is returned
  bool small = false;  ///< two steps of the shortest clip
};

Made make(const std::string& device, Precision precision, const Residency& residency = {},
          std::vector<StreamReport>* reports = nullptr, const std::string& attention = "") {
  GenerateRequest request;
  request.prompt = "A red fox walking through snow, <d>the wind hums</d>.";
  request.width = residency.small ? 32 : 64;
  request.height = 32;
  request.num_frames = residency.small ? 5 : 22;
  request.seed = 42;
  if (residency.small) {
    request.sampling.video_sigmas = {1.0F, 0.5F, 0.0F};
  } else {
    request.sampling.recipe = "lightx2v4";
  }
  request.output = "unused.mp4";
  request.attention = attention;
  const PreparedRequest prepared = prepare_request(request).value();
  CpuDevice host;
  ComputeDevice compute =
      open_compute_device(parse_device(device).value(), residency.vram_bytes).value();
  OpContext ctx{.device = compute.device ? *compute.device : host,
                .num_threads = 1,
                .stream = compute.stream.get(),
                .host = &host};
  ModelPaths model;
  model.folder = test_data("golden/h3-micro");
  Pipeline pipeline = Pipeline::open(model, host, precision, std::size_t{64} << 20).value();
  if (compute.card && residency.streams) {
    EXPECT_TRUE(pipeline.stream_weights(compute, residency.options));
  }
  Made made;
  for (int i = 0; i < residency.requests; ++i) {
    made = run(pipeline, ctx, request, prepared);
  }
  if (reports != nullptr) {
    *reports = pipeline.stream_reports();
  }
  return made;
}

class CudaPipeline : public ::testing::Test {
 protected:
  void SetUp() override { cuda_emulation::reset(); }
  void TearDown() override {
    EXPECT_EQ(cuda_emulation::held(), Held{}) << "everything was given back";
    EXPECT_TRUE(cuda_emulation::reports().empty());
    cuda_emulation::reset();
  }
  static const Made& on_cpu() {
    static const Made made = make("cpu", Precision::kF32);
    return made;
  }
};

TEST_F(CudaPipeline, F32MatchesTheCpu) {
  constexpr double kBound = 1e-4;
  const Made made = make("cuda", Precision::kF32);
  EXPECT_GT(cuda_emulation::num_calls(Call::kLaunch), 100U) << "the device did the work";
  const double video = relative_error(made.video, on_cpu().video);
  const double audio = relative_error(made.audio, on_cpu().audio);
  const double sound = relative_error(made.sound, on_cpu().sound);
  RecordProperty("errors", std::to_string(video) + ", " + std::to_string(audio));
  EXPECT_LE(video, kBound);
  EXPECT_LE(audio, kBound);
  EXPECT_LE(sound, kBound);
  ASSERT_EQ(made.pixels.size(), on_cpu().pixels.size());
  std::size_t far = 0;
  for (std::size_t i = 0; i < made.pixels.size(); ++i) {
    far += std::abs(int{made.pixels[i]} - int{on_cpu().pixels[i]}) > 1 ? 1 : 0;
  }
  EXPECT_LE(far, made.pixels.size() / 1000);
}

void expect_same(const Made& made, const Made& wanted) {
  EXPECT_TRUE(identical_to(made.video, wanted.video));
  EXPECT_TRUE(identical_to(made.audio, wanted.audio));
  EXPECT_TRUE(identical_to(made.sound, wanted.sound));
  EXPECT_EQ(made.pixels, wanted.pixels);
}

TEST_F(CudaPipeline, AnyResidencyGivesTheSameBits) {
  for (const Precision precision : {Precision::kBF16, Precision::kInt8}) {
    SCOPED_TRACE(precision == Precision::kBF16 ? "bf16" : "int8");
    const Made wanted = make("cuda", precision, {.streams = false, .small = true});
    std::vector<StreamReport> reports;
    expect_same(make("cuda", precision, {.requests = 2, .small = true}, &reports), wanted);
    ASSERT_EQ(reports.size(), 3U);
    for (const StreamReport& report : reports) {
      EXPECT_EQ(report.resident, report.layers) << report.component << ": all is resident";
      EXPECT_EQ(report.counters.copies, report.layers) << "and travelled once in two requests";
    }
    for (const std::int64_t places : {2, 3}) {
      for (const std::size_t pinned : {std::size_t{1} << 30, std::size_t{100000}, std::size_t{0}}) {
        SCOPED_TRACE(std::to_string(places) + " places, pinned " + std::to_string(pinned));
        Residency residency{.requests = 2, .small = true};
        residency.options = {.num_slots = 2, .max_places = places, .pinned_bytes = pinned};
        expect_same(make("cuda", precision, residency, &reports), wanted);
        for (const StreamReport& report : reports) {
          if (report.layers > places) {
            EXPECT_EQ(report.slots, 2) << report.component;
            EXPECT_EQ(report.resident, places - 2) << report.component;
            EXPECT_GT(report.counters.copies, report.layers) << "layers travelled again";
            if (pinned == 0 || pinned > 1000000) {  // between them a stack's size decides
              EXPECT_EQ(report.pinned, pinned == 0 ? 0 : report.layers) << report.component;
            }
          }
          EXPECT_LE(report.pinned_bytes, pinned + 3 * report.layer_bytes) << report.component;
        }
      }
    }
  }
}

TEST_F(CudaPipeline, Bf16StaysNearTheCpusF32AndRepeatsBitForBit) {
  constexpr double kBound = 2e-2;
  const Made made = make("cuda", Precision::kBF16);
  const double video = relative_error(made.video, on_cpu().video);
  const double audio = relative_error(made.audio, on_cpu().audio);
  RecordProperty("errors", std::to_string(video) + ", " + std::to_string(audio));
  EXPECT_LE(video, kBound);
  EXPECT_LE(audio, kBound);
  EXPECT_GT(video, 1e-6) << "bf16 products leave a trace";
  const Made again = make("cuda", Precision::kBF16);
  EXPECT_TRUE(identical_to(again.video, made.video));
  EXPECT_TRUE(identical_to(again.audio, made.audio));
  EXPECT_TRUE(identical_to(again.sound, made.sound));
  EXPECT_EQ(again.pixels, made.pixels);
}

// The text encoder, the refiner and AdaLN differ by the order of f32 sums and, where that moves a
// value across the middle between two bf16 numbers, by one of those; a perturbation of that size
// moves an eighth of all int8 codes by one. So the two sides are about as far from each other as
// either is from f32 (1.8e-2). Measured against the CPU's int8: 1.7e-2 with bf16 attention, 1.5e-2
// with int8.
TEST_F(CudaPipeline, Int8MatchesTheCpusInt8AndRepeatsBitForBit) {
  for (const auto& [attention, bound] : {std::pair{"bf16", 3.4e-2}, std::pair{"int8", 3.0e-2}}) {
    const Made cpu = make("cpu", Precision::kInt8, {}, nullptr, attention);
    const Made made = make("cuda", Precision::kInt8, {}, nullptr, attention);
    const double video = relative_error(made.video, cpu.video);
    const double audio = relative_error(made.audio, cpu.audio);
    RecordProperty(attention, std::to_string(video) + ", " + std::to_string(audio));
    EXPECT_LE(video, bound) << attention;
    EXPECT_LE(audio, bound) << attention;
    EXPECT_LE(relative_error(made.video, on_cpu().video), 3.6e-2) << attention;
    const Made again = make("cuda", Precision::kInt8, {}, nullptr, attention);
    EXPECT_TRUE(identical_to(again.video, made.video)) << attention;
    EXPECT_TRUE(identical_to(again.audio, made.audio)) << attention;
  }
}

/// Requests through the engine, as small as they go: one step, sound only.
class CudaEngine : public CudaPipeline {
 protected:
  Result<GenerateResult> generate(EngineOptions options, const std::string& name = "clip.wav") {
    GenerateRequest request;
    request.prompt = "a red fox";
    request.width = 32;
    request.height = 32;
    request.num_frames = 5;
    request.seed = 7;
    request.sampling.video_sigmas = {1.0F, 0.0F};
    request.model.folder = test_data("golden/h3-micro");
    request.output = folder_ / name;
    request.overwrite = true;
    request.write_metadata = false;
    options.num_threads = 1;
    notes_.clear();
    const Engine engine(options);
    return engine.generate(
        request, [&](const Event& event) { notes_ += event.message + "\n"; }, CancelToken());
  }
  static EngineOptions on_cuda() {
    EngineOptions options;
    options.device = "cuda";
    return options;
  }
  std::string content(const std::string& name = "clip.wav") const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  testing::TempDir folder_;
  std::string notes_;
};

TEST_F(CudaEngine, MakesAClipWithPicturesAndGivesEverythingBack) {
  const auto result = generate(on_cuda(), "clip.mp4");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(notes_, HasSubstr("computing on CUDA device 0 (emulated, compute capability 9.0)"));
  EXPECT_GT(content("clip.mp4").size(), 1000U);
}

TEST_F(CudaEngine, ABudgetThatIsTooSmallIsRefusedWithThePlanAndWhatWouldFit) {
  EngineOptions options = on_cuda();
  options.vram_bytes = std::size_t{64} << 10;
  const auto result = generate(options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(result.error().message, HasSubstr("of device memory"));
  EXPECT_THAT(result.error().message, HasSubstr("what would fit: --vram "));
  EXPECT_EQ(cuda_emulation::num_calls(Call::kLaunch), 0U) << "before any work";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "clip.wav"));
}

TEST_F(CudaEngine, TheMeasuredPeakIsWithinThePlanAndThePlanWithinTheBudget) {
  const auto free = generate(on_cuda(), "clip.mp4");
  ASSERT_TRUE(free) << free.error().message;
  EXPECT_GT(free->peak_device_bytes, 0U);
  EXPECT_LE(free->peak_device_bytes, free->planned_device_bytes);
  EXPECT_THAT(free->streams, HasSubstr("\"component\":\"transformer\""));
  const std::string wanted = content("clip.mp4");
  // The refusal of a budget that is too small names the smallest one.
  EngineOptions options = on_cuda();
  options.vram_bytes = 1 << 20;
  const std::string refusal = generate(options, "clip.mp4").error().message;
  const std::size_t at = refusal.find("--vram ");
  ASSERT_NE(at, std::string::npos) << refusal;
  options.vram_bytes = std::stoull(refusal.substr(at + 7)) << 20;
  cuda_emulation::reset();
  const auto tight = generate(options, "clip.mp4");
  ASSERT_TRUE(tight) << tight.error().message;
  EXPECT_LE(tight->peak_device_bytes, tight->planned_device_bytes);
  EXPECT_LE(tight->planned_device_bytes, *options.vram_bytes);
  EXPECT_LE(cuda_emulation::peak_bytes(), *options.vram_bytes);
  EXPECT_EQ(content("clip.mp4"), wanted) << "bit for bit";
}

TEST_F(CudaEngine, PlansForACardThatIsNotThere) {
  cuda_emulation::reset({.num_devices = 0});
  GenerateRequest request;
  request.prompt = "a red fox";
  request.model.folder = "synthetic:full-int8";
  request.sampling.recipe = "lightx2v4";
  EngineOptions options = on_cuda();
  options.precision = "int8";
  EXPECT_FALSE(Engine(options).plan(request)) << "without a limit a card is needed";
  options.vram_bytes = std::size_t{24} << 30;
  const auto plan = Engine(options).plan(request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->text, HasSubstr("device memory, at most 24576 MiB"));
  EXPECT_THAT(plan->json, HasSubstr("\"ceiling_bytes\":25769803776"));
  options.vram_bytes = std::size_t{4} << 30;
  const auto refused = Engine(options).plan(request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("--vram "));
  EXPECT_THAT(refused.error().message, HasSubstr("-W "));
}

TEST_F(CudaEngine, CancellingWhileLayersStreamGivesEverythingBack) {
  ASSERT_TRUE(generate(on_cuda()));
  const std::string wanted = content();
  cuda_emulation::reset();
  GenerateRequest request;
  request.prompt = "a red fox";
  request.width = 32;
  request.height = 32;
  request.num_frames = 5;
  request.sampling.video_sigmas = {1.0F, 0.0F};
  request.model.folder = test_data("golden/h3-micro");
  request.output = folder_ / "cancelled.wav";
  for (const std::string& stage : {std::string(kTextStage), std::string(kDenoiseStage)}) {
    CancelToken cancel;
    const auto result = Engine(on_cuda()).generate(
        request,
        [&](const Event& event) {
          if (event.kind == Event::Kind::kProgress && event.stage == stage) {
            cancel.cancel();
          }
        },
        cancel);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCancelled) << result.error().message;
    EXPECT_EQ(cuda_emulation::held(), Held{}) << stage;
    EXPECT_FALSE(std::filesystem::exists(request.output));
  }
  ASSERT_TRUE(generate(on_cuda()));
  EXPECT_EQ(content(), wanted);
}

TEST_F(CudaEngine, AnotherProgramTakingTheMemoryMidRunIsACleanError) {
  ASSERT_TRUE(generate(on_cuda()));
  const std::uint64_t allocations = cuda_emulation::num_calls(Call::kAllocate);
  cuda_emulation::let_others_take(std::size_t{8} << 30, allocations / 2);
  const auto result = generate(on_cuda());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(result.error().message, HasSubstr("other programs may hold the rest"));
  EXPECT_EQ(cuda_emulation::held(), Held{});
  cuda_emulation::set_other_programs_bytes(0);
  EXPECT_TRUE(generate(on_cuda())) << "the next request works";
}

/// Fails calls of one kind in turn: all of them with MINIACC_FULL_FAULT_WALK=1 in the environment,
/// else `kPoints` spread over the request.
/// A failure while memory is given back, behind a finished clip, may go unsaid: `is_right` then
/// judges the clip.
void walk(Call kind, std::uint64_t total, const std::function<Result<GenerateResult>()>& generate,
          const std::function<bool()>& is_right) {
  constexpr std::uint64_t kPoints = 12;
  ASSERT_GT(total, 0U);
  const std::uint64_t step = std::getenv("MINIACC_FULL_FAULT_WALK") != nullptr
                                 ? 1
                                 : std::max<std::uint64_t>(1, total / kPoints);
  for (std::uint64_t nth = 1; nth <= total; nth += step) {
    cuda_emulation::fail_call(kind, nth);
    const auto result = generate();
    ASSERT_TRUE(cuda_emulation::call_failed()) << "call " << nth << " of " << total;
    EXPECT_EQ(cuda_emulation::held(), Held{}) << "call " << nth << " of " << total;
    if (result) {
      ASSERT_TRUE(is_right()) << "call " << nth << " of " << total << " failed and nobody noticed";
      continue;
    }
    EXPECT_THAT(result.error().code,
                AnyOf(ErrorCode::kOutOfMemory, ErrorCode::kInternal, ErrorCode::kUnsupported));
    EXPECT_THAT(result.error().message,
                AnyOf(HasSubstr("the GPU failed: "), HasSubstr("no "), HasSubstr("cannot")));
  }
  cuda_emulation::fail_call(kind, 0);
}

TEST_F(CudaEngine, EveryFailingCallIsACleanErrorAndTheNextRequestWorks) {
  ASSERT_TRUE(generate(on_cuda()));
  const std::string wanted = content();
  for (const Call kind : {Call::kAllocate, Call::kCopy, Call::kFill, Call::kLaunch, Call::kStream,
                          Call::kWait, Call::kPin}) {
    cuda_emulation::reset();
    ASSERT_TRUE(generate(on_cuda()));
    walk(
        kind, cuda_emulation::num_calls(kind), [&] { return generate(on_cuda()); },
        [&] { return content() == wanted; });
    const auto after = generate(on_cuda());
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ(content(), wanted) << "bit for bit";
  }
}

TEST_F(CudaEngine, CardsThatCannotBeUsedAreNamedAndTheCpuOffered) {
  struct Case {
    cuda_emulation::Machine machine;
    const char* reason;
  };
  const Case cases[] = {
      {{.compute_major = 7, .compute_minor = 5}, "compute capability 7.5, wanted 8.0"},
      {{.num_devices = 0}, "no usable CUDA device"},
      {{.driver_version = 0}, "no NVIDIA driver is installed"},
      {{.driver_version = 12020}, "supports CUDA up to 12.2, wanted 13.0"},
      {{.has_code = false}, "this build holds no code"}};
  for (const Case& each : cases) {
    cuda_emulation::reset(each.machine);
    const auto refused = generate(on_cuda());
    ASSERT_FALSE(refused) << each.reason;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(refused.error().message, HasSubstr(each.reason));
    EXPECT_THAT(refused.error().message, HasSubstr("run on the CPU instead"));
    const auto doctor = report_machine("cuda", ReportFormat::kText);
    ASSERT_TRUE(doctor);
    EXPECT_FALSE(doctor->device_works);
    EXPECT_THAT(doctor->text, HasSubstr(each.reason));
    const auto any = report_machine("auto", ReportFormat::kJson);
    ASSERT_TRUE(any);
    EXPECT_TRUE(any->device_works) << "the CPU works";
  }
  cuda_emulation::reset({.compute_major = 7, .compute_minor = 5});
  EngineOptions options;
  options.device = "auto";
  ASSERT_TRUE(generate(options));
  EXPECT_THAT(notes_, HasSubstr("computing on the CPU: CUDA device 0 (emulated) has compute"));
}

TEST_F(CudaEngine, RefusesDevicesThatAreNotThere) {
  EngineOptions options = on_cuda();
  options.device = "cuda:3";
  EXPECT_THAT(generate(options).error().message, HasSubstr("CUDA device 3 does not exist"));
  options.device = "gpu";
  EXPECT_THAT(generate(options).error().message,
              HasSubstr("must be auto, cpu, cuda or cuda:N, got 'gpu'"));
  options.device = "cpu";
  options.vram_bytes = 1;
  EXPECT_THAT(generate(options).error().message, HasSubstr("--vram"));
}

TEST_F(CudaEngine, TheDoctorShowsAUsableCard) {
  const auto report = report_machine("cuda:0", ReportFormat::kText);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->device_works);
  EXPECT_THAT(report->text, HasSubstr("emulated, compute capability 9.0, 8.0 GiB, 8.0 GiB free"));
  EXPECT_FALSE(report_machine("tpu", ReportFormat::kText));
}

}  // namespace
}  // namespace miniacc
