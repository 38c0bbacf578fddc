"""Run what is missing from several configurations: one after another, or several at once."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from rvsm.config import Config, build
from rvsm.data import Dataset
from rvsm.records import Run, folder_of
from rvsm.train.at_once import run_at_once
from rvsm.train.divergence import DivergenceError
from rvsm.train.ranks import ALONE, Ranks
from rvsm.train.recorder import StoppedError
from rvsm.train.session import refuse_others, say, start_or_resume, summary


def run_all(
    configs: Sequence[Config],
    *,
    seeds: Iterable[int],
    runs: Path,
    console: Console,
    brief: bool = False,
    jobs: int = 1,
    ranks: Ranks = ALONE,
) -> list[Run]:
    """Train what is missing, and return all runs, or none on a process that does not write them.

    Args:
        configs: what to train.
        seeds: the seeds for each configuration.
        runs: the folder that holds the folders of the runs.
        console: where to print.
        brief: print only one line for each run.
        jobs: how many are trained at once, with the cores divided between them; always brief if there are several.
            On a few cores, this is faster than one after another, because small networks use one core better than two.
        ranks: the processes that train each run together.

    """
    if jobs > 1 and not ranks.alone:
        raise ValueError(
            f"--jobs {jobs} trains several runs at once, but these {ranks.size} processes train one run together;"
            " leave out --jobs, or start without torchrun"
        )
    names = Counter(folder_of(runs, config.name, 0) for config in configs)
    if twice := [config.name for config in configs if names[folder_of(runs, config.name, 0)] > 1]:
        raise ValueError(f"two files have runs named {twice[0]!r}; give one of them another name")
    wanted = [(c, folder_of(runs, c.name, c.seed)) for seed in seeds for c in (c.with_seed(seed) for c in configs)]
    for config, folder in wanted if ranks.first else []:
        refuse_others(config, folder)
    try:
        if jobs > 1:
            run_at_once(wanted, jobs, console)
        else:
            _one_by_one(wanted, console, brief=brief, ranks=ranks)
    except StoppedError:
        raise StoppedError("stopped; run the same command again to continue") from None
    return [Run(folder) for _, folder in wanted] if ranks.first else []


def _one_by_one(wanted: Sequence[tuple[Config, Path]], console: Console, *, brief: bool, ranks: Ranks) -> None:
    loaded: tuple[str, Dataset] | None = None  # only the last data set, which the next run is likely to need
    for number, (config, folder) in enumerate(wanted, 1):
        finished = bool(ranks.share((folder / "result.json").exists))
        title = f"{number}/{len(wanted)} {config.name}, seed {config.seed}{', already finished' * finished}"
        say(console, title)
        key = repr(config.data.table())
        if not finished and (loaded is None or loaded[0] != key):
            loaded = key, ranks.in_turn(partial(build.dataset, config))
        try:
            data = None if finished or loaded is None else loaded[1]
            result = start_or_resume(config, folder, console, data, brief=brief, ranks=ranks)
            say(console, f"    {summary(result)}")
        except DivergenceError as error:
            say(console, f"    {error}", "yellow")
