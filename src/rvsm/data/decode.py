"""One image file, decoded to bytes of a wanted form."""

from io import BytesIO

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
    """Return the image as ``[channels, height, width]``: grey for one channel, red, green and blue for three.

    A photograph is turned as its camera noted; transparent pixels are laid on white; of an animation the first frame is
    taken. With a ``size`` the largest square in the middle is scaled to it; without, the image keeps its size.

    >>> file = BytesIO()
    >>> Image.new("RGB", (60, 40), "red").save(file, "png")
    >>> decode(file.getvalue(), "red.png", channels=3, size=2)[:, 0, 0]
    array([255,   0,   0], dtype=uint8)
    """
    try:
        with Image.open(BytesIO(data), formats=sorted(set(_FORMATS.values()))) as image:
            _check(image)
            if size is not None:
                image.draft(None, (size, size))  # of a large JPEG only the coarse part is decoded, several times faster
            form = _coloured(ImageOps.exif_transpose(image), "L" if channels == 1 else "RGB")
            if size is not None and form.size != (size, size):
                form = ImageOps.fit(form, (size, size), Image.Resampling.LANCZOS)
            pixels = np.asarray(form)
    except MemoryError as error:  # which is not the file's fault
        raise MemoryError(f"while {name} was decoded") from error
    except Exception as error:  # Pillow's decoders raise whatever they stumble over
        raise ValueError(f"{name} cannot be read as an image ({_reason(error)}); replace or remove it") from error
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def _check(image: Image.Image) -> None:
    most = Image.MAX_IMAGE_PIXELS
    if most is not None and image.width * image.height > most:
        raise ValueError(f"{image.width}×{image.height} pixels are more than the {most} that are taken for harmless")
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):  # where 16 bits are "I;16"
        raise ValueError("its pixels have 32 bits, and it is unknown which is white; save it with 8 or 16 bits")


def _coloured(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == mode:
        return image
    if image.mode.startswith("I"):
        # Pillow cuts off what is above 255; 16 bits are scaled to 8 instead.
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)).convert(mode)
    if image.has_transparency_data:
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image.convert("RGBA")).convert(mode)
    return image.convert(mode)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"it is none of {', '.join(sorted(set(_FORMATS.values())))}"
    return str(error).split(" for <_io", maxsplit=1)[0] or type(error).__name__
