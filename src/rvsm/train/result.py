"""The result of a training: the sparse network, evaluated once on the test images, and loaded again later."""

import copy
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rvsm.config import build, config_of
from rvsm.metrics import multiplications
from rvsm.models import fill
from rvsm.records import Run
from rvsm.train.measure import channel_norms, histogram
from rvsm.train.recorder import quoted
from rvsm.train.trainer import Trainer


def finish(trainer: Trainer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Write the sparse copy into the model permanently; return its weights and the result as plain numbers."""
    test = trainer.quiet(trainer.data.test)
    seconds = trainer.seconds
    dense = trainer.evaluate(test)
    held: list[tuple[str, Tensor]] = [(n, p) for n, p in trainer.model.named_parameters() if p.ndim > 1]
    if trainer.method is not None:
        held = [(layer.name, layer.parameter) for layer in trainer.method.layers.attached]
    before = histogram(w for _, w in held), channel_norms(trainer.model, held)
    sparse = dense if trainer.method is None else _finalize(trainer)
    parameters = list(trainer.model.parameters())
    nonzeros = sum(int(p.count_nonzero()) for p in parameters)
    weights = sum(w.numel() for _, w in held)
    kept = sum(int(w.count_nonzero()) for _, w in held)
    image, _ = next(trainer.batches.epoch(0))
    uses = multiplications(trainer.model, image[:2])
    result = {
        "epochs": trainer.config.training.epochs,
        "steps": trainer.steps,
        "seconds": seconds,
        "test": {"w": dense, "u": sparse},
        "sparsity": 1 - kept / weights if weights else 0.0,
        "sparsity_of_all": 1 - nonzeros / sum(p.numel() for p in parameters),
        "multiplications_saved": _saved(trainer, held, uses),
        **_speed(trainer, held, image[:1]),
        "weights": weights,
        "parameters": sum(p.numel() for p in parameters),
        "nonzeros": nonzeros,
        "layers": {
            name: {
                "shape": list(w.shape),
                "weights": w.numel(),
                "density": int(w.count_nonzero()) / w.numel(),
                "multiplications": uses[name] * w.numel() if name in uses else None,
            }
            for name, w in held
        },
        "histogram": {"w": before[0], "u": histogram(w for _, w in held)},
        "channel_norms": {"w": before[1], "u": channel_norms(trainer.model, held)},
        "channels": _channels(trainer, held) if trainer.ranks.first else None,  # it takes seconds, and no other writes
        "images": trainer.data.fingerprint(),
        "test_images": len(trainer.data.test),
        "classes": list(trainer.data.classes),
        "mean": list(trainer.moments.mean),
        "std": list(trainer.moments.std),
        "input": [trainer.data.channels, trainer.data.size, trainer.data.size],
    }
    return trainer.model.state_dict(), result


def load_network(folder: Path | str, *, allow_import: Collection[str] = ()) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network of a finished run, in eval mode on the CPU, and the run's result.

    The result has what an application needs in addition to the network: "input" is the shape of an image, "mean" and
    "std" normalise it (pixels from 0 to 1), "classes" are the names of the outputs.

    Args:
        folder: the folder of the run.
        allow_import: the models, as module:callable, that the run may import, which runs their code; the networks of
            this package need no permission.

    """
    run = Run(Path(folder))
    result = finished_result(run)
    channels, size, _ = result["input"]
    config = config_of(run.config(), run.folder / "config.toml", allow_import=allow_import)
    model = build.network(config, channels=channels, classes=len(result["classes"]), size=size)
    fill(model, run.weights(), folder)
    return model.eval(), result


def selection_of(folder: Path | str, *, allow_import: Collection[str] = ()) -> dict[str, Any]:
    """Return which weights of a run's network may become zero, and how they are grouped: arguments of rvsm.profile."""
    run = Run(Path(folder))
    return build.selection(config_of(run.config(), run.folder / "config.toml", allow_import=allow_import))


def finished_result(run: Run) -> dict[str, Any]:
    """Return the result of a run, with what an application needs; a run that is not finished is an error."""
    result = run.result("input", "classes", "mean", "std")
    if result is None:
        raise ValueError(f"{run.folder} is not finished; continue with: rvsm resume {quoted(run.folder)}")
    return result


def _saved(trainer: Trainer, held: list[tuple[str, Tensor]], uses: dict[str, float]) -> float | None:
    """Return the fraction of the network's multiplications by zero, if all of them are known."""
    if not uses or any(name not in uses for name, _ in held):
        return None
    counted = [(uses[name], w) for name, w in trainer.model.named_parameters() if name in uses]
    total = sum(count * w.numel() for count, w in counted)
    return 1 - sum(count * int(w.count_nonzero()) for count, w in counted) / total


def _speed(trainer: Trainer, held: list[tuple[str, Tensor]], image: Tensor) -> dict[str, Any]:
    """Return the speed in the runtime if it is the target: predicted for the profile's machine, and measured here."""
    times, method = trainer.times, trainer.method
    if times is None or method is None or method.budget is None or not trainer.ranks.first:
        return {}
    from rvsm.timing.measure import compared

    dense, sparse = compared(trainer.model, image, batch=times.batch, threads=times.threads)
    return {
        "speed": {
            "target": method.budget.speedup,
            "predicted": times.speedup({name: int(w.count_nonzero()) / w.numel() for name, w in held}),
            "measured": dense / sparse,
            "milliseconds": 1e3 * sparse,
            "batch": times.batch,
            "threads": times.threads,
            "machine": times.machine,
        }
    }


def _channels(trainer: Trainer, held: list[tuple[str, Tensor]]) -> dict[str, int] | None:
    """Return how many channels the runtime removes, using its own code; None if it does not support the network.

    A channel can be removed only if a filter is zero, or everything that reads it. Usually there is no such filter, and
    the model need not be captured.
    """
    matrices = [w for _, w in held if w.dim() > 1]
    if all(w.flatten(1).any(1).all() and w.transpose(0, 1).flatten(1).any(1).all() for w in matrices):
        return {"removed": 0, "total": sum(map(len, matrices))}
    from rvsm.lowering import removed_channels

    model = copy.deepcopy(trainer.model).cpu().eval()
    image = torch.zeros(1, trainer.data.channels, trainer.data.size, trainer.data.size)
    try:
        removed, total = removed_channels(model, image)
    except ValueError:
        return None
    return {"removed": removed, "total": total}


def _finalize(trainer: Trainer) -> dict[str, float]:
    """Finalize the method, and return the accuracy and the loss on the test images."""
    assert trainer.method is not None
    with trainer.placement.autocast(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the result shows layers that did not take part
        trainer.method.finalize(recalibrate=trainer.calibration())
    return trainer.evaluate(trainer.quiet(trainer.data.test))
