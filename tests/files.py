"""Files of networks, run by a process that does not import PyTorch."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_CODE = """
import sys
from pathlib import Path
import numpy as np
import rvsm.runtime
programs = {{}}
for name, file in zip(sys.argv[1::2], sys.argv[2::2]):
    given = np.load(f"{{name}}.npz")
    if file not in programs:
        programs[file] = {load}
    found = programs[file](*(given[key] for key in given.files))
    named = found if isinstance(found, dict) else dict(enumerate(found if isinstance(found, tuple) else [found]))
    np.savez(f"{{name}} results.npz", **{{str(key): value for key, value in named.items()}})
assert "torch" not in sys.modules
"""


def run_files(
    folder: Path,
    cases: Mapping[str, tuple[str, Sequence[Tensor]]],
    *,
    load: str = "rvsm.runtime.load(file, threads=1)",
) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the results of each case, a file in the folder and its inputs; those without names have numbers.

    All cases run in one process. ``load`` is the code that makes a program of a file.
    """
    for name, (_, given) in cases.items():
        np.savez(folder / f"{name}.npz", *(x.numpy() for x in given))
    arguments = [word for name, (file, _) in cases.items() for word in (name, file)]
    subprocess.run([sys.executable, "-c", _CODE.format(load=load), *arguments], cwd=folder, check=True)
    return {name: dict(np.load(folder / f"{name} results.npz")) for name in cases}
