"""Batches of normalised images, in an order that depends only on a seed and the epoch."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import torch
from torch import Generator, Tensor

from rvsm.data.augment import Augmentation
from rvsm.data.dataset import Images

_FEW = 4


class Batches:
    """Batches ``(x, y)``: float32 images normalised to (pixel/255 − mean)/std, and int64 labels.

    The order of epoch e comes from a generator seeded by (seed, e), and the augmentation of its batch b from a
    generator seeded by (seed, e, b). So there is no state: any batch can be made at any time, training can resume in
    the middle of an epoch, and torch's global generator is neither read nor advanced.

    Args:
        images: the images to draw from.
        batch_size: images in a batch; the last batch of an epoch may be smaller.
        seed: decides the order and the augmentation.
        augment: changes applied to each batch, one after another.
        mean: mean of each channel, as returned by ``moments(images)``.
        std: standard deviation of each channel.
        shuffle: use a new order in each epoch; otherwise, keep the order of the images.
        drop_last: leave out the last batch if it is smaller than the others.
        channels_last: return x in torch's channels-last layout.
        device: the device of x and y; images are normalised and augmented there.

    >>> from rvsm.data import Digits, RandomCrop, moments
    >>> train = Digits().load().train
    >>> mean, std = moments(train)
    >>> batches = Batches(train, 256, seed=0, augment=[RandomCrop(padding=1)], mean=mean, std=std)
    >>> [len(y) for x, y in batches.epoch(0)]
    [256, 256, 256, 256, 256, 68]
    >>> [len(y) for x, y in batches.epoch(0, start=4)]
    [256, 68]

    """

    def __init__(
        self,
        images: Images,
        batch_size: int,
        *,
        seed: int,
        augment: Sequence[Augmentation] = (),
        mean: Sequence[float],
        std: Sequence[float],
        shuffle: bool = True,
        drop_last: bool = False,
        channels_last: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        channels = images.images.shape[1]
        if batch_size < 1:
            raise ValueError(f"batch_size must be >= 1 but is {batch_size}")
        if len(mean) != channels or len(std) != channels:
            raise ValueError(
                f"{channels} channels need {channels} means and standard deviations but got {len(mean)} and {len(std)}"
            )
        if not all(s > 0 for s in std):
            raise ValueError(f"standard deviations must be > 0 but are {tuple(std)}")
        self.images = images
        self.batch_size = batch_size
        self.seed = seed
        self.augment = tuple(augment)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.device = torch.device("cpu" if device is None else device)
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        # (pixel/255 − mean)/std = pixel · scale + shift
        deviations = torch.tensor(std, dtype=torch.float64).view(-1, 1, 1)
        self._scale = (1 / (255 * deviations)).float().to(self.device)
        self._shift = (-torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1) / deviations).float().to(self.device)
        if not len(self):
            raise ValueError(
                f"{len(images)} images are too few for a batch of {batch_size}; give more images, a smaller"
                " batch_size or drop_last=False"
            )

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        n = len(self.images)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    @property
    def images_used(self) -> int:
        """The number of images in an epoch."""
        return min(len(self) * self.batch_size, len(self.images))

    def epoch(self, number: int, *, start: int = 0, stride: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the batches of epoch ``number``, from batch ``start`` on, or over every ``stride``-th one."""
        if number < 0:
            raise ValueError(f"the number of an epoch must be >= 0 but is {number}")
        if not 0 <= start <= len(self):
            raise ValueError(f"start must be in [0, {len(self)}], the batches of an epoch, but is {start}")
        n = len(self.images)
        order = torch.randperm(n, generator=_generator(self.seed, number)) if self.shuffle else torch.arange(n)
        return (self._batch(order, number, batch) for batch in range(start, len(self), stride))

    def _batch(self, order: Tensor, epoch: int, batch: int) -> tuple[Tensor, Tensor]:
        chosen = order[batch * self.batch_size : (batch + 1) * self.batch_size]
        pixels = self.images.images.index_select(0, chosen).to(self.device)
        x = pixels.float().mul_(self._scale).add_(self._shift)
        generator = _generator(self.seed, epoch, batch)
        for change in self.augment:
            x = change(x, generator)
        return x.contiguous(memory_format=self._layout), self.images.labels[chosen].to(self.device)


def keeps_remainder(images: int, batch_size: int) -> bool:
    """Return whether a training should use the last batch of each epoch if it is smaller than the others.

    Usually it should not. The order changes in each epoch, so no image is left out for long, and all steps are alike.
    But with fewer than four full batches, up to half of each epoch would be lost. A quarter of a batch is then enough
    for batch norm.

    >>> keeps_remainder(230, 128), keeps_remainder(130, 128), keeps_remainder(45_000, 128)
    (True, False, False)
    """
    return images // batch_size < _FEW and images % batch_size >= max(2, batch_size / 4)


def _generator(*key: int) -> Generator:
    """Return a generator whose numbers depend on the whole key; neighbouring keys give unrelated numbers."""
    digest = blake2b(repr(key).encode(), digest_size=8).digest()
    return Generator().manual_seed(int.from_bytes(digest, "little", signed=True))
