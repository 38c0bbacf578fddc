"""A program that needs PyTorch: for operations that the runtime does not have, or because it is faster there."""

import copy
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from rvsm.example_inputs import repeated
from rvsm.lowering.capture import Captured
from rvsm.lowering.division import Outside, TorchPart
from rvsm.lowering.draft import Key
from rvsm.runtime.execute.explanation import Explanation, Row
from rvsm.runtime.execute.program import Program
from rvsm.runtime.execute.team import thread_count
from rvsm.runtime.kernels.jit import machine
from rvsm.runtime.plan.axes import batch_size, in_order
from rvsm.runtime.schedule.step import least_seconds
from rvsm.runtime.values import Values
from rvsm.threads import torch_threads

Step = tuple[Program, list[Key], list[Key]] | TorchPart
Run = Callable[[Sequence[Tensor]], list[Tensor]]

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
        return tree_leaves(self.model(*(x.clone() for x in inputs)))


class MixedProgram:
    """Native parts and operations of PyTorch, one after the other; ``outside`` names what a file cannot have.

    That may also be something ``unusual`` in what the network takes and gives. A ``guard`` may take calls over.
    """

    def __init__(
        self,
        captured: Captured,
        steps: Sequence[Step],
        examples: Sequence[Tensor],
        *,
        threads: int | None,
        unusual: Sequence[str] = (),
    ) -> None:
        names = [name for step in steps if isinstance(step, TorchPart) for name in step.names]
        self.outside = tuple(counted(names) or unusual)
        self.threads = thread_count(threads)
        self.guard: Guard | None = None
        self._captured = replace(captured, tensors=_copies(captured, steps))
        self._steps = list(steps)
        self._image = tuple(x[:1].clone() for x in examples)  # to explain with

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        raise TypeError(
            "this program cannot be copied or pickled, because parts of it run in PyTorch:"
            f" {', '.join(self.outside)}; compile the network again where it is needed"
        )

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the network's output in its own structure, as torch tensors if the inputs are."""
        captured = self._captured
        inputs = tuple(in_order(inputs, named, [node.name for node in captured.inputs]))
        if len(inputs) != len(captured.inputs):
            raise ValueError(f"the network takes {len(captured.inputs)} inputs but {len(inputs)} are given")
        tensors = []
        for given, node in zip(inputs, captured.inputs, strict=True):
            x = given.detach() if isinstance(given, Tensor) else torch.from_numpy(np.ascontiguousarray(given))
            tensors.append(x.to("cpu", node.meta["val"].dtype))
            expected = list(node.meta["val"].shape[1:])
            if list(x.shape[1:]) != expected or not x.ndim:
                sizes = ", ".join(["batch", *map(str, expected)])
                raise ValueError(f"the input must have the shape ({sizes}) but has {tuple(x.shape)}")
        count = batch_size(tensors)
        taken = self.guard is not None and self.guard.takes(count)
        results = self._answered(tensors, self.guard.run if self.guard is not None and taken else self._run)
        answer = [result.clone() if isinstance(inputs[0], Tensor) else result.numpy() for result in results]
        return captured.packed(answer)

    def _answered(self, tensors: Sequence[Tensor], run: Run, *, threads: int | None = None) -> list[Tensor]:
        """Return the results of all images, at once or one by one."""
        with torch.inference_mode(), torch_threads(threads or self.threads):
            if self._captured.any_batch:
                return run(tensors)
            single = [run([x[k : k + 1] for x in tensors]) for k in range(len(tensors[0]))]
            return [torch.cat(parts) for parts in zip(*single, strict=True)]

    def explain(self, batch: int | None = None) -> Explanation:
        """Return a table of native layers and parts in PyTorch, with what runs there: operations, or all of it."""
        count = 1 if batch == 1 or not self._captured.any_batch else machine().lanes
        tables = {step[0]: step[0].explain(count) for step in self._steps if not isinstance(step, TorchPart)}
        images = max((table.images for table in tables.values()), default=count)
        inputs = repeated(self._image, images)
        values, rows = self._given(inputs), list[Row]()
        with torch.inference_mode(), torch_threads(1):
            for step in self._steps:
                seconds = least_seconds(partial(_perform, step, values, alone=True))
                rows += [_row(step, seconds)] if isinstance(step, TorchPart) else tables[step[0]].rows
        parts = Explanation(tuple(rows), images, self.outside)
        alone = partial(self._run, alone=True)
        table = parts.whole(least_seconds(partial(self._answered, inputs, alone, threads=1)), "between the parts")
        if self.guard is None or not self.guard.takes(images):
            return table
        whole = 1e3 * least_seconds(partial(self._answered, inputs, self.guard.run, threads=1))
        note = f"in PyTorch: the whole network ({whole:.2f} ms), which was faster there than in the parts above"
        return replace(table, note=note)

    def save(self, path: str | os.PathLike[str], *, values: Values = "float32") -> None:
        """Write the network to one file, if all of it is native: a file has only operations of the runtime."""
        if self.native is not None:
            return self.native.save(path, values=values)
        raise ValueError(f"the network cannot be saved, because it needs PyTorch for {', '.join(self.outside)}")

    @property
    def native(self) -> Program | None:
        """The native program that is all of this one, if nothing needs PyTorch."""
        step = self._steps[0] if len(self._steps) == 1 and not self.outside else None
        return None if step is None or isinstance(step, TorchPart) else step[0]

    def _run(self, inputs: Sequence[Tensor], *, alone: bool = False) -> list[Tensor]:
        values = self._given(inputs)
        for step in self._steps:
            _perform(step, values, alone=alone)
        return [values[node] for node in self._captured.outputs]

    def _given(self, inputs: Sequence[Tensor]) -> dict[Key, Any]:
        """Return the values that exist before the first step."""
        given: dict[Key, Any] = dict(zip(self._captured.inputs, inputs, strict=True))
        return given | self._captured.tensors


def _perform(step: Step, values: dict[Key, Any], *, alone: bool) -> None:
    """Add what a step makes to the values; ``alone`` on this thread only."""
    if isinstance(step, TorchPart):
        for node in step.nodes:
            arguments, options = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            function: Callable[..., Any] = node.target  # type: ignore[assignment]
            values[node] = function(*arguments, **options)
    else:
        program, sources, targets = step
        results = program.run([values[source] for source in sources], alone=alone)
        several = tuple(results.values()) if isinstance(results, dict) else results if len(targets) > 1 else (results,)
        values.update(zip(targets, several, strict=True))


def _row(part: TorchPart, seconds: float) -> Row:
    """Return the row of operations in PyTorch, of which the first is named."""
    first, *others = [f"{name} ({module})" for name, module in part.names] or ["sizes"]
    return Row("in PyTorch", f"{first} and {len(others)} more" if others else first, (), None, "", seconds)


def counted(operations: Sequence[Outside]) -> list[str]:
    """Return each operation once, with the module that it stands in, or with its number and the first of them.

    >>> counted([("aten.tanh", "a"), ("aten.erf", "b"), ("aten.tanh", "c")])
    ['aten.tanh (2 times, first in a)', 'aten.erf (b)']
    """
    counts, first = Counter(name for name, _ in operations), dict(reversed(operations))
    return [
        f"{name} ({first[name]})" if n == 1 else f"{name} ({n} times, first in {first[name]})"
        for name, n in counts.items()
    ]


def _copies(captured: Captured, steps: Sequence[Step]) -> dict[fx.Node, Any]:
    """Return copies of the tensors that PyTorch needs: the model may train on."""
    nodes = [node for step in steps if isinstance(step, TorchPart) for node in step.nodes]
    needed = {*captured.outputs, *(source for node in nodes for source in node.all_input_nodes)}
    return {
        node: tensor.clone() if isinstance(tensor, Tensor) else tensor
        for node, tensor in captured.tensors.items()
        if node in needed
    }


def guard(program: Callable[..., Any], model: nn.Module, examples: Sequence[Tensor], threads: int) -> Guard | None:
    """Return a guard for the calls at which the program is slower than the module; None if there are none."""
    slower = [_is_slower(program, model, examples, threads, batch) for batch in (1, machine().lanes)]
    return Guard(copy.deepcopy(model), *slower) if any(slower) else None


def _is_slower(
    program: Callable[..., Any], model: nn.Module, examples: Sequence[Tensor], threads: int, batch: int
) -> bool:
    inputs = repeated(examples, batch)
    least: dict[Callable[..., Any], float] = dict.fromkeys((program, model), float("inf"))
    begin = time.perf_counter()
    with torch.inference_mode(), torch_threads(threads):
        try:
            model(*inputs)
        except Exception:  # a model for other batch sizes only; then there is nothing to compare
            return False
        program(*inputs)
        for _ in range(5):
            for run in (program, model):
                start = time.perf_counter()
                run(*inputs)
                least[run] = min(least[run], time.perf_counter() - start)
            if time.perf_counter() - begin > LIMIT:
                break
    return least[program] > MARGIN * least[model]
