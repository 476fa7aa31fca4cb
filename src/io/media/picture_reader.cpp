#include "io/media/picture_reader.h"

#include <fmt/format.h>

#include "io/media/input_file.h"
#include "io/media/input_probe.h"
#include "io/media/still_decoder.h"

namespace miniacc {
namespace {

constexpr std::string_view kWanted = "a picture";

/// The structure of a picture file; an error names the path.
Result<StillPicture> parse_file(const InputFile& file, std::int64_t max_file_bytes) {
  const auto parse = [&]() -> Result<StillPicture> {
    std::vector<std::uint8_t> head(kMediaHeadBytes);
    MINIACC_ASSIGN(const std::size_t count, file.read_at(0, head));
    head.resize(count);
    // A film may be too long to be read whole only to say that it is no picture.
    const MediaKind kind = recognise_media(head);
    if (!is_picture(kind)) {
      return parse_still_picture(kind, head);
    }
    MINIACC_ASSIGN(const std::vector<std::uint8_t> bytes, file.read_all(max_file_bytes));
    MINIACC_RETURN_IF_ERROR(file.check_unchanged());
    MINIACC_ASSIGN(StillPicture still, parse_still_picture(kind, bytes));
    const std::string ending = file.path().extension().string();
    if (!ending_fits(kind, ending)) {
      still.notes.insert(still.notes.begin(),
                         fmt::format("is {}, whatever its ending {} says", describe(kind), ending));
    }
    return still;
  };
  auto still = parse();
  if (!still && still.error().message.find(file.path().string()) != 0) {
    still.error().message = fmt::format("{}: {}", file.path().string(), still.error().message);
  }
  return still;
}

}  // namespace

Result<Picture> read_picture(const std::filesystem::path& path, const PictureOptions& options) {
  if (options.max_pixels < 1 || options.max_file_bytes < 1) {
    return fail(ErrorCode::kInvalidArgument, "picture: limits must be at least 1");
  }
  MINIACC_ASSIGN(const InputFile file, InputFile::open(path, kWanted));
  MINIACC_ASSIGN(const StillPicture still, parse_file(file, options.max_file_bytes));
  auto picture = decode_still(still, options);
  if (!picture) {
    picture.error().message = fmt::format("{}: {}", path.string(), picture.error().message);
  }
  return picture;
}

Result<PictureInfo> probe_picture(const std::filesystem::path& path) {
  const PictureOptions limits;
  MINIACC_ASSIGN(const InputFile file, InputFile::open(path, kWanted));
  MINIACC_ASSIGN(const StillPicture still, parse_file(file, limits.max_file_bytes));
  const Status fits = check_pixels(still.width, still.height, limits.max_pixels);
  if (!fits) {
    return fail(fits.error().code, fmt::format("{}: {}", path.string(), fits.error().message));
  }
  PictureInfo info{std::string(describe(still.kind)), still.width, still.height};
  if (still.shown) {
    info.width = still.shown->width;
    info.height = still.shown->height;
  }
  if (swaps_sides(still.orientation)) {
    std::swap(info.width, info.height);
  }
  return info;
}

}  // namespace miniacc
