"""A program for sequences of any length: one for each length, made when it is first needed."""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rvsm.runtime.execute.explanation import Explanation
from rvsm.runtime.execute.program import Program
from rvsm.runtime.execute.team import thread_count
from rvsm.runtime.family import Family
from rvsm.runtime.file import decode, encode, write
from rvsm.runtime.locks import Lock
from rvsm.runtime.plan.axes import in_order
from rvsm.runtime.plan.plan import Plan
from rvsm.runtime.schedule.limits import Limit
from rvsm.runtime.schedule.step import Packs
from rvsm.runtime.values import Values

KEPT = 64  # programs, as far as the limit of memory allows; of more lengths, those that were used last are kept


class SequenceProgram:
    """A network compiled for this CPU, for sequences of ``shortest`` to ``longest`` positions and any number of them.

    The first call with a length takes longer, because its program is made then; ``prepare`` does so beforehand. Any
    number of threads may call it at once. ``pack`` makes of several results what the model returns, if that is
    no tuple or dict.
    """

    def __init__(
        self,
        family: Family,
        *,
        threads: int | None = None,
        limit: Limit | None = None,
        pack: Callable[[Sequence[Any]], Any] | None = None,
    ) -> None:
        self.family = family
        self.threads = thread_count(threads)
        self._limit = limit or Limit()
        self._pack = pack
        self._packs: Packs = {}  # the weights in the order in which kernels read them, for all lengths
        self._lock = Lock()
        self._programs: OrderedDict[int, Program] = OrderedDict()
        self._names = [array.name for array in family.bare(family.longest).arrays]
        self._place = self._find()

    @property
    def shortest(self) -> int:
        """The positions of the shortest sequences: usually 1, but more if windows need more."""
        return self.family.shortest

    @property
    def longest(self) -> int:
        """The positions of the longest sequences."""
        return self.family.longest

    @property
    def plan(self) -> Plan:
        """The plan of the longest sequences."""
        return self.family.plan(self.longest)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the network's output for these sequences, all of which have the same length."""
        given = in_order(inputs, named, self._names)
        result = self.program(self._length(given)).run(given)
        if self._pack is None:
            return result
        return self._pack(list(result.values()) if isinstance(result, dict) else result)

    def program(self, length: int) -> Program:
        """Return the program for sequences of one length."""
        with self._lock:
            if length not in self._programs:
                plan = self.family.plan(length)
                program = Program(plan, threads=self.threads, limit=self._limit, packs=self._packs)
                self._programs[length] = program
            self._programs.move_to_end(length)
            while len(self._programs) > KEPT or (len(self._programs) > 1 and self._memory() > self._limit.memory):
                self._programs.popitem(last=False)
            return self._programs[length]

    def _memory(self) -> int:
        return sum(program.memory for program in self._programs.values())

    def prepare(self, *lengths: int) -> "SequenceProgram":
        """Make the programs for some lengths now, by default for the longest sequences."""
        for length in lengths or (self.longest,):
            self.program(length).prepare()
        return self

    def explain(self, batch: int | None = None, length: int | None = None) -> Explanation:
        """Return a table of the layers, see ``Program.explain``, for a length, by default the longest."""
        return self.program(self.longest if length is None else length).explain(batch)

    def save(self, path: str | os.PathLike[str], *, values: Values = "float32") -> None:
        """Write the network to one file, see ``Program.save``."""
        write(self.family, Path(path), values)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle through the file format, which is checked."""
        return _restored, (encode(self.family), self.threads, self._limit)

    def _find(self) -> tuple[int, int]:
        """Return an input, and which of its dimensions is the length of the sequences."""
        lengths = (self.longest, max(1, self.longest - 1))
        sizes = zip(*(self.family.bare(n).input_sizes() for n in lengths), strict=True)
        for k, (long, short) in enumerate(sizes):
            for dim, pair in enumerate(zip(long, short, strict=False)):
                if pair == lengths:
                    return k, 1 + dim
        raise ValueError("no input has the length of the sequences")

    def _length(self, inputs: Sequence[Any]) -> int:
        k, dim = self._place
        sizes = np.shape(inputs[k]) if k < len(inputs) else ()
        return sizes[dim] if dim < len(sizes) else self.longest  # whose program says what is wrong


def _restored(data: bytes, threads: int, limit: Limit | None) -> SequenceProgram:
    family = decode(data, "the pickled program")
    assert isinstance(family, Family)
    return SequenceProgram(family, threads=threads, limit=limit)
