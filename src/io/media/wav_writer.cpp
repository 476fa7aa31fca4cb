#include "io/media/wav_writer.h"

#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "io/media/audio_samples.h"

namespace miniacc {
namespace {

constexpr std::size_t kRiffSizeOffset = 4;

void put(std::string& out, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>((value >> (8 * i)) & 0xFFU);
  }
}

std::string u32(std::uint64_t value) {
  std::string out;
  put(out, static_cast<std::uint32_t>(value), 4);
  return out;
}

void put_chunk(std::string& out, std::string_view id, std::string_view content) {
  out += id;
  out += u32(content.size());
  out += content;
  if (content.size() % 2 != 0) {
    out += '\0';  // chunks begin at even offsets
  }
}

Result<std::string> info_list(const std::filesystem::path& path,
                              const std::map<std::string, std::string>& metadata) {
  std::string entries = "INFO";
  for (const auto& [key, value] : metadata) {
    const char* id = key == "title"     ? "INAM"
                     : key == "comment" ? "ICMT"
                     : key == "miniacc" ? "MACC"
                                        : nullptr;
    if (id == nullptr) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a .wav has no place for the metadata \"{}\", only for title, "
                              "comment and miniacc",
                              path.string(), key));
    }
    put_chunk(entries, id, value + '\0');
  }
  return entries;
}

}  // namespace

Result<WavFile> WavFile::create(const std::filesystem::path& path, int sample_rate_hz,
                                const std::map<std::string, std::string>& metadata) {
  constexpr std::uint32_t kChannels = 2;
  constexpr std::uint32_t kBytes = 2;
  std::string format;
  put(format, 1, 2);  // PCM
  put(format, kChannels, 2);
  put(format, static_cast<std::uint32_t>(sample_rate_hz), 4);
  put(format, static_cast<std::uint32_t>(sample_rate_hz) * kChannels * kBytes, 4);
  put(format, kChannels * kBytes, 2);
  put(format, 8 * kBytes, 2);

  std::string header = "RIFF" + u32(0) + "WAVE";
  put_chunk(header, "fmt ", format);
  if (!metadata.empty()) {
    MINIACC_ASSIGN(const std::string info, info_list(path, metadata));
    put_chunk(header, "LIST", info);
  }
  header += "data" + u32(0);
  MINIACC_ASSIGN(FileSink sink, FileSink::create(path));
  MINIACC_RETURN_IF_ERROR(sink.write(header));
  return WavFile(std::move(sink), header.size());
}

Status WavFile::append(std::span<const float> left, std::span<const float> right) {
  std::string samples;
  samples.reserve(4 * left.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    put(samples, static_cast<std::uint16_t>(to_pcm16(left[i])), 2);
    put(samples, static_cast<std::uint16_t>(to_pcm16(right[i])), 2);
  }
  data_bytes_ += samples.size();
  if (data_offset_ + data_bytes_ > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument, "output: a .wav cannot hold more than 4 GiB");
  }
  return sink_.write(samples);
}

Status WavFile::close() {
  MINIACC_RETURN_IF_ERROR(sink_.overwrite(kRiffSizeOffset, u32(data_offset_ + data_bytes_ - 8)));
  MINIACC_RETURN_IF_ERROR(sink_.overwrite(data_offset_ - 4, u32(data_bytes_)));
  return sink_.close();
}

Result<std::unique_ptr<VideoWriter>> WavWriter::create(const std::filesystem::path& path,
                                                       const VideoWriterOptions& options) {
  MINIACC_ASSIGN(PartialOutput output,
                 PartialOutput::create_file(
                     path, options.overwrite ? ExistingOutput::kReplace : ExistingOutput::kRefuse));
  MINIACC_ASSIGN(WavFile file,
                 WavFile::create(output.path(), options.audio_sample_rate_hz, options.metadata));
  return std::unique_ptr<VideoWriter>(new WavWriter(std::move(output), std::move(file), options));
}

Status WavWriter::write_frame(std::span<const std::uint8_t> /*rgb*/) {
  MINIACC_REQUIRE(false, "wav writer: has no frames");
  return {};
}

Status WavWriter::write_samples(std::span<const float> left, std::span<const float> right) {
  return file_.append(left, right);
}

Status WavWriter::complete() {
  MINIACC_RETURN_IF_ERROR(file_.close());
  return output_.commit();
}

}  // namespace miniacc
