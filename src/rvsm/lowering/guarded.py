"""A program that is never slower than the dense network: where PyTorch was faster, PyTorch runs it."""

import copy
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from rvsm.lowering.draft import Floats
from rvsm.lowering.threads import torch_threads
from rvsm.runtime import Program
from rvsm.runtime.explanation import Explanation
from rvsm.runtime.jit import machine
from rvsm.runtime.plan import Plan

MARGIN = 1.1  # PyTorch must be faster by so much: a measurement is not exact
LIMIT = 0.5  # seconds for one comparison


class GuardedProgram(Program):
    """A program with the module it was made of, which takes over single images or batches."""

    def __init__(self, plan: Plan, model: nn.Module, *, threads: int | None, single: bool, batches: bool) -> None:
        super().__init__(plan, threads=threads)
        self._model = copy.deepcopy(model)
        self._single_in_torch, self._batches_in_torch = single, batches

    def explain(self, batch: int | None = None) -> Explanation:
        """Return the table of the native layers, and say if PyTorch runs all of them instead."""
        table = super().explain(batch)
        if not self._in_torch(1 if batch == 1 else machine().lanes):
            return table
        return replace(table, outside=("the whole network, which was faster there than in the kernels above",))

    def _compute(self, inputs: Sequence[Floats], count: int) -> list[Floats]:
        """Return the outputs; the module gets copies of the inputs, since it may change them in place."""
        if not self._in_torch(count):
            return super()._compute(inputs, count)
        with torch.inference_mode(), torch_threads(self.threads):
            results = self._model(*map(torch.tensor, inputs))
        return [result.numpy().copy() for result in (results if isinstance(results, tuple | list) else (results,))]

    def _in_torch(self, count: int) -> bool:
        return self._single_in_torch if count < machine().lanes // 2 else self._batches_in_torch


def guarded(program: Program, model: nn.Module, examples: tuple[Tensor, ...], threads: int | None) -> Program:
    """Return the program itself, or one that leaves what it is slower at to PyTorch."""
    slower = [_is_slower(program, model, examples, batch) for batch in (1, machine().lanes)]
    if not any(slower):
        return program
    return GuardedProgram(program.plan, model, threads=threads, single=slower[0], batches=slower[1]).prepare()


def _is_slower(program: Program, model: nn.Module, examples: tuple[Tensor, ...], batch: int) -> bool:
    inputs = [torch.cat([x] * -(-batch // len(x)))[:batch] for x in examples]
    least = {"program": float("inf"), "model": float("inf")}
    begin = time.perf_counter()
    with torch.inference_mode(), torch_threads(program.threads):
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
