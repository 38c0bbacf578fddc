"""The command ``rvsm sweep``."""

from pathlib import Path

from rvsm.cli.terminal import add_allow_import, parser_of, path, show
from rvsm.extras import needed_by


def sweep(words: list[str]) -> None:
    """Search for the best options with many trainings."""
    parser = parser_of(
        "sweep",
        "Train many times with options that Optuna chooses. Run the same command again, or rvsm sweep FOLDER, to"
        " continue a sweep, or to join it with one more process.",
        usage="rvsm sweep [FILE] --param NAME=low:high --param NAME=a,b,c … [--section.option VALUE …]\n"
        "       rvsm sweep FOLDER [--page]",
        epilog="Other options apply to all trials; rvsm train --help lists them. --seed also decides which values are"
        " tried.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=…",
        help="an option of rvsm train to vary: low:high, low:high:log for a logarithmic scale, or a,b,c",
    )
    parser.add_argument("--trials", type=int, metavar="N", help="trials of all processes together (default: 40)")
    goals = "what to maximise: accuracy (default; on validation images), sparsity, multiplications (saved) or speed"
    parser.add_argument("--goal", action="append", default=[], metavar="GOAL", help=f"{goals}; may be given twice")
    parser.add_argument("--sweep", type=path, metavar="FOLDER", help="the sweep's folder (default: sweeps/NAME)")
    url = "the URL of a database, so that processes on other machines can join (default: a SQLite file in the folder)"
    parser.add_argument("--storage", metavar="URL", help=url)
    parser.add_argument("--no-pruning", action="store_true", help="train all trials to the end")
    parser.add_argument("--page", action="store_true", help="only write the page of a sweep, as it stands")
    add_allow_import(parser)
    options, rest = parser.parse_known_args(words)
    with needed_by("sweep", extra="sweep"):
        from rich.console import Console

        import rvsm.sweep as sweeps
        from rvsm.config import split
        from rvsm.records import folder_of

    files, flags = split(rest)
    if len(files) > 1:
        raise ValueError(f"sweep takes one file or folder but got {len(files)}")
    source = files[0] if files else None
    more = {"storage": options.storage, "allow_import": options.allow_import}
    if source is not None and source.is_dir():
        if given := [*options.param, *options.goal, *flags, *["--sweep"] * bool(options.sweep)]:
            raise ValueError(f"{source} is a sweep with options of its own; leave out {given[0]}")
        folder = source
        if options.page:
            results = sweeps.write(folder, **more)
        else:
            results = sweeps.join(folder, Console(), trials=options.trials, **more)
    elif options.page:
        raise ValueError("--page needs the folder of a sweep: rvsm sweep FOLDER --page")
    else:
        definition = sweeps.Definition.of_command(
            options.param,
            source,
            flags,
            goals=options.goal,
            pruning=not options.no_pruning,
            allow_import=options.allow_import,
        )
        folder = options.sweep or Path("sweeps") / folder_of(Path(), definition.name, 0).name.removesuffix("-s0")
        results = sweeps.run(definition, folder, Console(), trials=options.trials, **more)
    show(sweeps.summary(results, folder))
