"""What happened, in two or three sentences that follow from the numbers."""

from collections.abc import Iterable, Sequence

from rvsm.report.configurations import Configuration
from rvsm.report.difference import Difference
from rvsm.report.numbers import Mean
from rvsm.report.rows import Row, row

METHODS = {
    "rvsm": "RVSM",
    "admm": "ADMM",
    "proxsgd": "proximal SGD",
    "magnitude": "magnitude pruning",
    "acdc": "AC/DC",
    "rvsm-published": "RVSM of the published script",
    "admm-published": "ADMM of the published script",
    "dense": "training without sparsity",
}
PENALTIES = {"l0": "ℓ0", "l1": "ℓ1", "tl1": "Tℓ1", "lhalf": "ℓ½", "mcp": "MCP", "scad": "SCAD", "logsum": "log-sum"}

_SAME = 5e-4  # sparsities that differ by less are shown as one


def lead(found: Sequence[Configuration]) -> str:
    """Return the sentences for one configuration or several."""
    return _one(found[0]) if len(found) == 1 else _several(found)


def method(c: Configuration) -> str:
    """Return how the weights were made sparse: "RVSM with ℓ0"."""
    return method_name(c.first.method, c.first.option("penalty", "name"))


def method_name(method: str, penalty: object = None) -> str:
    """Return a method with its penalty, if it has one.

    >>> method_name("rvsm", "tl1"), method_name("magnitude")
    ('RVSM with Tℓ1', 'magnitude pruning')
    """
    name = METHODS.get(method, method)
    return f"{name} with {PENALTIES.get(str(penalty), penalty)}" if penalty else name


def task(c: Configuration) -> str:
    """Return what was trained: "convnet on digits"."""
    return f"{c.first.option('model', 'name') or 'a network'} on {c.first.option('data', 'name') or 'unknown data'}"


def _one(c: Configuration) -> str:
    listed, first = row(c), c.outcomes[0] if c.outcomes else None
    if first is None or listed.accuracy_u is None or listed.sparsity is None:
        return " ".join([f"{_upper(method(c))}, {task(c)}.", _progress(c)])
    runs = f"{listed.seeds} runs of {method(c)}" if listed.seeds > 1 else _upper(method(c))
    if c.dense or not listed.sparsity.mean:
        said = f"{runs}, {task(c)}: {_percent(listed.accuracy_u)} of the test images are classified correctly."
    else:
        of = f" {first.weights:,}" if first.weights is not None else ""
        of_all = f" ({_share(listed.sparsity_of_all)} of all parameters)" if listed.sparsity_of_all else ""
        said = (
            f"{runs}, {task(c)}: {_share(listed.sparsity)} of the{of} sparsified weights are zero{of_all}. The sparse"
            f" network u classifies {_percent(listed.accuracy_u)} of the test images correctly, the weights w at the"
            f" end of training {_percent(listed.accuracy_w)}."
        )
    return " ".join(filter(None, [said, _progress(c), _caution([listed])]))


def _several(found: Sequence[Configuration]) -> str:
    listed = {c: row(c) for c in found}
    done = {c: r for c, r in listed.items() if r.accuracy_u is not None and r.sparsity is not None}
    runs = sum(r.seeds for r in listed.values())
    tasks = list(dict.fromkeys(task(c) for c in found))
    what = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    said = [f"{runs} finished {'run' if runs == 1 else 'runs'} of {len(found)} configurations: {what}."]
    sparse = {c: r for c, r in done.items() if not c.dense and r.sparsity is not None and r.sparsity.mean > 0}
    dense = next((r for c, r in done.items() if c.dense), None)
    if len(tasks) == 1 and sparse:
        said += _compared(list(sparse.values()), dense)
    elif dense is not None:
        said.append(f"{dense.name} classifies {_percent(dense.accuracy_u)} of the test images correctly.")
    said += [_unfinished(listed.values()), _caution(list(done.values()))]
    return " ".join(filter(None, said))


def _compared(sparse: list[Row], dense: Row | None) -> list[str]:
    most = max(_mean(r.sparsity) for r in sparse)
    top = sorted((r for r in sparse if most - _mean(r.sparsity) < _SAME), key=lambda r: -_mean(r.accuracy_u))
    reached = [f"that of {r.name} {_percent(r.accuracy_u)}" for r in top[1:3]]
    said = (
        f"With {_share(top[0].sparsity)} zeros, the most that was reached, the test accuracy of"
        f" {_and([f'{top[0].name} is {_percent(top[0].accuracy_u)}', *reached])}"
    )
    if dense is not None:
        said += f"; {dense.name}, which is dense, has {_percent(dense.accuracy_u)}, {_difference(dense, top[0])}"
    said += "."
    best = max(sparse, key=lambda r: _mean(r.accuracy_u))
    if best in top:
        return [said]
    return [
        said,
        f"The most accurate of the sparse networks is {best.name}: {_percent(best.accuracy_u)} with"
        f" {_share(best.sparsity)} zeros.",
    ]


def _difference(dense: Row, sparse: Row) -> str:
    """Return how far the accuracies are apart, and whether the seeds can tell."""
    assert dense.accuracy_u is not None
    assert sparse.accuracy_u is not None
    apart = Difference.of(dense.accuracy_u, sparse.accuracy_u)
    if abs(apart.points) < 0.005:
        return f"as much as {sparse.name}"
    said = f"{abs(apart.points):.2f} points {'more' if apart.points > 0 else 'less'} than {sparse.name}"
    if not apart.told_apart:
        seeds = "one seed does" if apart.spread is None else "so few seeds do"
        said += f", a difference that {seeds} not tell from chance"
    return said


def _progress(c: Configuration) -> str:
    """Return how far the unfinished runs have come."""
    waiting = [r for r in c.readings if r.outcome is None]
    if not waiting:
        return ""
    if len(c.readings) > 1:
        return f"{len(waiting)} of {len(c.readings)} runs are not finished, and have no test accuracy yet."
    looks = waiting[0].looks
    if not looks:
        return "The run is not finished, and has no record yet."
    last = looks[-1]
    known = [
        (last.w, "w classifies {} of the validation images correctly"),
        (last.u, "u {}"),
        (last.sparsity, "{} of the sparsified weights would be zero"),
    ]
    said = ", ".join(text.format(f"{100 * value:.2f} %") for value, text in known if value is not None)
    so_far = f"The run is not finished: {last.epoch:g} of {waiting[0].epochs:g} epochs are done"
    return f"{so_far}; so far {said}." if said else f"{so_far}."


def _unfinished(listed: Iterable[Row]) -> str:
    count = sum(r.unfinished for r in listed)
    return f"{count} {'run is' if count == 1 else 'runs are'} not finished." if count else ""


def _caution(listed: Sequence[Row]) -> str:
    seeds = [r.seeds for r in listed if r.seeds]
    if not seeds:
        return ""
    unknown = "With one seed the spread is not known: small differences may be chance." if min(seeds) == 1 else ""
    spread = "± is one standard deviation over the seeds." if max(seeds) > 1 else ""
    return " ".join(filter(None, [spread, unknown]))


def _percent(mean: Mean | None) -> str:
    """Return a mean with its spread, in a piece that no line end breaks."""
    return "an unknown share" if mean is None else f"{mean.text(100, 2)} %".replace(" ", "\u00a0")


def _share(mean: Mean | None) -> str:
    """Return a mean without its spread."""
    return _percent(None if mean is None else Mean(mean.mean, None, 1))


def _mean(mean: Mean | None) -> float:
    return -1.0 if mean is None else mean.mean


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
