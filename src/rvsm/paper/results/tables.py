"""Tables in Markdown; each row names its experiment and the fingerprint of its options."""

from collections.abc import Callable, Mapping, Sequence

from rvsm.config.config import OF_THE_MACHINE, fingerprint
from rvsm.markdown import cell, pipe_table
from rvsm.paper.results.chance import CHANCE, difference
from rvsm.paper.results.collections import Collection, Experiments, Source, setting
from rvsm.paper.results.printed import PUBLISHED, PaperTable, PrintedRow
from rvsm.records import Outcome, Record
from rvsm.report import Configuration
from rvsm.report.statistics import NOTHING, Mean
from rvsm.report.summary import method_name

Sources = Mapping[str, Source]

_SPARSE = ("method", "penalty", "groups", "budget")  # sections of a configuration in which a dense run differs

PRECISION = "float32"
"""The precision of the sparse runtime, and of the dense engines that its speed is relative to."""

BATCHES = (1, 16, 64)
"""The batch sizes for which speeds are shown."""

COUNTED = {"weights": "weights", "flops": "multiplications", "time": "time"}
"""What a target counts, by its name among the options of a budget."""


def paper_table(table: PaperTable, collection: Collection, sources: Sources) -> str | None:
    """Return a table of the paper with our figures beside the paper's; None if none of its experiments was run."""
    ours = collection.experiments
    known = {row.experiment for row in table.rows}
    others = [PrintedRow(n, n, n, None) for n in ours if n.startswith(f"{table.network}-") and n not in known]
    rows = [row for row in (*table.rows, *others) if row.experiment in ours]
    if not rows:
        return None
    base = ours.get(table.base.experiment)
    cells = [_paper_row(table, row, ours[row.experiment], base, sources) for row in rows]
    head = (
        "row",
        *("paper: accuracy, %", "zeros, %", "to base"),
        *("ours: accuracy of w, %", "of u, %", "to base", "zeros, %", "zeros of all, %"),
        *("multiplications saved, %", "minutes", "seeds", "experiment"),
    )
    settings = dict.fromkeys(setting(ours[row.experiment]) for row in rows)
    notes = [
        f"The paper: {table.setting}. Ours: {cell('; '.join(settings))}.",
        "“To base” is the accuracy of u minus that of the dense network of the same table, in points. “Zeros” is"
        " counted over the sparsified weights, “zeros of all” over all parameters.",
        *_notes([ours[row.experiment] for row in rows], sources),
    ]
    if missing := [row.label for row in table.rows if row.experiment not in ours]:
        notes.append(f"Not run yet: {cell('; '.join(missing))}.")
    return f"**{table.title}**\n\n{pipe_table(head, cells, texts=('experiment',))}\n{' '.join(notes)}\n"


def _paper_row(
    table: PaperTable, row: PrintedRow, e: Configuration, base: Configuration | None, sources: Sources
) -> list[str]:
    lost, printed = table.lost(row), row.printed
    is_base = row.experiment == table.base.experiment
    return [
        cell(row.label),
        NOTHING if printed is None else f"{printed.accuracy:.2f}",
        NOTHING if printed is None else f"{printed.sparsity:.2f}",
        NOTHING if lost is None or is_base else _points(-lost),
        e.accuracy_w.percent,
        e.accuracy_u.percent,
        NOTHING if base is None or is_base else _difference(e, base),
        e.sparsity.percent,
        e.sparsity_of_all.percent,
        e.multiplications_saved.percent,
        _minutes(e.minutes),
        str(len(e.runs)),
        _source(e, sources),
    ]


def networks(collection: Collection, sources: Sources) -> str:
    """Return the table of sparse networks beside the dense ones of the same shape: accuracy, size and speed."""
    ours = collection.experiments
    sparse = [e for e in ours.values() if not e.dense]
    bases = {e.name: dense_of(e, ours) for e in sparse}
    alone = [e for e in ours.values() if e.dense and e not in bases.values()]
    rows = [_network_row(e, None if e.dense else bases[e.name], sources) for e in (*alone, *sparse)]
    head = (
        *(
            "network",
            "method",
            "target",
            "accuracy dense, %",
            "accuracy sparse, %",
            "zeros, %",
            "multiplications saved, %",
        ),
        *("file, kB", "packed, kB"),
        *(f"speed at {batch}, ×" for batch in BATCHES),
        *("minutes", "seeds", "experiment"),
    )
    notes = [
        "“File” is the size of the network's weights as safetensors; “packed” is the size of the file that rvsm pack"
        " writes for the sparse network."
        if any(e.outcomes[0].runtime for e in sparse)
        else "",
        *_baseline(sparse),
        *_notes([*alone, *sparse, *(base for base in bases.values() if base)], sources),
    ]
    listed = pipe_table(head, rows, texts=("method", "target", "experiment"))
    return f"{listed}\n{' '.join(filter(None, notes))}".rstrip() + "\n"


def headline(collection: Collection) -> str:
    """Return a short form of the table: what is lost, and what is gained."""
    ours = collection.experiments
    head = (
        "network",
        "target",
        "accuracy dense → sparse, %",
        "zeros, %",
        "multiplications saved, %",
        "file dense → packed, MB",
    )
    batches = " / ".join(map(str, BATCHES))
    speeds = {PRECISION: f"faster at batch {batches}", "bfloat16": f"than bfloat16, at batch {batches}"}
    sparse = [e for e in ours.values() if not e.dense]
    speeds = {p: title for p, title in speeds.items() if p == PRECISION or any(_speeds(e, p) for e in sparse)}
    rows = []
    for e in sparse:
        base = dense_of(e, ours)
        epochs, files = e.outcomes[0].epochs, (e.mean(lambda o: o.file_bytes), e.packed_bytes)
        rows.append(
            [
                cell(f"{e.option('model', 'name')}, {epochs} epoch{'s' * (epochs != 1)}"),
                _target(e),
                f"{_accuracy_of(base, e)} → {e.accuracy_u.percent}",
                e.sparsity.percent,
                e.multiplications_saved.percent,
                " → ".join(size.text(1e-6, 2) for size in files),
                *(" / ".join(_speeds(e, precision) or [NOTHING] * len(BATCHES)) + " ×" for precision in speeds),
            ]
        )
    return pipe_table((*head, *speeds.values()), rows, texts=("target",))


def dense_of(e: Configuration, others: Experiments) -> Configuration | None:
    """Return the dense experiment that differs only in the method, or in the precision as well; None without one."""
    found = [other for other in others.values() if other.dense and _alike(other.first, e.first)]
    return min(found, key=lambda other: _precision(other) != _precision(e), default=None)


def _alike(one: Record, other: Record) -> bool:
    """Return whether two runs differ only in the method and the precision: same network, images and schedule."""
    runs, outcomes = (one, other), [run.outcome for run in (one, other) if run.outcome is not None]
    training = {fingerprint({k: v for k, v in run.options.items() if k not in _SPARSE}, OF_THE_MACHINE) for run in runs}
    epochs = {o.epochs for o in outcomes}
    images = {o.images for o in outcomes if o.images is not None}
    return len(training) == len(epochs) == 1 and len(images) <= 1


def _precision(e: Configuration) -> str:
    return str(e.first.about.get("precision", "unknown precision"))


def _accuracy_of(base: Configuration | None, e: Configuration) -> str:
    """Return the accuracy of the dense network, with its precision if it was trained with another one."""
    if base is None:
        return NOTHING
    return base.accuracy_u.percent + (f" ({_precision(base)})" if _precision(base) != _precision(e) else "")


def _network_row(e: Configuration, base: Configuration | None, sources: Sources) -> list[str]:
    dense = e if e.dense else base
    return [
        cell(_network(e)),
        cell(_method(e)),
        _target(e),
        _accuracy_of(dense, e),
        NOTHING if e.dense else e.accuracy_u.percent,
        e.sparsity.percent,
        e.multiplications_saved.percent,
        e.mean(lambda o: o.file_bytes).text(1e-3, 0),
        e.packed_bytes.text(1e-3, 0),
        *(e.mean(speed_at(batch)).text(digits=1) for batch in BATCHES),
        _minutes(e.minutes),
        str(len(e.runs)),
        _source(e, sources) + ("" if base is None else f", {_source(base, sources)}"),
    ]


def speed_at(batch: int, precision: str = PRECISION) -> Callable[[Outcome], float | None]:
    """Return a function that gives the speed of a run relative to engines of a precision; None if not measured."""

    def speed(o: Outcome) -> float | None:
        found = None if o.runtime is None else o.runtime.speedup(batch, precision)
        return None if found is None else found[0]

    return speed


def _speeds(e: Configuration, precision: str) -> list[str]:
    """Return the speeds at all batch sizes; nothing if there are none."""
    means = [e.mean(speed_at(batch, precision)) for batch in BATCHES]
    return [mean.text(digits=1) for mean in means] if any(means) else []


def _baseline(experiments: Sequence[Configuration]) -> list[str]:
    """Return the baseline of the speeds."""
    runtimes = [o.runtime for e in experiments for o in e.outcomes if o.runtime is not None]
    found = [(r.speedup(batch, PRECISION), r.threads) for r in runtimes for batch in BATCHES]
    measured = [(speedup[1], threads) for speedup, threads in found if speedup is not None]
    if not measured:
        return []
    engines, threads = (", ".join(dict.fromkeys(map(str, column))) for column in zip(*measured, strict=True))
    return [
        "Speed is that of the packed network in the sparse runtime, relative to the same network in the fastest dense"
        f" {PRECISION} engine at that batch size ({cell(engines)}; threads: {threads})."
    ]


def costs(collection: Collection) -> str:
    """Return the cost of the trainings, and the machine."""
    ours = collection.experiments
    machines = dict.fromkeys(_machine(run) for e in ours.values() for run in e.runs)
    head = ("experiment", "epochs", "minutes", "images per second", *(["machine"] if len(machines) > 1 else []))
    rows = [
        [
            cell(e.name),
            str(e.outcomes[0].epochs),
            _minutes(e.minutes),
            Mean.of(run.images_per_second for run in e.runs).text(digits=0),
            *([cell("; ".join(dict.fromkeys(map(_machine, e.runs))))] if len(machines) > 1 else []),
        ]
        for e in ours.values()
    ]
    spent = [o.minutes or 0.0 for e in ours.values() for o in e.outcomes]
    where = f", on {cell(next(iter(machines)))}" if len(machines) == 1 else ""
    runs = f"{len(spent)} run{'s' * (len(spent) != 1)}"
    return f"{pipe_table(head, rows, texts=('machine',))}\n{runs}, {sum(spent) / 60:.1f} hours in all{where}.\n"


def _machine(run: Record) -> str:
    about = run.about
    threads = f"{about.get('threads', 'unknown')} thread{'s' * (about.get('threads') != 1)}"
    versions = about.get("versions")
    torch = f", torch {versions['torch']}" if isinstance(versions, Mapping) and "torch" in versions else ""
    machine, precision = about.get("machine", "unknown machine"), about.get("precision", "unknown precision")
    return f"{machine}, {threads}, {precision}{torch}"


def _notes(experiments: Sequence[Configuration], sources: Sources) -> list[str]:
    """Return notes on the seeds, and on runs that differ from their files."""
    changed = {e.name: sources[e.name].changes for e in experiments}
    seeds = [len(e.runs) for e in experiments]
    notes = [
        "± is one standard deviation over the seeds." if max(seeds) > 1 else "",
        f"For rows with one seed, differences below {CHANCE} may be chance." if min(seeds) == 1 else "",
        *(
            cell(f"† {name} was run with options that differ from its file: {', '.join(found)}.")
            for name, found in changed.items()
            if found
        ),
    ]
    return [note for note in notes if note]


def _source(e: Configuration, sources: Sources) -> str:
    """Return an experiment's name as a link to its file, with the fingerprint of the options."""
    found = sources[e.name]
    name = cell(e.name) if found.path is None else f"[{cell(e.name)}](../{found.path})"
    return f"{name} {e.first.fingerprint}{' †' if found.changes else ''}"


def _network(e: Configuration) -> str:
    width = e.option("model", "width")
    return f"{e.option('model', 'name')}{'' if width is None else f', width {width}'}, {e.option('data', 'name')}"


def _method(e: Configuration) -> str:
    if e.dense:
        return "dense"
    return method_name(PUBLISHED.get(e.first.method, e.first.method), e.option("penalty", "name"))


def _target(e: Configuration) -> str:
    """Return what the sparse network was asked to be."""
    speedup, sparsity = (e.option("budget", name) for name in ("speedup", "sparsity"))
    if isinstance(speedup, float | int):
        return f"{speedup:g} × the speed"
    if not isinstance(sparsity, float | int):
        return NOTHING
    return f"{100 * sparsity:g} % of the {COUNTED.get(e.option('budget', 'by'), 'weights')}"


def _minutes(mean: Mean) -> str:
    """Return minutes, with one more digit if they are few."""
    return mean.text(digits=0 if mean.mean >= 10 else 1)


def _points(points: float) -> str:
    return f"{points:+.2f}".replace("-", "−")


def _difference(e: Configuration, base: Configuration) -> str:
    """Return the difference of two accuracies with its spread."""
    found = difference(e.accuracy_u, base.accuracy_u)
    return _points(found.points) + ("" if found.spread is None else f" ± {found.spread:.2f}")
