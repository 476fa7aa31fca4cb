#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/tokenizer.h"
#include "model/dit/config.h"
#include "model/text_encoder/encode_text.h"
#include "model/vision/vision_grid.h"

namespace miniacc {

/// One keyframe or reference as the text encoder is told of it, at the size and length at which the
/// VAEs see it.
struct PresentedInput {
  enum class Kind { kImage, kVideo, kAudio };
  Kind kind = Kind::kImage;
  std::int64_t width = 0;  ///< pixels; 0 for audio
  std::int64_t height = 0;
  std::int64_t num_frames = 0;  ///< of a video, at 24 a second
  bool has_sound = false;       ///< a video comes with its soundtrack
  /// How messages call it: "reference 2 (video dance.mp4)"; empty: by its number.
  std::string name;
};

/// A run of pad rows that the features of one grid replace.
struct VisualBlock {
  std::int64_t input = 0;      ///< index of the keyframe or reference
  std::int64_t block = 0;      ///< of a video: which pair of sampled frames; 0 for an image
  std::int64_t first_row = 0;  ///< of the pads
  VisionGrid grid;
};

/// The token sequence of a request.
struct Presentation {
  std::vector<std::int32_t> ids;
  std::vector<Modality> tags;               ///< of every id: text, or video for the rows of a block
  std::vector<VisualBlock> blocks;          ///< in row order
  std::vector<std::int64_t> rows_of_input;  ///< labels and blocks together
  std::int64_t prompt_rows = 0;
  /// What was encoded, to be read by people: a block is written "[1008 image tokens]".
  std::string text;
};

/// The presentation of a request; t2va has no inputs, fl2va one image a keyframe (the first frame
/// before the last one), ref2va its references in request order. Every input puts its labels in
/// front of the prompt, numbered a kind: "<Audio 1>: " if it has sound, then "<Picture 1>: " and a
/// vision block, or "<Video 1>: " and for each pair of sampled frames its time ("<0.2 seconds>")
/// and a block. Labels, times and prompt are tokenised each for itself. A block is vision_start,
/// pads and vision_end, all tagged as video.
/// An empty prompt adds nothing; where nothing else is there, the padding token stands for it.
/// kInvalidArgument names the input: a video of fewer than 13 frames, a size that no grid is for;
/// or the prompt (not UTF-8, a typed pad token). kInvalidInput for a tokenizer without these
/// tokens. Source: spec text_encoder.md §3.
[[nodiscard]] Result<Presentation> make_presentation(const Tokenizer& tokenizer,
                                                     std::string_view prompt,
                                                     std::span<const PresentedInput> inputs);

/// Blocks with their features, one entry a block in order, as encode_text() takes them.
[[nodiscard]] std::vector<VisualSpan> visual_spans(const Presentation& presentation,
                                                   std::span<const VisionFeatures> features);

}  // namespace miniacc
