#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/media/media_reader.h"
#include "measure/caption.h"
#include "measure/measured.h"
#include "measure/motion.h"
#include "measure/quality.h"
#include "measure/synchrony.h"

namespace miniacc::measure {

enum class Verdict { kRight, kWrong, kUnknown };

/// One attribute of the caption beside what the clip shows.
struct Agreement {
  std::string attribute;  ///< "color", "shape", "size", "motion", "speed", "background", "pitch"
  std::string wanted;     ///< empty when the caption does not say
  std::string measured;   ///< empty when it could not be measured
  Verdict verdict = Verdict::kUnknown;
  std::string reason;  ///< of kUnknown
};

/// What a clip shows and sounds like. Names index the tables of vocabulary.h.
struct Judgement {
  int width = 0;
  int height = 0;
  std::int64_t num_frames = 0;
  double fps = 0.0;
  bool fps_assumed = false;  ///< a frame folder carries none: 24
  int sample_rate_hz = 0;    ///< 0: no sound

  std::string no_subject;  ///< why there is no subject; empty when there is one
  Measured<std::size_t> color;
  Measured<ShapeKind> shape;
  Measured<double> shape_overlap;  ///< of the best shape with the picture, 0 to 1
  Measured<std::size_t> size;
  MotionReport motion;
  Measured<std::pair<std::size_t, std::size_t>> background;  ///< top, bottom
  std::vector<TrackPoint> track;

  Measured<double> pitch_hz;
  Measured<std::size_t> pitch;
  Measured<bool> pitch_fits_shape;  ///< the tone is that of the shape seen
  std::vector<double> beeps_s;

  Synchrony synchrony;
  Quality quality;

  bool has_caption = false;
  std::string caption;
  std::vector<Agreement> agreement;  ///< empty without a caption
  /// Right attributes of those both named and measured; unknown when there are none.
  Measured<double> prompt_agreement;
};

/// "brown" or, for a gradient from top to bottom, "brown to black".
[[nodiscard]] std::string background_name(const std::pair<std::size_t, std::size_t>& ends);

/// Measures a decoded clip. kInvalidInput for sound with values that are no numbers.
[[nodiscard]] Result<Judgement> judge(const Clip& clip, std::optional<std::string> caption);

[[nodiscard]] std::string judgement_text(const Judgement& judgement);
/// One JSON object; keys are described in docs/judge.md.
[[nodiscard]] std::string judgement_json(const Judgement& judgement);

}  // namespace miniacc::measure
