import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from rvsm.data import FashionMNIST, fashion_mnist, moments


def _write(folder: Path, *, compressed: bool, labels: int = 6) -> None:
    folder.mkdir()
    generator = np.random.default_rng(0)
    for prefix, count in (("train", 6), ("t10k", 3)):
        pixels = generator.integers(0, 256, (count, 28, 28), np.uint8)
        kinds = (np.arange(count if prefix == "t10k" else labels) % 10).astype(np.uint8)
        for name, array in (("images-idx3", pixels), ("labels-idx1", kinds)):
            data = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
            path = folder / f"{prefix}-{name}-ubyte{'.gz' if compressed else ''}"
            path.write_bytes(gzip.compress(data) if compressed else data)


@pytest.mark.parametrize("compressed", [True, False])
def test_reads_the_four_files(tmp_path: Path, compressed: bool) -> None:
    _write(tmp_path / "fashion", compressed=compressed)
    data = FashionMNIST(tmp_path / "fashion").load()
    assert (len(data.train), len(data.test), data.channels, data.size) == (6, 3, 1, 28)
    expected = np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)
    assert np.array_equal(data.train.images[:, 0].numpy(), expected)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.classes[9] == "ankle boot"


def test_a_missing_folder_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="apt install dataset-fashion-mnist"):
        FashionMNIST(tmp_path / "nowhere").load()


def test_a_missing_file_and_unequal_counts_are_named(tmp_path: Path) -> None:
    _write(tmp_path / "fashion", compressed=True)
    (tmp_path / "fashion" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match=r"neither t10k-labels-idx1-ubyte\.gz nor t10k-labels-idx1-ubyte;"):
        FashionMNIST(tmp_path / "fashion").load()
    _write(tmp_path / "other", compressed=True, labels=5)
    with pytest.raises(ValueError, match="6 train images but 5 labels"):
        FashionMNIST(tmp_path / "other").load()


@pytest.mark.skipif(not fashion_mnist._DEBIAN.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_the_published_files() -> None:
    data = FashionMNIST().load()
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert data.train.labels.bincount().equal(torch.full((10,), 6000))
    mean, std = moments(data.train)
    assert (round(mean[0], 4), round(std[0], 4)) == (0.2860, 0.3530)
