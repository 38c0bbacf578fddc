"""What the commands ``pack`` and ``bench`` do, with plain arguments."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rvsm.bench.comparison import Comparison, compare
from rvsm.models import fill
from rvsm.runtime import describe, load
from rvsm.runtime.description import Description
from rvsm.runtime.plan.axes import sizes_of


def model_of(
    source: str,
    *,
    weights: Path | None = None,
    shape: Sequence[int] | None = None,
    allow_import: Collection[str] = (),
) -> tuple[nn.Module, Tensor]:
    """Return a network in eval mode and an example of its input.

    Args:
        source: the folder of a finished run, or ``module:callable``, which makes the network.
        weights: its weights, as safetensors or as a ``.pt`` file of tensors.
        shape: of one image, for example 3, 32, 32; a run knows its own.
        allow_import: the models, as module:callable, that a run may have imported.

    """
    if Path(source).is_dir():
        from rvsm.train import load_network

        model, result = load_network(source, allow_import=allow_import)
        shape = shape or result["input"]
    elif ":" in source:
        from rvsm.models import load_model

        model = load_model(source)
        if shape is None:
            raise ValueError(f"the shape of an image is needed for {source}: --input 3,32,32, for example")
    else:
        raise ValueError(f"{source!r} is neither the folder of a run nor module:callable")
    if weights is not None:
        _load_weights(model, weights)
    if not shape or min(shape) < 1:
        raise ValueError(f"the shape of an image must be whole numbers from 1 but is {shape}")
    return model.eval(), torch.zeros(1, *shape)


def pack(
    source: str,
    out: Path,
    *,
    weights: Path | None = None,
    shape: Sequence[int] | None = None,
    allow_import: Collection[str] = (),
) -> Description:
    """Compile a network, write it to a file for the runtime, and return what is in it."""
    from rvsm.lowering import compile

    model, example = model_of(source, weights=weights, shape=shape, allow_import=allow_import)
    compile(model, example).save(out)
    tensors = [*model.parameters(), *model.buffers()]
    original = 4 * sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
    return replace(describe(out), original=original)


def measure(
    folder: Path,
    *,
    batches: Sequence[int] = (64,),
    engines: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 7,
    allow_import: Collection[str] = (),
) -> Comparison:
    """Pack a finished run, time it beside other engines, and keep size and speeds in the run's folder for reports.

    The file is what is timed, not the program that made it, which may leave to PyTorch what is faster there. A
    report has room for one speed, that of the largest batch.
    """
    from rvsm.lowering import compile
    from rvsm.records import Run

    if not folder.is_dir():
        raise ValueError(f"{folder} is not the folder of a run, so that its speeds cannot be kept there")
    model, example = model_of(str(folder), allow_import=allow_import)
    count, file = threads or torch.get_num_threads(), folder / "model.rvsm"
    compile(model, example, threads=count).save(file)
    shown = compare(
        model,
        example,
        title=str(folder),
        program=load(file, threads=count),
        batches=batches,
        engines=engines,
        threads=count,
        rounds=rounds,
    )
    batch = max(batches)
    Run(folder).save_runtime(
        {
            "file_bytes": file.stat().st_size,
            "batch": batch,
            "threads": shown.threads,
            "speedup": shown.speedup(batch),
            "engines": [
                {"engine": m.engine, "precision": m.precision, "batch": m.batch, "milliseconds": 1e3 * m.seconds}
                for m in shown.measurements
                if m.seconds is not None
            ],
        }
    )
    return shown


def bench(
    source: str,
    *,
    weights: Path | None = None,
    against: str | None = None,
    shape: Sequence[int] | None = None,
    batches: Sequence[int] = (1, 16, 64),
    engines: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 7,
    allow_import: Collection[str] = (),
) -> Comparison:
    """Compare engines on a run, on ``module:callable``, or on a file of the runtime ``against`` such a network.

    With ``against`` the others run that network as it is, not the folded one of the file.
    """
    program = None
    if Path(source).is_file():
        if against is None:
            raise ValueError(f"{source} is a file: say what to compare it with, --against module:callable")
        program = load(source, threads=threads or torch.get_num_threads())
        known = sizes_of(program.plan.axes[0], program.plan.inputs[0])
        model, example = model_of(against, weights=weights, shape=shape or known, allow_import=allow_import)
    else:
        if against is not None:
            raise ValueError(f"--against goes with a file of the runtime, but {source} is not a file")
        model, example = model_of(source, weights=weights, shape=shape, allow_import=allow_import)
    return compare(
        model, example, title=source, program=program, batches=batches, engines=engines, threads=threads, rounds=rounds
    )


def _load_weights(model: nn.Module, path: Path) -> None:
    """Load safetensors, or a ``.pt`` file that holds nothing but tensors."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    tensors: Any
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tensors = load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
    else:
        try:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle's own errors are of many kinds
            reason = (str(error).strip().splitlines() or [""])[0][:100]
            raise ValueError(f"{path} cannot be read as a file of tensors: {reason}") from None
        if isinstance(tensors, dict) and isinstance(tensors.get("state_dict"), dict):
            tensors = tensors["state_dict"]
    if not isinstance(tensors, dict):
        raise ValueError(f"{path} must hold a table of tensors but holds a {type(tensors).__name__}")
    fill(model, tensors, path)
