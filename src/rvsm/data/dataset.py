"""A data set: training images, test images, and the names of the classes.

Images are stored as bytes, which take a quarter of the memory of floats.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_MOST_HASHED = 1 << 25
"""The number of bytes that can be hashed in less than 0.1 s: ten thousand colour images of 32×32 pixels."""


class Moments(NamedTuple):
    """Mean and standard deviation of each channel, for pixels from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Images:
    """Images as bytes ``[n, channels, height, width]`` and their labels ``[n]``, counted from 0.

    >>> images = Images(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2, 0, 1]))
    >>> len(images), images[torch.tensor([0, 3])].labels.tolist()
    (5, [0, 0])
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(
                f"images must be uint8 of shape [n, channels, height, width] but are {_described(self.images)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.ndim != 1:
            raise ValueError(f"labels must be int64 of shape [n] but are {_described(self.labels)}")
        if len(self.images) != len(self.labels):
            raise ValueError(f"{len(self.images)} images need {len(self.images)} labels but got {len(self.labels)}")
        if len(self.labels) and int(self.labels.min()) < 0:
            raise ValueError(f"labels must be >= 0 but the smallest is {int(self.labels.min())}")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Tensor) -> "Images":
        """Return a copy of the images with these indices (or where this mask is true), in that order."""
        if indices.dtype == torch.bool:
            indices = indices.nonzero().squeeze(1)
        return Images(self.images.index_select(0, indices), self.labels.index_select(0, indices))


def moments(images: Images) -> Moments:
    """Return the mean and standard deviation of each channel over all pixels, scaled to the range from 0 to 1.

    The sums are integers, so neither the order of the images nor the number of threads matters. A constant channel gets
    the standard deviation 1, so that division by it is safe.

    >>> pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    >>> moments(Images(pixels, torch.tensor([0, 1])))
    Moments(mean=(0.5,), std=(0.5,))
    """
    if not len(images):
        raise ValueError("the moments of no images are undefined; give at least one image")
    values = range(256)
    mean, std = [], []
    for channel in images.images.unbind(1):
        counts = torch.bincount(channel.reshape(-1), minlength=256).tolist()
        n = channel.numel()
        total = sum(v * k for v, k in zip(values, counts, strict=True))
        squares = sum(v * v * k for v, k in zip(values, counts, strict=True))
        mean.append(total / n / 255)
        std.append((n * squares - total * total) ** 0.5 / n / 255 or 1.0)
    return Moments(tuple(mean), tuple(std))


@dataclass(frozen=True)
class Dataset:
    """Training and test images, all square and of the same size.

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
            if (highest := int(images.labels.max())) >= len(self.classes):
                raise ValueError(
                    f"{self.name}: a {part} image has label {highest}, but there are {len(self.classes)} classes"
                )
        shape, other = self.train.images.shape[1:], self.test.images.shape[1:]
        if shape != other:
            raise ValueError(f"{self.name}: train images are {list(shape)} but test images {list(other)}")
        if shape[1] != shape[2]:
            raise ValueError(f"{self.name}: images must be square but are {shape[1]}×{shape[2]}")

    @property
    def channels(self) -> int:
        """The channels of an image: 1 for grey, 3 for colour."""
        return self.train.images.shape[1]

    @property
    def size(self) -> int:
        """The height and width of an image in pixels."""
        return self.train.images.shape[2]

    def fingerprint(self) -> str:
        """Return a string that changes with the labels and the images.

        Every checkpoint needs it, so above `_MOST_HASHED` bytes only about one image in a hundred is hashed.
        """
        parts = (self.train, self.test)
        every = 1 if sum(part.images.numel() for part in parts) <= _MOST_HASHED else 101
        digest = blake2b(digest_size=8)
        for part in parts:
            digest.update(part.labels.numpy().tobytes())
            digest.update(part.images[::every].contiguous().numpy().tobytes())
        return digest.hexdigest()

    def hold_out(self, fraction: float, seed: int) -> tuple[Images, Images]:
        """Split the training images: return the rest, and a fraction for validation.

        The choice depends on ``seed`` alone. Each class has the same fraction, to within one image.
        """
        held = stratified(self.train.labels, fraction, seed=seed)
        return self.train[~held], self.train[held]


class Source(Protocol):
    """The source of a data set: a frozen dataclass whose fields are options."""

    def load(self) -> Dataset:
        """Return the data set."""


def stratified(labels: Tensor, fraction: float, *, seed: int) -> Tensor:
    """Return a mask of ``round(fraction · n)`` images, with the same fraction of each class, to within one image.

    The images are shuffled, sorted by class, and taken at equal intervals.

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


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
