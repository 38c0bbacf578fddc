"""CIFAR-10 in all the forms in which people have it; the binary files have their true size, mostly of zeros."""

import os
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from rvsm.data import CIFAR10, moments
from rvsm.data.download import file_md5

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
TREE = {f"{part}/{name}/{i}.jpg": 20 * i for part in ("train", "test") for name in NAMES for i in range(2)}


def _pixels(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).integers(0, 256, 3072, np.uint8)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive; in each batch the second image is of class b + 1 and the last of class 9, the rest black."""
    folder = tmp_path_factory.mktemp("cifar") / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate(BATCHES):
        with (folder / name).open("wb") as file:
            file.seek(3073)
            file.write(bytes([number + 1]) + _pixels(number).tobytes())
            file.seek(9999 * 3073)
            file.write(bytes([9]))
            file.truncate(10_000 * 3073)
    (folder / "batches.meta.txt").write_text("\n".join(NAMES))
    (folder / "readme.html").write_text("hello")
    with tarfile.open(folder.parent / "cifar-10-binary.tar.gz", "w:gz", compresslevel=1) as tar:
        tar.add(folder, "cifar-10-batches-bin")
    return folder.parent / "cifar-10-binary.tar.gz"


def _check(data: object) -> None:
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    assert (data.classes, data.name, data.size) == (NAMES, "CIFAR-10", 32)
    for number in range(5):
        second = 10_000 * number + 1
        assert np.array_equal(data.train.images[second].flatten().numpy(), _pixels(number))
        assert data.train.labels[second - 1 : second + 2].tolist() == [0, number + 1, 0]
        assert int(data.train.labels[second + 9998]) == 9
    assert np.array_equal(data.test.images[1].flatten().numpy(), _pixels(5))
    assert int(data.test.labels[1]) == 6


def test_the_archive_is_read_and_then_its_cache(binary: Path, cache: Path) -> None:
    source = CIFAR10(binary, md5=file_md5(binary))
    _check(source.load())
    assert len(list(cache.iterdir())) == 1
    _check(source.load())


def test_the_folder_and_the_folder_around_it(binary: Path) -> None:
    _check(CIFAR10(binary.parent / "cifar-10-batches-bin").load())
    _check(CIFAR10(str(binary.parent)).load())


def test_downloaded_once(binary: Path, cache: Path, served: Callable[..., AbstractContextManager[str]]) -> None:
    with served(binary.read_bytes()) as url:
        source = CIFAR10(url=url, md5=file_md5(binary))
        _check(source.load())
    assert (cache / "cifar-10-binary.tar.gz").is_file()
    _check(source.load())  # the server has gone


def test_without_network_or_without_leave(served: Callable[..., AbstractContextManager[str]]) -> None:
    with served(b"") as url:
        pass
    with pytest.raises(RuntimeError, match="without a network, get the file in another way and give its path"):
        CIFAR10(url=url).load()
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz does not exist; allow the download, or give"):
        CIFAR10(download=False).load()


def test_another_archive_is_refused(binary: Path) -> None:
    with pytest.raises(ValueError, match=f"must have MD5 c32a1d4ab5d03f1284b67883e8d87530 but has {file_md5(binary)}"):
        CIFAR10(binary).load()


def test_a_truncated_archive_is_refused(binary: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(binary.read_bytes()[:-2000])
    with pytest.raises(ValueError, match=r"cut\.tar\.gz must have MD5"):
        CIFAR10(cut, md5=file_md5(binary)).load()
    with pytest.raises(ValueError, match=r"cut\.tar\.gz is not a tar archive, or is damaged or truncated"):
        CIFAR10(cut, md5=file_md5(cut)).load()


def _linked(binary: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in BATCHES:
        (folder / name).symlink_to(binary.parent / "cifar-10-batches-bin" / name)
    return folder


def test_files_of_another_length_missing_ones_and_wrong_labels(binary: Path, tmp_path: Path) -> None:
    folder = _linked(binary, tmp_path)
    third = folder / "data_batch_3.bin"
    third.unlink()
    with pytest.raises(ValueError, match=r"does not contain data_batch_3\.bin"):
        CIFAR10(folder).load()
    for length in (0, 9999 * 3073, 10_000 * 3073 + 1):
        with third.open("wb") as file:
            file.truncate(length)
        with pytest.raises(ValueError, match=rf"data_batch_3\.bin in .* must have 30730000 bytes but has {length}"):
            CIFAR10(folder).load()
    with third.open("wb") as file:
        file.write(bytes([10]))
        file.truncate(30_730_000)
    with pytest.raises(ValueError, match="a train image has label 10, but there are 10 classes"):
        CIFAR10(folder).load()


@pytest.mark.parametrize("archived", [True, False])
def test_the_pickled_version_is_never_read(tmp_path: Path, archived: bool) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    # Were it unpickled, this would make a file.
    (folder / "data_batch_1").write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "run").encode() + b"'\ntR.")
    path = folder
    if archived:
        path = tmp_path / "cifar-10-python.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder, folder.name)
    with pytest.raises(ValueError, match=r"Python version of CIFAR-10, .* get the binary version, cifar-10-binary"):
        CIFAR10(path).load()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("archived", [True, False])
def test_image_files(tmp_path: Path, grow: Callable[..., Path], archived: bool) -> None:
    root = path = grow(tmp_path / "images", TREE, size=32)
    if archived:
        path = tmp_path / "images.tar.xz"
        with tarfile.open(path, "w:xz") as tar:
            for part in ("train", "test"):
                tar.add(root / part, part)
    data = CIFAR10(path).load()
    assert (data.classes, data.name, data.size) == (NAMES, "CIFAR-10 (JPEG)", 32)
    assert data.train.labels.tolist() == sorted([*range(10), *range(10)])
    assert data.train.images[:, 0, 0, 0].tolist() == [0, 20] * 10


def test_other_images_are_told_from_cifar10(tmp_path: Path, grow: Callable[..., Path]) -> None:
    small = grow(tmp_path / "small", TREE, size=16)
    with pytest.raises(ValueError, match=r"small is not CIFAR-10: it has 16×16 images .* use the data set 'folder'"):
        CIFAR10(small).load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has neither data_batch_1\.bin nor images"):
        CIFAR10(tmp_path / "empty").load()
    with pytest.raises(ValueError, match="nowhere does not exist; leave out the path to download CIFAR-10"):
        CIFAR10(tmp_path / "nowhere").load()
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="text is not a tar archive"):
        CIFAR10(tmp_path / "text").load()


@pytest.mark.skipif("RVSM_TEST_CIFAR10" not in os.environ, reason="RVSM_TEST_CIFAR10 does not give a path of CIFAR-10")
def test_the_real_images() -> None:
    data = CIFAR10(os.environ["RVSM_TEST_CIFAR10"]).load()
    assert data.classes == NAMES
    assert data.train.labels.bincount().tolist() == [5000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    mean, std = moments(data.train)
    assert mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=2e-3)
    assert std == pytest.approx((0.2470, 0.2435, 0.2616), abs=3e-3)
