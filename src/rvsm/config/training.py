"""How a network is trained, independent of the data, the model and the method."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Training:
    """The course of a training.

    Args:
        epochs: passes over the training images.
        batch: images in each optimizer step.
        accumulate: the number of parts in which a batch is computed, to save memory; the gradient is the same, but
            batch norm sees one part at a time.
        validation: the fraction of the training images that is held out; test images are used once, at the end.
        batch_norm: the statistics that each of several processes normalises with: null for those of the whole batch,
            local for those of its own images, which is faster, but the number of processes then affects the result.
        label_smoothing: the fraction of each label's weight that is spread over all classes.
        clip: the maximum norm of the gradient; null for no limit.
        evaluate_every: epochs between two evaluations on the validation images.
        checkpoint_every: epochs between two checkpoints; within an epoch, one is written every ten minutes.
        precision: float32, bfloat16 (autocast), or auto: bfloat16 if the hardware supports it, else float32.
        channels_last: the memory layout of convolutions; auto means true, which is usually faster, unless it would
            crash PyTorch.
        compile: compile the model with torch.compile, which takes a minute or two at the start.
        device: cpu, cuda, or auto: cuda if it is available, else cpu.
        threads: CPU threads of each process; null for PyTorch's default, or the cores divided by the processes.
        tensorboard: also write TensorBoard files into the run's folder; needs the package tensorboard.

    """

    epochs: int = 30
    batch: int = 128
    accumulate: int = 1
    validation: float = 0.1
    batch_norm: Literal["local"] | None = None
    label_smoothing: float = 0.0
    clip: float | None = None
    evaluate_every: int = 1
    checkpoint_every: int = 1
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    channels_last: Literal["auto", "true", "false"] = "auto"
    compile: bool = False
    device: str = "auto"
    threads: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "accumulate", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name} must be at least 1 but is {getattr(self, name)}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"training.threads must be at least 1, or null, but is {self.threads}")
        for name in ("validation", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"training.{name} must be a fraction in [0, 1) but is {getattr(self, name)}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"training.clip must be a norm > 0, or null, but is {self.clip}")
        if self.batch < self.accumulate:
            raise ValueError(
                f"training.accumulate must be at most the number of images in a batch, {self.batch}, but is"
                f" {self.accumulate}"
            )


@dataclass(frozen=True)
class Augment:
    """Random changes of the training images; zero and false turn them off.

    Args:
        crop: shift each image by up to this many pixels.
        flip: mirror half of the images.
        cutout: blank a square with sides of this many pixels.

    """

    crop: int = 0
    flip: bool = False
    cutout: int = 0

    def __post_init__(self) -> None:
        for name in ("crop", "cutout"):
            if getattr(self, name) < 0:
                raise ValueError(f"augment.{name} must be a number of pixels ≥ 0 but is {getattr(self, name)}")
