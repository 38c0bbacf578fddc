"""The work of the commands ``pack``, ``bench`` and ``profile``, with plain arguments."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rvsm.bench.comparison import Comparison, compare
from rvsm.files import replacing, require_writable
from rvsm.groups import Block
from rvsm.models import fill
from rvsm.runtime import Program, SequenceProgram, describe, load
from rvsm.runtime.description import Description
from rvsm.runtime.plan.tensors import Embedding
from rvsm.runtime.values import Values
from rvsm.timing import Profile


def model_of(
    source: str,
    *,
    weights: Path | None = None,
    shape: Sequence[int] | None = None,
    integers: bool = False,
    allow_import: Collection[str] = (),
) -> tuple[nn.Module, Tensor]:
    """Return a network in eval mode and an example of its input.

    Args:
        source: the folder of a finished run, or ``module:callable``, which makes the network.
        weights: its weights, as a safetensors file or a ``.pt`` file of tensors.
        shape: the shape of one example, for example 3, 32, 32 for an image; not needed for a run.
        integers: whether the input consists of integers, such as the indices of words.
        allow_import: the models, as module:callable, that a run may import.

    """
    if Path(source).is_dir():
        from rvsm.train import load_network

        model, result = load_network(source, allow_import=allow_import)
        shape = shape or result["input"]
    elif ":" in source:
        from rvsm.models import load_model

        model = load_model(source)
        if shape is None:
            raise ValueError(f"the shape of an example is needed for {source}: give, for example, --input 3,32,32")
    else:
        raise ValueError(f"{source!r} is neither the folder of a run nor module:callable; give one of them")
    if weights is not None:
        _load_weights(model, weights)
    if not shape or min(shape) < 1:
        raise ValueError(f"the shape of an example must be integers ≥ 1 but is {shape}")
    example = torch.zeros(1, *shape, dtype=torch.int64 if integers else torch.float32)
    try:
        with torch.inference_mode():
            model.eval()(example)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        kind = "integers" if integers else "floats"
        raise ValueError(
            f"{source} cannot take {kind} of shape {tuple(example.shape)}: {reason}; give the shape of one example with"
            " --input, and --integers if it consists of integers, such as the indices of words"
        ) from error
    return model, example


def pack(
    source: str,
    out: Path,
    *,
    weights: Path | None = None,
    shape: Sequence[int] | None = None,
    integers: bool = False,
    allow_import: Collection[str] = (),
    lengths: int | None = None,
    values: Values = "float32",
    limit: float | None = None,
) -> Description:
    """Compile a network, write it to a file for the runtime, and return a description of the file.

    With ``lengths``, the file is for sequences of any length up to this one. The first size of ``shape`` is the length
    of an example then, which should occur nowhere else in the network.

    Values stored as bfloat16 or int8 change the outputs. If the change is more than ``limit``, a fraction of what the
    outputs of random inputs differ by, nothing is written and a ValueError says so.
    """
    from rvsm.lowering import compile

    if limit is not None and not limit >= 0:
        raise ValueError(f"the limit must be a fraction ≥ 0 but is {limit}")
    model, example = model_of(source, weights=weights, shape=shape, integers=integers, allow_import=allow_import)
    program, change = compile(model, example, lengths=lengths), None
    with replacing(out) as temporary:
        program.save(temporary, values=values)
        if values != "float32":
            change = _change(program, load(temporary), example)
            if limit is not None and not change <= limit:
                raise ValueError(
                    f"values stored as {values} change the outputs by {change:.2g} of what they differ by between"
                    f" random inputs, more than the limit of {limit:g}; choose a more precise type or a larger limit"
                )
    tensors = [*model.parameters(), *model.buffers()]
    original = 4 * sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
    return replace(describe(out), original=original, change=change)


def _change(exact: Callable[[Tensor], Any], rounded: Program | SequenceProgram, example: Tensor) -> float:
    """Return the change of the outputs as a fraction of what they differ by from input to input, on random inputs.

    Both are root mean squares. Outputs that are the same for all inputs would hide a change of all that matters.
    Random integers are those that all tables of the network have.
    """
    generator, shape = torch.Generator().manual_seed(0), (32, *example.shape[1:])
    if example.is_floating_point():
        inputs = torch.randn(shape, generator=generator)
    else:
        tables = [operation.rows for operation in rounded.plan.operations if isinstance(operation, Embedding)]
        inputs = torch.randint(min(tables, default=2), shape, generator=generator)
    one, other = (_rows(program(inputs)) for program in (exact, rounded))
    spread = (one - one.mean(0)).norm().clamp_min(torch.finfo(one.dtype).tiny)
    return float((other - one).norm() / spread)


def _rows(outputs: Any) -> Tensor:
    return torch.cat([output.flatten(1).double() for output in tree_leaves(outputs)], dim=1)


def measure(
    folder: Path,
    *,
    batches: Sequence[int] = (64,),
    engines: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 7,
    allow_import: Collection[str] = (),
) -> Comparison:
    """Pack a finished run, compare its speed with other engines, and save size and speeds in its folder for reports.

    The program loaded from the file is timed, not the compiled one, which may run parts in PyTorch if they are faster
    there. A report shows one speed, that of the largest batch.
    """
    from rvsm.lowering import compile
    from rvsm.records import Run

    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not the folder of a run, so its speeds cannot be saved there; give a finished run"
        )
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
    integers: bool = False,
    batches: Sequence[int] = (1, 16, 64),
    engines: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 7,
    allow_import: Collection[str] = (),
) -> Comparison:
    """Compare engines on a run, on ``module:callable``, or on a packed file ``against`` such a network.

    With ``against``, the other engines run that network as it is, not the folded network of the file.
    """
    program = None
    if Path(source).is_file():
        if against is None:
            raise ValueError(
                f"{source} is a packed file: name the network to compare it with: --against module:callable"
            )
        program = load(source, threads=threads or torch.get_num_threads())
        known = program.plan.input_sizes()[0]
        network, shape = against, shape or known
    else:
        if against is not None:
            raise ValueError(f"--against needs a packed file, but {source} is not a file")
        network = source
    model, example = model_of(network, weights=weights, shape=shape, integers=integers, allow_import=allow_import)
    return compare(
        model, example, title=source, program=program, batches=batches, engines=engines, threads=threads, rounds=rounds
    )


def profile(
    source: str,
    out: Path,
    *,
    groups: str | None = None,
    size: int | None = None,
    exclude: Sequence[str] | None = None,
    batch: int = 64,
    threads: int | None = None,
    weights: Path | None = None,
    shape: Sequence[int] | None = None,
    integers: bool = False,
    allow_import: Collection[str] = (),
) -> Profile:
    """Measure the times of a network's layers, write them to a file, and return them.

    The zeros are those of the run's method, if the network is a run's, unless others are given.
    """
    from rvsm.splitting import profile

    if size is not None and groups != "block":
        raise ValueError(f"--size is the size of a block; give it with --groups block, not {groups}")
    require_writable(out)
    model, example = model_of(source, weights=weights, shape=shape, integers=integers, allow_import=allow_import)
    zeros: dict[str, Any] = {}
    if Path(source).is_dir():
        from rvsm.train import selection_of

        zeros = selection_of(source, allow_import=allow_import)
    if groups is not None:
        zeros["groups"] = groups if size is None else Block(size=size)
    if exclude is not None:
        zeros["exclude"] = exclude
    found = profile(model, example, **zeros, batch=batch, threads=threads)
    found.save(out)
    return found


def _load_weights(model: nn.Module, path: Path) -> None:
    """Load a safetensors file, or a ``.pt`` file that holds only tensors."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    tensors: Any
    try:
        if path.suffix == ".safetensors":
            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # safetensors and pickle raise many kinds of errors
        reason = (str(error).strip().splitlines() or [""])[0][:100]
        raise ValueError(f"{path} cannot be read as a file of tensors: {reason}") from None
    if isinstance(tensors, dict) and isinstance(tensors.get("state_dict"), dict):
        tensors = tensors["state_dict"]
    if not isinstance(tensors, dict):
        raise ValueError(f"{path} must hold a table of tensors but holds a {type(tensors).__name__}")
    fill(model, tensors, path)
