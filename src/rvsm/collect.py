"""Results files: finished runs as lines of JSON that people can read, compare and commit."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from rvsm.config import described
from rvsm.files import write_text
from rvsm.records import Record, Run
from rvsm.records.reading import parse
from rvsm.records.record import CURVE, FORMAT

LARGEST = 1_000_000
"""The largest size of a file in bytes, so that committed files stay small."""

_ABOUT = ("machine", "processes", "threads", "device", "precision", "channels_last", "versions")


def read(path: Path) -> list[Record]:
    """Return the runs of a file, in the order of the file.

    Raises:
        ValueError: there is no such file, a line is damaged, or two lines describe the same run.

    """
    found = [record for _, record in _lines(path).values()]
    if not found:
        raise ValueError(f"{path} is empty; add a finished run with rvsm collect RUN --into {path}")
    return found


def collect(runs: Sequence[Run], into: Path) -> tuple[int, int]:
    """Add finished runs to a file, and return how many lines are new and how many were replaced.

    A line with the same name, options and seed is replaced in place; all others stay exactly as they are.

    Raises:
        ValueError: a run cannot be collected, or differs from others with its name in more than the seed.

    """
    if into.suffix != ".jsonl":
        raise ValueError(f"{into} should end in .jsonl, because it is a file of JSON lines")
    lines = _lines(into) if into.exists() else {}
    before = len(lines)
    for run in runs:
        try:
            line = line_of(run)
            record = Record.of_line(line)
        except ValueError as error:
            named = str(run.folder) in str(error)
            raise ValueError(str(error) if named else f"{run.folder} cannot be collected: {error}") from None
        lines[_key(record)] = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")), record
    by_name((record for _, record in lines.values()), f"with these runs, {into}")
    text = "".join(f"{line}\n" for line, _ in lines.values())
    if (size := len(text.encode())) > LARGEST:
        raise ValueError(f"{into} would have {size:,} bytes, more than {LARGEST:,}; collect into another file")
    write_text(text, into)
    new = len(lines) - before
    return new, len(runs) - new


def by_name(records: Iterable[Record], where: str) -> dict[str, list[Record]]:
    """Return the runs with each name, in the given order.

    Raises:
        ValueError: two runs with one name have different options, images or precision.

    """
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.name, []).append(record)
    for name, listed in runs.items():
        kinds: dict[str, list[Any]] = {
            "options": [run.fingerprint for run in listed],
            "images": [run.outcome and run.outcome.images for run in listed],
            "precision": [run.about.get("precision") for run in listed],
        }
        for kind, values in kinds.items():
            known = sorted({str(value) for value in values if value is not None})
            if len(known) > 1:
                raise ValueError(
                    f"{where} has runs called {name} with different {kind} ({', '.join(known)}), so they are not"
                    " seeds of one experiment; collect one of them into another file, or train it under another name"
                    " with --name"
                )
    return runs


def line_of(run: Run) -> dict[str, Any]:
    """Return the line for a finished run, as plain values.

    Numbers are rounded: norms of channels to four digits, those of the curve to five, all others to six. Numbers that
    are not finite become null. The line has all options except paths, so it can be used on its own.

    Raises:
        ValueError: the run is not finished, or its files cannot be read.

    """
    record = Record.of_run(run, strict=True)
    outcome = record.outcome
    if outcome is None:
        raise ValueError(f"{run.folder} is not finished: continue with rvsm resume {run.folder}, then collect it")
    config = described(run.config(), run.folder / "config.toml")
    kept = asdict(outcome)
    tests, norms = ({copy: kept[f"{prefix}{copy}"] for copy in "wu"} for prefix in ("", "norms_"))
    line = {
        "format": FORMAT,
        "name": config.name,
        "config": config.fingerprint(),
        "seed": config.seed,
        **{key: kept[key] for key in ("epochs", "steps", "minutes")},
        "images_per_second": record.images_per_second,
        "test": tests,
        **{key: kept[key] for key in ("test_images", "sparsity", "sparsity_of_all", "multiplications_saved")},
        **({} if outcome.speed is None else {"speed": kept["speed"]}),
        **{key: kept[key] for key in ("weights", "parameters", "nonzeros")},
        "layers": {name: {"shape": one.shape, "density": one.density} for name, one in outcome.layers.items()},
        "images": outcome.images,
        "about": {key: value for key, value in record.about.items() if key in _ABOUT},
        **{key: kept[key] for key in ("file_bytes", "runtime")},
    }
    return {
        **_rounded(line, 6),
        "options": {k: _portable(v) for k, v in config.table().items() if k not in ("name", "seed")},
        "curve": _rounded(_curve(record), 5),
        # Only those of w if both are the same, as in a dense run.
        "channel_norms": _rounded({"w": norms["w"]} if norms["w"] == norms["u"] else norms, 4),
    }


def _key(record: Record) -> tuple[str, str, int | None]:
    """Return the key that identifies a line of a file."""
    return record.name, record.fingerprint, record.seed


def _portable(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a section without paths on the machine."""
    return {key: value for key, value in section.items() if key != "path" and not _is_path(value)}


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and (
        value.startswith("~") or PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    )


def _curve(record: Record) -> dict[str, list[float | None]]:
    """Return the columns that have at least one value, as lists by epoch."""
    columns = {column: [getattr(one, name) for one in record.evaluations] for column, name in CURVE.items()}
    return {name: column for name, column in columns.items() if any(value is not None for value in column)}


def _rounded(tree: Any, digits: int) -> Any:
    """Return a tree of plain values with rounded numbers, and null for numbers that are not finite."""
    if isinstance(tree, Mapping):
        return {str(key): _rounded(value, digits) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_rounded(value, digits) for value in tree]
    if isinstance(tree, float):
        return float(f"{tree:.{digits}g}") if isfinite(tree) else None
    return tree


def _lines(path: Path) -> dict[tuple[str, str, int | None], tuple[str, Record]]:
    """Return the lines of a file, each as a string and as typed values."""
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; make it with rvsm collect RUN --into {path}") from None
    except (UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    found: dict[tuple[str, str, int | None], tuple[str, Record]] = {}
    places: dict[tuple[str, str, int | None], int] = {}
    for place, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            record = Record.of_line(parse(json.loads, text))
        except ValueError as error:
            damage = str(error)
            if isinstance(error, json.JSONDecodeError):
                damage = f"it is not JSON from character {error.pos + 1} on"
            raise ValueError(
                f"line {place} of {path} is damaged: {damage}; restore the line, or delete it and collect its run again"
            ) from None
        key = _key(record)
        if key in found:
            raise ValueError(
                f"lines {places[key]} and {place} of {path} describe the same run ({record.name}, seed {record.seed});"
                " remove one of them"
            )
        found[key], places[key] = (text, record), place
    return found
