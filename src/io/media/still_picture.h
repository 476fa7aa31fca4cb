#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/media/byte_reader.h"
#include "io/media/media_kind.h"
#include "io/media/orientation.h"

namespace miniacc {

/// What a decoder gets for one picture.
struct CodedPicture {
  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> extradata;  ///< av1C or hvcC of HEIF
  bool av1 = false;                     ///< in HEIF: AV1, else HEVC
};

/// Matrix and range of a HEIF `colr` box of type nclx, which overrule those of the bitstream;
/// ITU-T H.273 numbers, which FFmpeg shares.
struct NclxColor {
  int matrix = 2;
  bool full_range = false;
};

/// A rectangle of pixels.
struct PixelArea {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;
};

/// A still picture before decoding: what its header says and the bytes that the decoder needs,
/// freed from everything else (profiles, thumbnails, comments, other frames), so that a decoder
/// never sees what could expand without a bound. Private to the io layer.
struct StillPicture {
  MediaKind kind = MediaKind::kUnknown;
  std::int64_t width = 0;  ///< as stored, before turning
  std::int64_t height = 0;
  std::optional<PixelArea> shown;  ///< the part that is shown, before turning; all of it if empty
  Orientation orientation = Orientation::kUpright;
  /// Tiles row by row, all of one size, that cover width x height; one for most formats.
  std::vector<CodedPicture> tiles;
  std::int64_t tile_columns = 1;
  std::int64_t tile_width = 0;  ///< 0: one tile, its size is the decoder's
  std::int64_t tile_height = 0;
  std::optional<CodedPicture> alpha;  ///< a picture whose grey is the transparency
  std::optional<NclxColor> color;
  bool opaque = false;         ///< the decoder's alpha means nothing
  bool premultiplied = false;  ///< colours are already multiplied by alpha
  std::vector<std::string> notes;
};

/// Parses a picture of `kind` from its whole file. Messages lack the path: the caller has it.
/// kInvalidInput for damage and truncation as far as the structure shows it, kUnsupported for
/// variants that are not read, by name.
[[nodiscard]] Result<StillPicture> parse_still_picture(MediaKind kind, Bytes file);

/// The parts of it in files of their own.
[[nodiscard]] Result<StillPicture> parse_jpeg(Bytes file);
[[nodiscard]] Result<StillPicture> parse_heif(Bytes file);

/// A note where a colour profile is one that cannot be sRGB; profiles are not applied.
std::optional<std::string> profile_note(Bytes icc_profile);

}  // namespace miniacc
