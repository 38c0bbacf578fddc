"""The table: a row for each configuration, with mean and spread over its seeds."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from rich import box
from rich.markup import escape
from rich.table import Table

from rvsm.pages.markdown import cell, pipe_table
from rvsm.records import Run
from rvsm.report.configurations import Configuration, configurations
from rvsm.report.numbers import NOTHING, Mean, percent


@dataclass(frozen=True)
class Row:
    """What is known of one configuration; None where no run is finished, or none says.

    Attributes:
        name: the configuration.
        seeds: the number of finished runs, each with a seed of its own.
        unfinished: the number of runs that are not finished.
        accuracy_w: the test accuracy of the weights w at the end of training.
        accuracy_u: the test accuracy of the sparse network u.
        sparsity: the share of zeros over the sparsified weights.
        sparsity_of_all: the share of zeros over all parameters.
        multiplications_saved: the share of all the network's multiplications that are with zero.
        nonzeros: parameters that are not zero.
        minutes: the time of the training.
        file_bytes: the size of the packed file, where the network was packed.
        speedup: how many times faster the packed network runs than the original in the fastest engine tried; None
            if that was measured in several ways, of which a mean would mean nothing.

    """

    name: str
    seeds: int
    unfinished: int
    accuracy_w: Mean | None
    accuracy_u: Mean | None
    sparsity: Mean | None
    sparsity_of_all: Mean | None
    nonzeros: Mean | None
    minutes: Mean | None
    file_bytes: Mean | None = None
    speedup: Mean | None = None
    multiplications_saved: Mean | None = None


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "configuration": lambda row: row.name,
    "runs": lambda row: f"{row.seeds} of {row.seeds + row.unfinished}" if row.unfinished else str(row.seeds),
    "accuracy of w, %": lambda row: percent(row.accuracy_w),
    "accuracy of u, %": lambda row: percent(row.accuracy_u),
    "zeros, %": lambda row: percent(row.sparsity),
    "of all, %": lambda row: percent(row.sparsity_of_all),
    "multiplications saved, %": lambda row: percent(row.multiplications_saved),
    "nonzeros": lambda row: NOTHING if row.nonzeros is None else row.nonzeros.text(digits=0),
    "file, kB": lambda row: NOTHING if row.file_bytes is None else row.file_bytes.text(1e-3, 1),
    "speed, ×": lambda row: NOTHING if row.speedup is None else row.speedup.text(digits=1),
    "minutes": lambda row: _minutes(row.minutes),
}


def columns(listed: Sequence[Row]) -> dict[str, Callable[[Row], str]]:
    """Return the columns and what they show; some of them only where it is known."""
    measured = {
        "multiplications saved, %": any(r.multiplications_saved for r in listed),
        "file, kB": any(r.file_bytes for r in listed),
        "speed, ×": any(r.speedup for r in listed),
    }
    return {head: text for head, text in _COLUMNS.items() if measured.get(head, True)}


def rows(runs: Sequence[Run]) -> list[Row]:
    """Return a row for each configuration: runs that differ in their seed only share one."""
    return [row(c) for c in configurations(runs)[0]]


def row(c: Configuration) -> Row:
    """Return the row of a configuration."""
    outcomes = c.outcomes
    timed = [o for o in outcomes if o.speedup is not None]
    return Row(
        name=c.name,
        seeds=len(outcomes),
        unfinished=c.unfinished,
        accuracy_w=Mean.of(o.w for o in outcomes),
        accuracy_u=Mean.of(o.u for o in outcomes),
        sparsity=Mean.of(o.sparsity for o in outcomes),
        sparsity_of_all=Mean.of(o.sparsity_of_all for o in outcomes),
        multiplications_saved=Mean.of(o.multiplications_saved for o in outcomes),
        nonzeros=Mean.of(o.nonzeros for o in outcomes),
        file_bytes=Mean.of(o.file_bytes for o in outcomes),
        speedup=Mean.of(o.speedup for o in timed) if len({(o.batch, o.threads) for o in timed}) == 1 else None,
        minutes=Mean.of(None if o.seconds is None else o.seconds / 60 for o in outcomes),
    )


def table(listed: Sequence[Row]) -> Table:
    """Return the rows for a terminal of 80 columns.

    Multiplications, nonzeros and the spread of zeros and time are in the files only.
    """
    counts = {one.seeds for one in listed}
    shown: dict[str, Callable[[Row], str]] = {"configuration": _COLUMNS["configuration"]}
    if len(counts) > 1 or any(one.unfinished for one in listed):
        shown["runs"] = _COLUMNS["runs"]
    shown |= {
        "accuracy\nof w, %": lambda one: percent(one.accuracy_w),
        "accuracy\nof u, %": lambda one: percent(one.accuracy_u),
        "zeros\n%": lambda one: percent(_bare(one.sparsity)),
        "of all\n%": lambda one: percent(_bare(one.sparsity_of_all)),
    }
    packed = columns(listed)
    shown |= {head.replace(", ", "\n"): packed[head] for head in ("file, kB", "speed, ×") if head in packed}
    if "speed, ×" not in packed:  # there is room for one of the two
        shown["minutes"] = lambda one: _minutes(_bare(one.minutes))
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left", caption=_caption(listed))
    for i, head in enumerate(shown):
        drawn.add_column(
            head, justify="right" if i else "left", overflow="fold", no_wrap=i > 0, min_width=4 if i else 8
        )
    for one in listed:
        drawn.add_row(*(escape(text(one)) for text in shown.values()))
    return drawn


def markdown(listed: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    shown = columns(listed)
    return pipe_table(list(shown), [[cell(text(one)) for text in shown.values()] for one in listed])


def as_json(listed: Sequence[Row]) -> str:
    """Return the rows as JSON; shares are in [0, 1], and null is what is not known."""
    return json.dumps([asdict(one) for one in listed], indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _caption(listed: Sequence[Row]) -> str:
    counts = {one.seeds for one in listed}
    zeros = "Zeros are counted over the sparsified weights, and over all parameters."
    waiting = " Runs that are not finished have no numbers yet." if any(one.unfinished for one in listed) else ""
    if not any(counts):
        return "No run is finished."
    if max(counts) == 1:
        return f"One run each: small differences may be chance. {zeros}{waiting}"
    runs = f"{max(counts)} runs each" if len(counts) == 1 else "the runs"
    return f"Mean ± standard deviation over {runs}. {zeros}{waiting}"


def _bare(mean: Mean | None) -> Mean | None:
    return None if mean is None else replace(mean, std=None)


def _minutes(mean: Mean | None) -> str:
    return NOTHING if mean is None else mean.text(digits=2 if mean.mean < 10 else 1 if mean.mean < 100 else 0)
