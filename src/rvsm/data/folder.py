"""A user's own images, with one folder per class."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rvsm.data.cache import cached
from rvsm.data.dataset import Dataset, Images, stratified
from rvsm.data.tree import Entry, assemble, in_archive, in_folder

_DARK = 16
"""The range of 12-bit values after they are scaled from 16 bits to 8."""


@dataclass(frozen=True)
class Folder:
    """Images in ``path/train/<class>/`` and ``path/test/<class>/``, or in ``path/<class>/`` alone.

    The path may also be a tar archive with that layout. Decoded images are cached; see `rvsm.data.cache`.

    Args:
        path: the folder or archive.
        size: crop the largest square from the centre of each image and scale it to this many pixels; not needed if
            all images are squares of the same size.
        channels: 3 for colour, 1 for grey.
        test_share: the fraction of each class that is kept for the test, if there is no test folder.
        test_seed: the seed of that choice.

    >>> import os, tempfile
    >>> from unittest.mock import patch
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as root, patch.dict(os.environ, RVSM_CACHE=root):
    ...     for colour in ("blue", "red"):
    ...         os.makedirs(f"{root}/colours/{colour}")
    ...         for number in range(10):
    ...             Image.new("RGB", (16, 16), colour).save(f"{root}/colours/{colour}/{number}.png")
    ...     colours = Folder(f"{root}/colours", size=8, test_share=0.2).load()
    >>> colours.classes, len(colours.train), len(colours.test), colours.channels, colours.size
    (('blue', 'red'), 16, 4, 3, 8)

    """

    path: str | Path
    size: int | None = None
    channels: int = 3
    test_share: float = 0.15
    test_seed: int = 0

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ValueError(f"size must be >= 1 but is {self.size}")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 3 for colour or 1 for grey but is {self.channels}")
        if not 0 < self.test_share < 1:
            raise ValueError(f"test_share must be between 0 and 1 but is {self.test_share}")

    def load(self) -> Dataset:
        """Return the images, all of one size."""
        path = Path(self.path).expanduser().resolve()
        entries: Iterable[Entry]
        if path.is_file():
            entries, files = in_archive(path), [path]
        else:
            entries = in_folder(path)
            files = [entry.contents for entry in entries if isinstance(entry.contents, Path)]
        options = {name: value for name, value in asdict(self).items() if name != "path"}
        try:
            dataset = cached(path, files, options, lambda: self._decode(entries, path.name))
        except MemoryError as error:
            size = "their own size" if self.size is None else f"{self.size}×{self.size} pixels"
            raise ValueError(
                f"there is not enough memory for the images of {path} at {size} ({error}); give a smaller size, or"
                " fewer images"
            ) from error
        self._inspect(dataset)
        return dataset

    def _inspect(self, dataset: Dataset) -> None:
        """Raise or warn if the images are probably not what the user expects."""
        parts = (dataset.train, dataset.test)
        untrained, untested = (_missing(part, dataset.classes) for part in parts)
        if untrained:
            raise ValueError(
                f"{self.path}: all images of {untrained} are kept for the test; add images, or split them yourself"
                " into folders train and test"
            )
        if untested:
            warnings.warn(
                f"{self.path}: there are no test images of {untested}, so the test accuracy ignores it", stacklevel=3
            )
        if (lightest := max(int(part.images.max()) for part in parts)) < _DARK:
            warnings.warn(
                f"all images in {self.path} are nearly black: no pixel is above {lightest} of 255; in files with 16"
                " bits, white is assumed to be 65535, so save images that use fewer bits with 8",
                stacklevel=3,
            )

    def _decode(self, entries: Iterable[Entry], name: str) -> Dataset:
        parts, classes = assemble(entries, channels=self.channels, size=self.size)
        if len(classes) < 2:
            raise ValueError(f"{self.path} must have at least two classes of images but has {len(classes)}: {classes}")
        if set(parts) == {"train", "test"}:
            return Dataset(parts["train"], parts["test"], classes, name)
        if set(parts) != {""}:
            raise ValueError(f"{self.path} must have train and test images, or neither, but has {sorted(parts)}")
        test = stratified(parts[""].labels, self.test_share, seed=self.test_seed)
        return Dataset(parts[""][~test], parts[""][test], classes, name)


def _missing(images: Images, classes: Sequence[str]) -> str:
    """Return the classes without images, as a string."""
    counts = torch.bincount(images.labels, minlength=len(classes)).tolist()
    return ", ".join(repr(kind) for kind, count in zip(classes, counts, strict=True) if not count)
