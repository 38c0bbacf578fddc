"""ONNX: the finished model for other engines, checked by running it in ONNX Runtime."""

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rvsm.example_inputs import difference, example_tuple, repeated, trial_inputs
from rvsm.extras import needed_by
from rvsm.files import replacing

TOLERANCE = 1e-4


def to_onnx(
    model: nn.Module, example_input: Tensor | Sequence[Tensor], path: str | os.PathLike[str], *, verify: bool = True
) -> float | None:
    """Write ``model`` as ONNX, for batches of any size, and return the largest relative difference of its outputs.

    The outputs of the file in ONNX Runtime are compared with the model's for batches of 1 and 3; if they differ by more
    than 1e-4 of the largest output, nothing is written and a ValueError is raised. With ``verify=False`` ONNX Runtime
    is not needed, and None is returned. This function needs the extra ``onnx``.

    Args:
        model: a module in eval mode, on the CPU, with its final weights: zeros are written as zeros.
        example_input: a batch, or a tuple of several inputs.
        path: the output file; it is written atomically.
        verify: compare the outputs in ONNX Runtime.

    """
    training = [name or "the model itself" for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(f"the model is in train mode ({training[0]}); call model.eval() first")
    with needed_by("rvsm.export.to_onnx", extra="onnx"):
        for library in ("onnx", "onnxscript", *(["onnxruntime"] if verify else [])):
            import_module(library)
    examples = example_tuple(example_input)
    with replacing(Path(path)) as temporary:
        _export(model, repeated(examples, max(2, len(examples[0]))), str(temporary))  # a batch of 1 would be fixed
        found = _verified(model, examples, str(temporary)) if verify else None
        if found is not None and not found <= TOLERANCE:
            raise ValueError(
                f"outputs in ONNX Runtime must agree to {TOLERANCE:g} but differ by {found:.1e}; nothing was written"
            )
    return found


def _export(model: nn.Module, examples: tuple[Tensor, ...], path: str) -> None:
    """Call torch's exporter without its log messages."""
    names = [f"input_{k}" for k in range(len(examples))]
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


def _verified(model: nn.Module, examples: tuple[Tensor, ...], path: str) -> float:
    """Return the largest difference between the file in ONNX Runtime and the model."""
    session = onnx_session(path, threads=1)
    results, expected = [], []
    for batch in (1, 3):
        inputs = trial_inputs(examples, batch)
        results.append(session.run(None, onnx_feed(inputs)))
        with torch.no_grad():
            expected.append(model(*inputs))
    return difference(results, expected)


def onnx_feed(inputs: Sequence[Tensor]) -> dict[str, Any]:
    """Return inputs in the form that a session of a file from ``to_onnx`` takes."""
    return {f"input_{k}": x.numpy() for k, x in enumerate(inputs)}


def onnx_session(path: str | os.PathLike[str], *, threads: int) -> Any:
    """Return an ONNX Runtime session on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
