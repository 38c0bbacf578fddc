"""The engines, each as what prepares a batch and runs it; adding one is a function and a line in ``ENGINES``."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Run = Callable[[Any], Any]


@dataclass(frozen=True)
class Engine:
    """An engine with a network in it: ``prepare`` a batch once, then ``run`` it again and again."""

    prepare: Callable[[Tensor], Any]
    run: Run


@dataclass(frozen=True)
class Kind:
    """An engine to be had: ``build(model, example, threads)`` raises if it is not installed or cannot take the network.

    ``precision`` is what it computes in.
    """

    build: Callable[[nn.Module, Tensor, int], Engine]
    precision: str = "float32"


def _same(x: Tensor) -> Tensor:
    return x


def _inference(model: Callable[[Tensor], Any]) -> Run:
    def run(x: Tensor) -> Any:
        with torch.inference_mode():
            return model(x)

    return run


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def _eager(model: nn.Module, example: Tensor, threads: int) -> Engine:
    return Engine(_same, _inference(model))


def _channels_last(model: nn.Module, example: Tensor, threads: int) -> Engine:
    return Engine(_last, _inference(copy.deepcopy(model).to(memory_format=torch.channels_last)))  # type: ignore[call-overload]


def _bfloat16(model: nn.Module, example: Tensor, threads: int) -> Engine:
    half = copy.deepcopy(model).to(torch.bfloat16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Engine(lambda x: _last(x).to(torch.bfloat16), _inference(half))


def _compiled(model: nn.Module, example: Tensor, threads: int) -> Engine:
    torch._dynamo.reset()
    frozen = torch.compile(copy.deepcopy(model), dynamic=False, options={"freezing": True})

    def run(x: Tensor) -> Any:
        with torch.no_grad():
            return frozen(x)

    return Engine(_same, run)


def _onnx_file(model: nn.Module, example: Tensor, folder: str) -> Path:
    from rvsm.export import to_onnx

    path = Path(folder) / "model.onnx"
    to_onnx(model, example, path, verify=False)
    return path


def _onnx_runtime(model: nn.Module, example: Tensor, threads: int) -> Engine:
    from rvsm.export.onnx import onnx_session

    with tempfile.TemporaryDirectory() as folder:
        session = onnx_session(_onnx_file(model, example, folder), threads=threads)
    name = session.get_inputs()[0].name
    return Engine(lambda x: x.numpy(), lambda x: session.run(None, {name: x})[0])


def _openvino(precision: str) -> Callable[[nn.Module, Tensor, int], Engine]:
    def build(model: nn.Module, example: Tensor, threads: int) -> Engine:
        import openvino

        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision,
        }
        with tempfile.TemporaryDirectory() as folder:
            core = openvino.Core()
            compiled = core.compile_model(core.read_model(_onnx_file(model, example, folder)), "CPU", options)
        return Engine(lambda x: x.numpy(), lambda x: compiled(x)[0])

    return build


def _ours(model: nn.Module, example: Tensor, threads: int) -> Engine:
    from rvsm.lowering import compile

    return Engine(_same, compile(model, example, threads=threads))


ENGINES: dict[str, Kind] = {
    "PyTorch": Kind(_eager),
    "PyTorch, channels last": Kind(_channels_last),
    "torch.compile": Kind(_compiled),
    "PyTorch, bfloat16": Kind(_bfloat16, "bfloat16"),
    "ONNX Runtime": Kind(_onnx_runtime),
    "OpenVINO": Kind(_openvino("f32")),
    "OpenVINO, bfloat16": Kind(_openvino("bf16"), "bfloat16"),
    "rvsm": Kind(_ours),
}
OURS = "rvsm"
