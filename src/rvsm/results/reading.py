"""A line of a results file as typed values; nothing in it is trusted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

from rvsm.report.numbers import count, inside, listed, number, share
from rvsm.results.summary import FORMAT

Column = tuple[float | None, ...]


@dataclass(frozen=True)
class Test:
    """Accuracy and loss on the test images; the loss is NaN if it was not finite."""

    __test__ = False  # for pytest, which would take it for a test

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Layer:
    """The shape of a layer's weights, and the share of them that is not zero."""

    shape: tuple[int, ...]
    density: float


@dataclass(frozen=True)
class Timing:
    """One engine at one size of batches."""

    engine: str
    precision: str
    batch: int
    milliseconds: float


@dataclass(frozen=True)
class Runtime:
    """The packed network: its size, and its speed beside other engines."""

    file_bytes: int
    threads: int | None
    engines: tuple[Timing, ...]


@dataclass(frozen=True)
class Summary:
    """A finished run.

    Attributes:
        name: of the experiment, which is the stem of its file.
        config: the fingerprint of the options.
        seed: the seed.
        options: all options but paths.
        epochs: passes over the training images.
        steps: steps of the optimizer.
        w: the weights at the end of training, on the test images.
        u: the sparse network.
        sparsity: the share of zeros over the sparsified weights.
        sparsity_of_all: the share of zeros over all parameters.
        multiplications_saved: the share of multiplications with zero, if it is known.
        weights: the number of sparsified weights.
        parameters: the number of all parameters.
        nonzeros: the number of those that are not zero.
        minutes: of training, if they are known.
        images_per_second: of training, the median over the epochs.
        layers: the sparsified layers.
        norms_w: the norms of the output channels of w, by layer.
        norms_u: those of u.
        curve: columns by epoch, such as "w_loss".
        images: a fingerprint of the images.
        about: machine and versions.
        file_bytes: the size of the unpacked weights.
        runtime: what was measured of the packed network.

    """

    name: str
    config: str
    seed: int
    options: Mapping[str, Any]
    epochs: int
    steps: int
    w: Test
    u: Test
    sparsity: float
    sparsity_of_all: float
    weights: int
    parameters: int
    nonzeros: int
    multiplications_saved: float | None = None
    minutes: float | None = None
    images_per_second: float | None = None
    layers: Mapping[str, Layer] = field(default_factory=dict)
    norms_w: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    norms_u: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    curve: Mapping[str, Column] = field(default_factory=dict)
    images: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    file_bytes: int | None = None
    runtime: Runtime | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What no other line of a file has."""
        return self.name, self.config, self.seed

    @property
    def method(self) -> str:
        """The method's name, "dense" for none."""
        return str(inside(self.options, "method", "name"))


def summary_of(line: Any) -> Summary:
    """Return a line as typed values.

    Raises:
        ValueError: it has another format, or a value is missing, of another type or out of bounds.

    """
    if not isinstance(line, Mapping):
        raise ValueError("it should be an object")
    if line.get("format") != FORMAT:
        raise ValueError(f"its format is {line.get('format')!r}, but {FORMAT} is the only one that is known")
    norms_w, saved = _norms(line, "w"), "multiplications_saved"
    return Summary(
        name=_text(line, "name"),
        config=_text(line, "config"),
        seed=_whole(line, "seed", signed=True),
        options=_table(line, "options"),
        epochs=_whole(line, "epochs"),
        steps=_whole(line, "steps"),
        w=_test(line, "w"),
        u=_test(line, "u"),
        sparsity=_share(line, "sparsity"),
        sparsity_of_all=_share(line, "sparsity_of_all"),
        weights=_whole(line, "weights"),
        parameters=_whole(line, "parameters"),
        nonzeros=_whole(line, "nonzeros"),
        multiplications_saved=None if _absent(line, saved) else _share(line, saved),
        minutes=_positive(line, "minutes"),
        images_per_second=_positive(line, "images_per_second"),
        layers={name: _layer(layer, name) for name, layer in _table(line, "layers").items()},
        norms_w=norms_w,
        norms_u=_norms(line, "u") or norms_w,
        curve=_curve(_table(line, "curve")),
        images=None if _absent(line, "images") else _text(line, "images"),
        about=_table(line, "about"),
        file_bytes=None if _absent(line, "file_bytes") else _whole(line, "file_bytes"),
        runtime=None if _absent(line, "runtime") else _runtime(_table(line, "runtime")),
    )


def _runtime(table: Mapping[str, Any]) -> Runtime:
    engines = table.get("engines") or []
    if not isinstance(engines, list):
        raise ValueError("runtime.engines should be a list")
    return Runtime(_whole(table, "file_bytes"), count(table, "threads"), tuple(map(_timing, engines)))


def _timing(found: Any) -> Timing:
    milliseconds = number(found, "milliseconds", low=1e-9)
    if milliseconds is None:
        raise ValueError("runtime.engines should have milliseconds > 0")
    return Timing(_text(found, "engine"), _text(found, "precision"), _whole(found, "batch"), milliseconds)


def _test(line: Any, of: str) -> Test:
    loss = number(line, "test", of, "loss", low=0.0)
    if loss is None and not _absent(line, "test", of, "loss"):
        found = inside(line, "test", of, "loss")
        raise ValueError(f"test.{of}.loss should be a number ≥ 0, or null, but is {found!r}")
    return Test(_share(line, "test", of, "accuracy"), nan if loss is None else loss)


def _layer(found: Any, name: str) -> Layer:
    shape, density = listed(inside(found, "shape"), low=1.0), share(found, "density")
    if shape is None or density is None or any(length != int(length) for length in shape):
        raise ValueError(f"layers.{name} should have a shape of whole numbers and a density in [0, 1]")
    return Layer(tuple(map(int, shape)), density)


def _norms(line: Any, of: str) -> dict[str, tuple[float, ...]]:
    norms: dict[str, tuple[float, ...]] = {}
    for name, values in ({} if _absent(line, "channel_norms", of) else _table(line, "channel_norms", of)).items():
        numbers = listed(values, low=0.0)
        if numbers is None:
            raise ValueError(f"channel_norms.{of}.{name} should be a list of numbers ≥ 0")
        norms[name] = numbers
    return norms


def _curve(table: Mapping[str, Any]) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for name, values in table.items():
        if not isinstance(values, list):
            raise ValueError(f"curve.{name} should be a list")
        columns[name] = tuple(number({"": value}, "") for value in values)
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("the columns of the curve should have one length")
    if any(epoch is None for epoch in columns.get("epoch", ())):
        raise ValueError("curve.epoch should be numbers")
    return columns


def _absent(tree: Any, *path: str) -> bool:
    return inside(tree, *path) is None


def _text(tree: Any, key: str) -> str:
    found = inside(tree, key)
    if not isinstance(found, str) or not found or not found.isprintable():
        raise ValueError(f"{key} should be a text of one line but is {found!r}")
    return found


def _table(tree: Any, *path: str) -> Mapping[str, Any]:
    found = inside(tree, *path)
    if not isinstance(found, Mapping):
        raise ValueError(f"{'.'.join(path)} should be an object but is {repr(found)[:60]}")
    return found


def _whole(tree: Any, key: str, *, signed: bool = False) -> int:
    found = inside(tree, key)
    if isinstance(found, bool) or not isinstance(found, int) or (found < 0 and not signed):
        raise ValueError(f"{key} should be a whole number{'' if signed else ' ≥ 0'} but is {found!r}")
    return found


def _share(tree: Any, *path: str) -> float:
    found = share(tree, *path)
    if found is None:
        raise ValueError(f"{'.'.join(path)} should be a share in [0, 1] but is {inside(tree, *path)!r}")
    return found


def _positive(tree: Any, key: str) -> float | None:
    found = number(tree, key, low=0.0)
    if found is None and not _absent(tree, key):
        raise ValueError(f"{key} should be a number ≥ 0 but is {inside(tree, key)!r}")
    return found
