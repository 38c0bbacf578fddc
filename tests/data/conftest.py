"""No test touches the user's cache."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RVSM_CACHE", str(folder))
    return folder


@pytest.fixture
def encoded() -> Callable[..., bytes]:
    """Return the bytes of an image file of one grey value, or of an array of pixels."""

    def encode(pixels: int | np.ndarray = 0, *, size: int = 8, suffix: str = "png") -> bytes:
        array = np.full((size, size, 3), pixels, np.uint8) if isinstance(pixels, int) else pixels
        file = BytesIO()
        Image.fromarray(array).save(file, {"jpg": "jpeg"}.get(suffix, suffix))
        return file.getvalue()

    return encode


@pytest.fixture
def grow(encoded: Callable[..., bytes]) -> Callable[[Path, dict[str, int]], Path]:
    """Write an image of the given grey value to each of the paths under a folder."""

    def write(root: Path, files: dict[str, int], **options: int) -> Path:
        for name, value in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(value, suffix=path.suffix[1:], **options))
        return root

    return write
