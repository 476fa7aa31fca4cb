#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/media/libav_input.h"

namespace miniacc::libav {

/// The stream of a type that a player would show: the container's default one, never a cover
/// picture. Empty when there is none.
std::optional<int> find_stream(const MediaInput& input, AVMediaType type);

/// A decoder for one stream. kUnsupported, with the codec's name, when this FFmpeg has none.
[[nodiscard]] Result<Codec> open_decoder(const AVStream& stream, std::int64_t max_pixels,
                                         const std::string& path);

/// Decodes one stream front to back; the others are skipped unread. Uses `input`, which must
/// outlive it, alone.
class StreamDecoder {
 public:
  [[nodiscard]] static Result<StreamDecoder> open(MediaInput& input, int stream_index,
                                                  std::int64_t max_pixels);

  /// The next frame, valid until the next call; nullptr behind the last one. kInvalidInput where
  /// the stream is damaged: a decoder would hide it by repeating what it has.
  [[nodiscard]] Result<const AVFrame*> next();
  [[nodiscard]] const AVStream& stream() const { return *(*input_)->streams[index_]; }
  [[nodiscard]] AVRational time_base() const { return stream().time_base; }

 private:
  StreamDecoder(MediaInput& input, int index) : input_(&input), index_(index) {}
  /// Gives the decoder its next packet, or the end of the stream.
  Status feed();
  [[nodiscard]] tl::unexpected<Error> damaged(const std::string& why) const;

  MediaInput* input_;
  int index_;
  Codec codec_;
  Frame frame_ = make_frame();
  Packet packet_ = make_packet();
  std::int64_t num_frames_ = 0;
  bool at_end_ = false;
};

/// Value of sample `index` of a channel, in [-1, 1) for integer formats; empty for other formats.
std::optional<float> sample_value(const AVFrame& frame, int channel, int index);

}  // namespace miniacc::libav
