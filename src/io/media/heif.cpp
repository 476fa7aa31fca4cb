#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "io/media/still_picture.h"

// HEIF still pictures (ISO/IEC 23008-12): HEIC (HEVC) and AVIF (AV1). FFmpeg 5.1 has the decoders
// but knows neither the grids that phones store, nor rotation and alpha, which live in these boxes.

namespace miniacc {
namespace {

constexpr std::size_t kMaxItems = 10'000;
constexpr std::size_t kMaxTiles = 4'096;

tl::unexpected<Error> damaged(std::string_view where) {
  return fail(ErrorCode::kInvalidInput, fmt::format("is cut short or damaged: {}", where));
}

struct Box {
  std::string_view type;
  Bytes data;
};

std::string_view text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The next box; empty at the end, and, with reader.ok() false, where it is cut.
std::optional<Box> next_box(ByteReader& reader) {
  if (reader.left() == 0) {
    return std::nullopt;
  }
  std::uint64_t size = reader.u32();
  const std::string_view type = text(reader.take(4));
  std::uint64_t head = 8;
  if (size == 1) {
    size = reader.number(8);
    head = 16;
  } else if (size == 0) {  // up to the end
    size = head + reader.left();
  }
  const Bytes data = reader.take(size < head ? ~std::uint64_t{0} : size - head);
  if (!reader.ok()) {
    return std::nullopt;
  }
  return Box{type, data};
}

struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct Item {
  std::string_view type;
  int construction = 0;  ///< 0: offsets of the file, 1: of the `idat` box
  std::vector<Extent> extents;
  std::vector<std::size_t> properties;      ///< indices, from 0, in the order they apply
  std::vector<std::uint32_t> derived_from;  ///< `dimg`: tiles of a grid
};

struct Meta {
  std::uint32_t primary = 0;
  std::map<std::uint32_t, Item> items;
  std::vector<Box> properties;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> auxiliaries;  ///< item, of which item
  Bytes idat;
};

/// Version and flags of a full box.
std::uint32_t full_box(ByteReader& reader, std::uint32_t& flags) {
  const std::uint32_t word = reader.u32();
  flags = word & 0xFFFFFFU;
  return word >> 24U;
}

Status read_item_info(Meta& meta, Bytes data) {
  ByteReader reader(data);
  std::uint32_t flags = 0;
  const std::uint32_t version = full_box(reader, flags);
  reader.skip(version == 0 ? 2 : 4);  // the count: boxes follow
  while (const auto box = next_box(reader)) {
    ByteReader entry(box->data);
    const std::uint32_t entry_version = full_box(entry, flags);
    if (box->type != "infe" || entry_version < 2) {
      continue;
    }
    const std::uint32_t id = entry_version == 2 ? entry.u16() : entry.u32();
    entry.skip(2);
    const std::string_view type = text(entry.take(4));
    if (!entry.ok() || meta.items.size() >= kMaxItems) {
      return damaged("its list of items");
    }
    meta.items[id].type = type;
  }
  return {};
}

Status read_locations(Meta& meta, Bytes data) {
  ByteReader reader(data);
  std::uint32_t flags = 0;
  const std::uint32_t version = full_box(reader, flags);
  const std::uint32_t sizes = reader.u16();
  const std::size_t offset_size = sizes >> 12U & 15U;
  const std::size_t length_size = sizes >> 8U & 15U;
  const std::size_t base_size = sizes >> 4U & 15U;
  const std::size_t index_size = version == 0 ? 0 : sizes & 15U;
  const std::uint32_t count = version < 2 ? reader.u16() : reader.u32();
  if (version > 2 || std::max({offset_size, length_size, base_size, index_size}) > 8) {
    return damaged("its list of places");
  }
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const std::uint32_t id = version < 2 ? reader.u16() : reader.u32();
    const int construction = version == 0 ? 0 : static_cast<int>(reader.u16() & 15U);
    reader.skip(2);
    const std::uint64_t base = reader.number(base_size);
    const std::uint32_t num_extents = reader.u16();
    Item item;
    for (std::uint32_t k = 0; k < num_extents && reader.ok(); ++k) {
      reader.skip(index_size);
      const std::uint64_t offset = base + reader.number(offset_size);
      item.extents.push_back({offset, reader.number(length_size)});
      // Without any field an extent takes no bytes, and their number alone could fill memory.
      if (offset_size + length_size == 0 && item.extents.size() > 1) {
        return damaged("its list of places");
      }
    }
    const auto known = meta.items.find(id);
    if (known != meta.items.end()) {
      known->second.construction = construction;
      known->second.extents = std::move(item.extents);
    }
  }
  return reader.ok() ? Status{} : damaged("its list of places");
}

Status read_properties(Meta& meta, Bytes data) {
  ByteReader reader(data);
  while (const auto box = next_box(reader)) {
    if (box->type == "ipco") {
      ByteReader list(box->data);
      while (const auto property = next_box(list)) {
        meta.properties.push_back(*property);
      }
    } else if (box->type == "ipma") {
      ByteReader list(box->data);
      std::uint32_t flags = 0;
      const std::uint32_t version = full_box(list, flags);
      const std::uint32_t count = list.u32();
      for (std::uint32_t i = 0; i < count && list.ok(); ++i) {
        const std::uint32_t id = version < 1 ? list.u16() : list.u32();
        const std::uint32_t num_properties = list.u8();
        const auto item = meta.items.find(id);
        for (std::uint32_t k = 0; k < num_properties && list.ok(); ++k) {
          const std::uint32_t index = (flags & 1U) != 0 ? list.u16() & 0x7FFFU : list.u8() & 0x7FU;
          if (index > 0 && item != meta.items.end()) {
            item->second.properties.push_back(index - 1);
          }
        }
      }
      if (!list.ok()) {
        return damaged("its list of properties");
      }
    }
  }
  return {};
}

Status read_references(Meta& meta, Bytes data) {
  ByteReader reader(data);
  std::uint32_t flags = 0;
  const bool wide = full_box(reader, flags) != 0;
  while (const auto box = next_box(reader)) {
    ByteReader list(box->data);
    const std::uint32_t from = wide ? list.u32() : list.u16();
    const std::uint32_t count = list.u16();
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t to = wide ? list.u32() : list.u16();
      if (!list.ok()) {
        return damaged("its list of references");
      }
      if (box->type == "auxl") {
        meta.auxiliaries.emplace_back(from, to);
      } else if (box->type == "dimg" && meta.items.count(from) != 0) {
        meta.items[from].derived_from.push_back(to);
      }
    }
  }
  return {};
}

Result<Meta> read_meta(Bytes file) {
  ByteReader reader(file);
  std::map<std::string_view, Bytes> boxes;
  while (const auto box = next_box(reader)) {
    if (box->type == "meta") {
      ByteReader inner(box->data);
      inner.skip(4);
      while (const auto part = next_box(inner)) {
        boxes.emplace(part->type, part->data);
      }
      break;
    }
  }
  Meta meta;
  for (const std::string_view needed : {"pitm", "iinf", "iloc", "iprp"}) {
    if (boxes.count(needed) == 0) {
      return damaged("a HEIF without its list of pictures");
    }
  }
  ByteReader primary(boxes["pitm"]);
  std::uint32_t flags = 0;
  meta.primary = full_box(primary, flags) == 0 ? primary.u16() : primary.u32();
  MINIACC_RETURN_IF_ERROR(read_item_info(meta, boxes["iinf"]));
  MINIACC_RETURN_IF_ERROR(read_locations(meta, boxes["iloc"]));
  MINIACC_RETURN_IF_ERROR(read_properties(meta, boxes["iprp"]));
  if (boxes.count("iref") != 0) {
    MINIACC_RETURN_IF_ERROR(read_references(meta, boxes["iref"]));
  }
  meta.idat = boxes["idat"];
  return meta;
}

class HeifParser {
 public:
  HeifParser(Bytes file, Meta meta) : file_(file), meta_(std::move(meta)) {}

  Result<StillPicture> parse() {
    StillPicture picture;
    MINIACC_ASSIGN(const Item* item, find(meta_.primary));
    MINIACC_RETURN_IF_ERROR(apply_properties(picture, *item));
    if (item->type == "grid") {
      MINIACC_RETURN_IF_ERROR(read_grid(picture, *item));
    } else {
      MINIACC_ASSIGN(CodedPicture coded, read_coded(*item));
      picture.tiles.push_back(std::move(coded));
    }
    MINIACC_RETURN_IF_ERROR(read_alpha(picture));
    return picture;
  }

 private:
  [[nodiscard]] Result<const Item*> find(std::uint32_t id) const {
    const auto found = meta_.items.find(id);
    if (found == meta_.items.end()) {
      return damaged("a HEIF without the picture that it names");
    }
    return &found->second;
  }

  /// The property of a type that belongs to an item.
  [[nodiscard]] const Box* property(const Item& item, std::string_view type) const {
    for (const std::size_t index : item.properties) {
      if (index < meta_.properties.size() && meta_.properties[index].type == type) {
        return &meta_.properties[index];
      }
    }
    return nullptr;
  }

  [[nodiscard]] Result<std::vector<std::uint8_t>> content(const Item& item) const {
    const Bytes source = item.construction == 1 ? meta_.idat : file_;
    std::vector<std::uint8_t> bytes;
    for (const Extent& extent : item.extents) {
      if (item.construction > 1 || extent.offset > source.size() ||
          extent.length > source.size() - extent.offset ||
          extent.length > file_.size() - bytes.size()) {
        return damaged("a HEIF whose picture data end behind the file");
      }
      const Bytes part = source.subspan(
          static_cast<std::size_t>(extent.offset),
          extent.length == 0 ? source.size() - static_cast<std::size_t>(extent.offset)
                             : static_cast<std::size_t>(extent.length));
      if (part.size() > file_.size() - bytes.size()) {
        return damaged("a HEIF whose picture data are longer than the file");
      }
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    if (bytes.empty()) {
      return damaged("a HEIF without picture data");
    }
    return bytes;
  }

  /// Size, orientation, colour of the whole picture.
  Status apply_properties(StillPicture& picture, const Item& item) const {
    const Box* extents = property(item, "ispe");
    if (extents == nullptr) {
      return damaged("a HEIF without the size of its picture");
    }
    ByteReader size(extents->data);
    size.skip(4);
    picture.width = size.u32();
    picture.height = size.u32();
    if (const Box* aperture = property(item, "clap")) {
      MINIACC_ASSIGN(picture.shown, shown_part(picture, aperture->data));
    }
    if (const Box* color = property(item, "colr")) {
      ByteReader reader(color->data);
      const std::string_view type = text(reader.take(4));
      if (type == "nclx") {
        reader.skip(4);
        NclxColor nclx;
        nclx.matrix = reader.u16();
        constexpr int kLastMatrix = 14;  // of ITU-T H.273
        if (nclx.matrix > kLastMatrix) {
          return damaged("a HEIF with an unknown colour matrix");
        }
        nclx.full_range = (reader.u8() & 0x80U) != 0;
        picture.color = nclx;
      } else if (auto note = profile_note(reader.rest())) {
        picture.notes.push_back(*std::move(note));
      }
    }
    return apply_turns(picture, item);
  }

  /// `clap`: size and offset of the centre as fractions (ISO/IEC 14496-12, 12.1.4).
  static Result<PixelArea> shown_part(const StillPicture& picture, Bytes data) {
    ByteReader reader(data);
    const auto fraction = [&] {
      const auto above = static_cast<std::int32_t>(reader.u32());
      const auto below = static_cast<std::int32_t>(reader.u32());
      return below == 0 ? std::nan("") : static_cast<double>(above) / below;
    };
    const double width = fraction();
    const double height = fraction();
    const double right = fraction();
    const double down = fraction();
    const double x = right + (static_cast<double>(picture.width) - width) / 2.0;
    const double y = down + (static_cast<double>(picture.height) - height) / 2.0;
    const bool inside = width >= 1.0 && height >= 1.0 && x >= 0.0 && y >= 0.0 &&
                        x + width <= static_cast<double>(picture.width) &&
                        y + height <= static_cast<double>(picture.height);
    if (!reader.ok() || !inside) {
      return damaged("a HEIF whose crop lies outside its picture");
    }
    return PixelArea{static_cast<std::int64_t>(x), static_cast<std::int64_t>(y),
                     static_cast<std::int64_t>(width), static_cast<std::int64_t>(height)};
  }

  /// `irot` and `imir` in the order in which the file lists them.
  Status apply_turns(StillPicture& picture, const Item& item) const {
    // A turn is the point (x, y) -> (a x + b y, c x + d y), y pointing down.
    int a = 1;
    int b = 0;
    int c = 0;
    int d = 1;
    const auto then = [&](int e, int f, int g, int h) {
      const int na = e * a + f * c;
      const int nb = e * b + f * d;
      const int nc = g * a + h * c;
      const int nd = g * b + h * d;
      a = na;
      b = nb;
      c = nc;
      d = nd;
    };
    for (const std::size_t index : item.properties) {
      if (index >= meta_.properties.size() || meta_.properties[index].data.empty()) {
        continue;
      }
      const Box& box = meta_.properties[index];
      if (box.type == "irot") {
        for (int turns = box.data[0] & 3; turns > 0; --turns) {
          then(0, 1, -1, 0);  // a quarter counter-clockwise
        }
      } else if (box.type == "imir") {
        // 0: top and bottom change places, 1: left and right.
        (box.data[0] & 1) == 0 ? then(1, 0, 0, -1) : then(-1, 0, 0, 1);
      }
    }
    picture.orientation = read_display_matrix({a, c, 0, b, d, 0, 0, 0, 1}).orientation;
    return {};
  }

  [[nodiscard]] Result<CodedPicture> read_coded(const Item& item) const {
    const bool hevc = item.type == "hvc1";
    if (!hevc && item.type != "av01") {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("is a HEIF of a kind that is not read ({}); save it as PNG", item.type));
    }
    CodedPicture coded;
    MINIACC_ASSIGN(coded.data, content(item));
    const Box* config = property(item, hevc ? "hvcC" : "av1C");
    if (config == nullptr) {
      return damaged("a HEIF without the set-up of its decoder");
    }
    coded.av1 = !hevc;
    coded.extradata.assign(config->data.begin(), config->data.end());
    return coded;
  }

  Status read_grid(StillPicture& picture, const Item& item) const {
    MINIACC_ASSIGN(const std::vector<std::uint8_t> bytes, content(item));
    ByteReader reader(bytes);
    reader.skip(1);
    const std::size_t size = (reader.u8() & 1U) != 0 ? 4 : 2;
    const std::int64_t rows = reader.u8() + 1;
    const std::int64_t columns = reader.u8() + 1;
    picture.width = static_cast<std::int64_t>(reader.number(size));
    picture.height = static_cast<std::int64_t>(reader.number(size));
    picture.tile_columns = columns;
    if (!reader.ok() || item.derived_from.size() != static_cast<std::size_t>(rows * columns) ||
        item.derived_from.size() > kMaxTiles) {
      return damaged("a HEIF grid without all its tiles");
    }
    std::size_t num_bytes = 0;
    for (const std::uint32_t id : item.derived_from) {
      MINIACC_ASSIGN(const Item* tile, find(id));
      const Box* extents = property(*tile, "ispe");
      if (extents == nullptr) {
        return damaged("a HEIF tile without its size");
      }
      ByteReader tile_size(extents->data);
      tile_size.skip(4);
      const std::int64_t width = tile_size.u32();
      const std::int64_t height = tile_size.u32();
      if (picture.tiles.empty()) {
        picture.tile_width = width;
        picture.tile_height = height;
      }
      if (width < 1 || height < 1 || width != picture.tile_width || height != picture.tile_height) {
        return damaged("a HEIF grid whose tiles differ in size");
      }
      MINIACC_ASSIGN(CodedPicture coded, read_coded(*tile));
      // Tiles may share their data in a hostile file; together they are no larger than the file.
      num_bytes += coded.data.size();
      if (num_bytes > file_.size()) {
        return damaged("a HEIF grid whose tiles are longer than the file");
      }
      picture.tiles.push_back(std::move(coded));
    }
    // Each row and column of tiles shows something, so that decoding costs what the picture shows.
    if (picture.tile_width * columns < picture.width ||
        picture.tile_height * rows < picture.height ||
        picture.tile_width * (columns - 1) >= picture.width ||
        picture.tile_height * (rows - 1) >= picture.height) {
      return damaged("a HEIF grid that does not fit its picture");
    }
    return {};
  }

  /// The auxiliary picture of the primary one that its `auxC` names as alpha.
  Status read_alpha(StillPicture& picture) const {
    for (const auto& [id, of] : meta_.auxiliaries) {
      const auto item = meta_.items.find(id);
      if (of != meta_.primary || item == meta_.items.end()) {
        continue;
      }
      const Box* kind = property(item->second, "auxC");
      if (kind == nullptr || kind->data.size() < 4) {
        continue;
      }
      const std::string_view urn = text(kind->data.subspan(4));
      if (!urn.starts_with("urn:mpeg:mpegB:cicp:systems:auxiliary:alpha") &&
          !urn.starts_with("urn:mpeg:hevc:2015:auxid:1")) {
        continue;  // depth, HDR gain maps
      }
      if (item->second.type == "grid") {
        return fail(ErrorCode::kUnsupported,
                    "is a HEIF with tiled transparency, which is not read; save it as PNG");
      }
      MINIACC_ASSIGN(picture.alpha, read_coded(item->second));
      return {};
    }
    return {};
  }

  Bytes file_;
  Meta meta_;
};

}  // namespace

Result<StillPicture> parse_heif(Bytes file) {
  MINIACC_ASSIGN(Meta meta, read_meta(file));
  return HeifParser(file, std::move(meta)).parse();
}

}  // namespace miniacc
