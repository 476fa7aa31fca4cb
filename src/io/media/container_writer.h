#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "io/media/libav.h"
#include "io/media/partial_output.h"
#include "io/media/video_writer.h"

namespace miniacc {

enum class Container { kMp4, kMatroska };

/// MP4 and Matroska through FFmpeg's libraries (see VideoWriter). Matroska counts time in
/// milliseconds, so that its frame times are those of 1/fps rounded.
class ContainerWriter final : public VideoWriter {
 public:
  [[nodiscard]] static Result<std::unique_ptr<VideoWriter>> create(
      const std::filesystem::path& path, Container container, const VideoWriterOptions& options);

 private:
  ContainerWriter(PartialOutput output, Container container, const VideoWriterOptions& options);
  Status open();
  Status open_video();
  Status open_audio();
  Status add_stream(const AVCodecContext& codec, AVStream*& stream);
  Status write_frame(std::span<const std::uint8_t> rgb) override;
  Status write_samples(std::span<const float> left, std::span<const float> right) override;
  Status complete() override;
  /// Encodes one frame (null: flush) and hands the packets to the muxer.
  Status encode(AVCodecContext& codec, const AVStream& stream, const AVFrame* frame);
  /// Encodes the first `count` waiting samples as one frame.
  Status encode_samples(int count);
  [[nodiscard]] std::string name() const { return output_.target().string(); }

  // The muxer is declared after the output, so that the file is closed before it is removed.
  PartialOutput output_;
  Container container_;
  libav::Output muxer_;
  libav::Codec video_;
  libav::Codec audio_;
  AVStream* video_stream_ = nullptr;  // owned by the muxer
  AVStream* audio_stream_ = nullptr;
  libav::Scaler scaler_;
  std::vector<std::uint8_t> padded_frame_;  ///< the picture at work, with room behind it
  libav::Frame picture_;
  libav::Frame sound_;
  libav::Packet packet_;
  std::int64_t num_frames_ = 0;
  std::int64_t num_samples_ = 0;     // encoded
  std::vector<float> waiting_left_;  // not yet a whole encoder frame
  std::vector<float> waiting_right_;
};

}  // namespace miniacc
