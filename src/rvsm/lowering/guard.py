"""The guard: whatever a program consists of, the network as a whole runs in PyTorch where it was faster there."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rvsm.example_inputs import repeated
from rvsm.runtime.kernels.jit import machine
from rvsm.threads import torch_threads

MARGIN = 1.1  # PyTorch must be faster by so much: a measurement is not exact
LIMIT = 0.5  # seconds for one comparison


@dataclass(frozen=True, eq=False)
class Guard:
    """A copy of the module that a program was made of, which takes over single images or batches."""

    model: nn.Module
    single: bool
    batches: bool

    def takes(self, count: int) -> bool:
        """Return whether the module takes over batches of this size."""
        return self.single if count < machine().lanes // 2 else self.batches

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs; the module gets copies of the inputs, since it may change them in place."""
        results = self.model(*(x.clone() for x in inputs))
        return list(results) if isinstance(results, tuple | list) else [results]


def guard(program: Callable[..., Any], model: nn.Module, examples: Sequence[Tensor], threads: int) -> Guard | None:
    """Return a guard for the calls at which the program is slower than the module; None if there are none."""
    slower = [_is_slower(program, model, examples, threads, batch) for batch in (1, machine().lanes)]
    return Guard(copy.deepcopy(model), *slower) if any(slower) else None


def _is_slower(
    program: Callable[..., Any], model: nn.Module, examples: Sequence[Tensor], threads: int, batch: int
) -> bool:
    inputs = repeated(examples, batch)
    least = {"program": float("inf"), "model": float("inf")}
    begin = time.perf_counter()
    with torch.inference_mode(), torch_threads(threads):
        try:
            model(*inputs)
        except Exception:  # a model for other batch sizes only; then there is nothing to compare
            return False
        program(*inputs)
        for _ in range(5):
            for name, run in (("program", program), ("model", model)):
                start = time.perf_counter()
                run(*inputs)
                least[name] = min(least[name], time.perf_counter() - start)
            if time.perf_counter() - begin > LIMIT:
                break
    return least["program"] > MARGIN * least["model"]
