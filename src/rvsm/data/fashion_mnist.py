"""Fashion-MNIST: 70,000 grey images of 28×28 pixels in ten kinds of clothing (Xiao, Rasul & Vollgraf, 2017)."""

from dataclasses import dataclass
from pathlib import Path

from rvsm.data.dataset import Dataset
from rvsm.data.idx import read_idx
from rvsm.data.images import Images

_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


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
