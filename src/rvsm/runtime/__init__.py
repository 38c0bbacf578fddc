"""Run sparse networks on a CPU: NumPy, safetensors and llvmlite are enough; torch is not imported.

>>> import rvsm.runtime
>>> program = rvsm.runtime.load("model.rvsm")  # doctest: +SKIP
>>> program(images)  # doctest: +SKIP
"""

import os
from pathlib import Path

from rvsm.runtime.description import describe
from rvsm.runtime.execute.program import Program
from rvsm.runtime.execute.sequences import SequenceProgram
from rvsm.runtime.family import Family
from rvsm.runtime.file import read
from rvsm.runtime.plan.plan import Plan
from rvsm.runtime.schedule.layout import TooLargeError
from rvsm.runtime.schedule.limits import Limit


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, limit: Limit | None = None
) -> Program | SequenceProgram:
    """Read a network that ``save`` has written, and compile it for this CPU.

    It is compiled for single images. The first batch takes longer, because the network is compiled for batches then, or
    call ``prepare()`` beforehand.

    The default for ``threads`` is ``OMP_NUM_THREADS``, or all cores that the process may use. A file that is damaged or
    not an rvsm file raises a ValueError. So does a network that would need more memory or time than ``limit`` allows;
    the default is 8 GiB, and about a minute for one operation.
    """
    network = read(Path(path))
    try:
        if isinstance(network, Family):
            return SequenceProgram(network, threads=threads, limit=limit).prepare()
        return Program(network, threads=threads, limit=limit).prepare(batches=False)
    except TooLargeError as error:
        raise TooLargeError(f"{path} is too large: {error}") from None


__all__ = ["Limit", "Plan", "Program", "SequenceProgram", "describe", "load"]
