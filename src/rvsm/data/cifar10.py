"""CIFAR-10: 60,000 colour images of 32×32 pixels in ten classes (Krizhevsky, 2009)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from rvsm.data.archive import members
from rvsm.data.cache import cache_directory, cached
from rvsm.data.dataset import Dataset, Images
from rvsm.data.download import download, file_md5
from rvsm.data.folder import Folder

_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = "test_batch.bin"
_RECORDS, _RECORD = 10_000, 1 + 3 * 32 * 32
_PICKLED = {"batches.meta", "test_batch", *(name.removesuffix(".bin") for name in _TRAIN)}


@dataclass(frozen=True)
class CIFAR10:
    """CIFAR-10 from the official binary archive, or from image files.

    Args:
        path: the archive cifar-10-binary.tar.gz, the folder cifar-10-batches-bin inside it, or a folder or tar archive
            with ``train/<class>/*.jpg`` and ``test/<class>/*.jpg`` (or png). The default is the binary archive in the
            cache directory.
        download: download the binary archive if it is missing.
        url: where to download it from.
        md5: the MD5 checksum of the archive.

    """

    path: str | Path | None = None
    download: bool = True
    url: str = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    md5: str = "c32a1d4ab5d03f1284b67883e8d87530"

    def load(self) -> Dataset:
        """Return the 50,000 training images and the 10,000 test images."""
        path = self._fetched() if self.path is None else Path(self.path).expanduser()
        if not path.exists():
            raise ValueError(f"{path} does not exist; leave out the path to download CIFAR-10")
        if path.is_dir() and (path / "cifar-10-batches-bin").is_dir():
            path = path / "cifar-10-batches-bin"
        kind = _kind(path)
        if kind != "binary":
            return _checked(Folder(path).load(), "CIFAR-10 (JPEG)" if kind in (".jpg", ".jpeg") else "CIFAR-10")
        if path.is_dir():
            return _dataset({file.name: file.read_bytes() for file in path.glob("*.bin") if file.is_file()}, path)
        return cached(path, [path], {"data": "cifar10"}, lambda: self._unpacked(path))

    def _fetched(self) -> Path:
        archive = cache_directory() / "cifar-10-binary.tar.gz"
        if archive.is_file():
            return archive
        if not self.download:
            raise ValueError(f"{archive} does not exist; allow the download, or give the path of CIFAR-10")
        download(self.url, archive, checksum=self.md5)
        return archive

    def _unpacked(self, path: Path) -> Dataset:
        if (came := file_md5(path)) != self.md5:
            raise ValueError(
                f"{path} must have MD5 {self.md5} but has {came}; it is damaged: remove it and get a new copy"
            )
        wanted = {*_TRAIN, _TEST}
        return _dataset({m.path.name: m.read() for m in members(path) if m.path.name in wanted}, path)


def _kind(path: Path) -> str:
    """Return "binary" or the suffix of the image files in the folder or archive; refuse pickled files."""
    files = path.rglob("*") if path.is_dir() else (member.path for member in members(path))
    for file in files:
        if file.name in _PICKLED:
            raise ValueError(
                f"{path} is the Python version of CIFAR-10, whose pickled files could run any program and are never"
                " read; get the binary version, cifar-10-binary.tar.gz"
            )
        if file.suffix == ".bin":
            return "binary"
        if file.suffix.lower() in (".jpg", ".jpeg", ".png"):
            return file.suffix.lower()
    raise ValueError(
        f"{path} has neither data_batch_1.bin nor images in train/<class>/ and test/<class>/; give another path"
    )


def _dataset(files: Mapping[str, bytes], path: Path) -> Dataset:
    """Return the data set in the binary files: each record is a label and the red, green and blue pixels by row."""
    for name in (*_TRAIN, _TEST):
        if name not in files:
            raise ValueError(f"{path} does not contain {name}; get a new copy of the archive")
        if len(files[name]) != _RECORDS * _RECORD:
            raise ValueError(
                f"{name} in {path} must have {_RECORDS * _RECORD} bytes but has {len(files[name])}; get a new copy"
            )
    return Dataset(_images(files, _TRAIN), _images(files, [_TEST]), _CLASSES, "CIFAR-10")


def _images(files: Mapping[str, bytes], names: tuple[str, ...] | list[str]) -> Images:
    records = np.concatenate([np.frombuffer(files[name], np.uint8).reshape(-1, _RECORD) for name in names])
    pixels = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32)
    return Images(torch.from_numpy(pixels), torch.from_numpy(records[:, 0].astype(np.int64)))


def _checked(dataset: Dataset, name: str) -> Dataset:
    if dataset.classes != _CLASSES or (dataset.channels, dataset.size) != (3, 32):
        raise ValueError(
            f"{dataset.name} is not CIFAR-10: it has {dataset.size}×{dataset.size} images of the classes"
            f" {', '.join(dataset.classes)}; use the data set 'folder' for other images"
        )
    return replace(dataset, name=name)
