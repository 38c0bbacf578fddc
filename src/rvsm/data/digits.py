"""Handwritten digits of 8×8 pixels, bundled with scikit-learn: real data that needs no download."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rvsm.data.dataset import Dataset, stratified
from rvsm.data.images import Images


@dataclass(frozen=True)
class Digits:
    """The 1,797 digits of scikit-learn, a quarter of them for the test; the test images are always the same.

    >>> digits = Digits().load()
    >>> digits.train.images.shape, digits.train.images.dtype
    (torch.Size([1348, 1, 8, 8]), torch.uint8)
    """

    def load(self) -> Dataset:
        """Return the digits, their pixels scaled from 0…16 to 0…255."""
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        images = torch.from_numpy(pixels).mul(255 / 16).round().to(torch.uint8).view(-1, 1, 8, 8)
        digits = Images(images, torch.from_numpy(labels).long())
        test = stratified(digits.labels, 0.25, seed=0)
        return Dataset(digits[~test], digits[test], tuple("0123456789"), "digits")


class Split(NamedTuple):
    """Images and labels for training and for the test."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def digits(*, seed: int = 0, test_share: float = 0.25) -> Split:
    """Return the 1,797 digits as [n, 1, 8, 8] images with zero mean and unit variance, split by ``seed``."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 1, 8, 8)
    targets = torch.from_numpy(labels)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    count = round(test_share * len(images))
    test, train = order[:count], order[count:]
    mean, std = images[train].mean(), images[train].std()
    images = (images - mean) / std
    return Split(images[train], targets[train], images[test], targets[test])
