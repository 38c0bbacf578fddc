"""The program: a callable plan."""

import os
from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.execute.explanation import Explanation, explain_stage
from rvsm.runtime.execute.stage import Stage
from rvsm.runtime.execute.team import thread_count
from rvsm.runtime.file import decode, encode, write
from rvsm.runtime.kernels.jit import machine
from rvsm.runtime.locks import Lock
from rvsm.runtime.plan.axes import batch_array, batch_size, in_order, like
from rvsm.runtime.plan.plan import Plan
from rvsm.runtime.schedule.layout import TooLargeError
from rvsm.runtime.schedule.limits import Limit
from rvsm.runtime.schedule.scheduler import schedule
from rvsm.runtime.schedule.step import Packs, least_seconds
from rvsm.runtime.values import Values

Floats = NDArray[np.float32]
SPILL = 160 << 20  # bytes: if maps of a vector of images need more, caches do not hold them, and images come one by one
WORTH = 0.9  # the most that vectors of images may take of the time of single ones, since they need so much more memory


class Program:
    """A network compiled for this CPU. Call it with images; any number of threads may call it at once.

    Batches are cut into vectors of images. Single images, and remainders if that is faster, use kernels that run over
    neighbouring positions.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        threads: int | None = None,
        choose: str | None = None,
        limit: Limit | None = None,
        packs: Packs | None = None,
    ) -> None:
        if choose not in (None, "sparse", "dense"):
            raise ValueError(f"choose must be None, 'sparse' or 'dense' but is {choose!r}")
        self.plan = plan
        self.threads = thread_count(threads)
        self._choose = choose
        self._limit = limit or Limit()
        self._packs = packs  # what programs of the same weights share
        self._lock = Lock()
        self._stages: dict[str, Stage] = {}
        self._names = [array.name for array in plan.arrays]
        self._inputs = list(zip(plan.input_sizes(), (array.integer for array in plan.arrays), strict=True))
        self._outputs = plan.output_sizes()
        self._turned = [o.batch for o in plan.outputs] if any(o.batch for o in plan.outputs) else []
        self._lanes = machine().lanes
        self._tail_limit = 1  # up to this many images, one by one is faster than a partly filled vector

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the network's output (a tuple if it has several), as torch tensors if the inputs are.

        Several inputs can be given by name. Results that have names are returned as a dict.
        """
        return self.run(in_order(inputs, named, self._names))

    def run(self, inputs: Sequence[Any], *, alone: bool = False) -> Any:
        """Return the outputs for these inputs; with ``alone``, on the calling thread only, as timed by ``explain``."""
        given = zip(inputs, self._inputs, strict=False)
        checked = [batch_array(x, sizes, integer=integer) for x, (sizes, integer) in given]
        if len(inputs) != len(self._inputs):
            raise ValueError(f"the network takes {len(self._inputs)} inputs but {len(inputs)} are given")
        outputs = self._compute(checked, batch_size(checked), alone=alone)
        if self._turned:
            outputs = [np.moveaxis(array, 0, dim) for array, dim in zip(outputs, self._turned, strict=True)]
        results = tuple(like(output, inputs[0]) for output in outputs)
        if self.plan.outputs[0].name:
            return dict(zip((output.name for output in self.plan.outputs), results, strict=True))
        return results[0] if len(results) == 1 else results

    def explain(self, batch: int | None = None) -> Explanation:
        """Return a table of the layers: shape, sparsity, kernel, time on one thread and fraction of a call.

        ``batch`` = 1 explains the kernels for single images; otherwise one vector of images is timed.
        """
        stage = self._single if batch == 1 else self._batch
        inputs, outputs = self._dummies(stage.schedule.images)
        table = explain_stage(self.plan, stage, inputs, outputs)
        known = zip(inputs, self.plan.input_sizes(), self.plan.arrays, strict=True)
        images = [x.reshape(len(x), *size).astype(np.int32 if a.integer else np.float32) for x, size, a in known]
        return table.whole(least_seconds(partial(self.run, images, alone=True)), "call")

    def save(self, path: str | os.PathLike[str], *, values: Values = "float32") -> None:
        """Write the network to one file, which ``rvsm.runtime.load`` reads without torch.

        With ``values`` = "bfloat16" the file is about half as large, and with "int8", which has a scale for each output
        channel, less than that. The outputs change a little; ``rvsm pack`` measures by how much.
        """
        write(self.plan, Path(path), values)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle through the file format, which is checked."""
        return _restored, (encode(self.plan), self.threads, self._choose, self._limit)

    @property
    def memory(self) -> int:
        """The bytes that it keeps, including those of a call; 0 before it is prepared."""
        return sum(stage.schedule.memory for stage in set(self._stages.values()))

    def prepare(self, *, batches: bool = True) -> "Program":
        """Compile for single images now, and for ``batches``, instead of at the first call."""
        self._made("batch" if batches else "single")
        return self

    def _compute(self, inputs: Sequence[Floats], count: int, *, alone: bool) -> list[Floats]:
        """Return the outputs for ``count`` images."""
        if count == 1 and (single := self._single).is_quick():
            return single.quickly(inputs, self._outputs)
        outputs = [np.empty((count, *sizes), dtype=np.float32) for sizes in self._outputs]
        if count == 1 and self._tail_limit > 0:  # batches need not be compiled
            self._single.perform(inputs, outputs, range(1), alone=alone)
        elif count:
            batch, single = self._batch, self._single
            tail = 0 if batch is single else count % self._lanes
            if tail > self._tail_limit:
                tail = 0
            if tail < count:
                batch.perform(inputs, outputs, range(count - tail), alone=alone)
            if tail:
                single.perform(inputs, outputs, range(count - tail, count), alone=alone)
        return outputs

    @property
    def _batch(self) -> Stage:
        """The stage for vectors of images, or the one for single images if vectors are too large."""
        return self._made("batch")

    @property
    def _single(self) -> Stage:
        """The stage for single images."""
        return self._made("single")

    def _made(self, name: str) -> Stage:
        """Return a stage, which the first call makes; that for batches needs the other one."""
        if name not in self._stages:
            with self._lock:
                if "single" not in self._stages:  # another thread may have made it meanwhile
                    self._stages["single"] = self._stage(images=False)
                if name not in self._stages:
                    self._stages["batch"] = self._batches(self._stages["single"])
        return self._stages[name]

    def _batches(self, single: Stage) -> Stage:
        """Return the stage for vectors of images, or the one for single images if that is as fast or smaller."""
        self._tail_limit = self._lanes
        if self._lanes * single.schedule.arena_bytes > SPILL:
            return single
        try:
            batch = self._stage(images=True, taken=single.schedule.memory)
        except TooLargeError:
            return single
        ratio = batch.chunks_of(single)
        self._tail_limit = int(ratio)
        return batch if ratio < WORTH * self._lanes else single  # single ones, for tokens, which fill vectors alone

    def _stage(self, *, images: bool, taken: int = 0) -> Stage:
        made = schedule(
            self.plan, images=images, threads=self.threads, choose=self._choose, limit=self._limit, taken=taken,
            packs=self._packs,
        )  # fmt: skip
        stage = Stage(made, self.threads)
        stage.measure(*self._dummies(made.images))
        return stage

    def _dummies(self, count: int) -> tuple[list[Floats], list[Floats]]:
        """Return arrays to time a stage with; the values do not matter, so all arrays may share memory."""
        inputs = [(count, *shape) for shape in self.plan.inputs]
        outputs = [(count, *sizes) for sizes in self.plan.output_sizes()]
        zeros, results = (np.zeros(max(map(prod, shapes)), dtype=np.float32) for shapes in (inputs, outputs))
        return ([zeros[: prod(s)].reshape(s) for s in inputs], [results[: prod(s)].reshape(s) for s in outputs])


def _restored(data: bytes, threads: int, choose: str | None, limit: Limit) -> Program:
    plan = decode(data, "the pickled program")
    assert isinstance(plan, Plan)
    return Program(plan, threads=threads, choose=choose, limit=limit).prepare()
