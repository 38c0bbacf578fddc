"""Labelled images as two tensors: stored as bytes, which take a quarter of the memory of floats."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


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


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
