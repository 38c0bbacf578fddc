"""The training loop: one for all methods, models and data, with callbacks."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from rvsm.config import Config, build, described, differences
from rvsm.data import Batches, Dataset, Images, keeps_remainder, moments
from rvsm.models import Prepared, fill
from rvsm.records import check_weights
from rvsm.timing import Profile
from rvsm.timing.file import decode, encode
from rvsm.train.divergence import explain_divergence, require_finite_weights
from rvsm.train.hardware import fit, memory, place
from rvsm.train.measure import evaluate, histogram, sparsity_record
from rvsm.train.parallel import Parallel
from rvsm.train.ranks import ALONE, Ranks
from rvsm.train.restoring import check_state, initial_weights, optimizer_state, random_state, seed_all, set_random_state
from rvsm.train.trial import blamed, try_model


class Callback:
    """Follows a training. All methods do nothing by default; subclasses override those they need."""

    def on_start(self, trainer: "Trainer") -> None:
        """Act before the first step, or before the first step after a resume."""

    def on_step(self, trainer: "Trainer") -> None:
        """Act after an optimizer step."""

    def on_epoch(self, trainer: "Trainer") -> None:
        """Act after the last step of an epoch."""

    def on_record(self, trainer: "Trainer", record: Mapping[str, Any]) -> None:
        """Act after an evaluation on the validation images."""

    def on_end(self, trainer: "Trainer") -> None:
        """Act after the last step, before the sparse network is written, or when the training stops early."""


class Trainer:
    """A training at one moment; its `state` is all that a checkpoint needs.

    Args:
        config: what to train, and how.
        data: the images; loaded if not given.
        callbacks: objects that follow the training.
        remainder: whether a smaller last batch may be used if `keeps_remainder` says so; states of trainings that
            started before this rule existed do not have it.
        ranks: the processes that train together; each has a trainer, and all must do the same.
        times: the times of the layers, if the target is a time and the training began with these; by default, those of
            the file that the options name, or measured.

    """

    def __init__(
        self,
        config: Config,
        data: Dataset | None = None,
        callbacks: Sequence[Callback] = (),
        *,
        remainder: bool = True,
        ranks: Ranks = ALONE,
        times: Profile | None = None,
    ) -> None:
        self.config, self.callbacks, self._remainder, self.ranks = config, callbacks, remainder, ranks
        training, name = config.training, config.model.name
        self.placement = place(training)
        self.data = ranks.in_turn(partial(build.dataset, config)) if data is None else data
        ranks.require_same(options=[config.fingerprint(), config.seed], images=self.data.fingerprint())
        seed_all(config.seed)
        channels, classes, size = self.data.channels, len(self.data.classes), self.data.size
        model = build.network(config, channels=channels, classes=classes, size=size)
        self.model = model.to(self.placement.device)
        self.placement = fit(self.placement, self.model, training)
        self._split()
        if self.placement.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x, _ = next(self.batches.epoch(0))
        if isinstance(self.model, Prepared):
            with blamed(name, "cannot prepare itself"):
                self.model.prepare(self._sample())
        try_model(self.model, name, x, classes)
        check_weights(self.model.state_dict())
        with blamed(name, "cannot be trained"):
            self.parallel = Parallel(self.model, ranks, x[:8], training)
        self.parallel.require_images(self.batches, training.accumulate)
        self.steps = training.epochs * len(self.batches)
        self.step = self._first_step = 0
        self.schedule = build.schedule(config)
        self._options = build.optimizer(config)
        self.lr = self._options.lr
        self.optimizer = self._options.build([p for p in self.model.parameters() if p.requires_grad])
        self.times = self._layer_times(x) if times is None else times
        self.method = build.method(config, self.model, self.steps, x, self.times)
        if self.method is not None:
            self.method.attach(self.optimizer)
        self._running = {"loss": 0.0, "correct": 0, "seen": 0}
        self._seconds = 0.0  # in earlier processes
        self._began = time.perf_counter()
        self._times = {"data": 0.0, "training": 0.0, "evaluation": 0.0}
        self._last_evaluation = (0, 0.0)  # the step, and the seconds of data and training, for the speed

    def load_initial_weights(self) -> None:
        """Load the initial weights that the options name: a safetensors file, or the folder of a finished run."""
        if self.config.weights is None:
            return
        source = Path(self.config.weights)
        fill(self.model, self.ranks.share(lambda: initial_weights(source)), source)

    # Training

    def run(self) -> None:
        """Train to the end."""
        self._began = time.perf_counter()
        try:
            self._notify("on_start")
            while self.step < self.steps:
                epoch, start = divmod(self.step, len(self.batches))
                for x, y in self._timed(self.batches.epoch(epoch, start=start)):
                    with self._timing("training"):
                        self.train_step(x, y)
                    self._notify("on_step")
                self._evaluate(epoch + 1)
                self._notify("on_epoch")
        finally:
            self._notify("on_end")

    @property
    def epoch(self) -> float:
        """The number of passes over the training images so far."""
        return self.step / len(self.batches)

    @property
    def seconds(self) -> float:
        """Seconds of training so far, including those before a resume."""
        return self._seconds + time.perf_counter() - self._began

    def train_step(self, x: Tensor, y: Tensor) -> None:
        """Do one optimizer step on a batch, of which each process computes its share."""
        self.model.train()
        self.parallel.reseed(self.config.seed, self.step)
        rate = self.lr * self.schedule.factor(self.step / self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        total = correct = 0.0
        name, shares = self.config.model.name, self.ranks.shares(len(y), self.config.training.accumulate)
        for share in shares:
            labels, weight = y[share], len(y[share]) / len(y)
            with self.parallel.computing(last=share is shares[-1]):
                with self.placement.autocast(), blamed(name, f"failed in step {self.step + 1}"):
                    scores = self.parallel.forward(x[share])
                loss = self._loss(scores.float(), labels)
                (loss * (weight * self.ranks.size)).backward()  # type: ignore[no-untyped-call] # a mean over ranks
            total += float(loss.detach()) * weight
            correct += int((scores.argmax(1) == labels).sum())
        total, correct = self.ranks.sum(total, correct)
        if not np.isfinite(total):
            raise explain_divergence(self, x, total, rate)
        if self.config.training.clip is not None:
            clip_grad_norm_(self.model.parameters(), self.config.training.clip)
        self.optimizer.step()
        self.parallel.agree_on_buffers(sum(share.stop - share.start for share in shares) / len(y))
        self._running["loss"] += total * len(y)
        self._running["correct"] += int(correct)
        self._running["seen"] += len(y)
        self.step += 1

    def _loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss; 0, with a gradient, if this process has no images."""
        smoothing = self.config.training.label_smoothing
        return nn.functional.cross_entropy(scores, labels, label_smoothing=smoothing) if len(labels) else scores.sum()

    # Evaluations

    def _evaluate(self, epoch: int) -> None:
        training = self.config.training
        if epoch % training.evaluate_every and epoch != training.epochs:
            return
        with self._timing("evaluation"):
            require_finite_weights(self)
            record = self._record()
        self._running = dict.fromkeys(self._running, 0)
        self._notify("on_record", record)

    def _record(self) -> dict[str, Any]:
        seen = self._running["seen"]
        loss = self._running["loss"] / seen
        record: dict[str, Any] = {
            "step": self.step,
            "epoch": round(self.epoch),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "loss": loss,
            "accuracy": self._running["correct"] / seen,
        }
        if self.validation is not None:
            record["w"] = self.evaluate(self.validation)
            if self.method is not None:
                with self.sparse_network():
                    record["u"] = self.evaluate(self.validation)
        if self.method is not None:
            record.update(sparsity_record(self.method, loss))
            record["histogram"] = histogram(layer.w for layer in self.method.layers.attached)
        return {**record, **self._speed()}

    def evaluate(self, batches: Batches) -> dict[str, float]:
        """Return the accuracy and the mean cross-entropy of the model as it is."""
        return evaluate(self.model, batches, self.placement, self.ranks)

    @contextmanager
    def sparse_network(self) -> Iterator[None]:
        """Put the sparse copy into the model, with batch norm recalibrated, for the duration of a block."""
        assert self.method is not None
        with ExitStack() as stack:
            with self.placement.autocast():
                stack.enter_context(self.method.sparse_weights(recalibrate=self.calibration()))
            yield

    def calibration(self) -> Iterable[Tensor]:
        """Return batches to recalibrate batch norm: training images, in an order that no epoch of the training uses."""
        return (x for x, _ in self.batches.epoch(self.config.training.epochs))

    def _speed(self) -> dict[str, Any]:
        step, before = self._last_evaluation
        busy = self._times["data"] + self._times["training"]
        images = (self.step - step) * self.batches.images_used / len(self.batches)
        self._last_evaluation = (self.step, busy)
        pace = (time.perf_counter() - self._began) / max(self.step - self._first_step, 1)
        return {
            "images_per_second": images / max(busy - before, 1e-9),
            "seconds": self.seconds,
            "time_left": pace * (self.steps - self.step),
            "times": {name: round(value, 3) for name, value in self._times.items()},
            "memory": memory(),
        }

    # The state

    def state(self) -> dict[str, Any]:
        """Return everything that a new trainer needs to continue bit for bit."""
        return {
            "step": self.step,
            "remainder": self._remainder,
            "config": self.config.table(),
            "images": self.data.fingerprint(),
            "seconds": self.seconds,
            "running": dict(self._running),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": None if self.method is None else self.method.state_dict(),
            "random": random_state(self.placement.device),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a state; one that does not fit raises a ValueError and leaves this trainer unusable."""
        check_state(state, steps=self.steps, running=self._running)
        theirs = described(state["config"], allow_import=[self.config.model.name])
        if changes := differences(theirs, self.config, machine=False):
            raise ValueError(f"different options: {', '.join(changes[:4])}")
        if state["images"] != self.data.fingerprint():
            raise ValueError("the images are not those that the run started with")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(optimizer_state(state["optimizer"], self.optimizer, self._options))
        for parameter, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if torch.is_tensor(value) and value.shape == parameter.shape:
                    kept[name] = torch.empty_like(parameter).copy_(value)  # with the strides of the weight
        if self.method is not None:
            self.method.load_state_dict(state["method"])
        self.step = self._first_step = int(state["step"])
        self._seconds = float(state["seconds"])
        self._running = dict(state["running"])
        self._last_evaluation = (self.step, 0.0)
        set_random_state(state["random"], self.placement.device)

    # Preparation

    def _split(self) -> None:
        training, seed = self.config.training, self.config.seed
        fraction = training.validation
        train, held = self.data.hold_out(fraction, seed) if fraction > 0 else (self.data.train, None)
        if not len(train):
            raise ValueError(
                f"training.validation = {fraction} holds out all images and leaves none to train on; give a smaller"
                " fraction"
            )
        self.moments = moments(train)
        batch = min(training.batch, len(train))
        drop_last = not (self._remainder and keeps_remainder(len(train), batch))
        augment = build.augmentations(self.config)
        self.batches = self._batches(train, batch, seed=seed, augment=augment, drop_last=drop_last)
        self.validation = None if held is None or not len(held) else self.quiet(held)

    def _layer_times(self, x: Tensor) -> Profile | None:
        """Return the times of the layers if the target is a time; all processes have those of the first."""

        def found() -> str | None:
            times = build.profile(self.config, self.model, x)
            return None if times is None else encode(times)

        text = self.ranks.share(found)
        return None if text is None else decode(text)

    def quiet(self, images: Images) -> Batches:
        """Return images in their original order, without augmentation, for an evaluation."""
        return self._batches(images, 500, seed=0, shuffle=False)

    def _batches(self, images: Images, size: int, **more: Any) -> Batches:
        layout, device = self.placement.channels_last, self.placement.device
        return Batches(images, size, **self.moments._asdict(), channels_last=layout, device=device, **more)

    def _sample(self, images: int = 5000) -> Tensor:
        """Return normalised training images without augmentation, for a model that prepares itself."""
        chosen = self.batches.images[torch.arange(min(images, len(self.batches.images)))]
        return torch.cat([x for x, _ in self.quiet(chosen).epoch(0)])

    # Helpers

    def _notify(self, event: str, *more: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *more)

    @contextmanager
    def _timing(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._times[part] += time.perf_counter() - began

    def _timed(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            with self._timing("data"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
