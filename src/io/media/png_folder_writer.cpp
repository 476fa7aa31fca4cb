#include "io/media/png_folder_writer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/media/file_sink.h"

namespace miniacc {

PngFolderWriter::PngFolderWriter(PartialOutput output, const VideoWriterOptions& options)
    : VideoWriter(options, /*has_frames=*/true), output_(std::move(output)) {}

Result<std::unique_ptr<VideoWriter>> PngFolderWriter::create(const std::filesystem::path& folder,
                                                             const VideoWriterOptions& options) {
  MINIACC_ASSIGN(PartialOutput output,
                 PartialOutput::create_folder(folder, options.overwrite ? ExistingOutput::kReplace
                                                                        : ExistingOutput::kRefuse));
  std::unique_ptr<PngFolderWriter> writer(new PngFolderWriter(std::move(output), options));
  MINIACC_RETURN_IF_ERROR(writer->open());
  return writer;
}

Status PngFolderWriter::open() {
  MINIACC_ASSIGN(PngEncoder encoder,
                 PngEncoder::create(options().width, options().height, output_.target().string()));
  encoder_.emplace(std::move(encoder));
  if (has_audio()) {
    MINIACC_ASSIGN(WavFile wav, WavFile::create(output_.path() / "audio.wav",
                                                options().audio_sample_rate_hz, {}));
    wav_.emplace(std::move(wav));
  }
  return {};
}

Status PngFolderWriter::write_frame(std::span<const std::uint8_t> rgb) {
  MINIACC_ASSIGN(const std::string_view bytes, encoder_->encode(rgb));
  MINIACC_ASSIGN(FileSink sink,
                 FileSink::create(output_.path() / fmt::format("{:05}.png", ++num_frames_)));
  MINIACC_RETURN_IF_ERROR(sink.write(bytes));
  return sink.close();
}

Status PngFolderWriter::write_samples(std::span<const float> left, std::span<const float> right) {
  return wav_->append(left, right);
}

Status PngFolderWriter::complete() {
  if (wav_) {
    MINIACC_RETURN_IF_ERROR(wav_->close());
  }
  if (!options().metadata.empty()) {
    const nlohmann::json metadata = options().metadata;
    MINIACC_ASSIGN(FileSink sink, FileSink::create(output_.path() / "metadata.json"));
    // Values that are not UTF-8 are replaced, not refused: the clip is worth more than its label.
    MINIACC_RETURN_IF_ERROR(
        sink.write(metadata.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
    MINIACC_RETURN_IF_ERROR(sink.close());
  }
  return output_.commit();
}

}  // namespace miniacc
