"""Measure peak memory."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(action: Callable[[], T]) -> tuple[T, float | None]:
    """Return the result of ``action`` and the peak growth of the process in bytes; None if that is not known."""
    gc.collect()
    try:
        _RESET.write_text("5")  # Linux: resets the peak to the current size
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
