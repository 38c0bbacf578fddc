"""Use a trained network: predict the classes of images, with the normalisation of its run, and measure accuracy."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from rvsm.config import build, config_of
from rvsm.data import Images
from rvsm.data.decode import decode_file
from rvsm.records import Run
from rvsm.train.result import finished_result, load_network

_BATCH = 64


@dataclass(frozen=True)
class Prediction:
    """The predicted class of an image, and its probability."""

    file: str
    name: str
    probability: float


@dataclass(frozen=True)
class Classifier:
    """A network together with the format of its images."""

    network: Callable[[Tensor], Tensor]  # normalised images [n, channels, size, size] to scores [n, classes]
    shape: tuple[int, int, int]  # channels, height and width of an image
    classes: tuple[str, ...]  # the names of the outputs
    mean: tuple[float, ...]  # the mean of each channel, for pixels from 0 to 1
    std: tuple[float, ...]  # the standard deviation of each channel
    run: Run  # the folder of the run that it comes from

    @torch.inference_mode()
    def scores(self, pixels: Tensor) -> Tensor:
        """Return the scores of images of bytes, ``[n, channels, height, width]``."""
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        scores = self.network((pixels.float() / 255 - mean) / std).float()
        if scores.shape != (len(pixels), len(self.classes)):
            raise ValueError(
                f"the network returns {list(scores.shape[1:])} scores for an image, but {self.run.folder} has"
                f" {len(self.classes)} classes; check that the network belongs to this run"
            )
        return scores

    def predict(self, files: Sequence[Path]) -> Iterator[Prediction]:
        """Iterate over the predictions for image files, in the given order."""
        channels, size, _ = self.shape
        rest = iter(files)
        while chunk := list(islice(rest, _BATCH)):
            pixels = torch.stack([_pixels(file, channels, size) for file in chunk])
            best = self.scores(pixels).softmax(1).max(1)
            for file, probability, index in zip(chunk, best.values.tolist(), best.indices.tolist(), strict=True):
                yield Prediction(str(file), self.classes[index], probability)

    def evaluate(self, images: Images) -> dict[str, float]:
        """Return the number of images, the accuracy, and the mean cross-entropy."""
        if tuple(images.images.shape[1:]) != self.shape:
            raise ValueError(
                f"the network takes images of shape {list(self.shape)} but these are {list(images.images.shape[1:])}"
            )
        if int(images.labels.max()) >= len(self.classes):
            raise ValueError(f"the network knows {len(self.classes)} classes, but the images have more")
        correct, loss = 0, 0.0
        for pixels, labels in zip(*(torch.split(t, _BATCH) for t in (images.images, images.labels)), strict=True):
            scores = self.scores(pixels)
            correct += int((scores.argmax(1) == labels).sum())
            loss += float(torch.nn.functional.cross_entropy(scores, labels, reduction="sum"))
        return {"images": len(images), "accuracy": correct / len(images), "loss": loss / len(images)}


def load_classifier(source: Path, *, run: Path | None = None, allow_import: Collection[str] = ()) -> Classifier:
    """Return the network of a finished run's folder, or of a packed file.

    Args:
        source: the folder, or the file that ``rvsm pack`` wrote.
        run: the run with the normalisation of the images and the names of the classes, which a file does not hold;
            by default, the folder of the file.
        allow_import: the models, as module:callable, that a run may import.

    """
    network: Callable[[Tensor], Tensor]
    if source.is_dir():
        network, result = load_network(source, allow_import=allow_import)
        kept = Run(source)
    else:
        from rvsm.runtime import load

        network = load(source)
        kept = _run_of(source, run)
        result = finished_result(kept)
    channels, height, width = result["input"]
    return Classifier(
        network, (channels, height, width), tuple(result["classes"]), tuple(result["mean"]), tuple(result["std"]), kept
    )


def images_of(run: Run, flags: Sequence[str] = ()) -> Images:
    """Return the test images of a run, or of the data that flags such as ``--data.path`` choose instead."""
    chosen_anew = any(flag.partition("=")[0] == "--data.name" for flag in flags)
    data = {} if chosen_anew else run.config().get("data", {})
    return build.dataset(config_of({"data": data, "method": {"name": "dense"}}, flags=flags)).test


def _run_of(file: Path, run: Path | None) -> Run:
    try:
        return Run(file.parent if run is None else run)
    except ValueError as error:
        raise ValueError(
            f"{file} holds neither the normalisation of the images nor the names of the classes; give the run that it"
            f" was packed from with --run ({error})"
        ) from None


def _pixels(file: Path, channels: int, size: int) -> Tensor:
    if not file.is_file():
        raise ValueError(f"{file} does not exist or is not a file; give image files")
    return torch.tensor(decode_file(file, channels=channels, size=size))
