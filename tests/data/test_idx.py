import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.data.fashion_mnist import read_idx


def _idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), compressed=st.booleans())
def test_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, shape: list[int], compressed: bool) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(gzip.compress(_idx(array)) if compressed else _idx(array))
    assert np.array_equal(read_idx(path, dimensions=len(shape)).numpy(), array)


WHOLE = _idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
PACKED = gzip.compress(WHOLE, mtime=0)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "begins with nothing"),
        (b"\x00\x00\x08\x01" + WHOLE[4:], "must begin with the bytes 0 0 8 3, .* but begins with 0 0 8 1"),
        (b"\x00\x00\x0d\x03" + WHOLE[4:], "begins with 0 0 13 3"),
        (WHOLE[:9], "ends within its header"),
        (WHOLE[:-1], "must hold 2×3×4 bytes but holds only 23"),
        (WHOLE + b"\x00", "must hold 2×3×4 bytes but holds more"),
        (PACKED[:-12], "damaged or truncated"),
        (PACKED[:-6] + b"\xff" * 6, "damaged or truncated"),
        (b"\x1f\x8bnot gzip at all", "damaged or truncated"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "declares 79228162458924105385300197375 bytes"),
    ],
)
def test_any_deviation_is_refused(tmp_path: Path, contents: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)


@given(length=st.integers(0, min(len(WHOLE), len(PACKED)) - 1), compressed=st.booleans())
def test_every_truncation_is_refused(tmp_path_factory: pytest.TempPathFactory, length: int, compressed: bool) -> None:
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(PACKED[:length] if compressed else WHOLE[:length])
    with pytest.raises(ValueError, match="file"):
        read_idx(path, dimensions=3)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere cannot be read: No such file"):
        read_idx(tmp_path / "nowhere", dimensions=3)
