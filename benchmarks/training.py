"""Images per second of `rvsm train` beside a plain PyTorch script, and the time that is not training.

The plain script is what a tutorial has: float32, the default memory layout, and a DataLoader with two workers that
augments image by image with Pillow. Both train the same network on the same random images of CIFAR-10's size; their
blocks of steps alternate in one run, so that a busy machine slows both. Run it with: make bench-training
"""

import argparse
import json
import random
import statistics
import time
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from rvsm.config import read_config
from rvsm.data import Dataset, Images
from rvsm.models import MODELS
from rvsm.train import Trainer

BATCH = 128


class PillowImages(TorchDataset[tuple[Tensor, int]]):
    """Images that are cropped, flipped and normalised one by one."""

    def __init__(self, images: Images) -> None:
        self.images = images.images.permute(0, 2, 3, 1).numpy()
        self.labels = images.labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = ImageOps.expand(Image.fromarray(self.images[index]), 4)
        left, top = random.randint(0, 8), random.randint(0, 8)
        image = image.crop((left, top, left + 32, top + 32))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        return (pixels - 0.5) / 0.25, self.labels[index]


def plain_block(model: nn.Module, optimizer: torch.optim.Optimizer, images: Images) -> list[float]:
    """Return the seconds of each step of the plain script over the images, waiting for data included.

    The workers live for this block only, so that they do not work ahead while the other side is timed; the first step,
    which waits for them to start, is left out.
    """
    model.train()
    times = []
    began = time.perf_counter()
    for x, y in DataLoader(PillowImages(images), BATCH, shuffle=True, num_workers=2, drop_last=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
    return times[1:]


def our_block(trainer: Trainer, epoch: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each step of the trainer over the images, and those of them that data took."""
    times, waits = [], []
    began = time.perf_counter()
    for x, y in trainer.batches.epoch(epoch):
        waits.append(time.perf_counter() - began)
        trainer.train_step(x, y)
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
    return times[1:], waits[1:]


def measure(network: str, blocks: int) -> dict[str, Any]:
    """Time alternating blocks of four steps of both and return medians."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (BATCH * 5, 3, 32, 32), generator=generator, dtype=torch.uint8)
    images = Images(pixels, torch.randint(0, 10, (len(pixels),), generator=generator))
    data = Dataset(images, images[torch.arange(10)], tuple("0123456789"), "random")
    flags = ["--model.name", network, "--budget.sparsity", "0.937", "--augment.crop", "4", "--augment.flip", "true"]
    config = read_config(flags=[*flags, "--training.validation", "0", "--training.batch", str(BATCH)])
    trainer, model = Trainer(config, data), MODELS[network]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    ours: list[float] = []
    waits: list[float] = []
    plain: list[float] = []
    for block in range(blocks):
        times, waited = our_block(trainer, block)
        ours += times
        waits += waited
        plain += plain_block(model, optimizer, images)
    mine, theirs, waiting = (statistics.median(times) for times in (ours, plain, waits))
    return {
        "network": network,
        "precision": trainer.placement.precision,
        "plain images/s": round(BATCH / theirs, 1),
        "rvsm images/s": round(BATCH / mine, 1),
        "ratio": round(theirs / mine, 3),
        "data, share of a step": round(waiting / mine, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("networks", nargs="*", default=["resnet18", "vgg16"])
    options = parser.parse_args()
    for network in options.networks:
        print(json.dumps(measure(network, options.blocks)), flush=True)


if __name__ == "__main__":
    main()
