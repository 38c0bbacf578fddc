"""Data sets, one file each, and batches of them."""

from collections.abc import Callable

from rvsm.data.augment import Augmentation, Cutout, Flip, RandomCrop
from rvsm.data.batches import Batches
from rvsm.data.dataset import Dataset, Source
from rvsm.data.digits import Digits, Split, digits
from rvsm.data.images import Images, Moments, moments

DATASETS: dict[str, Callable[..., Source]] = {
    "digits": Digits,
}

__all__ = [
    "DATASETS",
    "Augmentation",
    "Batches",
    "Cutout",
    "Dataset",
    "Digits",
    "Flip",
    "Images",
    "Moments",
    "RandomCrop",
    "Source",
    "Split",
    "digits",
    "moments",
]
