"""ONNX: the finished model for other engines, checked by running it in ONNX Runtime."""

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rvsm.files import replacing

TOLERANCE = 1e-4


def to_onnx(
    model: nn.Module, example_input: Tensor | Sequence[Tensor], path: str | os.PathLike[str], *, verify: bool = True
) -> float | None:
    """Write ``model`` as ONNX, for batches of any size, and return the largest relative difference of its outputs.

    The outputs of the file in ONNX Runtime are compared with the model's for batches of 1 and 3; if they differ by more
    than 1e-4 of the largest output, nothing is written and a ValueError is raised. With ``verify=False`` ONNX Runtime
    is not needed, and None is returned.

    Args:
        model: a module in eval mode, on the CPU, with its zeros where they are: they are written as they are.
        example_input: a batch, or a tuple of several inputs.
        path: the file to write; it appears whole or not at all.
        verify: compare in ONNX Runtime.

    """
    training = [name or "the model itself" for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(f"the model is in train mode ({training[0]}); call model.eval() first")
    examples = (example_input,) if isinstance(example_input, Tensor) else tuple(example_input)
    two = tuple(torch.cat([x, x]) if len(x) == 1 else x for x in examples)  # a batch of 1 would be taken as fixed
    names = [f"input_{k}" for k in range(len(two))]
    with replacing(Path(path)) as temporary:
        _export(model, two, names, str(temporary))
        difference = _difference(model, examples, names, str(temporary)) if verify else None
        if difference is not None and not difference <= TOLERANCE:
            raise ValueError(f"the exported network differs by {difference:.1e} in ONNX Runtime; it was not written")
    return difference


def _export(model: nn.Module, examples: tuple[Tensor, ...], names: list[str], path: str) -> None:
    """Call torch's exporter without its chatter."""
    dynamic = tuple({0: torch.export.Dim("batch")} for _ in examples)
    loggers = [logging.getLogger(name) for name in ("onnxscript", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model, examples, path, input_names=names, dynamic_shapes=dynamic, dynamo=True, verbose=False,
                external_data=False,
            )  # fmt: skip
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _difference(model: nn.Module, examples: tuple[Tensor, ...], names: list[str], path: str) -> float:
    """Return the largest difference of an output, relative to the largest output."""
    session = onnx_session(path, threads=1)
    generator = torch.Generator().manual_seed(0)
    differences = []
    for batch in (1, 3):
        inputs = [torch.randn(batch, *x.shape[1:], generator=generator, dtype=x.dtype) for x in examples]
        with torch.no_grad():
            expected = model(*inputs)
        several = expected if isinstance(expected, tuple | list) else (expected,)
        results = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
        for result, wanted in zip(results, several, strict=True):
            found = torch.from_numpy(result)
            scale = max(float(wanted.abs().max()), 1e-12)
            differences.append(float((found - wanted).abs().max()) / scale)
    return float(torch.tensor(differences, dtype=torch.float64).max())  # NaN if one is


def onnx_session(path: str | os.PathLike[str], *, threads: int) -> Any:
    """Return an ONNX Runtime session on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
