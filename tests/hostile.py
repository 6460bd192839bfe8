"""Files that look like images and are not usable, and odd ones that are; each by a name that tells what is odd."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def picture(width: int = 40, height: int = 32, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A noisy picture with a gradient; noise makes each one different."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    base = (x * 3 + y * 2)[..., None] % 200 + rng.integers(0, 50, (height, width, 3))
    return Image.fromarray(base.astype(np.uint8)).convert(mode)


def encoded(kind: str, image: Image.Image | None = None, **settings: object) -> bytes:
    buffer = io.BytesIO()
    (image or picture()).save(buffer, kind, **settings)
    return buffer.getvalue()


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes, mark: bytes, offset: int) -> bytes:
    """The content with one byte changed, ``offset`` after a mark."""
    at = content.index(mark) + offset
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes, bits: int = 8, colour: int = 0, before: bytes = b"") -> bytes:
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + before + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def black_png(side: int) -> bytes:
    """A correct one-bit PNG of this size in a few kilobytes."""
    packer = zlib.compressobj(9)
    row = b"\0" * (1 + -(-side // 8))
    data = b"".join(packer.compress(row * 64) for _ in range(-(-side // 64))) + packer.flush()
    return png(side, side, data, bits=1)


def jpeg_claiming(width: int, height: int) -> bytes:
    content = encoded("JPEG")
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


def bmp_claiming(width: int, height: int) -> bytes:
    content = encoded("BMP")
    return content[:18] + struct.pack("<ii", width, height) + content[26:]


def tiff_of(values: np.ndarray) -> bytes:
    return encoded("TIFF", Image.fromarray(values))


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("a.jpg", encoded("JPEG"))
    return buffer.getvalue()


def lab_tiff() -> bytes:
    return encoded("TIFF", Image.fromarray(np.zeros((20, 20, 3), np.uint8), "RGB").convert("RGB")).replace(
        b"\x06\x01\x03\x00\x01\x00\x00\x00\x02", b"\x06\x01\x03\x00\x01\x00\x00\x00\x08"
    )


UNUSABLE_CONTENT: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty.jpg": (lambda: b"", "empty file"),
    "one_byte.jpg": (lambda: b"\xff", "not an image"),
    "text.jpg": (lambda: b"just some text, not a picture\n" * 20, "not an image"),
    "page.png": (lambda: b"<!DOCTYPE html><html><body>404</body></html>", "not an image"),
    "noise.jpg": (lambda: np.random.default_rng(1).bytes(5000), "not an image"),
    "zeros.png": (lambda: b"\0" * 4096, "not an image"),
    "archive.jpg": (zipped, "not an image"),
    "packed.jpg": (lambda: gzip.compress(encoded("JPEG")), "not an image"),
    "program.png": (lambda: b"\x7fELF" + b"\0" * 500, "not an image"),
    "array.jpg": (lambda: b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}" + b"\0" * 100, "not an image"),
    "pickle.png": (lambda: pickle.dumps({"a": 1}), "not an image"),
    "utf16.bmp": (lambda: "hello".encode("utf-16"), "not an image"),
    "cut.jpg": (lambda: half(encoded("JPEG", picture(200, 200))), "truncated"),
    "cut_in_header.jpg": (lambda: encoded("JPEG")[:30], "truncated"),
    "only_start_and_end.jpg": (lambda: b"\xff\xd8\xff\xd9", "not an image"),
    "cut.png": (lambda: half(encoded("PNG", picture(200, 200))), "truncated"),
    "only_signature.png": (lambda: encoded("PNG")[:8], "not an image"),
    "wrong_checksum_of_header.png": (lambda: flipped(encoded("PNG"), b"IHDR", 18), "not an image"),
    "broken_stream.png": (lambda: png(50, 50, b"this is not a zlib stream at all"), "damaged"),
    "flipped_bit.png": (lambda: flipped(encoded("PNG"), b"IDAT", 60), "damaged"),
    "no_size.png": (lambda: png(0, 0, zlib.compress(b"")), "not an image"),
    "claims_much.png": (lambda: png(60_000, 60_000, zlib.compress(b"\0" * 100)), "too many pixels"),
    "claims_the_most.png": (lambda: png(2**31 - 1, 2**31 - 1, zlib.compress(b"\0")), "too many pixels"),
    "bomb.png": (lambda: black_png(20_000), "too many pixels"),
    "little_bomb.png": (lambda: black_png(10_100), "too many pixels"),
    "claims_much.jpg": (lambda: jpeg_claiming(65_500, 65_500), "too many pixels"),
    "claims_much.bmp": (lambda: bmp_claiming(50_000, 50_000), "too many pixels"),
    "claims_more_than_it_has.bmp": (lambda: bmp_claiming(400, 400), "truncated"),
    "cut.bmp": (lambda: half(encoded("BMP")), "truncated"),
    "cut.gif": (lambda: half(encoded("GIF", picture(100, 100))), "truncated"),
    "only_header.gif": (lambda: encoded("GIF")[:13], "not an image"),
    "cut.tif": (lambda: half(encoded("TIFF", picture(100, 100))), ""),
    "only_header.tif": (lambda: encoded("TIFF")[:8], ""),
    "directory_in_a_circle.tif": (lambda: b"II*\0\x08\0\0\0" + struct.pack("<HI", 0, 8), ""),
    "not_finite.tif": (lambda: tiff_of(np.full((20, 20), np.nan, np.float32)), "not finite"),
    "lab.tif": (lab_tiff, "LAB"),
    "cut.webp": (lambda: half(encoded("WEBP", picture(100, 100))), ""),
    "only_header.webp": (lambda: b"RIFF\x10\0\0\0WEBPVP8 ", ""),
    "one_pixel.png": (lambda: encoded("PNG", picture(1, 1)), "too small (1 x 1)"),
    "one_pixel.jpg": (lambda: encoded("JPEG", picture(1, 1)), "too small (1 x 1)"),
    "one_line.png": (lambda: encoded("PNG", picture(300, 1)), "too small (300 x 1)"),
    "thread.png": (lambda: encoded("PNG", picture(5, 500)), "too long and thin (5 x 500)"),
    "photo.heic": (lambda: b"\0\0\0\x18ftypheic\0\0\0\0" + b"\0" * 100, ""),
    "photo.avif": (lambda: b"\0\0\0\x1cftypavif\0\0\0\0" + b"\0" * 100, ""),
    "drawing.svg": (lambda: b'<?xml version="1.0"?><svg width="10" height="10"></svg>', "SVG"),
    "paper.png": (lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF"),
    "print.jpg": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "PostScript"),
    "favicon.ico": (lambda: b"\0\0\x01\0\x01\0\x10\x10" + b"\0" * 50, "icon"),
    "layers.psd": (lambda: b"8BPS\0\x01" + b"\0" * 50, "Photoshop"),
    "photo.jp2": (lambda: b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0" * 50, "JPEG 2000"),
}
"""Contents that cannot be used, with (part of) the reason; an empty reason where it depends on the image library."""


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as endpoint:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket may not be long
        try:
            endpoint.bind(path.name)
        finally:
            os.chdir(here)


UNUSABLE_ENTRIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe.jpg": (_fifo, "not a file"),
    "socket.png": (_socket, "not a file"),
    "dangling.jpg": (lambda path: path.symlink_to("nowhere.jpg"), "a link to nothing"),
    "ouroboros.jpg": (lambda path: path.symlink_to(path.name), "cannot be read"),
    "device.png": (lambda path: path.symlink_to("/dev/zero"), "not a file"),
}
"""Entries of a folder that are no files at all."""


def _saved(kind: str, mode: str, **settings: object) -> Callable[[], bytes]:
    return lambda: encoded(kind, picture(mode=mode), **settings)


def _frames(kind: str) -> bytes:
    return encoded(kind, picture(seed=1), save_all=True, append_images=[picture(seed=2), picture(seed=3)])


def _bad_exif() -> bytes:
    return encoded("JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff broken")


USABLE: dict[str, Callable[[], bytes]] = {
    "plain.jpg": _saved("JPEG", "RGB"),
    "progressive.jpg": _saved("JPEG", "RGB", progressive=True),
    "grey.jpg": _saved("JPEG", "L"),
    "cmyk.jpg": _saved("JPEG", "CMYK"),
    "bad_exif.jpg": _bad_exif,
    "trailing_rubbish.jpg": lambda: encoded("JPEG") + b"\0" * 1000,
    "UPPER.JPEG": _saved("JPEG", "RGB"),
    "really_a_png.jpg": _saved("PNG", "RGB"),
    "telephone.avif": _saved("AVIF", "RGB"),
    "no_suffix": _saved("PNG", "RGB"),
    "odd.suffix": _saved("JPEG", "RGB"),
    "one_bit.png": _saved("PNG", "1"),
    "grey_alpha.png": _saved("PNG", "LA"),
    "alpha.png": _saved("PNG", "RGBA"),
    "palette.png": _saved("PNG", "P"),
    "palette_transparent.png": _saved("PNG", "P", transparency=3),
    "colour_key.png": _saved("PNG", "RGB", transparency=(1, 2, 3)),
    "grey_key.png": _saved("PNG", "L", transparency=7),
    "interlaced.png": _saved("PNG", "RGB", interlace=1),
    "sixteen_bit.png": lambda: encoded("PNG", Image.fromarray(np.arange(900, dtype=np.uint16).reshape(30, 30) * 72)),
    "wrong_checksum_of_data.png": lambda: encoded("PNG")[:-16] + b"\0\0\0\0" + encoded("PNG")[-12:],
    "too_little_data.png": lambda: png(50, 50, zlib.compress(b"\0" * 51 * 10)),
    "claims_more_than_it_has.jpg": lambda: jpeg_claiming(400, 300),
    "much_text.png": lambda: png(
        16, 16, zlib.compress(b"\0" * 17 * 16), before=png_chunk(b"tEXt", b"k\0" + b"x" * 10_000)
    ),
    "sixteen_bit.tif": lambda: tiff_of(np.arange(900, dtype=np.uint16).reshape(30, 30) * 72),
    "thirty_two_bit.tif": lambda: tiff_of(np.arange(900, dtype=np.int32).reshape(30, 30) * 100_000),
    "fractions.tif": lambda: tiff_of(np.linspace(0, 1, 900, dtype=np.float32).reshape(30, 30)),
    "negative.tif": lambda: tiff_of(np.linspace(-5, 5, 900, dtype=np.float32).reshape(30, 30)),
    "packed.tif": _saved("TIFF", "RGB", compression="tiff_lzw"),
    "cmyk.tif": _saved("TIFF", "CMYK"),
    "ycbcr.tif": _saved("TIFF", "YCbCr"),
    "pages.tif": lambda: _frames("TIFF"),
    "frames.gif": lambda: _frames("GIF"),
    "plain.gif": _saved("GIF", "P"),
    "frames.webp": lambda: _frames("WEBP"),
    "lossless.webp": _saved("WEBP", "RGBA", lossless=True),
    "plain.bmp": _saved("BMP", "RGB"),
    "grey.bmp": _saved("BMP", "L"),
    "long.png": lambda: encoded("PNG", picture(300, 20)),
    "tiny.png": lambda: encoded("PNG", picture(4, 4)),
    "large.jpg": lambda: encoded("JPEG", picture(1600, 1200)),
}
"""Contents that are odd and can be used; three of them damaged in ways that image libraries forgive."""
