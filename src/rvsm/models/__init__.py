"""Networks, one file each."""

from rvsm.models.convnet import convnet
from rvsm.models.resnet18 import resnet18

__all__ = ["convnet", "resnet18"]
