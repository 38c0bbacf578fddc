"""The table, with one row per configuration, for a page, a terminal, Markdown and JSON."""

import json
from collections.abc import Callable, Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from rvsm.markdown import cell, pipe_table
from rvsm.pages import Cell
from rvsm.records import Run
from rvsm.report.configurations import Configuration, configurations
from rvsm.report.statistics import NOTHING, Mean

Column = Callable[[Configuration], str]

_COLUMNS: dict[str, Column] = {
    "configuration": lambda c: c.name,
    "runs": lambda c: f"{c.seeds} of {len(c.runs)}" if c.unfinished else str(c.seeds),
    "accuracy of w, %": lambda c: c.accuracy_w.percent,
    "accuracy of u, %": lambda c: c.accuracy_u.percent,
    "zeros, %": lambda c: c.sparsity.percent,
    "of all, %": lambda c: c.sparsity_of_all.percent,
    "multiplications saved, %": lambda c: c.multiplications_saved.percent,
    "nonzeros": lambda c: c.nonzeros.text(digits=0),
    "file, kB": lambda c: c.packed_bytes.text(1e-3, 1),
    "speed, ×": lambda c: c.speedup.text(digits=1),
    "minutes": lambda c: minutes(c.minutes),
}
_NARROW: dict[str, tuple[str, Column]] = {
    "accuracy of w, %": ("accuracy\nof w, %", _COLUMNS["accuracy of w, %"]),
    "accuracy of u, %": ("accuracy\nof u, %", _COLUMNS["accuracy of u, %"]),
    "zeros, %": ("zeros\n%", lambda c: c.sparsity.bare.percent),
    "of all, %": ("of all\n%", lambda c: c.sparsity_of_all.bare.percent),
    "multiplications saved, %": ("saved\n%", lambda c: c.multiplications_saved.bare.percent),
    "file, kB": ("file\nkB", lambda c: c.packed_bytes.bare.text(1e-3, 1)),
    "speed, ×": ("speed\n×", lambda c: c.speedup.bare.text(digits=1)),
    "minutes": ("minutes", lambda c: minutes(c.minutes.bare)),
}
"""The columns that fit into a terminal, with heads of two lines and without most of the spreads."""

_JSON = (
    *("accuracy_w", "accuracy_u", "sparsity", "sparsity_of_all", "nonzeros", "minutes", "packed_bytes", "speedup"),
    "multiplications_saved",
)


def columns(found: Sequence[Configuration]) -> dict[str, Column]:
    """Return the columns and what they show; some columns only if their values are known."""
    measured = {
        "multiplications saved, %": any(c.multiplications_saved for c in found),
        "file, kB": any(c.packed_bytes for c in found),
        "speed, ×": any(c.speedup for c in found),
    }
    return {head: text for head, text in _COLUMNS.items() if measured.get(head, True)}


def rows(runs: Sequence[Run]) -> list[Configuration]:
    """Return the configurations of the rows: runs that differ only in their seed share a row."""
    return configurations(runs)[0]


def table(found: Sequence[Configuration]) -> Table:
    """Return the rows for a terminal of 80 columns; only the files have the numbers of nonzeros and all spreads."""
    known = columns(found)
    shown = {"configuration": _COLUMNS["configuration"]}
    if len({c.seeds for c in found}) > 1 or any(c.unfinished for c in found):
        shown["runs"] = _COLUMNS["runs"]
    if "speed, ×" in known:  # there is no room for all
        del known["minutes"]
        known = {head: text for head, text in known.items() if head != "of all, %" or "runs" not in shown}
    shown |= {head: text for name, (head, text) in _NARROW.items() if name in known}
    caption = _caption(found, saved="multiplications saved, %" in known)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left", caption=caption)
    for i, head in enumerate(shown):
        drawn.add_column(
            head, justify="right" if i else "left", overflow="fold", no_wrap=i > 0, min_width=4 if i else 8
        )
    for c in found:
        drawn.add_row(*(escape(text(c)) for text in shown.values()))
    return drawn


def markdown(found: Sequence[Configuration]) -> str:
    """Return the rows as a table in Markdown."""
    shown = columns(found)
    return pipe_table(list(shown), [[cell(text(c)) for text in shown.values()] for c in found])


def as_json(found: Sequence[Configuration]) -> str:
    """Return the rows as JSON; fractions are in [0, 1], and unknown values are null."""
    listed = [
        {"name": c.name, "seeds": c.seeds, "unfinished": c.unfinished}
        | {key.replace("packed_bytes", "file_bytes"): getattr(c, key).as_json() for key in _JSON}
        for c in found
    ]
    return json.dumps(listed, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def number(value: float | None, factor: float = 1.0, digits: int = 0) -> Cell:
    """Return a number, multiplied by a factor, as a cell of a page."""
    return Cell(NOTHING if value is None else f"{factor * value:,.{digits}f}", numeric=True)


def minutes(mean: Mean) -> str:
    """Return minutes as a string, with more digits for smaller values."""
    return mean.text(digits=2 if mean.mean < 10 else 1 if mean.mean < 100 else 0)


def _caption(found: Sequence[Configuration], *, saved: bool) -> str:
    counts = {c.seeds for c in found}
    zeros = "Zeros are counted over the sparsified weights, and over all parameters."
    zeros += " Saved means multiplications by zero." if saved else ""
    waiting = " Runs that are not finished have no numbers yet." if any(c.unfinished for c in found) else ""
    if not any(counts):
        return "No run is finished."
    if max(counts) == 1:
        return f"One run each: small differences may be chance. {zeros}{waiting}"
    runs = f"{max(counts)} runs each" if len(counts) == 1 else "the runs"
    return f"Mean ± standard deviation over {runs}. {zeros}{waiting}"
