"""The memory that something takes at its peak."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(action: Callable[[], T]) -> tuple[T, float | None]:
    """Return what ``action`` returns, and by how many bytes the process grew at most; None where that is not known."""
    gc.collect()
    try:
        _RESET.write_text("5")  # Linux: the highest mark is now the present size
        before = _read("VmRSS")
    except (OSError, ValueError):
        return action(), None
    result = action()
    return result, max(0.0, _read("VmHWM") - before)


def _read(name: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024.0 * int(line.split()[1])
    raise ValueError(f"{_STATUS} does not have {name}")
