"""Handwritten digits of 8×8 pixels, bundled with scikit-learn: real data that needs no download."""

from dataclasses import dataclass

import torch

from rvsm.data.dataset import Dataset, Images, stratified


@dataclass(frozen=True)
class Digits:
    """The 1,797 digits of scikit-learn; a fixed quarter of them are the test images.

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
