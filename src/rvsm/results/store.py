"""Results files: a line of JSON for each run, which a person can read, compare and commit."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rvsm.files import write_text
from rvsm.records import Run
from rvsm.results.reading import Summary, summary_of
from rvsm.results.summary import summarize

LARGEST = 1_000_000
"""Bytes of a file: what is committed should stay small."""


def read(path: Path) -> list[Summary]:
    """Return the runs of a file, in its order.

    Raises:
        ValueError: there is no such file, a line is damaged, or two lines are of one run.

    """
    found = [summary for _, summary in _lines(path)]
    if not found:
        raise ValueError(f"{path} has no line; collect a finished run into it with rvsm collect RUN --into {path}")
    return found


def collect(runs: Sequence[Run], into: Path) -> tuple[int, int]:
    """Add finished runs to a file, and return how many lines are new and how many were replaced.

    A line of the same name, options and seed is replaced where it stands; the others stay, to the letter.

    Raises:
        ValueError: a run cannot be collected, or differs from others of its name in more than the seed.

    """
    if into.suffix != ".jsonl":
        raise ValueError(f"{into} should end in .jsonl, as it is a file of JSON lines")
    lines = {summary.key: (text, summary) for text, summary in (_lines(into) if into.exists() else [])}
    new = replaced = 0
    for run in runs:
        try:
            line = summarize(run)
            summary = summary_of(line)
        except ValueError as error:
            raise ValueError(_naming(run, str(error))) from None
        replaced += summary.key in lines
        new += summary.key not in lines
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        lines[summary.key] = text, summary
    by_name((summary for _, summary in lines.values()), f"with these runs, {into}")
    text = "".join(f"{line}\n" for line, _ in lines.values())
    if (size := len(text.encode())) > LARGEST:
        raise ValueError(f"{into} would have {size:,} bytes, more than {LARGEST:,}; collect into another file")
    write_text(text, into)
    return new, replaced


def by_name(summaries: Iterable[Summary], where: str) -> dict[str, list[Summary]]:
    """Return the runs of each name, in the order in which they came.

    Raises:
        ValueError: two of one name have other options, images or precision: they are not seeds of one experiment.

    """
    runs: dict[str, list[Summary]] = {}
    for summary in summaries:
        runs.setdefault(summary.name, []).append(summary)
    for name, listed in runs.items():
        kinds: dict[str, list[Any]] = {
            "options": [run.config for run in listed],
            "images": [run.images for run in listed],
            "precision": [run.about.get("precision") for run in listed],
        }
        for kind, values in kinds.items():
            known = sorted({str(value) for value in values if value is not None})
            if len(known) > 1:
                raise ValueError(
                    f"{where} has runs called {name} with different {kind} ({', '.join(known)}), which are no seeds of"
                    " one experiment; collect one of them into another file, or train it under a name of its own"
                    " with --name"
                )
    return runs


def _naming(run: Run, reason: str) -> str:
    return reason if str(run.folder) in reason else f"{run.folder} cannot be collected: {reason}"


def _damaged(place: int, path: Path, what: str) -> ValueError:
    return ValueError(
        f"line {place} of {path} is damaged: {what}; restore the line, or delete it and collect its run again"
    )


def _lines(path: Path) -> list[tuple[str, Summary]]:
    """Return the lines of a file, each as it is and as typed values."""
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; make it with rvsm collect RUN --into {path}") from None
    except (UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    found: dict[tuple[str, str, int], tuple[int, str, Summary]] = {}
    for place, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            summary = summary_of(json.loads(text))
        except json.JSONDecodeError as error:
            raise _damaged(place, path, f"it is not JSON from character {error.pos + 1} on") from None
        except RecursionError:
            raise _damaged(place, path, "it is nested too deeply") from None
        except ValueError as error:
            raise _damaged(place, path, str(error)) from None
        if summary.key in found:
            earlier, name = found[summary.key][0], f"{summary.name}, seed {summary.seed}"
            raise ValueError(f"lines {earlier} and {place} of {path} are of one run ({name}); remove one of them")
        found[summary.key] = place, text, summary
    return [(text, summary) for _, text, summary in found.values()]
