"""The device of a training, and the fastest precision and memory layout on it."""

import platform
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from rvsm import __version__, bfloat16
from rvsm.config import Training


@dataclass(frozen=True)
class Placement:
    """A device, with the precision and the memory layout used on it."""

    device: str
    precision: str
    channels_last: bool

    def autocast(self) -> torch.autocast:
        """Return the context for forward passes."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")


def place(training: Training) -> Placement:
    """Choose what the options leave open.

    The choice depends on the machine alone, not on a measurement at run time. All runs of a table, and both halves of a
    resumed run, are then computed in the same way. benchmarks/README.md has the measurements behind it.
    """
    device = training.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"training.device {device!r} cannot be used: {reason}; choose cpu, cuda or auto") from None
    precision = training.precision
    if precision == "auto":
        precision = "bfloat16" if _multiplies_bfloat16(kind) else "float32"
    elif precision == "bfloat16" and kind == "cpu" and bfloat16.crashes():
        variable, value = bfloat16.WITHOUT_AMX
        raise ValueError(
            "training.precision 'bfloat16' would crash PyTorch on this machine, which announces AMX instructions but"
            f" does not execute them; choose float32, or set the environment variable {variable}={value}"
        )
    return Placement(device, precision, training.channels_last != "false")


def fit(placement: Placement, model: nn.Module, training: Training) -> Placement:
    """Return a placement on which a model can be trained.

    On processors with AVX2, the gradient of a strided 1×1 convolution with fewer than 8 input channels writes beyond
    its buffer if the layout is channels-last (torch 2.13 with oneDNN). The process then crashes, now or later.
    """
    crashing = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Conv2d)
        if layer.kernel_size == (1, 1) and layer.stride != (1, 1) and layer.in_channels < 8
    ]
    if not (crashing and placement.channels_last and placement.device == "cpu"):
        return placement
    if training.channels_last == "true":
        raise ValueError(
            f"training.channels_last 'true' would crash PyTorch in {crashing[0]!r}, a 1×1 convolution with a stride and"
            " fewer than 8 input channels; choose auto or false"
        )
    return replace(placement, channels_last=False)


def describe(placement: Placement, processes: int = 1) -> dict[str, Any]:
    """Return the machine and the versions, to be stored with the results of a run."""
    return {
        "machine": processor(),
        "processes": processes,
        "threads": torch.get_num_threads(),  # of each process
        **asdict(placement),
        "versions": {
            "rvsm": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": sys.version.split()[0],
        },
    }


def memory() -> float | None:
    """Return the resident memory of the process in megabytes, if the system provides it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    import resource

    return pages * resource.getpagesize() / 1e6


def _multiplies_bfloat16(kind: str) -> bool:
    """Return whether the hardware multiplies bfloat16; without that, autocast is slower than float32."""
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if kind != "cpu":
        return False
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    announced = bool(known.get("avx512_bf16") or known.get("amx_bf16") or known.get("bf16"))
    return announced and not bfloat16.crashes()


def processor() -> str:
    """Return the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
