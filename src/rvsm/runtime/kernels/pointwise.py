"""Sums and products of maps, and activations as vector polynomials: LLVM's vector exp would become scalar calls.

An activation is a function of the vector ``v`` and of its two parameters, given as vectors. NaN stays NaN. To add one,
write a function, a line in ``CODE``, and its name in the plan's ``ACTIVATIONS``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rvsm.runtime.kernels.kernel import Kernel, Variant, Vectors


def _sigmoid(m: Vectors, v: str, a: str, b: str) -> str:
    one = m.constant(1.0)
    return m.div(one, m.add(one, m.exp(m.sub(m.constant(0.0), v))))


def _hardsigmoid(m: Vectors, v: str, a: str, b: str) -> str:
    sixth = m.constant(1 / 6)
    return m.mul(m.clamp(m.add(v, m.constant(3.0)), m.constant(0.0), m.constant(6.0)), sixth)


def _gelu(m: Vectors, v: str, a: str, b: str) -> str:
    """Return v·Φ(v), with Φ(−|v|) = ½·erfc(|v|/√2) by Abramowitz & Stegun 7.1.26."""
    one = m.constant(1.0)
    z = m.mul(m.absolute(v), m.constant(0.5**0.5))
    t = m.div(one, m.fma(z, m.constant(0.3275911), one))
    p = m.polynomial(t, [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0])
    tail = m.mul(m.mul(m.constant(0.5), p), m.exp(m.mul(m.sub(m.constant(0.0), z), z)))
    return m.mul(v, m.where("olt", v, m.constant(0.0), tail, m.sub(one, tail)))


def _gelu_tanh(m: Vectors, v: str, a: str, b: str) -> str:
    cube = m.mul(m.mul(v, v), v)
    inner = m.fma(cube, m.constant(0.044715), v)
    return m.mul(v, _sigmoid(m, m.mul(inner, m.constant(2 * 0.7978845608028654)), a, b))


CODE: dict[str, Callable[[Vectors, str, str, str], str]] = {
    "none": lambda m, v, a, b: v,
    "clamp": Vectors.clamp,
    "leaky": lambda m, v, a, b: m.where("ogt", v, m.constant(0.0), v, m.mul(v, a)),
    "sigmoid": _sigmoid,
    "tanh": lambda m, v, a, b: m.fma(m.constant(2.0), _sigmoid(m, m.add(v, v), a, b), m.constant(-1.0)),
    "silu": lambda m, v, a, b: m.mul(v, _sigmoid(m, v, a, b)),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda m, v, a, b: m.mul(v, _hardsigmoid(m, v, a, b)),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}


@dataclass(frozen=True)
class Pointwise(Variant):
    """y = activation(a ∘ b), row by row, where ∘ is ``add``, ``mul``, or ``none``: y = activation(a).

    A row is ``width`` floats (positions × images). With ``broadcast``, b has one position for each channel. With
    ``ragged``, a row may end inside a vector, whose other lanes keep their values.
    """

    operands = ("a", "b", "y", "channels", "height", "width", "row", "plane", "b_plane", "parameters")
    operation: str
    broadcast: bool
    ragged: bool
    activation: str

    def _write(self, f: Kernel) -> None:
        a, b, y = f.buffer("a"), f.buffer("b"), f.buffer("y")
        height, width, row, plane, b_plane = f.numbers("height", "width", "row", "plane", "b_plane")
        parameters = f.pointer("parameters")
        first, second = (f.splat(f.lanes, f.load("float", f.at(parameters, 4 * k))) for k in range(2))
        start, stop = f.share(f.number("channels"))
        with f.loop(start, stop) as channel:
            factor = f.at(b, f.mul(channel.index, b_plane))
            if self.broadcast:
                shared = f.splat(f.lanes, f.load("float", factor)) if self.ragged else f.load(f.kind, factor)
            with f.loop(0, height) as line, f.row_vectors(width, ragged=self.ragged) as (offset, store):
                place = f.add(f.add(f.mul(channel.index, plane), f.mul(line.index, row)), offset)
                value = f.load(f.kind, f.at(a, place))
                if self.operation != "none":
                    other = shared if self.broadcast else f.load(f.kind, f.at(b, place))
                    value = f.op(f"f{self.operation} {f.kind} {value}, {other}")
                store(CODE[self.activation](f.vectors, value, first, second), f.at(y, place))
