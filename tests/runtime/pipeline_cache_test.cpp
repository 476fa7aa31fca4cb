// What a pipeline keeps on disk: the same bits as computing it, and only under the same key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "device/cpu_device.h"
#include "runtime/pipeline.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::identical_to;
using testing::test_data;

constexpr const char* kPrompt = "A red fox walking through snow";

class PipelineCache : public ::testing::Test {
 protected:
  struct Run {
    std::vector<float> hidden;
    std::vector<float> video;
    std::vector<float> audio;
    std::vector<std::string> hits;
    std::vector<std::string> warnings;
  };

  Run run(const fs::path& model_folder, const fs::path& cache_folder, float shift = 12.0F,
          const std::string& prompt = kPrompt, const std::string& compute = "test") {
    GenerateRequest request;
    request.prompt = prompt;
    request.width = 32;
    request.height = 32;
    request.num_frames = 5;
    request.seed = 7;
    request.sampling.video_shift = shift;
    request.sampling.steps = 2;
    request.output = "unused.mp4";
    const PreparedRequest prepared = prepare_request(request).value();
    ModelPaths model;
    model.folder = model_folder;
    Pipeline pipeline = Pipeline::open(model, device_, Precision::kBF16, 0).value();
    if (!cache_folder.empty()) {
      pipeline.set_cache(TensorCache::open(cache_folder, std::size_t{1} << 30).value(), compute);
    }
    JobProgress progress({{kLoadStage, 1.0}, {kTextStage, 1.0}, {kDenoiseStage, 1.0}}, nullptr);
    const Presentation presentation = pipeline.present(prepared).value();
    const std::string key = pipeline.text_key(presentation, {});
    auto hidden = pipeline.cached_text(key, progress);
    if (!hidden) {
      hidden.emplace(pipeline.encode_text(ctx_, presentation, {}, progress).value());
      pipeline.keep_text(key, *hidden, progress);
    }
    std::vector<double> step_seconds;
    const ClipLatents latents =
        pipeline.denoise(ctx_, prepared, hidden->view(), progress, step_seconds).value();
    const auto values = [](const Tensor& tensor) {
      return std::vector<float>(tensor.f32().begin(), tensor.f32().end());
    };
    return {values(*hidden), values(latents.video), values(latents.audio), pipeline.cache_hits(),
            progress.warnings()};
  }

  static void expect_same(const Run& made, const Run& wanted) {
    EXPECT_TRUE(identical_to(made.hidden, wanted.hidden));
    EXPECT_TRUE(identical_to(made.video, wanted.video));
    EXPECT_TRUE(identical_to(made.audio, wanted.audio));
  }

  CpuDevice device_;
  OpContext ctx_{device_, 1};
  testing::TempDir folder_;
  const fs::path model_ = test_data("golden/h3-micro");
};

TEST_F(PipelineCache, HitsChangeNoBit) {
  const Run plain = run(model_, {});
  const Run first = run(model_, folder_ / "cache");
  const Run second = run(model_, folder_ / "cache");
  EXPECT_THAT(plain.hits, ElementsAre());
  EXPECT_THAT(first.hits, ElementsAre());
  EXPECT_THAT(second.hits, ElementsAre("text", "modulation"));
  expect_same(first, plain);
  expect_same(second, plain);
  EXPECT_THAT(second.warnings, ElementsAre());
}

TEST_F(PipelineCache, AnotherPromptScheduleOrDeviceIsAnotherEntry) {
  run(model_, folder_ / "cache");
  const Run prompt = run(model_, folder_ / "cache", 12.0F, "A cat");
  EXPECT_THAT(prompt.hits, ElementsAre("modulation"));
  expect_same(prompt, run(model_, {}, 12.0F, "A cat"));
  const Run device = run(model_, folder_ / "cache", 12.0F, kPrompt, "another device");
  EXPECT_THAT(device.hits, ElementsAre());
  const Run schedule = run(model_, folder_ / "cache", 5.0F);
  expect_same(schedule, run(model_, {}, 5.0F));
}

TEST_F(PipelineCache, DamagedEntriesAreComputedAgain) {
  const Run plain = run(model_, {});
  run(model_, folder_ / "cache");
  for (const auto& entry : fs::directory_iterator(folder_ / "cache")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('x');
  }
  const Run again = run(model_, folder_ / "cache");
  EXPECT_THAT(again.hits, ElementsAre());
  EXPECT_FALSE(again.warnings.empty()) << "damage is said";
  expect_same(again, plain);
}

/// Changes one byte in the middle of the largest file below the folder.
void change_a_weight(const fs::path& folder) {
  fs::path largest;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors" &&
        (largest.empty() || entry.file_size() > fs::file_size(largest))) {
      largest = entry.path();
    }
  }
  const auto written = fs::last_write_time(largest);
  const auto size = static_cast<std::streamoff>(fs::file_size(largest));
  {
    std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
    for (std::streamoff at = size / 2; at < size - 1; at += 64) {
      file.seekg(at);
      const int value = file.get();
      file.seekp(at);
      file.put(static_cast<char>(value ^ 1));
    }
  }
  fs::last_write_time(largest, written);
}

TEST_F(PipelineCache, EqualHeadersWithOtherValuesShareNothing) {
  fs::copy(model_, folder_ / "model", fs::copy_options::recursive);
  run(folder_ / "model", folder_ / "cache");
  EXPECT_THAT(run(folder_ / "model", folder_ / "cache").hits, ElementsAre("text", "modulation"));
  change_a_weight(folder_ / "model" / "transformer");
  const Run other = run(folder_ / "model", folder_ / "cache");
  EXPECT_THAT(other.hits, ElementsAre("text")) << "size and time are those of before";
  change_a_weight(folder_ / "model" / "text_encoder");
  EXPECT_THAT(run(folder_ / "model", folder_ / "cache").hits, ElementsAre("modulation"));
}

}  // namespace
}  // namespace miniacc
