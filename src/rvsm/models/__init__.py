"""Networks of the experiments."""

from collections.abc import Callable

from torch import nn

from rvsm.models.convnet import convnet
from rvsm.models.lenet5 import lenet5
from rvsm.models.residual import resnet18, resnet20
from rvsm.models.vgg16 import vgg16

MODELS: dict[str, Callable[..., nn.Module]] = {
    "convnet": convnet,
    "lenet5": lenet5,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "vgg16": vgg16,
}

__all__ = ["MODELS", "convnet", "lenet5", "resnet18", "resnet20", "vgg16"]
