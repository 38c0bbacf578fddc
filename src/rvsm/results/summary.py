"""A finished run as one line of a text file: all that tables, pictures and verdicts need."""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import PurePosixPath, PureWindowsPath
from statistics import median
from typing import Any

from rvsm.config import described
from rvsm.records import Run
from rvsm.report.numbers import inside, number

FORMAT = 1
"""Of the lines; another one is not read."""

_ABOUT = ("machine", "threads", "device", "precision", "channels_last", "versions")
_RUNTIME = ("file_bytes", "threads", "engines")
_CURVE: dict[str, tuple[str, ...]] = {
    "epoch": ("epoch",),
    "learning_rate": ("learning_rate",),
    "loss": ("loss",),
    "w_loss": ("w", "loss"),
    "w_accuracy": ("w", "accuracy"),
    "u_loss": ("u", "loss"),
    "u_accuracy": ("u", "accuracy"),
    "sparsity": ("sparsity",),
    "gap": ("gap",),
}
"""The columns of the curve, and where a record of the metrics has them."""


def summarize(run: Run) -> dict[str, Any]:
    """Return what is kept of a finished run, as plain values.

    Numbers are rounded: norms of channels to four digits, all others to six or, in the curve, to five. What is not
    finite is null. The options are there in full, so that the line stands alone, but for paths.

    Raises:
        ValueError: the run is not finished, or its files cannot be read.

    """
    result = run.result()
    if result is None:
        raise ValueError(f"{run.folder} is not finished: go on with rvsm resume {run.folder}, and collect it then")
    config = described(run.config(), run.folder / "config.toml")
    records = run.metrics()
    line = {
        "format": FORMAT,
        "name": config.name,
        "config": config.fingerprint(),
        "seed": config.seed,
        "epochs": result.get("epochs"),
        "steps": result.get("steps"),
        "minutes": _times(result.get("seconds"), 1 / 60),
        "images_per_second": _speed(records),
        "test": result.get("test"),
        "test_images": result.get("test_images"),
        "sparsity": result.get("sparsity"),
        "sparsity_of_all": result.get("sparsity_of_all"),
        "multiplications_saved": result.get("multiplications_saved"),
        "weights": result.get("weights"),
        "parameters": result.get("parameters"),
        "nonzeros": result.get("nonzeros"),
        "layers": _layers(result.get("layers")),
        "images": result.get("images"),
        "about": {key: value for key, value in run.about().items() if key in _ABOUT},
        "file_bytes": run.file_bytes(),
        "runtime": {key: value for key, value in (run.runtime() or {}).items() if key in _RUNTIME} or None,
    }
    return {
        **_rounded(line, _digits(6)),
        "options": {k: _portable(v) for k, v in config.table().items() if k not in ("name", "seed")},
        "curve": _rounded(_curve(records), _digits(5)),
        "channel_norms": _rounded(_norms(result.get("channel_norms")), _digits(4)),
    }


def _portable(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a section without those that name a place of the machine."""
    return {key: value for key, value in section.items() if key != "path" and not _is_path(value)}


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and (
        value.startswith("~") or PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    )


def _curve(records: Iterable[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Return a list for each column, by epoch; of two records of one epoch, the later counts."""
    by_epoch = {epoch: record for record in records if (epoch := number(record, "epoch", low=0.0)) is not None}
    ordered = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    columns = {name: [number(record, *path) for record in ordered] for name, path in _CURVE.items()}
    return {name: column for name, column in columns.items() if any(value is not None for value in column)}


def _layers(found: Any) -> dict[str, dict[str, Any]]:
    """Return shape and density of each layer."""
    if found is not None and not isinstance(found, Mapping):
        raise ValueError(f"layers should be an object but is {repr(found)[:60]}")
    layers = {} if found is None else found
    return {name: {key: inside(layer, key) for key in ("shape", "density")} for name, layer in layers.items()}


def _norms(found: Any) -> dict[str, Any]:
    """Return the norms of the channels of w and of u; of w alone where they are the same, as in a dense run."""
    w, u = inside(found, "w"), inside(found, "u")
    return {"w": w} if w == u else {"w": w, "u": u}


def _speed(records: Iterable[Mapping[str, Any]]) -> float | None:
    speeds = [speed for record in records if (speed := number(record, "images_per_second", low=0.0)) is not None]
    return median(speeds) if speeds else None


def _times(value: Any, factor: float) -> float | None:
    found = number({"": value}, "")
    return None if found is None else factor * found


def _digits(digits: int) -> Callable[[float], float]:
    return lambda value: float(f"{value:.{digits}g}")


def _rounded(tree: Any, rounding: Callable[[float], float]) -> Any:
    """Return a tree of plain values with its numbers rounded, and null for those that are not finite."""
    if isinstance(tree, Mapping):
        return {str(key): _rounded(value, rounding) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_rounded(value, rounding) for value in tree]
    if isinstance(tree, float):
        return rounding(tree) if isfinite(tree) else None
    return tree
