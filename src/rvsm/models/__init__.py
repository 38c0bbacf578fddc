"""Networks, one file each."""

from rvsm.models.convnet import convnet

__all__ = ["convnet"]
