"""A data set: images for training, images for the test, and the names of the classes."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import torch
from torch import Tensor

from rvsm.data.images import Images

_MOST_HASHED = 1 << 25
"""Bytes, hashed in less than 0.1 s: ten thousand images of 32×32 pixels in colour."""


@dataclass(frozen=True)
class Dataset:
    """Images for training and for the test, of one square size.

    >>> from rvsm.data import Digits
    >>> digits = Digits().load()
    >>> len(digits.train), len(digits.test), digits.channels, digits.size
    (1348, 449, 1, 8)
    >>> train, validation = digits.hold_out(0.1, seed=0)
    >>> len(train), len(validation)
    (1213, 135)
    """

    train: Images
    test: Images
    classes: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        for part, images in (("train", self.train), ("test", self.test)):
            if not len(images):
                raise ValueError(f"{self.name}: the {part} part has no images")
            if int(images.labels.max()) >= len(self.classes):
                highest = int(images.labels.max())
                raise ValueError(f"{self.name}: a {part} image has label {highest} of {len(self.classes)} classes")
        shape, other = self.train.images.shape[1:], self.test.images.shape[1:]
        if shape != other:
            raise ValueError(f"{self.name}: train images are {list(shape)} but test images {list(other)}")
        if shape[1] != shape[2]:
            raise ValueError(f"{self.name}: images must be square but are {shape[1]}×{shape[2]}")

    @property
    def channels(self) -> int:
        """Channels of an image: 1 for grey, 3 for colour."""
        return self.train.images.shape[1]

    @property
    def size(self) -> int:
        """Height and width of an image in pixels."""
        return self.train.images.shape[2]

    def fingerprint(self) -> str:
        """Return a string that changes with the images: of all labels, and of the images.

        Every checkpoint needs it; so above `_MOST_HASHED` bytes only one image in a hundred counts.
        """
        parts = (self.train, self.test)
        every = 1 if sum(part.images.numel() for part in parts) <= _MOST_HASHED else 101
        digest = blake2b(digest_size=8)
        for part in parts:
            digest.update(part.labels.numpy().tobytes())
            digest.update(part.images[::every].contiguous().numpy().tobytes())
        return digest.hexdigest()

    def hold_out(self, fraction: float, seed: int) -> tuple[Images, Images]:
        """Return the training images without a fraction of them, and that fraction, for validation.

        The fraction is drawn by ``seed`` alone, and takes each class in proportion, to one image.
        """
        held = stratified(self.train.labels, fraction, seed=seed)
        return self.train[~held], self.train[held]


class Source(Protocol):
    """Where a data set comes from: a frozen dataclass whose fields a user may set."""

    def load(self) -> Dataset:
        """Return the data set."""
        ...


def stratified(labels: Tensor, fraction: float, *, seed: int) -> Tensor:
    """Return a mask of ``round(fraction · n)`` images, with the same fraction of each class, to one image.

    The images are shuffled, sorted by class, and taken at equal distances.

    >>> labels = torch.tensor([0, 1] * 10)
    >>> labels[stratified(labels, 0.2, seed=0)].sort().values.tolist()
    [0, 0, 1, 1]
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"the fraction to hold out must be in [0, 1) but is {fraction}")
    n = len(labels)
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    count = round(fraction * n)
    mask = torch.zeros(n, dtype=torch.bool)
    if count:
        mask[by_class[(2 * torch.arange(count) + 1) * n // (2 * count)]] = True
    return mask
