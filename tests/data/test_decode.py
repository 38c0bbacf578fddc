from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rvsm.data.decode import decode


def _file(image: Image.Image, form: str = "png", **options: object) -> bytes:
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def _random(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)


@pytest.mark.parametrize("form", ["png", "bmp", "tiff", "ppm", "webp"])
def test_pixels_are_kept_in_their_places(form: str) -> None:
    pixels = _random(5, 7)
    options = {"lossless": True} if form == "webp" else {}
    data = _file(Image.fromarray(pixels), form, **options)
    assert np.array_equal(decode(data, "x", channels=3, size=None), pixels.transpose(2, 0, 1))


def test_grey_becomes_three_equal_channels_and_colour_becomes_luminance() -> None:
    grey = _random(4, 4, 1)[..., 0]
    data = _file(Image.fromarray(grey))
    assert np.array_equal(decode(data, "x", channels=3, size=None), np.stack([grey] * 3))
    assert np.array_equal(decode(data, "x", channels=1, size=None), grey[None])
    red = decode(_file(Image.new("RGB", (2, 2), (200, 0, 0))), "x", channels=1, size=None)
    assert np.array_equal(red, np.full((1, 2, 2), round(0.299 * 200)))


def test_transparent_pixels_are_laid_on_white() -> None:
    pixels = np.zeros((1, 3, 4), np.uint8)
    pixels[0, :, 3] = [255, 0, 51]  # black: opaque, transparent, and a fifth opaque
    for image in (Image.fromarray(pixels), Image.fromarray(pixels[..., 2:])):  # RGBA and LA
        decoded = decode(_file(image), "x", channels=3, size=None)
        assert decoded[:, 0].tolist() == [[0, 255, 204]] * 3


def test_palettes_and_bits() -> None:
    palette = Image.fromarray(_random(4, 4)).quantize(4)
    expected = np.asarray(palette.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(decode(_file(palette), "x", channels=3, size=None), expected)
    assert np.array_equal(decode(_file(palette, "gif"), "x", channels=3, size=None), expected)
    clear = Image.new("P", (2, 2), 0)
    clear.putpalette([0, 0, 0])
    decoded = decode(_file(clear, transparency=0), "x", channels=3, size=None)
    assert (decoded == 255).all()
    bits = Image.fromarray(np.array([[True, False]]))
    assert decode(_file(bits), "x", channels=1, size=None).tolist() == [[[255, 0]]]


def test_sixteen_bits_are_scaled_and_not_cut_off() -> None:
    pixels = np.array([[0, 255, 256, 32768, 65535]], np.uint16)
    assert decode(_file(Image.fromarray(pixels)), "x", channels=1, size=None).tolist() == [[[0, 0, 1, 128, 255]]]


def test_a_map_of_16_bits_goes_up_to_the_white_that_it_names() -> None:
    for white in (4095, 65535):
        data = f"P5 3 1 {white}\n".encode() + np.array([0, white // 2, white], ">u2").tobytes()
        assert decode(data, "x.pgm", channels=1, size=None).tolist() == [[[0, 127, 255]]]


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pixels_without_a_white_are_refused(kind: type) -> None:
    data = _file(Image.fromarray(np.linspace(0, 255, 64).reshape(8, 8).astype(kind)), "tiff")
    with pytest.raises(ValueError, match=r"x\.tif cannot be read .*32 bits, and the value of white is unknown;"):
        decode(data, "x.tif", channels=1, size=None)
    with pytest.raises(ValueError, match="32 bits"):
        decode(b"Pf\n1 1\n-1.0\n" + np.float32(1).tobytes(), "x.ppm", channels=1, size=None)


def test_four_colour_jpeg() -> None:
    data = _file(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "jpeg")
    red, green, blue = decode(data, "x", channels=3, size=None)[:, 0, 0]
    assert red > 230
    assert max(green, blue) < 30


def test_a_camera_held_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter, clockwise
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, :16] = 255  # white on the left
    decoded = decode(_file(Image.fromarray(pixels), "jpeg", exif=exif), "x", channels=1, size=None)
    assert decoded.shape == (1, 32, 16)
    assert decoded[0, :12].min() > 200  # white on the top
    assert decoded[0, 20:].max() < 50


@given(height=st.integers(1, 40), width=st.integers(1, 40), size=st.integers(1, 20), channels=st.sampled_from([1, 3]))
def test_size_gives_that_square_and_a_flat_image_stays_flat(height: int, width: int, size: int, channels: int) -> None:
    data = _file(Image.new("RGB", (width, height), (90, 90, 90)))
    decoded = decode(data, "x", channels=channels, size=size)
    assert decoded.shape == (channels, size, size)
    assert (decoded == 90).all()


def test_the_square_is_cut_from_the_middle() -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 255
    assert (decode(_file(Image.fromarray(pixels)), "x", channels=3, size=10) == 255).all()
    large = np.asarray(Image.fromarray(pixels).resize((1200, 400), Image.Resampling.NEAREST))
    decoded = decode(_file(Image.fromarray(large), "jpeg"), "x", channels=3, size=10)
    assert decoded[:, :, 1:-1].min() > 240


@pytest.mark.parametrize("form", ["png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"])
def test_half_a_file_is_an_error_that_names_it(form: str) -> None:
    data = _file(Image.fromarray(_random(40, 40)), form)
    with pytest.raises(ValueError, match=r"cats/tom\.jpg cannot be read as an image"):
        decode(data[: len(data) // 2], "cats/tom.jpg", channels=3, size=None)


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"BM"])
)
def test_rubbish_is_an_error_and_never_a_crash(data: bytes, magic: bytes) -> None:
    with pytest.raises(ValueError, match="tom cannot be read as an image"):
        decode(magic + data, "tom", channels=3, size=4)


def test_other_formats_are_not_opened_whatever_the_file_is_called() -> None:
    with pytest.raises(ValueError, match="it is none of BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP"):
        decode(_file(Image.new("RGB", (8, 8)), "eps"), "x.png", channels=3, size=None)


@pytest.mark.filterwarnings("ignore")  # below twice its limit Pillow only warns
@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_a_picture_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    data = _file(Image.new("L", (100, 100)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(10_000 / factor))
    with pytest.raises(ValueError, match=r"bomb\.png cannot be read as an image .*pixels"):
        decode(data, "bomb.png", channels=3, size=None)
