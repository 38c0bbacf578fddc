"""Fashion-MNIST: 70,000 grey images of 28×28 pixels in ten kinds of clothing (Xiao, Rasul & Vollgraf, 2017)."""

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rvsm.data.dataset import Dataset, Images

_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class FashionMNIST:
    """Fashion-MNIST from its four IDX files, compressed or not.

    Args:
        path: the folder of the files; by default, where Debian's package dataset-fashion-mnist puts them.

    """

    path: str | Path | None = None

    def load(self) -> Dataset:
        """Return the 60,000 training images and the 10,000 test images."""
        folder = _DEBIAN if self.path is None else Path(self.path).expanduser()
        if not folder.is_dir():
            raise ValueError(
                f"there is no folder {folder} with Fashion-MNIST; on Debian: apt install dataset-fashion-mnist;"
                " elsewhere, get the four *-ubyte.gz files from https://github.com/zalandoresearch/fashion-mnist and"
                " give their folder as path"
            )
        return Dataset(_part(folder, "train"), _part(folder, "t10k"), _CLASSES, "Fashion-MNIST")


def _part(folder: Path, prefix: str) -> Images:
    pixels = read_idx(_find(folder, f"{prefix}-images-idx3-ubyte"), dimensions=3)
    labels = read_idx(_find(folder, f"{prefix}-labels-idx1-ubyte"), dimensions=1)
    if len(pixels) != len(labels):
        raise ValueError(
            f"{folder} has {len(pixels)} {prefix} images but {len(labels)} labels; get new copies of the files"
        )
    return Images(pixels.unsqueeze(1), labels.long())


def _find(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise ValueError(f"{folder} has neither {name}.gz nor {name}; Fashion-MNIST has four such files")


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Return the unsigned bytes of an IDX file, plain or compressed with gzip (detected from the contents).

    IDX is the format of the MNIST family: a magic number, the sizes of the dimensions, and the data. The file must have
    this number of ``dimensions``, and exactly as many bytes as their sizes require.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels-idx1-ubyte")
    ...     length = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    ...     read_idx(path, dimensions=1)
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if compressed else path.open("rb") as file:
            magic = file.read(4)
            if magic != bytes([0, 0, 8, dimensions]):
                raise ValueError(
                    f"{path} must begin with the bytes 0 0 8 {dimensions}, as IDX files of bytes in {dimensions}"
                    f" dimensions do, but begins with {' '.join(map(str, magic)) or 'nothing'}; check that it is the"
                    " right file"
                )
            header = file.read(4 * dimensions)
            if len(header) < 4 * dimensions:
                raise ValueError(f"{path} ends within its header; get a new copy")
            shape = struct.unpack(f">{dimensions}I", header)
            count = math.prod(shape)
            if count > _MOST_BYTES:
                raise ValueError(f"{path} declares {count} bytes of data, more than the limit of {_MOST_BYTES}")
            data = file.read(count + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged or truncated ({error}); get a new copy") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) != count:
        came = f"only {len(data)}" if len(data) < count else "more"
        raise ValueError(f"{path} must hold {'×'.join(map(str, shape))} bytes but holds {came}; get a new copy")
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.uint8).reshape(shape))
