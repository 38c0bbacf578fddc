"""Decode an image file to bytes of a given shape."""

from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

# By name, because Pillow also knows formats that start other programs.
_FORMATS = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".webp": "WEBP",
    ".bmp": "BMP",
    ".gif": "GIF",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".ppm": "PPM",
    ".pgm": "PPM",
}
SUFFIXES = frozenset(_FORMATS)


def decode(data: bytes, name: str, *, channels: int, size: int | None) -> NDArray[np.uint8]:
    """Return the image as ``[channels, height, width]``: grey for one channel; red, green and blue for three.

    Photographs are rotated according to their EXIF data, transparent pixels become white, and only the first frame of
    an animation is used. With a ``size``, the largest square in the centre is scaled to it; otherwise, the image keeps
    its size.

    >>> file = BytesIO()
    >>> Image.new("RGB", (60, 40), "red").save(file, "png")
    >>> decode(file.getvalue(), "red.png", channels=3, size=2)[:, 0, 0]
    array([255,   0,   0], dtype=uint8)
    """
    try:
        with Image.open(BytesIO(data), formats=sorted(set(_FORMATS.values()))) as image:
            _check(image)
            if size is not None:
                image.draft(None, (size, size))  # decodes large JPEG files at a lower resolution, several times faster
            form = _coloured(ImageOps.exif_transpose(image), "L" if channels == 1 else "RGB")
            if size is not None and form.size != (size, size):
                form = ImageOps.fit(form, (size, size), Image.Resampling.LANCZOS)
            pixels = np.asarray(form)
    except MemoryError as error:  # the file is not the cause
        raise MemoryError(f"while {name} was decoded") from error
    except Exception as error:  # Pillow's decoders raise many kinds of errors
        raise ValueError(f"{name} cannot be read as an image ({_reason(error)}); replace or remove it") from error
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def decode_file(file: Path, *, channels: int, size: int | None) -> NDArray[np.uint8]:
    """Return the image in a file, as `decode` does."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from error
    return decode(data, str(file), channels=channels, size=size)


def _check(image: Image.Image) -> None:
    most = Image.MAX_IMAGE_PIXELS
    if most is not None and image.width * image.height > most:
        raise ValueError(f"{image.width}×{image.height} pixels are more than the safe limit of {most}")
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):  # 16 bits are "I;16" there
        raise ValueError("its pixels have 32 bits, and the value of white is unknown; save it with 8 or 16 bits")


def _coloured(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == mode:
        return image
    if image.mode.startswith("I"):
        # Pillow would clip values above 255; scale 16 bits to 8 instead.
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)).convert(mode)
    if image.has_transparency_data:
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image.convert("RGBA")).convert(mode)
    return image.convert(mode)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"it is none of {', '.join(sorted(set(_FORMATS.values())))}"
    return str(error).split(" for <_io", maxsplit=1)[0] or type(error).__name__
