"""Data sets, one module for each, and batches of images."""

from rvsm.data.augment import Augmentation, Cutout, Flip, RandomCrop
from rvsm.data.batches import Batches, keeps_remainder
from rvsm.data.cifar10 import CIFAR10
from rvsm.data.dataset import Dataset, Images, Moments, Source, moments
from rvsm.data.digits import Digits
from rvsm.data.fashion_mnist import FashionMNIST
from rvsm.data.folder import Folder

DATASETS: dict[str, type[Source]] = {
    "digits": Digits,
    "fashion-mnist": FashionMNIST,
    "cifar10": CIFAR10,
    "folder": Folder,
}

__all__ = [
    "CIFAR10",
    "DATASETS",
    "Augmentation",
    "Batches",
    "Cutout",
    "Dataset",
    "Digits",
    "FashionMNIST",
    "Flip",
    "Folder",
    "Images",
    "Moments",
    "RandomCrop",
    "Source",
    "keeps_remainder",
    "moments",
]
