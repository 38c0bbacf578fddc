"""The engines: each prepares a batch and runs it. To add one, write a function and add a line to ``ENGINES``."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SIZES = 1 << 20  # batch sizes that torch.compile may compile for: practically no limit
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Engine:
    """An engine with a network: ``prepare`` the inputs once, then ``run`` them repeatedly."""

    prepare: Callable[[Inputs], Any]
    run: Callable[[Any], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of engine: ``build(model, examples, threads)`` raises if it is missing or cannot run the network.

    ``precision`` is the precision of its computation.
    """

    build: Callable[[nn.Module, Inputs, int], Engine]
    precision: str = "float32"


def called(program: Callable[..., Any]) -> Engine:
    """Return the engine of a program that takes the inputs as they are."""
    return Engine(tuple, lambda inputs: program(*inputs))


def _last(inputs: Inputs) -> Inputs:
    return tuple(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs)


def _half(inputs: Inputs) -> Inputs:
    return tuple(x.to(torch.bfloat16) if x.is_floating_point() else x for x in _last(inputs))


def _eager(prepare: Callable[[Inputs], Inputs], **form: Any) -> Callable[[nn.Module, Inputs, int], Engine]:
    """Return what builds PyTorch with a copy of the network in some memory format or precision."""

    def build(model: nn.Module, examples: Inputs, threads: int) -> Engine:
        network = copy.deepcopy(model).to(**form) if form else model

        def run(inputs: Inputs) -> Any:
            with torch.inference_mode():
                return network(*inputs)

        return Engine(prepare, run)

    return build


def _compiled(model: nn.Module, examples: Inputs, threads: int) -> Engine:
    torch._dynamo.reset()
    frozen = torch.compile(copy.deepcopy(model), dynamic=False, options={"freezing": True})

    def run(inputs: Inputs) -> Any:
        with torch.no_grad():
            return frozen(*inputs)

    def prepare(inputs: Inputs) -> Inputs:
        """Compile for this batch size; above its default limit of sizes, dynamo would silently run PyTorch."""
        with torch._dynamo.config.patch(recompile_limit=SIZES, accumulated_recompile_limit=SIZES):
            run(inputs)
        return inputs

    return Engine(prepare, run)


def _onnx_file(model: nn.Module, examples: Inputs, folder: str) -> Path:
    from rvsm.export import to_onnx

    path = Path(folder) / "model.onnx"
    to_onnx(model, examples, path, verify=False)
    return path


def _onnx_runtime(model: nn.Module, examples: Inputs, threads: int) -> Engine:
    from rvsm.export import onnx_feed, onnx_session

    with tempfile.TemporaryDirectory() as folder:
        session = onnx_session(_onnx_file(model, examples, folder), threads=threads)
    return Engine(onnx_feed, lambda feed: session.run(None, feed))


def _openvino(precision: str) -> Callable[[nn.Module, Inputs, int], Engine]:
    def build(model: nn.Module, examples: Inputs, threads: int) -> Engine:
        import openvino

        from rvsm.export import onnx_feed

        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision,
        }
        with tempfile.TemporaryDirectory() as folder:
            core = openvino.Core()
            compiled = core.compile_model(core.read_model(_onnx_file(model, examples, folder)), "CPU", options)
        return Engine(onnx_feed, lambda feed: list(compiled(feed).values()))

    return build


def _ours(model: nn.Module, examples: Inputs, threads: int) -> Engine:
    from rvsm.lowering import compile

    return called(compile(model, examples, threads=threads))


ENGINES: dict[str, Kind] = {
    "PyTorch": Kind(_eager(tuple)),
    "PyTorch, channels last": Kind(_eager(_last, memory_format=torch.channels_last)),
    "torch.compile": Kind(_compiled),
    "PyTorch, bfloat16": Kind(_eager(_half, dtype=torch.bfloat16, memory_format=torch.channels_last), "bfloat16"),
    "ONNX Runtime": Kind(_onnx_runtime),
    "OpenVINO": Kind(_openvino("f32")),
    "OpenVINO, bfloat16": Kind(_openvino("bf16"), "bfloat16"),
    "rvsm": Kind(_ours),
}
OURS = "rvsm"
