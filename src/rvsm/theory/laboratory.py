"""Run the laboratory: verdicts, pictures, the page, and whether all is as it should be."""

import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rvsm import __version__
from rvsm.pages.figure import Figure
from rvsm.pages.page import write, write_text
from rvsm.theory.expected import differences
from rvsm.theory.page import PARTS, page
from rvsm.theory.statements import STATEMENTS, run
from rvsm.theory.verdict import Verdict

_COLOURS = {"holds": "green", "holds with correction": "yellow", "fails": "red"}


def laboratory(keys: Sequence[str], *, quick: bool, out: Path, console: Console) -> bool:
    """Judge statements, print the table, write verdicts.json, the pictures and theory.html; return if all is expected.

    Args:
        keys: the statements; all of them, and the pictures, if there are none.
        quick: a smaller sweep.
        out: the folder to write to.
        console: where to print.

    """
    if unknown := [key for key in keys if key not in STATEMENTS]:
        raise ValueError(f"unknown statement {unknown[0]!r}; choose from {', '.join(STATEMENTS)}")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # many small tensors: a second thread only waits for the first
    began = time.perf_counter()
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        verdicts = _judge(list(keys) or list(STATEMENTS), quick, progress)
        figures = {} if keys else _draw(progress, quick)
    surprises = differences(verdicts)
    for figure in (figure for drawn in figures.values() for figure in drawn):
        figure.save(out)
    write_text(
        json.dumps([verdict.as_json() for verdict in verdicts], indent=1, ensure_ascii=False), out / "verdicts.json"
    )
    seconds = time.perf_counter() - began
    footer = (
        f"rvsm {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}, float64, one thread;"
        f" {'quick' if quick else 'full'} sweep, {seconds:.0f} s. Paper: Dinh & Xin, Convergence of a Relaxed Variable"
        " Splitting Method for Learning Sparse Neural Networks via ℓ1, ℓ0, and Transformed-ℓ1 Penalties, 2020."
    )
    found = {verdict.statement: verdict for verdict in verdicts}
    parts = {part: [found[key] for key in members if key in found] for part, members in PARTS.items()}
    shown = {part: judged for part, judged in parts.items() if judged}
    write(page(shown, figures, surprises=surprises, footer=footer), out / "theory.html")
    console.print(_table(verdicts))
    for surprise in surprises:
        console.print(f"[bold red]not as expected:[/] {surprise}")
    console.print(f"{len(verdicts)} statements in {seconds:.0f} s; read {out / 'theory.html'}")
    return not surprises


def _judge(keys: list[str], quick: bool, progress: Progress) -> list[Verdict]:
    task = progress.add_task("", total=len(keys))
    found = []
    progress.update(task, description=keys[0])
    for verdict, following in zip(run(keys, quick=quick), [*keys[1:], ""], strict=True):
        found.append(verdict)
        progress.update(task, advance=1, description=following)
    return found


def _draw(progress: Progress, quick: bool) -> dict[str, list[Figure]]:
    from rvsm.theory.pictures import PICTURES, QUICK  # matplotlib takes a second to load

    wanted = {section: PICTURES[section] for section in (QUICK if quick else PICTURES)}
    task = progress.add_task("pictures", total=sum(map(len, wanted.values())))
    drawn: dict[str, list[Figure]] = {}
    for section, pictures in wanted.items():
        for picture in pictures:
            progress.update(task, description=f"picture: {picture.__name__.replace('_', ' ')}")
            figures = picture()
            drawn.setdefault(section, []).extend(figures if isinstance(figures, list) else [figures])
            progress.advance(task)
    return drawn


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(title="The statements of the paper")
    for head in ("statement", "where", "verdict"):
        table.add_column(head)
    table.add_column("margin", justify="right")
    for v in verdicts:
        table.add_row(v.statement, v.where, f"[{_COLOURS[v.verdict]}]{v.verdict}[/]", f"{v.margin:.2g}")
    return table
