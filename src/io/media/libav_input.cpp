#include "io/media/libav_input.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/media/byte_reader.h"
#include "io/media/media_kind.h"

namespace miniacc::libav {
namespace {

constexpr unsigned int kMaxStreams = 64;
constexpr int kBufferBytes = 64 << 10;

/// A container may name other files; none is opened.
int refuse_to_open(AVFormatContext* /*context*/, AVIOContext** /*io*/, const char* /*url*/,
                   int /*flags*/, AVDictionary** /*options*/) {
  return AVERROR(EPERM);
}

/// Bytes at an offset, fewer at the end of the file.
Result<std::vector<std::uint8_t>> peek(const InputFile& file, std::int64_t offset,
                                       std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  MINIACC_ASSIGN(const std::size_t count, file.read_at(offset, bytes));
  bytes.resize(count);
  return bytes;
}

tl::unexpected<Error> cut_short(const InputFile& file, std::int64_t wanted) {
  return fail(ErrorCode::kInvalidInput,
              fmt::format("{}: is cut short: it should have {} bytes, {} are there",
                          file.path().string(), wanted, file.size_bytes()));
}

Status check_end(const InputFile& file, std::int64_t start, std::uint64_t size) {
  if (size > static_cast<std::uint64_t>(file.size_bytes() - start)) {
    return cut_short(file, start + static_cast<std::int64_t>(
                                       std::min<std::uint64_t>(size, std::uint64_t{1} << 60U)));
  }
  return {};
}

/// MP4: a chain of boxes.
Status check_boxes(const InputFile& file) {
  std::int64_t at = 0;
  while (file.size_bytes() - at >= 16) {
    MINIACC_ASSIGN(const auto head, peek(file, at, 16));
    ByteReader reader(head);
    std::uint64_t size = reader.u32();
    const Bytes type = reader.take(4);
    if (size == 1) {
      size = reader.number(8);
    }
    const bool is_type =
        std::all_of(type.begin(), type.end(), [](std::uint8_t c) { return c >= 0x20 && c < 0x7F; });
    if (size < 8 || !is_type) {  // 0: up to the end; others: something was appended
      return {};
    }
    MINIACC_RETURN_IF_ERROR(check_end(file, at, size));
    at += static_cast<std::int64_t>(size);
  }
  return {};
}

/// A Matroska element's size; empty where it is unknown, as in recordings.
std::optional<std::uint64_t> element_size(ByteReader& reader) {
  const std::uint8_t first = reader.u8();
  int length = 1;
  while (length <= 8 && (first & (0x80U >> (length - 1))) == 0) {
    ++length;
  }
  if (length > 8) {
    return std::nullopt;
  }
  std::uint64_t value = first & (0xFFU >> length);
  for (int i = 1; i < length; ++i) {
    value = value << 8U | reader.u8();
  }
  const std::uint64_t unknown = (std::uint64_t{1} << (7 * length)) - 1;
  return value == unknown ? std::nullopt : std::optional(value);
}

/// A Matroska element's identifier with its length marker, as the format's tables list it.
std::uint32_t element_id(ByteReader& reader) {
  std::uint32_t id = reader.u8();
  // The highest bit that is set says how many bytes follow.
  const int more = id >= 0x80 ? 0 : id >= 0x40 ? 1 : id >= 0x20 ? 2 : 3;
  for (int i = 0; i < more; ++i) {
    id = id << 8U | reader.u8();
  }
  return id;
}

constexpr std::uint32_t kSegment = 0x18538067;
constexpr std::uint32_t kCluster = 0x1F43B675;
// RFC 9559, sections 5.1 and 5.1.3: children of a segment and of a cluster.
constexpr std::array<std::uint32_t, 10> kSegmentParts = {
    kCluster,   0x114D9B74, 0x1549A966, 0x1654AE6B, 0x1C53BB6B,
    0x1254C367, 0x1941A469, 0x1043A770, 0xEC,       0xBF};
constexpr std::array<std::uint32_t, 9> kClusterParts = {0xE7, 0xA3, 0xA0, 0xAB,  0xA7,
                                                        0xAF, 0xEC, 0xBF, 0x5854};

/// Matroska: the header, then one segment of clusters of blocks. The demuxer would skip damage and
/// what it hides without a word.
Status check_segment(const InputFile& file) {
  MINIACC_ASSIGN(const auto head, peek(file, 0, kMediaHeadBytes));
  ByteReader start(head);
  start.skip(4);
  const auto header_size = element_size(start);
  start.skip(header_size.value_or(0));
  if (element_id(start) != kSegment) {
    return {};
  }
  const auto segment_size = element_size(start);
  if (!start.ok() || !segment_size) {
    return {};  // a recording: sizes are unknown
  }
  auto at = static_cast<std::int64_t>(head.size() - start.left());
  MINIACC_RETURN_IF_ERROR(check_end(file, at, *segment_size));
  const std::int64_t segment_end = at + static_cast<std::int64_t>(*segment_size);
  std::int64_t cluster_end = at;
  while (at < segment_end) {
    constexpr std::size_t kLongestHead = 12;
    MINIACC_ASSIGN(const auto bytes, peek(file, at, kLongestHead));
    ByteReader reader(bytes);
    const bool in_cluster = at < cluster_end;
    const std::uint32_t id = element_id(reader);
    const auto size = element_size(reader);
    const bool known =
        in_cluster
            ? std::find(kClusterParts.begin(), kClusterParts.end(), id) != kClusterParts.end()
            : std::find(kSegmentParts.begin(), kSegmentParts.end(), id) != kSegmentParts.end();
    if (known && reader.ok() && !size) {
      return {};
    }
    at += static_cast<std::int64_t>(bytes.size() - reader.left());
    const std::int64_t end = in_cluster ? cluster_end : segment_end;
    if (!known || !reader.ok() || at > end || *size > static_cast<std::uint64_t>(end - at)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: is damaged near byte {}", file.path().string(), at));
    }
    if (id == kCluster) {
      cluster_end = at + static_cast<std::int64_t>(*size);
    } else {
      at += static_cast<std::int64_t>(*size);
    }
  }
  return {};
}

/// WAV and AVI: a chain of chunks inside one. A program that writes into a pipe leaves sizes of 0
/// or all ones.
Status check_chunks(const InputFile& file) {
  std::int64_t at = 12;
  while (file.size_bytes() - at >= 8) {
    MINIACC_ASSIGN(const auto head, peek(file, at, 8));
    ByteReader reader(head, std::endian::little);
    const Bytes name = reader.take(4);
    const std::uint32_t size = reader.u32();
    const bool open_end = size == 0xFFFFFFFFU || (size == 0 && begins_with(name, "data"));
    if (open_end) {
      return {};
    }
    MINIACC_RETURN_IF_ERROR(check_end(file, at + 8, size));
    if (begins_with(name, "data") || begins_with(name, "idx1")) {
      return {};  // what follows is nobody's promise
    }
    at += 8 + std::int64_t{size} + size % 2;
  }
  return {};
}

}  // namespace

MediaInput& MediaInput::operator=(MediaInput&& other) noexcept {
  std::swap(source_, other.source_);
  std::swap(io_, other.io_);
  std::swap(context_, other.context_);
  return *this;
}

int MediaInput::read_packet(void* opaque, std::uint8_t* buffer, int size) {
  auto& source = *static_cast<Source*>(opaque);
  const auto count = source.file.read_at(source.position, {buffer, static_cast<std::size_t>(size)});
  if (!count) {
    return AVERROR(EIO);
  }
  if (*count == 0) {
    return AVERROR_EOF;
  }
  source.position += static_cast<std::int64_t>(*count);
  return static_cast<int>(*count);
}

std::int64_t MediaInput::seek(void* opaque, std::int64_t offset, int whence) {
  auto& source = *static_cast<Source*>(opaque);
  switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE:
      return source.file.size_bytes();
    case SEEK_SET:
      break;
    case SEEK_CUR:
      offset += source.position;
      break;
    case SEEK_END:
      offset += source.file.size_bytes();
      break;
    default:
      return AVERROR(EINVAL);
  }
  if (offset < 0) {
    return AVERROR(EINVAL);
  }
  source.position = offset;
  return offset;
}

Result<MediaInput> MediaInput::open(InputFile file, const char* formats, std::string_view wanted) {
  quiet();
  MediaInput input;
  input.source_ = std::make_unique<Source>(Source{std::move(file), 0});
  // Freed with the context, which may exchange it.
  auto* buffer = static_cast<std::uint8_t*>(av_malloc(kBufferBytes));
  if (buffer != nullptr) {
    input.io_.reset(avio_alloc_context(buffer, kBufferBytes, 0, input.source_.get(), read_packet,
                                       nullptr, seek));
  }
  AVFormatContext* context = input.io_ ? avformat_alloc_context() : nullptr;
  if (context == nullptr) {
    if (!input.io_) {
      av_free(buffer);
    }
    return fail(ErrorCode::kOutOfMemory, fmt::format("{}: no memory to open it", input.path()));
  }
  context->pb = input.io_.get();
  context->io_open = refuse_to_open;
  Options options;
  options.set("protocol_whitelist", "");
  options.set("format_whitelist", formats);
  options.set("max_streams", std::to_string(kMaxStreams));
  // A failed call frees the context. The name is left out: only content decides.
  const int status = avformat_open_input(&context, "", nullptr, options.get());
  if (status < 0) {
    if (status == AVERROR(ENOMEM)) {
      return failure(status, input.path());
    }
    MINIACC_ASSIGN(const auto head, peek(input.file(), 0, kMediaHeadBytes));
    const MediaKind kind = recognise_media(head);
    if (kind == MediaKind::kUnknown || !may_hold_sound(kind)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: is {}, wanted {}", input.path(), describe(kind), wanted));
    }
    return failure(status, fmt::format("{}: is {} that cannot be opened, wanted {}", input.path(),
                                       describe(kind), wanted));
  }
  input.context_.reset(context);
  MINIACC_RETURN_IF_ERROR(check(avformat_find_stream_info(context, nullptr), input.path()));
  return input;
}

Status MediaInput::check_complete() const {
  MINIACC_ASSIGN(const auto head, peek(file(), 0, kMediaHeadBytes));
  switch (recognise_media(head)) {
    case MediaKind::kIsoMedia:
      return check_boxes(file());
    case MediaKind::kMatroska:
      return check_segment(file());
    case MediaKind::kWav:
    case MediaKind::kAvi:
      return check_chunks(file());
    default:
      return {};
  }
}

Result<MediaInput> open_input(const std::filesystem::path& path) {
  MINIACC_ASSIGN(InputFile file, InputFile::open(path, "a media file"));
  return MediaInput::open(std::move(file), kAllFormats, "a media file");
}

}  // namespace miniacc::libav
