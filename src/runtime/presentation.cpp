#include "runtime/presentation.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/vision/vision_size.h"
#include "runtime/vision_frames.h"

namespace miniacc {
namespace {

constexpr std::string_view kPaddingToken = "<|endoftext|>";

Result<std::int32_t> token_id(const Tokenizer& tokenizer, std::string_view token) {
  const auto id = tokenizer.id_of(token);
  if (!id) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("the tokenizer has no token {}, which this request needs: use the one "
                            "of MiniMax-H3",
                            token));
  }
  return *id;
}

/// Puts segments behind each other.
class Builder {
 public:
  explicit Builder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Status add_text(std::string_view text) {
    MINIACC_ASSIGN(const std::vector<std::int32_t> ids, tokenizer_.encode(text));
    for (const std::int32_t id : ids) {
      add_row(id, Modality::kText);
    }
    presentation_.text += text;
    return {};
  }

  /// An image's label and block.
  Status add_image(std::int64_t input, const PresentedInput& image) {
    MINIACC_RETURN_IF_ERROR(add_text(fmt::format("<Picture {}>: ", ++num_images_)));
    MINIACC_ASSIGN(const VisionSize size,
                   vision_size(image.width, image.height, VisionKind::kImage));
    return add_block("image", {.input = input, .grid = size.grid()});
  }

  /// A video's label, and a time and a block for every pair of sampled frames.
  Status add_video(std::int64_t input, const PresentedInput& video) {
    MINIACC_ASSIGN(const std::vector<std::int64_t> samples, sampled_frames(video.num_frames));
    const auto num_samples = static_cast<std::int64_t>(samples.size());
    MINIACC_ASSIGN(const VisionSize size,
                   vision_size(video.width, video.height, VisionKind::kVideo, num_samples));
    MINIACC_RETURN_IF_ERROR(add_text(fmt::format("<Video {}>: ", ++num_videos_)));
    for (std::int64_t block = 0; block < num_video_blocks(num_samples); ++block) {
      // The mean of times block and block + 0.5, which one decimal rounds to even; a last frame
      // that stands twice has its own time.
      const bool is_pair = kVisionFramesPerPatch * (block + 1) <= num_samples;
      MINIACC_RETURN_IF_ERROR(add_text(fmt::format("<{}.{} seconds>", block, is_pair ? 2 : 0)));
      MINIACC_RETURN_IF_ERROR(
          add_block("video", {.input = input, .block = block, .grid = size.grid()}));
    }
    return {};
  }

  Status add_audio() { return add_text(fmt::format("<Audio {}>: ", ++num_audios_)); }

  [[nodiscard]] std::int64_t num_rows() const {
    return static_cast<std::int64_t>(presentation_.ids.size());
  }
  void add_row(std::int32_t id, Modality tag) {
    presentation_.ids.push_back(id);
    presentation_.tags.push_back(tag);
  }
  Presentation& presentation() { return presentation_; }

 private:
  Status add_block(std::string_view kind, VisualBlock block) {
    MINIACC_ASSIGN(const std::int32_t start, token_id(tokenizer_, "<|vision_start|>"));
    MINIACC_ASSIGN(const std::int32_t pad, token_id(tokenizer_, fmt::format("<|{}_pad|>", kind)));
    MINIACC_ASSIGN(const std::int32_t end, token_id(tokenizer_, "<|vision_end|>"));
    add_row(start, Modality::kVideo);
    block.first_row = num_rows();
    for (std::int64_t i = 0; i < block.grid.num_tokens(); ++i) {
      add_row(pad, Modality::kVideo);
    }
    add_row(end, Modality::kVideo);
    presentation_.text += fmt::format("[{} {} tokens]", block.grid.num_tokens(), kind);
    presentation_.blocks.push_back(block);
    return {};
  }

  const Tokenizer& tokenizer_;
  Presentation presentation_;
  std::int64_t num_images_ = 0;
  std::int64_t num_videos_ = 0;
  std::int64_t num_audios_ = 0;
};

Status add_input(Builder& builder, std::int64_t index, const PresentedInput& input) {
  using Kind = PresentedInput::Kind;
  if (input.kind == Kind::kAudio || (input.kind == Kind::kVideo && input.has_sound)) {
    MINIACC_RETURN_IF_ERROR(builder.add_audio());
  }
  switch (input.kind) {
    case Kind::kImage:
      return builder.add_image(index, input);
    case Kind::kVideo:
      return builder.add_video(index, input);
    case Kind::kAudio:
      return {};
  }
  MINIACC_REQUIRE(false, "make_presentation: unknown kind of input");
}

}  // namespace

Result<Presentation> make_presentation(const Tokenizer& tokenizer, std::string_view prompt,
                                       std::span<const PresentedInput> inputs) {
  Builder builder(tokenizer);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t before = builder.num_rows();
    if (const Status added = add_input(builder, static_cast<std::int64_t>(i), inputs[i]); !added) {
      const std::string name =
          inputs[i].name.empty() ? fmt::format("input {}", i + 1) : inputs[i].name;
      return fail(added.error().code, fmt::format("{}: {}", name, added.error().message));
    }
    builder.presentation().rows_of_input.push_back(builder.num_rows() - before);
  }
  const std::int64_t before = builder.num_rows();
  MINIACC_RETURN_IF_ERROR(builder.add_text(prompt));
  if (builder.num_rows() == 0) {
    // The reference has no result for no tokens (spec text_encoder.md §3.2).
    MINIACC_ASSIGN(const std::int32_t pad, token_id(tokenizer, kPaddingToken));
    builder.add_row(pad, Modality::kText);
  }
  builder.presentation().prompt_rows = builder.num_rows() - before;
  return std::move(builder.presentation());
}

std::vector<VisualSpan> visual_spans(const Presentation& presentation,
                                     std::span<const VisionFeatures> features) {
  MINIACC_REQUIRE(features.size() == presentation.blocks.size(),
                  "visual_spans: one entry of features a block");
  std::vector<VisualSpan> spans;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const VisualBlock& block = presentation.blocks[i];
    spans.push_back({.first = block.first_row, .grid = block.grid, .features = &features[i]});
  }
  return spans;
}

}  // namespace miniacc
