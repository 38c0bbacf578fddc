"""A summary of the results in two or three sentences, derived from the numbers."""

from collections.abc import Sequence
from math import isinf

from rvsm.report.configurations import Configuration
from rvsm.report.statistics import Difference, Mean

METHODS = {
    "rvsm": "RVSM",
    "admm": "ADMM",
    "proxsgd": "proximal SGD",
    "magnitude": "magnitude pruning",
    "acdc": "AC/DC",
    "dense": "training without sparsity",
}
PENALTIES = {"l0": "ℓ0", "l1": "ℓ1", "tl1": "Tℓ1", "lhalf": "ℓ½", "mcp": "MCP", "scad": "SCAD", "logsum": "log-sum"}

_SAME = 5e-4  # sparsities that differ by less count as equal


def summary(found: Sequence[Configuration]) -> str:
    """Return the sentences for one or more configurations."""
    return _one(found[0]) if len(found) == 1 else _several(found)


def method(c: Configuration) -> str:
    """Return how the weights were made sparse: "RVSM with ℓ0"."""
    return method_name(c.first.method, c.option("penalty", "name"))


def method_name(method: str, penalty: object = None) -> str:
    """Return a method with its penalty, if it has one.

    >>> method_name("rvsm", "tl1"), method_name("magnitude")
    ('RVSM with Tℓ1', 'magnitude pruning')
    """
    name = METHODS.get(method, method)
    return f"{name} with {PENALTIES.get(str(penalty), penalty)}" if penalty else name


def task(c: Configuration) -> str:
    """Return what was trained: "convnet on digits"."""
    return f"{c.option('model', 'name') or 'a network'} on {c.option('data', 'name') or 'unknown data'}"


def _one(c: Configuration) -> str:
    if not c.outcomes:
        return " ".join([f"{_upper(method(c))}, {task(c)}.", _progress(c)])
    runs = f"{c.seeds} runs of {method(c)}" if c.seeds > 1 else _upper(method(c))
    if c.dense or not c.sparsity.mean:
        said = f"{runs}, {task(c)}: {_percent(c.accuracy_u)} of the test images are classified correctly."
    else:
        said = (
            f"{runs}, {task(c)}: {_percent(c.sparsity.bare)} of the {c.outcomes[0].weights:,} sparsified weights are"
            f" zero ({_percent(c.sparsity_of_all.bare)} of all parameters). The sparse network u classifies"
            f" {_percent(c.accuracy_u)} of the test images correctly, the weights w at the end of training"
            f" {_percent(c.accuracy_w)}."
        )
    return " ".join(filter(None, [said, _speed(c), _progress(c), _caution([c])]))


def _speed(c: Configuration) -> str:
    """Return the speed in the runtime, if it was the target."""
    speeds = [outcome.speed for outcome in c.outcomes if outcome.speed is not None]
    return f"{'The first' if len(speeds) > 1 else 'It'} is {speeds[0].sentence}." if speeds else ""


def _several(found: Sequence[Configuration]) -> str:
    done = [c for c in found if c.outcomes]
    runs = sum(c.seeds for c in found)
    tasks = list(dict.fromkeys(task(c) for c in found))
    trained = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    said = [f"{runs} finished {'run' if runs == 1 else 'runs'} of {len(found)} configurations: {trained}."]
    sparse = [c for c in done if not c.dense and c.sparsity.mean > 0]
    dense = next((c for c in done if c.dense), None)
    if len(tasks) == 1 and sparse:
        said += _compared(sparse, dense)
    elif dense is not None:
        said.append(f"{dense.name} classifies {_percent(dense.accuracy_u)} of the test images correctly.")
    if waiting := sum(c.unfinished for c in found):
        said.append(f"{waiting} {'run is' if waiting == 1 else 'runs are'} not finished.")
    return " ".join(filter(None, [*said, _caution(done)]))


def _compared(sparse: Sequence[Configuration], dense: Configuration | None) -> list[str]:
    most = max(c.sparsity.mean for c in sparse)
    top = sorted((c for c in sparse if most - c.sparsity.mean < _SAME), key=lambda c: -c.accuracy_u.mean)
    reached = [f"that of {c.name} {_percent(c.accuracy_u)}" for c in top[1:3]]
    said = (
        f"With {_percent(top[0].sparsity.bare)} zeros, the most that was reached, the test accuracy of"
        f" {_and([f'{top[0].name} is {_percent(top[0].accuracy_u)}', *reached])}"
    )
    if dense is not None:
        said += f"; {dense.name}, which is dense, has {_percent(dense.accuracy_u)}, {_difference(dense, top[0])}"
    said += "."
    best = max(sparse, key=lambda c: c.accuracy_u.mean)
    if best in top:
        return [said]
    return [
        said,
        f"The most accurate of the sparse networks is {best.name}: {_percent(best.accuracy_u)} with"
        f" {_percent(best.sparsity.bare)} zeros.",
    ]


def _difference(dense: Configuration, sparse: Configuration) -> str:
    """Return the difference of the accuracies, and whether it is significant."""
    apart = Difference.of(dense.accuracy_u, sparse.accuracy_u)
    if abs(apart.points) < 0.005:
        return f"as much as {sparse.name}"
    said = f"{abs(apart.points):.2f} points {'more' if apart.points > 0 else 'less'} than {sparse.name}"
    if apart.told_apart:
        return said
    if isinf(apart.resolution):
        seeds = "one seed each" if max(dense.seeds, sparse.seeds) == 1 else "seeds that agree"
        return f"{said}; {seeds} cannot show whether this is chance"
    return f"{said}, which may be chance with so few seeds"


def _progress(c: Configuration) -> str:
    """Return the progress of the unfinished runs."""
    waiting = [run for run in c.runs if run.outcome is None]
    if not waiting:
        return ""
    if len(c.runs) > 1:
        return f"{len(waiting)} of {len(c.runs)} runs are not finished, and have no test accuracy yet."
    if not waiting[0].evaluations:
        return "The run is not finished, and has no record yet."
    last = waiting[0].evaluations[-1]
    known = [
        (last.accuracy_w, "w classifies {} of the validation images correctly"),
        (last.accuracy_u, "u {}"),
        (last.sparsity, "{} of the sparsified weights would be zero"),
    ]
    said = ", ".join(text.format(f"{100 * value:.2f} %") for value, text in known if value is not None)
    so_far = f"The run is not finished: {last.epoch:g} of {waiting[0].epochs:g} epochs are done"
    return f"{so_far}; so far {said}." if said else f"{so_far}."


def _caution(found: Sequence[Configuration]) -> str:
    seeds = [c.seeds for c in found if c.seeds]
    if not seeds:
        return ""
    spread = "± is one standard deviation over the seeds." if max(seeds) > 1 else ""
    unknown = "The spread of a single seed is unknown: small differences may be chance." if min(seeds) == 1 else ""
    return " ".join(filter(None, [spread, unknown]))


def _percent(mean: Mean) -> str:
    """Return a mean with its spread, with spaces that do not break."""
    return f"{mean.percent} %".replace(" ", "\u00a0")


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
