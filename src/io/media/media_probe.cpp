#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/media/libav_input.h"
#include "io/media/media_reader.h"

extern "C" {
#include <libavutil/pixdesc.h>
}

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxMetadataBytes = std::uintmax_t{16} << 20U;
// Some 50 times what the longest clip has.
constexpr std::int64_t kMaxPackets = 1'000'000;

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

std::string tag_text(std::uint32_t tag) {
  std::string text;
  for (int i = 0; i < 4 && tag != 0; ++i) {
    const char c = static_cast<char>((tag >> (8 * i)) & 0xFFU);
    text += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  }
  return text;
}

StreamInfo describe(const AVStream& stream) {
  const AVCodecParameters& codec = *stream.codecpar;
  StreamInfo info;
  info.codec = avcodec_get_name(codec.codec_id);
  info.codec_tag = tag_text(codec.codec_tag);
  info.profile = text_or_empty(avcodec_profile_name(codec.codec_id, codec.profile));
  if (codec.codec_type == AVMEDIA_TYPE_VIDEO) {
    info.kind = StreamKind::kVideo;
    info.width = codec.width;
    info.height = codec.height;
    info.pixel_format =
        text_or_empty(av_get_pix_fmt_name(static_cast<AVPixelFormat>(codec.format)));
    info.color_range = text_or_empty(av_color_range_name(codec.color_range));
    info.color_space = text_or_empty(av_color_space_name(codec.color_space));
    info.color_primaries = text_or_empty(av_color_primaries_name(codec.color_primaries));
    info.color_transfer = text_or_empty(av_color_transfer_name(codec.color_trc));
    info.frame_rate_num = stream.avg_frame_rate.num;
    info.frame_rate_den = stream.avg_frame_rate.den;
  } else if (codec.codec_type == AVMEDIA_TYPE_AUDIO) {
    info.kind = StreamKind::kAudio;
    info.sample_rate_hz = codec.sample_rate;
    info.channels = codec.ch_layout.nb_channels;
  }
  if (stream.duration != AV_NOPTS_VALUE) {
    info.duration_s = static_cast<double>(stream.duration) * av_q2d(stream.time_base);
  }
  return info;
}

std::map<std::string, std::string> metadata_of(const AVFormatContext& input) {
  std::map<std::string, std::string> metadata;
  const AVDictionaryEntry* entry = nullptr;
  while ((entry = av_dict_get(input.metadata, "", entry, AV_DICT_IGNORE_SUFFIX)) != nullptr) {
    std::string key = entry->key;
    // Matroska stores tag names in capitals.
    std::transform(key.begin(), key.end(), key.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (key == "macc") {  // WavFile's name for it
      key = "miniacc";
    }
    metadata[key] = entry->value;
  }
  return metadata;
}

Result<std::map<std::string, std::string>> read_folder_metadata(const fs::path& folder) {
  const fs::path path = folder / "metadata.json";
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    return std::map<std::string, std::string>{};
  }
  if (size > kMaxMetadataBytes) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: has {} bytes, at most {} are accepted",
                                                      path.string(), size, kMaxMetadataBytes));
  }
  std::ifstream file(path, std::ios::binary);
  const nlohmann::json document = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: is not a JSON object", path.string()));
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : document.items()) {
    if (!value.is_string()) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: \"{}\" is not a string", path.string(), key));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

Result<MediaInfo> probe(const fs::path& path) {
  MINIACC_ASSIGN(const libav::MediaInput input, libav::open_input(path));
  MediaInfo info;
  info.container = input->iformat->name;
  info.metadata = metadata_of(*input);
  if (input->duration != AV_NOPTS_VALUE) {
    info.duration_s = static_cast<double>(input->duration) / AV_TIME_BASE;
  }
  for (unsigned int i = 0; i < input->nb_streams; ++i) {
    info.streams.push_back(describe(*input->streams[i]));
  }
  const libav::Packet packet = libav::make_packet();
  for (std::int64_t count = 0;; ++count) {
    const int status = av_read_frame(input.get(), packet.get());
    if (status == AVERROR_EOF) {
      return info;
    }
    MINIACC_RETURN_IF_ERROR(libav::check(status, path.string()));
    if (count >= kMaxPackets) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: has more than {} packets", path.string(), kMaxPackets));
    }
    const auto index = static_cast<std::size_t>(packet->stream_index);
    if (index < info.streams.size()) {
      ++info.streams[index].num_packets;
    }
    av_packet_unref(packet.get());
  }
}

Result<std::map<std::string, std::string>> read_metadata(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return read_folder_metadata(path);
  }
  MINIACC_ASSIGN(const libav::MediaInput input, libav::open_input(path));
  return metadata_of(*input);
}

}  // namespace miniacc
