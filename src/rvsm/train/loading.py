"""Load the network of a finished run."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch import nn

from rvsm.config import build, config_of
from rvsm.models import fill
from rvsm.records import Run
from rvsm.train.recorder import quoted


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
    result = run.result("input", "classes", "mean", "std")
    if result is None:
        raise ValueError(f"{folder} is not finished; continue with: rvsm resume {quoted(Path(folder))}")
    channels, size, _ = result["input"]
    config = config_of(run.config(), run.folder / "config.toml", allow_import=allow_import)
    model = build.network(config, channels=channels, classes=len(result["classes"]), size=size)
    fill(model, run.weights(), folder)
    return model.eval(), result
