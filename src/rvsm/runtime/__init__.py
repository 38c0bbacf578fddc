"""Run sparse networks on a CPU: NumPy, safetensors and llvmlite are enough; torch is not imported.

>>> import rvsm.runtime
>>> program = rvsm.runtime.load("model.rvsm")  # doctest: +SKIP
>>> program(images)  # doctest: +SKIP
"""

import os
from pathlib import Path

from rvsm.runtime.description import describe
from rvsm.runtime.plan import Plan
from rvsm.runtime.program import Program


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> Program:
    """Read a network that ``Program.save`` has written, and compile it for this CPU.

    ``threads`` is ``OMP_NUM_THREADS`` if that is set, else all cores that the process may use. A file that is damaged
    or not of rvsm is a ValueError.
    """
    from rvsm.runtime.file import read

    return Program(read(Path(path)), threads=threads).prepare()


__all__ = ["Plan", "Program", "describe", "load"]
