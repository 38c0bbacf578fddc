"""Sums and products of maps, and activations as vector polynomials: LLVM's vector exp would become scalar calls.

An activation is a function of the vector ``v`` and of its two parameters, given as vectors. NaN stays NaN. To add one,
write a function, a line in ``CODE``, and its name in the plan's ``ACTIVATIONS``.
"""

import math
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
    """Return v·Φ(v), with Φ(−|v|) = ½·p(|v|)⁻¹⁶ for a polynomial p; the form is that of Abramowitz & Stegun 7.1.28.

    The coefficients minimize the largest error of v·Φ(v), which is 5e-8. Rounding adds 4e-7 at most. There is no
    exponential in it, so it takes half as long as Φ by 7.1.26.
    """
    half, one = m.constant(0.5), m.constant(1.0)
    p = m.polynomial(
        m.absolute(v),
        [8.168975971912803e-07, -2.0735800656793877e-06, 7.478644284535603e-05, -5.150191554257585e-06,
         0.003313302229507921, 0.021127514813089616, 0.049869096779619815, 1.0],
    )  # fmt: skip
    for _ in range(4):
        p = m.mul(p, p)
    tail = m.div(half, p)
    return m.mul(v, m.where("olt", v, m.constant(0.0), tail, m.sub(one, tail)))


def _gelu_tanh(m: Vectors, v: str, a: str, b: str) -> str:
    cube = m.mul(m.mul(v, v), v)
    inner = m.fma(cube, m.constant(0.044715), v)
    return m.mul(v, _sigmoid(m, m.mul(inner, m.constant(2 * 0.7978845608028654)), a, b))


def _erf(m: Vectors, v: str, a: str, b: str) -> str:
    """Return 2·Φ(√2·v) − 1, see ``_gelu``; near zero, where that cancels, by its series."""
    one, z = m.constant(1.0), m.absolute(v)
    t = m.div(one, m.fma(z, m.constant(0.3275911), one))
    p = m.polynomial(t, [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0])
    far = m.sub(one, m.mul(p, m.exp(m.mul(m.sub(m.constant(0.0), z), z))))
    far = m.where("olt", v, m.constant(0.0), m.sub(m.constant(0.0), far), far)
    scaled = [2 / math.pi**0.5 * c for c in (1 / 216, -1 / 42, 1 / 10, -1 / 3, 1.0)]
    near = m.mul(v, m.polynomial(m.mul(v, v), scaled))
    return m.where("olt", z, m.constant(0.3), near, far)


def _expm1(m: Vectors, v: str) -> str:
    """Return eᵛ − 1, near zero by its series."""
    near = m.mul(v, m.polynomial(v, [1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0]))
    return m.where("olt", m.absolute(v), m.constant(0.25), near, m.sub(m.exp(v), m.constant(1.0)))


def _elu(m: Vectors, v: str, a: str, b: str) -> str:
    return m.where("ogt", v, m.constant(0.0), m.mul(b, v), m.mul(a, _expm1(m, v)))


def _softplus(m: Vectors, v: str, a: str, b: str) -> str:
    """Return log(1 + eᵛ) = max(v, 0) + log(1 + e^−|v|); a small power is its own logarithm."""
    zero, one = m.constant(0.0), m.constant(1.0)
    power = m.exp(m.sub(zero, m.absolute(v)))
    small = m.mul(power, m.polynomial(power, [1 / 3, -0.5, 1.0]))
    logarithm = m.where("olt", power, m.constant(1e-2), small, m.log(m.add(one, power)))
    return m.add(m.where("olt", v, zero, zero, v), logarithm)


def _mish(m: Vectors, v: str, a: str, b: str) -> str:
    """Return v·tanh(log(1 + eᵛ)) = v·n/(n + 2) with n = eᵛ(eᵛ + 2)."""
    power = m.exp(m.where("ogt", v, m.constant(20.0), m.constant(20.0), v))
    n = m.mul(power, m.add(power, m.constant(2.0)))
    return m.mul(v, m.div(n, m.add(n, m.constant(2.0))))


def _exp(m: Vectors, v: str, a: str, b: str) -> str:
    """Return eᵛ, also where it is zero or infinite."""
    large = m.where("ogt", v, m.constant(88.0), m.constant(math.inf), m.exp(v))
    return m.where("olt", v, m.constant(-87.0), m.constant(0.0), large)


def _log(m: Vectors, v: str, a: str, b: str) -> str:
    """Return log(v), also of zero, infinity and negative numbers."""
    infinite = m.constant(math.inf)
    positive = m.where("oeq", v, infinite, infinite, m.log(v))
    other = m.where("oeq", v, m.constant(0.0), m.constant(-math.inf), m.constant(math.nan))
    return m.where("ole", v, m.constant(0.0), other, positive)


def _power(m: Vectors, v: str, a: str, b: str) -> str:
    """Return vᵃ for an exponent that is no integer, so that negative numbers have no power."""
    return _exp(m, m.mul(a, _log(m, v, a, b)), a, b)


def _inverse(m: Vectors, v: str) -> str:
    return m.div(m.constant(1.0), v)


def _compare(comparison: str) -> Callable[[Vectors, str, str, str], str]:
    return lambda m, v, a, b: m.where(comparison, v, a, m.constant(1.0), m.constant(0.0))


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
    "line": lambda m, v, a, b: m.fma(v, a, b),
    "elu": _elu,
    "softplus": _softplus,
    "mish": _mish,
    "erf": _erf,
    "exp": _exp,
    "log": _log,
    "square": lambda m, v, a, b: m.mul(v, v),
    "cube": lambda m, v, a, b: m.mul(m.mul(v, v), v),
    "sqrt": lambda m, v, a, b: m.sqrt(v),
    "rsqrt": lambda m, v, a, b: _inverse(m, m.sqrt(v)),
    "reciprocal": lambda m, v, a, b: _inverse(m, v),
    "power": _power,
    "abs": lambda m, v, a, b: m.absolute(v),
    "equal": _compare("oeq"),
    "above": _compare("ogt"),
    "below": _compare("olt"),
    "at_least": _compare("oge"),
    "at_most": _compare("ole"),
    "choose": lambda m, v, a, b: m.where("une", v, m.constant(0.0), a, b),
}


def _extreme(comparison: str) -> Callable[..., str]:
    """Return the code of a maximum or minimum of two; if one is NaN, so is the result."""
    return lambda m, a, b: m.where("uno", a, a, a, m.where(comparison, a, b, a, b))


def _truth(comparison: str) -> Callable[..., str]:
    return lambda m, a, b: m.where(comparison, a, b, m.constant(1.0), m.constant(0.0))


ARITHMETIC: dict[str, Callable[..., str]] = {
    "none": lambda m, a: a,
    "add": Vectors.add,
    "mul": Vectors.mul,
    "sub": Vectors.sub,
    "div": Vectors.div,
    "max": _extreme("ogt"),
    "min": _extreme("olt"),
    "equal": _truth("oeq"),
    "below": _truth("olt"),
    "at_most": _truth("ole"),
    "slope": lambda m, a, b: m.where("ogt", a, m.constant(0.0), a, m.mul(a, b)),
    "choose": lambda m, a, b, c: m.where("une", c, m.constant(0.0), a, b),
}


@dataclass(frozen=True)
class Pointwise(Variant):
    """y = activation(a ∘ b), row by row; see ``ARITHMETIC`` for ∘, which takes one to three maps.

    A row is ``width`` floats (positions × images). ``spread`` has a letter for each map: ``f`` if its rows are full,
    ``s`` if they have a single position, which is broadcast; rows and channels are broadcast by strides of 0. With
    ``ragged``, a row may end inside a vector, whose other lanes keep their values.
    """

    operands = (
        "y", "channels", "height", "width", "row", "plane", "parameters",
        "a", "a_row", "a_plane", "b", "b_row", "b_plane", "c", "c_row", "c_plane",
    )  # fmt: skip
    operation: str
    spread: str
    ragged: bool
    activation: str

    def _write(self, f: Kernel) -> None:
        y = f.buffer("y")
        height, width, row, plane = f.numbers("height", "width", "row", "plane")
        parameters = f.pointer("parameters")
        first, second = (f.splat(f.lanes, f.load("float", f.at(parameters, 4 * k))) for k in range(2))
        names = "abc"[: len(self.spread)]
        maps = [(f.buffer(name), *f.numbers(f"{name}_row", f"{name}_plane")) for name in names]
        start, stop = f.share(f.mul(f.number("channels"), height))
        with f.loop(start, stop) as line:
            channel = f.op(f"sdiv i64 {line.index}, {height}")
            down = f.op(f"srem i64 {line.index}, {height}")
            target = f.at(y, f.mul(channel, plane), f.mul(down, row))
            places = [f.at(x, f.mul(channel, x_plane), f.mul(down, x_row)) for x, x_row, x_plane in maps]
            single = [
                self._broadcast(f, place) if way == "s" else "" for place, way in zip(places, self.spread, strict=True)
            ]
            with f.row_vectors(width, ragged=self.ragged) as (offset, store):
                values = [one or f.load(f.kind, f.at(x, offset)) for one, x in zip(single, places, strict=True)]
                value = ARITHMETIC[self.operation](f.vectors, *values)
                store(CODE[self.activation](f.vectors, value, first, second), f.at(target, offset))

    def _broadcast(self, f: Kernel, place: str) -> str:
        """Return the single position of a row: a number for all lanes, or a vector of images."""
        return f.splat(f.lanes, f.load("float", place)) if self.ragged else f.load(f.kind, place)
