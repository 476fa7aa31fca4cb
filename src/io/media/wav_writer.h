#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "io/media/file_sink.h"
#include "io/media/partial_output.h"
#include "io/media/video_writer.h"

namespace miniacc {

/// RIFF WAVE, 16-bit PCM, two channels. Metadata is a LIST/INFO chunk: `title` as INAM, `comment`
/// as ICMT and `miniacc` as MACC, an entry of our own that other readers skip.
class WavFile {
 public:
  /// kInvalidArgument for another metadata key.
  [[nodiscard]] static Result<WavFile> create(const std::filesystem::path& path, int sample_rate_hz,
                                              const std::map<std::string, std::string>& metadata);
  /// kInvalidArgument when the file would pass RIFF's 4 GiB.
  [[nodiscard]] Status append(std::span<const float> left, std::span<const float> right);
  /// Completes the header and syncs.
  [[nodiscard]] Status close();

 private:
  WavFile(FileSink sink, std::size_t data_offset)
      : sink_(std::move(sink)), data_offset_(data_offset) {}
  FileSink sink_;
  std::size_t data_offset_ = 0;  // of the first sample
  std::uint64_t data_bytes_ = 0;
};

/// A .wav as the whole output.
class WavWriter final : public VideoWriter {
 public:
  [[nodiscard]] static Result<std::unique_ptr<VideoWriter>> create(
      const std::filesystem::path& path, const VideoWriterOptions& options);

 private:
  WavWriter(PartialOutput output, WavFile file, const VideoWriterOptions& options)
      : VideoWriter(options, /*has_frames=*/false),
        output_(std::move(output)),
        file_(std::move(file)) {}
  Status write_frame(std::span<const std::uint8_t> rgb) override;
  Status write_samples(std::span<const float> left, std::span<const float> right) override;
  Status complete() override;

  PartialOutput output_;
  WavFile file_;
};

}  // namespace miniacc
