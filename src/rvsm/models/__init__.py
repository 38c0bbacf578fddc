"""Networks of the experiments, one file each.

A network with a method ``prepare(images)`` gets a sample of normalised training images before training; see `Prepared`.
"""

from collections.abc import Callable

from torch import nn

from rvsm.models.convnet import convnet
from rvsm.models.fastnet import Prepared, fastnet
from rvsm.models.lenet5 import lenet5
from rvsm.models.residual import resnet18, resnet20
from rvsm.models.user import NotAllowedError, fill, find_callable, load_model, require_allowed
from rvsm.models.vgg16 import vgg16

MODELS: dict[str, Callable[..., nn.Module]] = {
    "convnet": convnet,
    "fastnet": fastnet,
    "lenet5": lenet5,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "vgg16": vgg16,
}

__all__ = [
    "MODELS",
    "NotAllowedError",
    "Prepared",
    "convnet",
    "fastnet",
    "fill",
    "find_callable",
    "lenet5",
    "load_model",
    "require_allowed",
    "resnet18",
    "resnet20",
    "vgg16",
]
