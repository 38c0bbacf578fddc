"""A program that needs PyTorch: for operations that the runtime does not have, or because it is faster there."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from rvsm.lowering.capture import Captured
from rvsm.lowering.guard import Guard
from rvsm.lowering.parts import TorchPart
from rvsm.lowering.threads import torch_threads
from rvsm.runtime.arrays import batch_of
from rvsm.runtime.explanation import Explanation
from rvsm.runtime.jit import machine
from rvsm.runtime.program import Program
from rvsm.runtime.team import thread_count

Step = tuple[Program, list[fx.Node], list[fx.Node]] | TorchPart


class MixedProgram:
    """Native parts and operations of PyTorch, one after the other; ``outside`` names what a file cannot have.

    A ``guard`` may take calls over.
    """

    def __init__(
        self, captured: Captured, steps: Sequence[Step], outside: Sequence[str], *, threads: int | None
    ) -> None:
        self.outside = tuple(outside)
        self.threads = thread_count(threads)
        self.guard: Guard | None = None
        self._captured = replace(captured, tensors=_copies(captured, steps))
        self._steps = list(steps)

    def __call__(self, *inputs: Any) -> Any:
        """Return the network's output (a tuple if it has several), as torch tensors if the inputs are."""
        captured = self._captured
        if len(inputs) != len(captured.inputs):
            raise ValueError(f"the network takes {len(captured.inputs)} inputs but {len(inputs)} are given")
        tensors = [_tensor(x, node.meta["val"].dtype) for x, node in zip(inputs, captured.inputs, strict=True)]
        for x, node in zip(tensors, captured.inputs, strict=True):
            expected = list(node.meta["val"].shape[1:])
            if list(x.shape[1:]) != expected or not x.ndim:
                sizes = ", ".join(["batch", *map(str, expected)])
                raise ValueError(f"the input must have the shape ({sizes}) but has {tuple(x.shape)}")
        count = batch_of(tensors)
        run = self.guard.run if self.guard is not None and self.guard.takes(count) else self._run
        with torch.inference_mode(), torch_threads(self.threads):
            if captured.any_batch:
                results = run(tensors)
            else:
                single = [run([x[k : k + 1] for x in tensors]) for k in range(count)]
                results = [torch.cat(parts) for parts in zip(*single, strict=True)]
        given = [result.clone() if isinstance(inputs[0], Tensor) else result.numpy() for result in results]
        return tuple(given) if captured.several else given[0]

    def explain(self, batch: int | None = None) -> Explanation:
        """Return a table of the native layers, and what runs in PyTorch: operations, or the whole network."""
        tables = [step[0].explain(batch) for step in self._steps if not isinstance(step, TorchPart)]
        rows = tuple(row for table in tables for row in table.rows)
        taken = self.guard is not None and self.guard.takes(1 if batch == 1 else machine().lanes)
        outside = ("the whole network, which was faster there than in the parts above",) if taken else self.outside
        return Explanation(rows, max((table.images for table in tables), default=0), outside)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network into one file, if all of it is native: a file has operations of the runtime only."""
        if self.native is not None:
            return self.native.save(path)
        raise ValueError(f"the network cannot be saved, because it needs PyTorch for {', '.join(self.outside)}")

    @property
    def native(self) -> Program | None:
        """The program that is all of this one, if PyTorch is needed for nothing."""
        step = self._steps[0] if len(self._steps) == 1 and not self.outside else None
        return None if step is None or isinstance(step, TorchPart) else step[0]

    def _run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        values: dict[fx.Node, Any] = dict(self._captured.tensors)
        values.update(zip(self._captured.inputs, inputs, strict=True))
        for step in self._steps:
            if isinstance(step, TorchPart):
                for node in step.nodes:
                    arguments, options = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                    function: Callable[..., Any] = node.target  # type: ignore[assignment]
                    values[node] = function(*arguments, **options)
            else:
                program, sources, targets = step
                results = program(*(values[source] for source in sources))
                values.update(zip(targets, results if len(targets) > 1 else (results,), strict=True))
        return [values[node] for node in self._captured.outputs]


def _copies(captured: Captured, steps: Sequence[Step]) -> dict[fx.Node, Any]:
    """Return copies of the tensors that PyTorch needs: the model may train on."""
    nodes = [node for step in steps if isinstance(step, TorchPart) for node in step.nodes]
    needed = {*captured.outputs, *(source for node in nodes for source in node.all_input_nodes)}
    return {
        node: tensor.clone() if isinstance(tensor, Tensor) else tensor
        for node, tensor in captured.tensors.items()
        if node in needed
    }


def _tensor(x: Any, dtype: torch.dtype) -> Tensor:
    given = x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x))
    return given.to("cpu", dtype)
