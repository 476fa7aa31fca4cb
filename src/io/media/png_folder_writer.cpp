#include "io/media/png_folder_writer.h"

#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/media/file_sink.h"

namespace miniacc {

PngFolderWriter::PngFolderWriter(PartialOutput output, const VideoWriterOptions& options)
    : VideoWriter(options, /*has_frames=*/true),
      output_(std::move(output)),
      frame_(libav::make_frame()),
      packet_(libav::make_packet()) {}

Result<std::unique_ptr<VideoWriter>> PngFolderWriter::create(const std::filesystem::path& folder,
                                                             const VideoWriterOptions& options) {
  libav::quiet();
  MINIACC_ASSIGN(PartialOutput output,
                 PartialOutput::create_folder(folder, options.overwrite ? ExistingOutput::kReplace
                                                                        : ExistingOutput::kRefuse));
  std::unique_ptr<PngFolderWriter> writer(new PngFolderWriter(std::move(output), options));
  MINIACC_RETURN_IF_ERROR(writer->open());
  return writer;
}

Status PngFolderWriter::open() {
  const std::string name = output_.target().string();
  const AVCodec* encoder = avcodec_find_encoder(AV_CODEC_ID_PNG);
  if (encoder == nullptr) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: this FFmpeg has no PNG encoder", name));
  }
  encoder_.reset(avcodec_alloc_context3(encoder));
  if (!encoder_) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("{}: no memory for the PNG encoder", name));
  }
  encoder_->width = options().width;
  encoder_->height = options().height;
  encoder_->pix_fmt = AV_PIX_FMT_RGB24;
  encoder_->time_base = {1, options().fps};
  encoder_->thread_count = 1;  // one packet out for each frame in
  encoder_->flags |= AV_CODEC_FLAG_BITEXACT;
  MINIACC_RETURN_IF_ERROR(libav::check(avcodec_open2(encoder_.get(), nullptr, nullptr), name));
  frame_->format = AV_PIX_FMT_RGB24;
  frame_->width = options().width;
  frame_->height = options().height;
  MINIACC_RETURN_IF_ERROR(libav::check(av_frame_get_buffer(frame_.get(), 0), name));
  if (has_audio()) {
    MINIACC_ASSIGN(WavFile wav, WavFile::create(output_.path() / "audio.wav",
                                                options().audio_sample_rate_hz, {}));
    wav_.emplace(std::move(wav));
  }
  return {};
}

Status PngFolderWriter::write_frame(std::span<const std::uint8_t> rgb) {
  const std::string name = output_.target().string();
  MINIACC_RETURN_IF_ERROR(libav::check(av_frame_make_writable(frame_.get()), name));
  const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(options().width);
  for (int row = 0; row < options().height; ++row) {
    std::memcpy(frame_->data[0] + static_cast<std::ptrdiff_t>(row) * frame_->linesize[0],
                rgb.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
  }
  frame_->pts = num_frames_++;
  MINIACC_RETURN_IF_ERROR(libav::check(avcodec_send_frame(encoder_.get(), frame_.get()), name));
  MINIACC_RETURN_IF_ERROR(
      libav::check(avcodec_receive_packet(encoder_.get(), packet_.get()), name));
  MINIACC_ASSIGN(FileSink sink,
                 FileSink::create(output_.path() / fmt::format("{:05}.png", num_frames_)));
  MINIACC_RETURN_IF_ERROR(sink.write(
      {reinterpret_cast<const char*>(packet_->data), static_cast<std::size_t>(packet_->size)}));
  av_packet_unref(packet_.get());
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
