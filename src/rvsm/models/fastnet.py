"""A network that learns CIFAR-10 in few epochs: its first layer whitens the image and is not trained.

In the spirit of Page's ResNet for DAWNBench (2018), tysam-code's hlb-CIFAR10 and Jordan's "94 % on CIFAR-10 in 3.29
seconds on a single GPU" (2024).
"""

from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from rvsm.models.sizes import check, scaled

_REGULARISER = 5e-4
_CHUNK = 256


@runtime_checkable
class Prepared(Protocol):
    """A network that needs a sample of training images before training begins."""

    def prepare(self, images: Tensor) -> None:
        """Set what depends on the data, from a sample of normalised images ``[n, channels, height, width]``."""
        ...


class FastNet(nn.Module):
    """A fixed whitening 2×2 convolution, three blocks of two 3×3 convolutions, and a linear layer.

    Call `prepare` with a few thousand training images before training; it draws no random numbers.
    """

    def __init__(self, *, widths: list[int], classes: int, channels: int, size: int) -> None:
        super().__init__()
        inputs = 2 * 4 * channels
        self.whiten = nn.Conv2d(channels, inputs, 2)
        self.whiten.weight.requires_grad_(False)
        self.activation = nn.GELU()
        blocks: list[nn.Module] = []
        side = size - 1
        for outputs in widths:
            blocks += _block(inputs, outputs, pooled=side > 1)
            inputs, side = outputs, max(1, side // 2)
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.MaxPool2d(side)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(inputs, classes, bias=False)
        # Small logits at first: the maxima of the last map are large, and the loss would begin far above log(classes).
        self.scale = 1 / 9

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.blocks(self.activation(self.whiten(x)))
        return cast(Tensor, self.head(self.flatten(self.pool(x))) * self.scale)

    @torch.no_grad()
    def prepare(self, images: Tensor) -> None:
        """Set the whitening filters from normalised training images ``[n, channels, height, width]``.

        The filters are ±v/√(λ + 5·10⁻⁴) for the eigenvectors v and eigenvalues λ of the covariance of all 2×2 patches,
        so that the responses to the images are uncorrelated and of variance 1, and both signs survive the activation.
        """
        channels = self.whiten.in_channels
        if images.ndim != 4 or images.shape[1] != channels or min(images.shape[2:]) < 2 or not len(images):
            raise ValueError(
                f"prepare needs images of shape [n, {channels}, height, width] but they are {list(images.shape)}"
            )
        covariance = _patch_covariance(images)
        if not covariance.isfinite().all():
            raise ValueError("prepare needs finite images but some pixels are infinite or NaN")
        values, vectors = torch.linalg.eigh(covariance)
        # Of v and −v the one whose largest component is positive, whatever the solver gave.
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        filters = (vectors * largest.sign() / (values.clamp(min=0) + _REGULARISER).sqrt()).T.flip(0)
        self.whiten.weight.copy_(torch.cat([filters, -filters]).view_as(self.whiten.weight))


def fastnet(*, width: float = 1.0, classes: int = 10, channels: int = 3, size: int = 32) -> FastNet:
    """Return the fast network, whose first layer whitens the image and is not trained.

    Args:
        width: multiplies the 64, 256 and 256 channels of the blocks.
        classes: number of outputs.
        channels: channels of an image.
        size: height and width of an image.

    >>> sum(p.numel() for p in fastnet().parameters())
    1972792
    >>> model = fastnet(width=0.5)
    >>> model.prepare(torch.randn(100, 3, 32, 32))
    >>> model(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])

    """
    check(classes=classes, channels=channels, size=size, smallest=2)
    return FastNet(widths=scaled((64, 256, 256), width), classes=classes, channels=channels, size=size)


def _block(inputs: int, outputs: int, *, pooled: bool) -> list[nn.Module]:
    first, second = (nn.Conv2d(n, outputs, 3, padding=1, bias=False) for n in (inputs, outputs))
    pool = [nn.MaxPool2d(2)] if pooled else []
    # Pooled before the batch norm, which then has a quarter of the work.
    return [first, *pool, nn.BatchNorm2d(outputs), nn.GELU(), second, nn.BatchNorm2d(outputs), nn.GELU()]


def _patch_covariance(images: Tensor) -> Tensor:
    """Return the covariance of all 2×2 patches, in the order of a filter's weights, in double precision."""
    size = 4 * images.shape[1]
    count, total, squares = 0, torch.zeros(size, dtype=torch.double), torch.zeros(size, size, dtype=torch.double)
    for chunk in torch.split(images.detach().cpu(), _CHUNK):
        patches = nn.functional.unfold(chunk.double(), 2).transpose(0, 1).flatten(1)
        count += patches.shape[1]
        total += patches.sum(1)
        squares += patches @ patches.T
    mean = total / count
    return squares / count - mean.outer(mean)
