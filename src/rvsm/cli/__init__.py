"""The command line: it only parses arguments and calls the library."""

import argparse
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rvsm import __version__
from rvsm.cli.networks import bench, evaluate, info, pack, predict, profile
from rvsm.cli.sweep import sweep
from rvsm.cli.terminal import LogFormatter, add_allow_import, complain, parser_of, path, show
from rvsm.cli.together import Ending, launched, run_together
from rvsm.extras import MissingLibraryError, needed_by
from rvsm.plugins import plugins

if TYPE_CHECKING:
    from rich.console import Console

Command = Callable[[list[str]], int | None]
"""A command takes its words, and may return an exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``rvsm`` with its arguments and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # like stderr; file names need not be UTF-8
    parser = argparse.ArgumentParser(
        prog="rvsm",
        description="Train sparse neural networks.",
        epilog="\n".join(f"  {name:8} {text}" for name, (_, text) in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="rvsm COMMAND …      (rvsm COMMAND --help lists its options)",
    )
    parser.add_argument("--version", action="version", version=f"rvsm {__version__}")
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help="one of the commands below")
    command = parser.parse_args(words[:1]).command
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(handlers=[handler])
    logging.getLogger("rvsm").setLevel(logging.INFO)  # such as where decoded images are kept
    if launched():
        return run_together(command, lambda: _ending(command, words[1:]))
    code, complaint = _ending(command, words[1:])
    if complaint is not None:
        complain(complaint)
    return code


def _ending(command: str, words: list[str]) -> Ending:
    """Run a command, and return how it ended."""
    try:
        with warnings.catch_warnings(), needed_by(command, extra="train"):  # this extra has all that any command needs
            warnings.showwarning = _warn
            return COMMANDS[command][0](words) or 0, None
    except KeyboardInterrupt as stopped:
        return 130, str(stopped) or "stopped"
    except BrokenPipeError:  # the reader of the output has closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141, None
    except RecursionError:
        return 1, "a file is nested too deeply; check it, or restore an intact copy"
    except MemoryError as error:
        return 1, f"there is not enough memory: {str(error) or 'give smaller sizes'}"
    except (MissingLibraryError, ValueError, OSError, RuntimeError) as error:  # torch raises the last if out of memory
        return 1, error


def _train(words: list[str]) -> None:
    parser = parser_of("train", None, add_help=False, allow_abbrev=False)
    parser.add_argument("--run", type=path, help="the run's folder (default: runs/NAME-sSEED)")
    parser.add_argument("-h", "--help", action="store_true", help="list all options and exit")
    add_allow_import(parser)
    options, rest = parser.parse_known_args(words)
    from rvsm.config import help_of, read_config, split

    files, flags = split(rest)
    if len(files) > 1:
        raise ValueError(f"train takes one file but got {len(files)}; use rvsm compare for several")
    file = files[0] if files else None
    if options.help:
        show(help_of(flags, file, allow_import=options.allow_import))
        show(parser.format_help().partition("\n\n")[2])
        return
    config = read_config(file, flags, allow_import=options.allow_import)
    from rvsm.records import folder_of
    from rvsm.train import current_ranks, quoted, start, summary

    folder = options.run or folder_of(Path("runs"), config.name, config.seed)
    result = start(config, folder, _console(), ranks=current_ranks())
    show(f"{config.name}: {summary(result)}")
    show(f"the run is in {folder}; see it with: rvsm report {quoted(folder)}")


def _resume(words: list[str]) -> None:
    parser = parser_of("resume", "Resume a run from its newest checkpoint.")
    parser.add_argument("run", type=path, metavar="RUN", help="the folder of the run")
    add_allow_import(parser)
    options = parser.parse_args(words)
    from rvsm.train import current_ranks, quoted, resume, summary

    result = resume(options.run, _console(), allow_import=options.allow_import, ranks=current_ranks())
    show(f"{options.run}: {summary(result)}")
    show(f"see it with: rvsm report {quoted(options.run)}")


def _compare(words: list[str]) -> None:
    parser = parser_of(
        "compare",
        "Start missing runs, resume unfinished ones and skip finished ones. Print a table with mean ± std, and save it"
        " together with a page.",
        usage="rvsm compare FILE… [--seeds N] [--jobs N] [--runs DIR] [--out DIR] [--section.option VALUE …]",
        epilog="Other options apply to all files; rvsm train --help lists them.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="number of runs of each file, with seeds 0 to N-1"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="train N runs at once and divide the cores between them"
    )
    parser.add_argument("--runs", type=path, default=Path("runs"), help="folder of the runs (default: %(default)s)")
    parser.add_argument("--out", type=path, help="where to write the table and the page (default: RUNS/comparison)")
    add_allow_import(parser)
    options, rest = parser.parse_known_args(words)
    without_files = ValueError("compare needs at least one file: rvsm compare experiments/fashion-mnist/*.toml")
    if not rest:  # before the imports, which take seconds
        raise without_files
    from rvsm.compare import compare
    from rvsm.config import read_config, split
    from rvsm.train import current_ranks

    files, flags = split(rest)
    if not files:
        raise without_files
    if any(flag.partition("=")[0] == "--seed" for flag in flags):
        raise ValueError("compare runs each file with the seeds 0 to N-1; use --seeds N instead of --seed")
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} must be at least 1 but is {getattr(options, name)}")
    configs = [read_config(file, flags, allow_import=options.allow_import) for file in files]
    out = options.out or options.runs / "comparison"
    how = {"runs": options.runs, "console": _console(), "jobs": options.jobs, "ranks": current_ranks()}
    page = compare(configs, seeds=range(options.seeds), out=out, **how)
    if page is not None:
        show(page)


def _report(words: list[str]) -> None:
    parser = parser_of("report", "Write a page with a table and pictures about one or more runs.")
    parser.add_argument("runs", nargs="+", type=path, metavar="RUN", help="folders of runs")
    parser.add_argument("--out", type=path, help="the folder to write to (default: the folder of the first run)")
    options = parser.parse_args(words)
    from rvsm.records import Run
    from rvsm.report import report

    runs = [Run(folder) for folder in options.runs]
    out = options.out or options.runs[0]
    try:
        show(report(runs, out=out))
    except OSError as error:
        raise ValueError(f"{out} cannot be written to: {error.strerror or error}; give a folder with --out") from None


def _collect(words: list[str]) -> None:
    parser = parser_of(
        "collect", "Save finished runs as lines of a small text file, from which tables of results are made."
    )
    parser.add_argument("runs", nargs="+", type=path, metavar="RUN", help="folders of finished runs")
    replaced_lines = "the file; a line with the same name, options and seed is replaced"
    parser.add_argument("--into", type=path, required=True, metavar="FILE.jsonl", help=replaced_lines)
    options = parser.parse_args(words)
    from rvsm.collect import collect
    from rvsm.records import Run

    new, replaced = collect([Run(folder) for folder in options.runs], options.into)
    show(f"{options.into}: {new} new, {replaced} replaced")


def _demo(words: list[str]) -> None:
    parser = parser_of("demo", "Train a small network on embedded digits with several methods, and compare them.")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the batches")
    parser.add_argument("--out", type=path, default=Path("runs/demo"), help="folder to write to (default: %(default)s)")
    options = parser.parse_args(words)
    from rvsm.demo import demo

    show(demo(_console(), seed=options.seed, out=options.out))


def _summary(command: Command) -> str:
    """Return the first line of a command's docstring for the help."""
    line = (command.__doc__ or "").strip().partition("\n")[0]
    return line[:1].lower() + line[1:].removesuffix(".")


COMMANDS: dict[str, tuple[Command, str]] = {
    "demo": (_demo, "train and compare several methods in about a minute, on embedded data: rvsm demo"),
    "train": (_train, "train one network from a file and flags: rvsm train [FILE] [--section.option VALUE …]"),
    "resume": (_resume, "continue a run that was stopped: rvsm resume RUN"),
    "compare": (_compare, "train several files and show one table: rvsm compare FILE… [--seeds N]"),
    "sweep": (sweep, "search for the best options: rvsm sweep [FILE] --param NAME=low:high … | FOLDER"),
    "report": (_report, "write a page about runs: rvsm report RUN… [--out DIR]"),
    "evaluate": (evaluate, "measure the accuracy of a run or a packed file: rvsm evaluate RUN|FILE [--data.path …]"),
    "predict": (predict, "print the classes of images: rvsm predict RUN|FILE IMAGE…"),
    "pack": (pack, "write a network to a file for the sparse runtime: rvsm pack RUN|module:callable"),
    "bench": (bench, "time a network in the sparse runtime and in other engines: rvsm bench RUN|module:callable"),
    "profile": (profile, "measure what zeros are worth in the sparse runtime: rvsm profile RUN|module:callable"),
    "info": (info, "describe the contents of a packed file: rvsm info FILE"),
    "collect": (_collect, "save finished runs as lines of a text file: rvsm collect RUN… --into FILE.jsonl"),
    **{name: (found, _summary(found)) for name, found in plugins("rvsm.commands").items()},
}


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as a sentence, without the line of code that caused it."""
    complain(message)


def _console() -> "Console":
    from rich.console import Console

    return Console()
