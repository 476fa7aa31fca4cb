#include "measure/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace miniacc::measure {
namespace {

constexpr double kSmallestArea = 0.002;     // of a squared picture height
constexpr double kLargestShare = 0.5;       // of the picture; h3-tiny's largest shape has 0.14
constexpr double kMaxJump = 0.2;            // picture heights between frames
constexpr double kMaxJumpShare = 0.2;       // of the steps along the track
constexpr double kPureDistance = 60.0;      // levels
constexpr double kSmallestCoverage = 0.08;  // below: compression noise beside the edge

struct Component {
  int label = 0;
  std::int64_t area = 0;
  double x = 0.0;
  double y = 0.0;
  int left = 0;
  int top = 0;
  int right = 0;  ///< inclusive
  int bottom = 0;
};

/// Connected pieces (8 neighbours) of what stands out in one frame.
class Labels {
 public:
  Labels(const Pictures& pictures, const Background& background, std::int64_t frame)
      : width_(pictures.width), height_(pictures.height) {
    labels_.assign(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_), 0);
    for (int y = 0; y < height_; ++y) {
      const auto& color = background.rows[static_cast<std::size_t>(y)];
      for (int x = 0; x < width_; ++x) {
        at(x, y) = stands_out(pictures.pixel(frame, x, y), color) ? kUnvisited : 0;
      }
    }
    for (int y = 0; y < height_; ++y) {
      for (int x = 0; x < width_; ++x) {
        if (at(x, y) == kUnvisited) {
          flood(x, y);
        }
      }
    }
  }

  [[nodiscard]] const std::vector<Component>& components() const { return components_; }
  [[nodiscard]] bool has(int label, int x, int y) const {
    return x >= 0 && y >= 0 && x < width_ && y < height_ && labels_[index(x, y)] == label;
  }

 private:
  static constexpr int kUnvisited = -1;

  [[nodiscard]] std::size_t index(int x, int y) const {
    return static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
           static_cast<std::size_t>(x);
  }
  int& at(int x, int y) { return labels_[index(x, y)]; }

  void flood(int start_x, int start_y) {
    Component piece;
    piece.label = static_cast<int>(components_.size()) + 1;
    piece.left = piece.right = start_x;
    piece.top = piece.bottom = start_y;
    double sum_x = 0.0;
    double sum_y = 0.0;
    at(start_x, start_y) = piece.label;
    stack_.assign(1, {start_x, start_y});
    while (!stack_.empty()) {
      const auto [x, y] = stack_.back();
      stack_.pop_back();
      ++piece.area;
      sum_x += x + 0.5;
      sum_y += y + 0.5;
      piece.left = std::min(piece.left, x);
      piece.right = std::max(piece.right, x);
      piece.top = std::min(piece.top, y);
      piece.bottom = std::max(piece.bottom, y);
      for (int next_y = std::max(0, y - 1); next_y <= std::min(height_ - 1, y + 1); ++next_y) {
        for (int next_x = std::max(0, x - 1); next_x <= std::min(width_ - 1, x + 1); ++next_x) {
          if (at(next_x, next_y) == kUnvisited) {
            at(next_x, next_y) = piece.label;
            stack_.push_back({next_x, next_y});
          }
        }
      }
    }
    piece.x = sum_x / static_cast<double>(piece.area);
    piece.y = sum_y / static_cast<double>(piece.area);
    components_.push_back(piece);
  }

  int width_;
  int height_;
  std::vector<int> labels_;
  std::vector<std::pair<int, int>> stack_;
  std::vector<Component> components_;
};

using Track = std::vector<std::optional<Component>>;

double distance(const Component& a, const Component& b) { return std::hypot(a.x - b.x, a.y - b.y); }

/// The piece of every frame that continues the largest one; pieces[f] are those of frame f.
Track follow(const std::vector<std::vector<Component>>& pieces) {
  Track track(pieces.size());
  std::size_t first = 0;
  const Component* largest = nullptr;
  for (std::size_t frame = 0; frame < pieces.size(); ++frame) {
    for (const Component& piece : pieces[frame]) {
      if (largest == nullptr || piece.area > largest->area) {
        largest = &piece;
        first = frame;
      }
    }
  }
  if (largest == nullptr) {
    return track;
  }
  track[first] = *largest;
  const auto extend = [&](std::size_t frame, Component& last) {
    if (pieces[frame].empty()) {
      return;
    }
    last = *std::min_element(pieces[frame].begin(), pieces[frame].end(),
                             [&](const Component& a, const Component& b) {
                               return distance(a, last) < distance(b, last);
                             });
    track[frame] = last;
  };
  Component last = *largest;
  for (std::size_t frame = first + 1; frame < pieces.size(); ++frame) {
    extend(frame, last);
  }
  last = *largest;
  for (std::size_t frame = first; frame-- > 0;) {
    extend(frame, last);
  }
  return track;
}

/// Whether all eight neighbours belong to the piece, so that the pixel is fully covered.
bool is_inner(const Labels& labels, int label, int x, int y) {
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      if (!labels.has(label, x + dx, y + dy)) {
        return false;
      }
    }
  }
  return true;
}

/// Calls visit(pixel) for the inner pixels of a piece, or for all of it when it is too thin.
template <typename Visit>
void for_inner(const Pictures& pictures, std::int64_t frame, const Labels& labels,
               const Component& piece, Visit visit) {
  for (const bool inner_only : {true, false}) {
    bool any = false;
    for (int y = piece.top; y <= piece.bottom; ++y) {
      for (int x = piece.left; x <= piece.right; ++x) {
        if (labels.has(piece.label, x, y) && (!inner_only || is_inner(labels, piece.label, x, y))) {
          any = true;
          visit(pictures.pixel(frame, x, y));
        }
      }
    }
    if (any) {
      return;
    }
  }
}

double color_distance(const std::uint8_t* pixel, const Rgb& color) {
  return std::hypot(pixel[0] - color[0], pixel[1] - color[1], pixel[2] - color[2]);
}

/// Coverage of a pixel: where it lies on the way from the background's colour to the subject's.
double coverage(const std::uint8_t* pixel, const std::array<std::uint8_t, 3>& background,
                const Rgb& color) {
  double along = 0.0;
  double length = 0.0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double step = color[i] - background[i];
    along += (pixel[i] - background[i]) * step;
    length += step * step;
  }
  if (length < kContrastLevels * kContrastLevels) {
    return 1.0;  // a row as bright as the subject tells nothing: the piece's own outline counts
  }
  const double value = std::clamp(along / length, 0.0, 1.0);
  return value < kSmallestCoverage ? 0.0 : value;
}

/// Coverage of the piece and of the ring around it that its blurred edge may reach.
SubjectFrame make_matte(const Pictures& pictures, const Background& background,
                        const Labels& labels, const Component& piece, std::int64_t frame,
                        const Rgb& color) {
  constexpr int kRing = 2;
  SubjectFrame result;
  result.frame = frame;
  result.at_edge = piece.left == 0 || piece.top == 0 || piece.right == pictures.width - 1 ||
                   piece.bottom == pictures.height - 1;
  result.left = std::max(0, piece.left - kRing);
  result.top = std::max(0, piece.top - kRing);
  result.width = std::min(pictures.width - 1, piece.right + kRing) - result.left + 1;
  result.height = std::min(pictures.height - 1, piece.bottom + kRing) - result.top + 1;
  const auto near = [&](int x, int y) {
    for (int dy = -kRing; dy <= kRing; ++dy) {
      for (int dx = -kRing; dx <= kRing; ++dx) {
        if (labels.has(piece.label, x + dx, y + dy)) {
          return true;
        }
      }
    }
    return false;
  };
  double sum_x = 0.0;
  double sum_y = 0.0;
  for (int row = 0; row < result.height; ++row) {
    const int y = result.top + row;
    for (int column = 0; column < result.width; ++column) {
      const int x = result.left + column;
      double alpha = 0.0;
      if (near(x, y)) {
        alpha = coverage(pictures.pixel(frame, x, y), background.rows[static_cast<std::size_t>(y)],
                         color);
        if (alpha == 1.0 && !labels.has(piece.label, x, y)) {
          alpha = 0.0;  // another thing beside the subject
        }
      }
      result.matte.push_back(static_cast<std::uint8_t>(std::lround(255.0 * alpha)));
      alpha = result.matte.back() / 255.0;
      result.area += alpha;
      sum_x += alpha * (x + 0.5);
      sum_y += alpha * (y + 0.5);
    }
  }
  result.x = result.area > 0.0 ? sum_x / result.area : piece.x;
  result.y = result.area > 0.0 ? sum_y / result.area : piece.y;
  std::int64_t count = 0;
  for_inner(pictures, frame, labels, piece, [&](const std::uint8_t* pixel) {
    ++count;
    for (std::size_t i = 0; i < 3; ++i) {
      result.color[i] += pixel[i];
    }
  });
  for (double& value : result.color) {
    value /= static_cast<double>(count);
  }
  return result;
}

/// Why a track is no subject; empty when it is one.
std::string why_no_subject(const Track& track, const Pictures& pictures) {
  std::int64_t seen = 0;
  std::int64_t steps = 0;
  std::int64_t jumps = 0;
  double largest = 0.0;
  for (std::size_t frame = 0; frame < track.size(); ++frame) {
    if (!track[frame]) {
      continue;
    }
    ++seen;
    largest = std::max(largest, static_cast<double>(track[frame]->area));
    if (frame > 0 && track[frame - 1]) {
      ++steps;
      jumps += distance(*track[frame], *track[frame - 1]) > kMaxJump * pictures.height ? 1 : 0;
    }
  }
  if (seen == 0) {
    return "nothing stands out from the background";
  }
  if (largest > kLargestShare * pictures.width * pictures.height) {
    return "what stands out fills most of the picture";
  }
  if (2 * seen < static_cast<std::int64_t>(track.size())) {
    return fmt::format("something stands out in only {} of {} frames", seen, track.size());
  }
  if (static_cast<double>(jumps) > kMaxJumpShare * static_cast<double>(steps)) {
    return "what stands out jumps about from frame to frame";
  }
  return {};
}

}  // namespace

Measured<Subject> find_subject(const Pictures& pictures, const Background& background) {
  if (pictures.num_frames == 0) {
    return Measured<Subject>::unknown("the clip has no pictures");
  }
  if (background.unexplained > kMaxUnexplained) {
    return Measured<Subject>::unknown("the background is neither plain nor a gradient");
  }
  const double smallest = kSmallestArea * pictures.height * pictures.height;
  std::vector<std::vector<Component>> pieces;
  for (std::int64_t frame = 0; frame < pictures.num_frames; ++frame) {
    auto& kept = pieces.emplace_back();
    const Labels labels(pictures, background, frame);
    std::copy_if(
        labels.components().begin(), labels.components().end(), std::back_inserter(kept),
        [&](const Component& piece) { return static_cast<double>(piece.area) >= smallest; });
  }
  const Track track = follow(pieces);
  if (const std::string why = why_no_subject(track, pictures); !why.empty()) {
    return Measured<Subject>::unknown(why);
  }

  // Labels are recomputed, not kept: their maps would need more memory than the clip.
  Subject subject;
  std::array<std::array<std::int64_t, 256>, 3> histograms = {};
  const auto for_track = [&](auto&& visit) {
    for (std::size_t frame = 0; frame < track.size(); ++frame) {
      if (track[frame]) {
        const auto number = static_cast<std::int64_t>(frame);
        visit(number, Labels(pictures, background, number), *track[frame]);
      }
    }
  };
  for_track([&](std::int64_t frame, const Labels& labels, const Component& piece) {
    for_inner(pictures, frame, labels, piece, [&](const std::uint8_t* pixel) {
      for (std::size_t i = 0; i < 3; ++i) {
        ++histograms[i][pixel[i]];
      }
    });
  });
  for (std::size_t i = 0; i < 3; ++i) {
    subject.color[i] = histogram_median(histograms[i]);
  }
  std::int64_t inner = 0;
  std::int64_t pure = 0;
  for_track([&](std::int64_t frame, const Labels& labels, const Component& piece) {
    for_inner(pictures, frame, labels, piece, [&](const std::uint8_t* pixel) {
      ++inner;
      pure += color_distance(pixel, subject.color) < kPureDistance ? 1 : 0;
    });
    subject.frames.push_back(make_matte(pictures, background, labels, piece, frame, subject.color));
  });
  subject.color_purity = static_cast<double>(pure) / static_cast<double>(inner);
  subject.seen_share =
      static_cast<double>(subject.frames.size()) / static_cast<double>(track.size());
  return subject;
}

}  // namespace miniacc::measure
