"""The page of runs: the table, the pictures, and what was run."""

from collections.abc import Sequence
from dataclasses import replace

from rvsm import __version__
from rvsm.pages import Cell, Figure, Page, Section
from rvsm.report import pictures
from rvsm.report.configurations import Configuration
from rvsm.report.layers import layers_of
from rvsm.report.lead import lead, task
from rvsm.report.rows import Row, columns
from rvsm.report.what import what_was_run


def page(found: Sequence[Configuration], listed: Sequence[Row], notes: Sequence[str]) -> Page:
    """Return the page; parts for which there is nothing to show are left out."""
    shown = columns(listed)
    if all((row.seeds, row.unfinished) == (1, 0) for row in listed):
        del shown["runs"]  # a column of ones; the lead says it
    where = layers_of(found, "Where the zeros are")
    parts = [
        Section(
            "Results",
            paragraphs=[_legend(found, listed)],
            head=tuple(shown),
            rows=[
                [
                    Cell(text(row), numeric=i > 0, key=pictures.key(c) if not i and len(found) > 1 else None)
                    for i, text in enumerate(shown.values())
                ]
                for c, row in zip(found, listed, strict=True)
            ],
            figures=_drawn(pictures.plane(found)),
        ),
        Section(
            "The course of training",
            figures=_drawn(
                pictures.accuracy(found),
                pictures.losses(found),
                pictures.sparsity_and_gap(found),
                pictures.lagrangian(found),
            ),
        ),
        replace(where, figures=_drawn(pictures.layers(found))),
        Section("The weights", figures=_drawn(pictures.weights(found), pictures.channels(found))),
    ]
    kept = [part for part in parts if part.figures or part.rows]
    return Page(
        title=_title(found),
        lead=lead(found),
        sections=[*kept, what_was_run(found, notes)],
        footer=f"Written by rvsm {__version__} from the records of the runs.",
    )


def figures(shown: Page) -> list[Figure]:
    """Return the pictures of a page."""
    return [figure for section in shown.sections for figure in section.figures]


def _title(found: Sequence[Configuration]) -> str:
    if len(found) == 1:
        return found[0].name
    tasks = list(dict.fromkeys(task(c) for c in found))
    return f"{tasks[0]}, trained in {len(found)} ways" if len(tasks) == 1 else f"{len(found)} configurations"


def _legend(found: Sequence[Configuration], listed: Sequence[Row]) -> str:
    waiting = " Runs that are not finished have no numbers yet." if any(row.unfinished for row in listed) else ""
    spread = " Numbers are mean ± standard deviation over the runs." if any(row.seeds > 1 for row in listed) else ""
    if not any(row.seeds for row in listed):
        return "The test images are looked at once, at the end; until a run is finished, it has no numbers here."
    return (
        "Accuracy on the test images, which were looked at once, at the end: of the weights w when training ended, and"
        " of the sparse network u that was kept, with the statistics of batch norm estimated again. Zeros are counted"
        " over the sparsified weights (convolutions and linear layers) and over all parameters."
        f"{_saved(listed)}{spread}{_packed(found)}{waiting}"
    )


def _saved(listed: Sequence[Row]) -> str:
    if not any(row.multiplications_saved for row in listed):
        return ""
    return " Multiplications saved are those with zero, as a share of all that the network makes for an image."


def _packed(found: Sequence[Configuration]) -> str:
    timed = [outcome for c in found for outcome in c.outcomes if outcome.speedup]
    if not timed:
        return ""
    ways = sorted({(o.batch, o.threads) for o in timed if o.batch and o.threads})
    told = " and ".join(f"batches of {batch} with {threads} thread{'s' * (threads != 1)}" for batch, threads in ways)
    return (
        " File is the size of the packed network; speed is how many times faster it runs in the sparse runtime than the"
        f" unpacked one in the fastest other engine that was tried{f', for {told}' * bool(told)}."
    )


def _drawn(*drawn: Figure | None) -> list[Figure]:
    return [figure for figure in drawn if figure is not None]
