"""From the bytes of an image file to a square of pixels, safely; or the reason why not.

This runs in worker processes, so it imports nothing heavy: numpy alone would take half of a worker's start and is
imported only where an image needs it.
"""

from __future__ import annotations

import importlib
import io
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from PIL import Image, ImageFile, UnidentifiedImageError

if TYPE_CHECKING:
    import numpy.typing as npt

    from autonovel.data.images import Pixels

for _kind in ("Jpeg", "Mpo", "Png", "WebP", "Bmp", "Tiff", "Gif", "Avif"):
    with suppress(ImportError):  # a Pillow of before 11.3 knows no AVIF
        importlib.import_module(f"PIL.{_kind}ImagePlugin")

FORMATS = tuple(name for name in ("JPEG", "MPO", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF") if name in Image.OPEN)
"""The formats that are read, whatever the file's name says. Those that start other programs, such as EPS, are not."""

MOST_BYTES = 256 * 2**20
MOST_PIXELS = 100_000_000
MOST_IN_MEMORY = 40_000_000
"""Pixels of a WebP, AVIF or HEIC at most: their decoders take fifteen bytes for each."""
LEAST_SIDE = 4
MOST_ASPECT = 20.0
CROPPED_ASPECT = 2.0

_NOT_READ = {
    "a PDF document": (b"%PDF",),
    "a PostScript drawing": (b"%!PS",),
    "an SVG drawing": (b"<svg",),
    "a Photoshop file": (b"8BPS",),
    "an icon file": (b"\x00\x00\x01\x00",),
    "a JPEG 2000 image": (b"\x00\x00\x00\x0cjP  ",),
    "a JPEG XL image": (b"\x00\x00\x00\x0cJXL ", b"\xff\x0a"),
}
"""The first bytes of formats that people take for images and that are not read, so that the reason can name them."""

_HEIC = (b"ftypheic", b"ftypheix", b"ftyphevc", b"ftypheim", b"ftypmif1", b"ftypmsf1")
"""What telephones write; read where pillow-heif is installed."""

_GREY_MODES = ("1", "L", "LA", "La", "I", "F")
_ORIENTATION_TAG = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnusableImageError(Exception):
    """An image that cannot be used; the message is the reason."""


@dataclass(frozen=True)
class Form:
    """The one form that all images of a data set are brought to.

    Attributes:
        size: side of the square in pixels.
        channels: 1 for grey, 3 for colour.
    """

    size: int
    channels: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.size, self.size, self.channels

    @property
    def n_bytes(self) -> int:
        """Bytes that one image takes."""
        return self.size * self.size * self.channels


@dataclass(frozen=True)
class Header:
    """What the beginning of an image file says about the image."""

    width: int
    height: int
    grey: bool


def decode(content: bytes, form: Form) -> Pixels:
    """The image in these bytes, as pixels in the given form; raises UnusableImageError with the reason."""
    return _as_pixels(decode_square(content, form), form)


def decode_square(content: bytes, form: Form) -> Image.Image:
    """The image in these bytes in the given form; raises UnusableImageError with the reason.

    An image up to twice as long as wide is scaled by its shorter side and cropped at the centre. A longer one is
    squeezed into the square as a whole, since a crop would show too little of it. Transparent areas become white.
    Of several frames the first is taken; the orientation noted by the camera is applied.
    """
    if not content:
        raise UnusableImageError("empty file")
    image = open_image(io.BytesIO(content))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Lets the JPEG decoder skip most of the work where the image is much larger than needed.
            image.draft("L" if form.channels == 1 else "RGB", (form.size, form.size))
            if image.width * image.height > MOST_PIXELS:
                raise UnusableImageError(f"too many pixels ({image.width} x {image.height})")
            image.load()
            return _upright(_fit(image, form), image)
    except UnusableImageError:
        raise
    except Exception as error:  # damaged files raise almost anything
        raise UnusableImageError(_reason(error)) from None


def peek(file: BinaryIO) -> Header:
    """Size and colour of the image in this file, without decoding it; raises UnusableImageError with the reason."""
    image = open_image(file)
    grey = image.mode in _GREY_MODES or image.mode.startswith("I;16")
    return Header(image.width, image.height, grey)


def to_pixels(item: Any, form: Form) -> Pixels:
    """An image given as an object (content of a file, PIL image, array or tensor), in the given form."""
    if isinstance(item, bytes):
        return decode(item, form)
    image = as_image(item)
    _check_shape(image)
    try:
        return _as_pixels(_upright(_fit(image, form), image), form)
    except UnusableImageError:
        raise
    except Exception as error:
        raise UnusableImageError(_reason(error)) from None


def as_image(item: Any) -> Image.Image:
    """An image given as an object, as a PIL image; an array or tensor may have its channels first."""
    if isinstance(item, Image.Image):
        return item
    import numpy as np

    try:
        values = np.asarray(item)
    except Exception as error:
        raise UnusableImageError(f"not an image ({type(error).__name__})") from None
    if values.ndim == 3 and values.shape[2] not in (1, 3) and values.shape[0] in (1, 3):
        values = values.transpose(1, 2, 0)
    if (
        values.ndim not in (2, 3)
        or (values.ndim == 3 and values.shape[2] not in (1, 3))
        or values.dtype.kind not in "buif"
    ):
        raise UnusableImageError(f"not an image (an object of type {type(item).__name__})")
    if values.size == 0:
        raise UnusableImageError("no pixels")
    if values.dtype != np.uint8:
        values = _as_bytes(values)
    return _from_bytes(np.ascontiguousarray(values))


def _fit(image: Image.Image, form: Form) -> Image.Image:
    """A loaded image, cropped or squeezed to the square, resized and converted."""
    width, height = image.size
    side = min(width, height)
    box: tuple[float, float, float, float] = (0, 0, width, height)
    if max(width, height) <= CROPPED_ASPECT * side:
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    image = _plain_mode(image)
    if box != (0, 0, form.size, form.size) or image.size != (form.size, form.size):
        image = image.resize((form.size, form.size), Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)
    if image.mode in ("RGBA", "LA", "RGBa", "La"):
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image.convert("RGBA"))
    return image.convert("L" if form.channels == 1 else "RGB")


def _plain_mode(image: Image.Image) -> Image.Image:
    """The same image in a mode that can be resized: no palette, eight bits."""
    mode = image.mode
    if mode == "1":
        return image.convert("L")
    if mode in ("P", "PA"):
        return image.convert("RGBA" if mode == "PA" or "transparency" in image.info else "RGB")
    if mode in ("I", "F") or mode.startswith("I;16"):
        import numpy as np

        values = np.asarray(image)
        sixteen_bit = mode.startswith("I;16")
        return _from_bytes(np.asarray(values >> 8, dtype=np.uint8) if sixteen_bit else _as_bytes(values))
    if mode in ("RGB", "L") and "transparency" in image.info:  # one colour that stands for transparent
        return image.convert("RGBA")
    if mode == "LAB":
        raise UnusableImageError("colours in LAB, which cannot be converted")
    return image


def _as_bytes(values: npt.NDArray[Any]) -> Pixels:
    """Pixel values of any range as bytes: [0, 1], [0, 255] and [0, 65535] by their usual scale, others stretched."""
    import numpy as np

    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise UnusableImageError("pixel values that are not finite")
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 65535:
        values, low, high = values - low, 0.0, high - low
        scale = 255 / high if high > 0 else 1.0
    elif high <= 1:
        scale = 255.0
    else:
        scale = 1.0 if high <= 255 else 1 / 257
    return np.asarray(np.rint(values * scale), dtype=np.uint8)


def _as_pixels(square: Image.Image, form: Form) -> Pixels:
    import numpy as np

    return np.asarray(square, dtype=np.uint8).reshape(form.shape)


def _from_bytes(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


def open_image(file: BinaryIO) -> ImageFile.ImageFile:
    """The image in this file with only its header read; refused if its shape alone makes it unusable."""
    start = file.read(12)
    file.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(file, formats=_heic_format() if start[4:].startswith(_HEIC) else FORMATS)
    except UnusableImageError:
        raise
    except UnidentifiedImageError:
        file.seek(0)
        raise UnusableImageError(_kind_not_read(file.read(256))) from None
    except Exception as error:
        raise UnusableImageError(_reason(error)) from None
    _check_shape(image)
    if image.format in ("WEBP", "AVIF", "HEIF") and image.width * image.height > MOST_IN_MEMORY:
        raise UnusableImageError(f"too many pixels ({image.width} x {image.height})")
    return image


def _heic_format() -> tuple[str]:
    try:
        import pillow_heif
    except ImportError:
        raise UnusableImageError(
            'a HEIC image, which needs pillow-heif (pip install pillow-heif, or "autonovel[heic]")'
        ) from None
    pillow_heif.register_heif_opener()
    return ("HEIF",)


def _kind_not_read(start: bytes) -> str:
    for kind, marks in _NOT_READ.items():
        if start.startswith(marks) or start[4:].startswith(marks) or (b"<svg" in marks and b"<svg" in start):
            return f"{kind}, which is not read (convert it to JPEG or PNG)"
    return "not an image" if start else "empty file"


def _check_shape(image: Image.Image) -> None:
    short, long = sorted(image.size)
    shape = f"{image.width} x {image.height}"
    if short < LEAST_SIDE:
        raise UnusableImageError(f"too small ({shape})")
    if long > MOST_ASPECT * short:
        raise UnusableImageError(f"too long and thin ({shape})")


def _upright(square: Image.Image, image: Image.Image) -> Image.Image:
    """The square of an image, turned as the camera noted it."""
    turn = _TURNS.get(_orientation(image))
    return square if turn is None else square.transpose(turn)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # a damaged note counts as none
        return 1


def _reason(error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels"
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    text = " ".join(str(error).split())[:80]
    if "truncated" in text.lower():
        return "truncated"
    return f"damaged ({text or type(error).__name__})"
