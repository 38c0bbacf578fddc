"""Run what is missing of several configurations, and put the results side by side."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from rvsm.config import Config, build
from rvsm.data import Dataset
from rvsm.records import Run, folder_of
from rvsm.report import report, rows, table
from rvsm.train import DivergenceError, StoppedError, refuse_others, start_or_resume, summary


def compare(configs: Sequence[Config], *, seeds: Iterable[int], runs: Path, out: Path, console: Console) -> Path:
    """Train each configuration with each seed unless it is finished, print the table, and return the page's path.

    Args:
        configs: one for each row of the table.
        seeds: the seeds of the runs behind each row.
        runs: the folder of the runs' folders.
        out: the folder that table, page and pictures are written to.
        console: where to print.

    """
    done = run_all(configs, seeds=seeds, runs=runs, console=console)
    console.print(table(rows(done)))
    return report(done, out=out)


def run_all(
    configs: Sequence[Config], *, seeds: Iterable[int], runs: Path, console: Console, brief: bool = False
) -> list[Run]:
    """Train what is missing, and return all runs; if brief, with a line for each of them only."""
    names = Counter(folder_of(runs, config.name, 0) for config in configs)
    if twice := [config.name for config in configs if names[folder_of(runs, config.name, 0)] > 1]:
        raise ValueError(f"two files make runs of the name {twice[0]!r}; give one of them a name of its own")
    wanted = [config.with_seed(seed) for seed in seeds for config in configs]
    for config in wanted:
        refuse_others(config, folder_of(runs, config.name, config.seed))
    loaded: dict[str, Dataset] = {}
    done = []
    for number, config in enumerate(wanted, 1):
        folder = folder_of(runs, config.name, config.seed)
        finished = ", finished already" if (folder / "result.json").exists() else ""
        title = f"{number}/{len(wanted)} {config.name}, seed {config.seed}{finished}"
        console.print(title, highlight=False, markup=False, soft_wrap=True)
        key = repr(config.data.table())
        if key not in loaded:
            loaded[key] = build.dataset(config)
        try:
            result = start_or_resume(config, folder, console, loaded[key], brief=brief)
            console.print(f"    {summary(result)}", highlight=False, soft_wrap=True)
        except DivergenceError as error:
            console.print(f"    {error}", style="yellow", highlight=False, markup=False, soft_wrap=True)
        except StoppedError:
            raise StoppedError("stopped; the same command goes on from here") from None
        done.append(Run(folder))
    return done
