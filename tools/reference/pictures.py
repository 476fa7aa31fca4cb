"""Pictures of every kind that the reader takes, as Pillow writes them, and what Pillow reads from them."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pillow_heif
import torch
from PIL import Image, ImageOps

from storage import write_tensors

WIDTH, HEIGHT = 32, 20
ORIENTATION_TAG = 0x0112
WHITE = (255, 255, 255, 255)


def smooth_rgb() -> np.ndarray:
    """[height, width, 3] without a symmetry, smooth enough for subsampled chroma."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([x * 255 // (WIDTH - 1), y * 255 // (HEIGHT - 1), (2 * x + y) * 255 // 81], -1).astype(np.uint8)


def alpha_ramp() -> np.ndarray:
    return np.clip(np.arange(WIDTH) * 10 - 20, 0, 255).astype(np.uint8)[None, :].repeat(HEIGHT, 0)


def png_bytes(samples: np.ndarray, colour_type: int) -> bytes:
    """A PNG of 16-bit samples [height, width, channels], which Pillow cannot write in colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], 16, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def saved(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def composite(rgba: np.ndarray) -> np.ndarray:
    """Colours over white at their own depth, rounded once: the rule of the reader."""
    full = float(np.iinfo(rgba.dtype).max)
    alpha = rgba[..., 3:].astype(np.float64) / full
    return np.floor((rgba[..., :3] / full * alpha + (1.0 - alpha)) * 255.0 + 0.5).astype(np.uint8)


def expected(data: bytes) -> np.ndarray:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        return composite(np.asarray(image.convert("RGBA")))
    return np.asarray(image.convert("RGB"))


def grid_heic(tiles: list[Image.Image], columns: int, width: int, height: int) -> bytes:
    """A HEIF of tiles such as phones store, with a quarter turn; from pictures that pillow-heif codes one by one."""
    coded = [heif_parts(saved(tile, "HEIF", quality=95, chroma=444)) for tile in tiles]
    count = len(tiles)
    side_w, side_h = tiles[0].size

    def box(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", 8 + len(data)) + kind + data

    def full_box(kind: bytes, data: bytes, version: int = 0, flags: int = 0) -> bytes:
        return box(kind, struct.pack(">I", version << 24 | flags) + data)

    def item(number: int, kind: bytes) -> bytes:
        return full_box(b"infe", struct.pack(">HH", number, 0) + kind + b"\0", version=2)

    rows = count // columns
    idat = struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, width, height)
    properties = [
        box(b"hvcC", coded[0][0]),
        full_box(b"ispe", struct.pack(">II", side_w, side_h)),
        full_box(b"ispe", struct.pack(">II", width, height)),
        box(b"irot", b"\x03"),  # three quarters counter-clockwise: one clockwise
    ]
    associations = b"".join(struct.pack(">HBBB", i + 1, 2, 0x81, 2) for i in range(count))
    associations += struct.pack(">HBBB", count + 1, 2, 3, 0x84)

    def meta(first_byte: int) -> bytes:
        places, at = b"", first_byte
        for i in range(count):
            places += struct.pack(">HHHHII", i + 1, 0, 0, 1, at, len(coded[i][1]))
            at += len(coded[i][1])
        places += struct.pack(">HHHHII", count + 1, 1, 0, 1, 0, len(idat))
        return full_box(
            b"meta",
            full_box(b"hdlr", b"\0\0\0\0pict" + b"\0" * 13)
            + full_box(b"pitm", struct.pack(">H", count + 1))
            + full_box(b"iloc", struct.pack(">BBH", 0x44, 0x00, count + 1) + places, version=1)
            + full_box(
                b"iinf",
                struct.pack(">H", count + 1)
                + b"".join(item(i + 1, b"hvc1") for i in range(count))
                + item(count + 1, b"grid"),
            )
            + box(
                b"iprp",
                box(b"ipco", b"".join(properties)) + full_box(b"ipma", struct.pack(">I", count + 1) + associations),
            )
            + full_box(
                b"iref",
                box(b"dimg", struct.pack(">HH", count + 1, count) + b"".join(struct.pack(">H", i + 1) for i in range(count))),
            )
            + box(b"idat", idat),
        )

    head = box(b"ftyp", b"heic\0\0\0\0mif1heic")
    start = len(head) + len(meta(0)) + 8
    return head + meta(start) + box(b"mdat", b"".join(data for _, data in coded))


def heif_parts(data: bytes) -> tuple[bytes, bytes]:
    """Decoder set-up and coded data of a file with one picture, found by the names of their boxes."""

    def content(name: bytes) -> bytes:
        at = data.index(name)
        return data[at + 4 : at - 4 + struct.unpack(">I", data[at - 4 : at])[0]]

    return content(b"hvcC"), content(b"mdat")


def files() -> dict[str, bytes]:
    pillow_heif.register_heif_opener()
    rgb = smooth_rgb()
    colour = Image.fromarray(rgb)
    grey = colour.convert("L")
    alpha = alpha_ramp()
    rgba = Image.fromarray(np.dstack([rgb, alpha]))
    palette = colour.convert("P", palette=Image.Palette.ADAPTIVE)
    few = rgba.quantize(16)
    grey16 = np.asarray(grey).astype(np.uint16) * 250 + 77
    rgba16 = np.dstack([rgb, alpha]).astype(np.uint16) * 250 + 77
    turned = colour.rotate(180)
    result = {
        "png_rgb": saved(colour, "PNG"),
        "png_grey": saved(grey, "PNG"),
        "png_grey_alpha": saved(Image.fromarray(np.dstack([np.asarray(grey), alpha]), "LA"), "PNG"),
        "png_rgba": saved(rgba, "PNG"),
        "png_palette": saved(palette, "PNG"),
        "png_palette_alpha": saved(few, "PNG"),
        "png_palette_key": saved(palette, "PNG", transparency=0),
        "png_rgb_key": saved(colour, "PNG", transparency=tuple(int(value) for value in rgb[3, 5])),
        "png_grey_key": saved(grey, "PNG", transparency=int(np.asarray(grey)[3, 5])),
        "png_1_bit": saved(grey.convert("1"), "PNG"),
        "png_palette_2_bits": saved(colour.quantize(4), "PNG", bits=2),
        "png_palette_4_bits": saved(colour.quantize(16), "PNG", bits=4),
        "png_animated": saved(colour, "PNG", save_all=True, append_images=[turned]),
        "jpeg_444": saved(colour, "JPEG", quality=95, subsampling=0),
        "jpeg_420": saved(colour, "JPEG", quality=95),
        "jpeg_grey": saved(grey, "JPEG", quality=95),
        "jpeg_progressive": saved(colour, "JPEG", quality=95, progressive=True),
        "jpeg_cmyk": saved(colour.convert("CMYK"), "JPEG", quality=95),
        "webp_lossless": saved(colour, "WEBP", lossless=True),
        "webp_lossy": saved(colour, "WEBP", quality=95),
        "webp_alpha": saved(rgba, "WEBP", quality=95),
        "webp_lossless_alpha": saved(rgba, "WEBP", lossless=True, exact=True),
        "webp_animated": saved(colour, "WEBP", save_all=True, append_images=[turned], lossless=True),
        "gif": saved(colour, "GIF"),
        "gif_alpha": saved(palette, "GIF", transparency=int(np.asarray(palette)[0, 0])),
        "gif_animated": saved(colour, "GIF", save_all=True, append_images=[turned]),
        "bmp": saved(colour, "BMP"),
        "bmp_palette": saved(palette, "BMP"),
        "bmp_32_bits": saved(rgba, "BMP"),
        "tiff": saved(colour, "TIFF"),
        "tiff_lzw": saved(colour, "TIFF", compression="tiff_lzw"),
        "tiff_deflate": saved(colour, "TIFF", compression="tiff_deflate"),
        "tiff_grey_16": saved(Image.fromarray(grey16), "TIFF"),
        "tiff_1_bit": saved(grey.convert("1"), "TIFF", compression="group4"),
        "tiff_rgba": saved(rgba, "TIFF"),
        "tiff_cmyk": saved(colour.convert("CMYK"), "TIFF"),
        "avif": saved(colour, "AVIF", quality=95, subsampling="4:4:4"),
        "avif_alpha": saved(rgba, "AVIF", quality=95, subsampling="4:4:4"),
        "heic": saved(colour, "HEIF", quality=95, chroma=444),
        "heic_alpha": saved(rgba, "HEIF", quality=95, chroma=444),
    }
    for kind, options in (
        ("jpeg", {"quality": 95, "subsampling": 0}),
        ("png", {}),
        ("webp", {"lossless": True}),
        ("tiff", {}),
        ("avif", {"quality": 95, "subsampling": "4:4:4"}),
    ):
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[ORIENTATION_TAG] = orientation
            result[f"{kind}_turned_{orientation}"] = saved(colour, kind.upper(), exif=exif, **options)
    for orientation in (3, 5, 6, 8):
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = orientation
        result[f"heic_turned_{orientation}"] = saved(colour, "HEIF", exif=exif, quality=95, chroma=444)
    # Tiles of 64 x 64, of which the last column and row hang over.
    big = colour.resize((100, 70), Image.Resampling.BICUBIC)
    tiles = [big.crop((64 * c, 64 * r, 64 * c + 64, 64 * r + 64)) for r in range(2) for c in range(2)]
    result["heic_grid"] = grid_heic(tiles, 2, 100, 70)
    return result


def deep_files() -> dict[str, tuple[bytes, np.ndarray]]:
    """16-bit PNGs, of which Pillow keeps only the upper bytes: values computed here."""
    rgba = np.dstack([smooth_rgb(), alpha_ramp()]).astype(np.uint16) * 250 + 77
    opaque = rgba[..., :3].copy()
    grey = opaque[..., :1]
    round_16 = lambda values: np.floor(values / 65535.0 * 255.0 + 0.5).astype(np.uint8)  # noqa: E731
    return {
        "png_rgb_16": (png_bytes(opaque, 2), round_16(opaque)),
        "png_grey_16": (png_bytes(grey, 0), round_16(grey).repeat(3, -1)),
        "png_rgba_16": (png_bytes(rgba, 6), composite(rgba)),
    }


def write_goldens(golden: Path) -> None:
    tensors = {}
    every = {name: (data, None) for name, data in files().items()} | deep_files()
    for name, (data, rgb) in every.items():
        if rgb is None:
            rgb = expected(data)
        if name == "tiff_grey_16":
            deep = np.asarray(Image.open(io.BytesIO(data))).astype(np.float64)
            rgb = np.floor(deep / 65535.0 * 255.0 + 0.5).astype(np.uint8)[..., None].repeat(3, -1)
        tensors[f"{name}.file"] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        tensors[f"{name}.rgb"] = torch.from_numpy(np.array(rgb))
    write_tensors(golden / "pictures.safetensors", tensors)
