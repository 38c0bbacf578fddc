"""Run the laboratory: verdicts, pictures, the page, and the comparison with the expected verdicts."""

import json
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from rvsm import __version__
from rvsm.pages.figure import Figure
from rvsm.pages.page import write, write_text
from rvsm.paper.theory.page import page
from rvsm.paper.theory.statements import PARTS, STATEMENTS, differences, run
from rvsm.paper.theory.sweep import Sweep
from rvsm.paper.theory.verdict import Verdict

_COLOURS = {"holds": "green", "holds with correction": "yellow", "fails": "red"}


def laboratory(keys: Sequence[str], *, quick: bool, out: Path, console: Console) -> bool:
    """Judge statements and write verdicts.json, pictures and theory.html; return whether all verdicts are as expected.

    A run of selected statements prints its results and draws nothing. If the folder has verdicts on other statements,
    it writes nothing.

    Args:
        keys: the statements; if empty, all of them, with the pictures.
        quick: run a smaller sweep and draw smaller pictures, on the page only.
        out: the output folder.
        console: where to print.

    """
    if unknown := [key for key in keys if key not in STATEMENTS]:
        raise ValueError(f"unknown statement {unknown[0]!r}; choose from {', '.join(STATEMENTS)}")
    chosen = list(dict.fromkeys(keys))
    others = _judged_before(out) - set(chosen) if chosen else set()
    if not others:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            message = f"--out must be a folder but {out} is a file, or is inside one; give another name"
            raise ValueError(message) from None
    torch.set_num_threads(1)  # with many small tensors, a second thread would only wait for the first
    began = time.perf_counter()
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        verdicts, figures = (_judge(chosen, quick, progress), {}) if chosen else _judge_and_draw(progress, quick)
        seconds = time.perf_counter() - began
        if not others:
            progress.add_task("writing", total=None)
            for figure in (figure for drawn in figures.values() for figure in drawn if not quick):
                figure.save(out)
            _write(verdicts, figures, f"{'quick' if quick else 'full'} sweep, {seconds:.0f} s", out=out)
    theirs, ours = ([v for v in verdicts if v.ours == mine] for mine in (False, True))
    for title, some in (("The statements of the paper", theirs), ("Ours, not the paper's", ours)):
        if some:
            console.print(_table(title, some))
    for verdict in verdicts if chosen else ():
        _print_details(verdict, console)
    surprises = differences(verdicts)
    for surprise in surprises:
        console.print(f"[bold red]not as expected:[/] {surprise}")
    counts = [_counted(len(theirs), "statement")] if theirs or not ours else []
    counts += [f"{len(ours)} of ours"] if ours else []
    count = f"{' and '.join(counts)} in {seconds:.0f} s"
    if others:
        kept = f"{out} has a page of {_counted(len(others), 'other statement')}, so nothing was written"
        console.print(f"{count}; {kept}; to get a page, give another --out", soft_wrap=True)
    else:
        console.print(f"{count}; read {out / 'theory.html'}", soft_wrap=True)
    return not surprises


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _judged_before(out: Path) -> set[str]:
    """Return the statements of the verdicts that a folder holds."""
    try:
        return {str(verdict["statement"]) for verdict in json.loads((out / "verdicts.json").read_text("utf-8"))}
    except (OSError, ValueError, TypeError, KeyError):
        return set()  # there is no file of verdicts, or it is not ours


def _judge(keys: list[str], quick: bool, progress: Progress) -> list[Verdict]:
    task = progress.add_task(keys[0], total=len(keys))
    found = []
    for verdict, following in zip(run(keys, quick=quick), [*keys[1:], ""], strict=True):
        found.append(verdict)
        progress.update(task, advance=1, description=following)
    return found


def _judge_and_draw(progress: Progress, quick: bool) -> tuple[list[Verdict], dict[str, list[Figure]]]:
    """Judge all statements in a second process while this one computes the pictures."""
    judged = progress.add_task("statements", total=len(STATEMENTS))
    # A fresh process, or a fork of one, not a fork of this one, which has threads.
    context = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    with ProcessPoolExecutor(1, context, initializer=_begin, initargs=(quick,)) as pool:
        try:
            futures = [pool.submit(_judge_one, key) for key in STATEMENTS]
            for future in futures:
                future.add_done_callback(lambda _: progress.advance(judged))
            figures = _draw(progress, quick)
            return [future.result() for future in futures], figures
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_shared: dict[str, Sweep] = {}
"""The sweep of the process that judges, made once for all statements."""


def _begin(quick: bool) -> None:
    torch.set_num_threads(1)
    _shared["sweep"] = Sweep(quick=quick)


def _judge_one(key: str) -> Verdict:
    return next(run([key], sweep=_shared["sweep"]))


def _draw(progress: Progress, quick: bool) -> dict[str, list[Figure]]:
    from rvsm.paper.theory.pictures import PICTURES  # matplotlib takes a second to load

    task = progress.add_task("pictures", total=sum(map(len, PICTURES.values())))
    drawn: dict[str, list[Figure]] = {}
    for section, pictures in PICTURES.items():
        for picture in pictures:
            progress.update(task, description=f"picture: {picture.__name__.replace('_', ' ')}")
            drawn.setdefault(section, []).append(picture(quick))
            drawn[section][-1].drawings()  # drawn now, while the other process judges, and kept for the page
            progress.advance(task)
    return drawn


def _write(verdicts: Sequence[Verdict], figures: dict[str, list[Figure]], sweep: str, *, out: Path) -> None:
    """Write verdicts.json and theory.html."""
    found = {verdict.statement: verdict for verdict in verdicts}
    parts = {part: [found[key] for key in members if key in found] for part, members in PARTS.items()}
    shown = {part: judged for part, judged in parts.items() if judged}
    footer = (
        f"rvsm {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}, float64, one thread for"
        f" each process; {sweep}. Paper: Dinh & Xin, Convergence of a Relaxed Variable Splitting Method for Learning"
        " Sparse Neural Networks via ℓ1, ℓ0, and Transformed-ℓ1 Penalties, 2020."
    )
    write(page(shown, figures, surprises=differences(verdicts), footer=footer), out / "theory.html")
    listed = json.dumps([verdict.as_json() for verdict in verdicts], indent=1, ensure_ascii=False)
    write_text(listed, out / "verdicts.json")


def _print_details(verdict: Verdict, console: Console) -> None:
    console.print(f"\n[bold]{verdict.statement}[/] ({escape(verdict.where)}): {verdict.verdict}", highlight=False)
    details = {verdict.label: verdict.claim, "evidence": verdict.evidence, "instead": verdict.correction}
    for name, text in details.items():
        if text is not None:
            console.print(f"  {name}: {text}", markup=False, highlight=False)


def _table(title: str, verdicts: Sequence[Verdict]) -> Table:
    table = Table("statement", "where", "verdict", Column("margin", justify="right"), title=title)
    for v in verdicts:
        table.add_row(v.statement, escape(v.where), f"[{_COLOURS[v.verdict]}]{v.verdict}[/]", f"{v.margin:.2g}")
    return table
