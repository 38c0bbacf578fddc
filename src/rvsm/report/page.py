"""The report about runs: a page with the table, the pictures and the options, and the files next to it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rvsm import __version__
from rvsm.files import write_text
from rvsm.pages import Cell, Figure, Page, Section
from rvsm.pages.figure import FORMATS
from rvsm.pages.page import write
from rvsm.records import Run
from rvsm.report.configurations import Configuration, configurations
from rvsm.report.pictures import PICTURES
from rvsm.report.pictures.panels import key
from rvsm.report.sections import layers_of, what_was_run
from rvsm.report.summary import summary, task
from rvsm.report.table import as_json, columns, markdown


def report(runs: Sequence[Run], out: Path) -> Path:
    """Write ``report.html``, ``table.md``, ``table.json`` and ``pictures/`` into a folder, and return the page's path.

    The runs may be unfinished; those that differ only in their seed are grouped. Pictures of an earlier report that do
    not apply to these runs are removed.
    """
    if not runs:
        raise ValueError("a report needs at least one run but got none")
    found, notes = configurations(runs)
    shown = page(found, notes)
    figures = [figure for section in shown.sections for figure in section.figures]
    drawn = {file for figure in figures for file in figure.save(out / "pictures")}
    for name in PICTURES:
        for ending in FORMATS:  # of an earlier report, but not of this one
            if (file := out / "pictures" / f"{name}.{ending}") not in drawn:
                file.unlink(missing_ok=True)
    write_text(markdown(found), out / "table.md")
    write_text(as_json(found), out / "table.json")
    target = out / "report.html"
    write(shown, target)
    return target


def page(found: Sequence[Configuration], notes: Sequence[str]) -> Page:
    """Return the page; empty sections are left out."""
    shown = columns(found)
    if all((c.seeds, c.unfinished) == (1, 0) for c in found):
        del shown["runs"]  # a column of ones; the summary has the number
    where = layers_of(found, "Where the zeros are")
    parts = [
        Section(
            "Results",
            paragraphs=[_legend(found)],
            head=tuple(shown),
            rows=[
                [
                    Cell(text(c), numeric=i > 0, key=key(c) if not i and len(found) > 1 else None)
                    for i, text in enumerate(shown.values())
                ]
                for c in found
            ],
            figures=_drawn(found, "accuracy-sparsity"),
        ),
        Section(
            "The course of training",
            figures=_drawn(found, "accuracy-by-epoch", "loss-and-learning-rate", "sparsity-and-gap", "lagrangian"),
        ),
        replace(where, figures=_drawn(found, "density-by-layer")),
        Section("The weights", figures=_drawn(found, "weights-histogram", "channel-norms")),
    ]
    kept = [part for part in parts if part.figures or part.rows]
    return Page(
        title=_title(found),
        lead=summary(found),
        sections=[*kept, what_was_run(found, notes)],
        footer=f"Written by rvsm {__version__} from the records of the runs.",
    )


def _title(found: Sequence[Configuration]) -> str:
    if len(found) == 1:
        return found[0].name
    tasks = list(dict.fromkeys(task(c) for c in found))
    return f"{tasks[0]}, trained in {len(found)} ways" if len(tasks) == 1 else f"{len(found)} configurations"


def _legend(found: Sequence[Configuration]) -> str:
    waiting = " Runs that are not finished have no numbers yet." if any(c.unfinished for c in found) else ""
    spread = " Numbers are mean ± standard deviation over the runs." if any(c.seeds > 1 for c in found) else ""
    saved = (
        " Multiplications saved are multiplications by zero, as a fraction of all multiplications for one image."
        if any(c.multiplications_saved for c in found)
        else ""
    )
    if not any(c.seeds for c in found):
        return "The test images are evaluated only once, at the end, so a run has no numbers here until it is finished."
    return (
        "Accuracy on the test images, which were evaluated once, at the end: for the weights w at the end of training,"
        " and for the sparse network u, which is the result, with the statistics of batch norm re-estimated. Zeros are"
        " counted over the sparsified weights (convolutions and linear layers) and over all parameters."
        f"{saved}{spread}{_packed(found)}{waiting}"
    )


def _packed(found: Sequence[Configuration]) -> str:
    timed = [o.runtime for c in found for o in c.outcomes if o.runtime is not None and o.speedup is not None]
    if not timed:
        return ""
    ways = sorted({(r.largest_batch, r.threads) for r in timed if r.largest_batch and r.threads})
    shown = " and ".join(f"batches of {batch} with {threads} thread{'s' * (threads != 1)}" for batch, threads in ways)
    return (
        " File is the size of the packed network. Speed is how many times faster it runs in the sparse runtime than the"
        f" unpacked network in the fastest other engine{f', for {shown}' * bool(shown)}."
    )


def _drawn(found: Sequence[Configuration], *names: str) -> list[Figure]:
    return [figure for name in names if (figure := PICTURES[name](found)) is not None]
