#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "io/media/partial_output.h"
#include "io/media/png_encoder.h"
#include "io/media/video_writer.h"
#include "io/media/wav_writer.h"

namespace miniacc {

/// A folder of frames 00001.png, 00002.png, ... (8-bit RGB, lossless), audio.wav when there is
/// sound and metadata.json (one object of strings) when there is metadata. Made under a temporary
/// name.
class PngFolderWriter final : public VideoWriter {
 public:
  [[nodiscard]] static Result<std::unique_ptr<VideoWriter>> create(
      const std::filesystem::path& folder, const VideoWriterOptions& options);

 private:
  PngFolderWriter(PartialOutput output, const VideoWriterOptions& options);
  Status open();
  Status write_frame(std::span<const std::uint8_t> rgb) override;
  Status write_samples(std::span<const float> left, std::span<const float> right) override;
  Status complete() override;

  PartialOutput output_;
  std::optional<PngEncoder> encoder_;
  std::optional<WavFile> wav_;
  std::int64_t num_frames_ = 0;
};

}  // namespace miniacc
