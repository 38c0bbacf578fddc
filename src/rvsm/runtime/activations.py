"""Activations as vector polynomials: LLVM's own vector exp would become sixteen scalar calls.

Each is a function of the vector ``v`` and of two parameters of the layer, given as vectors: the slope of a leaky ReLU,
the two ends of a clamp. NaN stays NaN. Adding one is a function and a line in ``ACTIVATIONS``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from rvsm.runtime.ir import Function


@dataclass(frozen=True)
class Activation:
    """An activation with its parameters.

    >>> Activation("clamp", 0.0, 6.0)
    Activation(name='clamp', a=0.0, b=6.0)
    """

    name: str = "none"
    a: float = 0.0
    b: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ACTIVATIONS:
            raise ValueError(f"unknown activation {self.name!r}; choose from {', '.join(ACTIVATIONS)}")


class Vectors:
    """Arithmetic on vectors of ``lanes`` floats inside a function."""

    def __init__(self, function: Function, lanes: int) -> None:
        self.f = function
        self.lanes = lanes
        self.kind = f"<{lanes} x float>"
        self.integers = f"<{lanes} x i32>"

    def constant(self, value: float) -> str:
        """Return ``value`` in all lanes, rounded to float32."""
        return self.f.splat(self.lanes, self.f.single(value))

    def fma(self, a: str, b: str, c: str) -> str:
        """Return a·b + c, rounded once where the CPU can."""
        v = self.kind
        return self.f.op(f"call {v} @llvm.fmuladd.v{self.lanes}f32({v} {a}, {v} {b}, {v} {c})")

    def _two(self, operation: str, a: str, b: str) -> str:
        return self.f.op(f"{operation} {self.kind} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        """Return a + b."""
        return self._two("fadd", a, b)

    def sub(self, a: str, b: str) -> str:
        """Return a − b."""
        return self._two("fsub", a, b)

    def mul(self, a: str, b: str) -> str:
        """Return a · b."""
        return self._two("fmul", a, b)

    def div(self, a: str, b: str) -> str:
        """Return a / b."""
        return self._two("fdiv", a, b)

    def absolute(self, a: str) -> str:
        """Return |a|."""
        return self.f.op(f"call {self.kind} @llvm.fabs.v{self.lanes}f32({self.kind} {a})")

    def where(self, comparison: str, a: str, b: str, yes: str, no: str) -> str:
        """Return, lane by lane, ``yes`` where a and b compare so (``olt`` …), else ``no``."""
        mask = self.f.op(f"fcmp {comparison} {self.kind} {a}, {b}")
        return self.f.op(f"select <{self.lanes} x i1> {mask}, {self.kind} {yes}, {self.kind} {no}")

    def clamp(self, v: str, low: str, high: str) -> str:
        """Return min(max(v, low), high); NaN stays NaN."""
        v = self.where("olt", v, low, low, v)
        return self.where("ogt", v, high, high, v)

    def polynomial(self, x: str, coefficients: list[float]) -> str:
        """Return c₀xⁿ + … + cₙ by Horner's rule."""
        value = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.fma(value, x, self.constant(coefficient))
        return value

    def exp(self, x: str) -> str:
        """Return the exponential to about one unit in the last place, for |x| ≤ 87; clamped beyond.

        x = n·ln 2 + r with |r| ≤ ln 2 / 2, exp(r) by a polynomial (Cephes), and 2ⁿ by its exponent bits.
        """
        i = self.integers
        x = self.clamp(x, self.constant(-87.0), self.constant(88.0))
        magic = self.constant(12582912.0)  # 1.5·2²³: adding it rounds to a whole number, in the lowest bits
        shifted = self.fma(x, self.constant(1.44269504088896341), magic)
        n = self.sub(shifted, magic)
        r = self.fma(n, self.constant(-0.693359375), x)
        r = self.fma(n, self.constant(2.12194440e-4), r)
        coefficients = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5]
        p = self.polynomial(r, coefficients)
        p = self.add(self.fma(p, self.mul(r, r), r), self.constant(1.0))
        bits = self.f.op(f"bitcast {self.kind} {shifted} to {i}")
        base = self.f.op(f"bitcast {self.kind} {magic} to {i}")
        places = f"<{', '.join(['i32 23'] * self.lanes)}>"
        whole = self.f.op(f"shl {i} {self.f.op(f'sub {i} {bits}, {base}')}, {places}")
        scaled = self.f.op(f"add {i} {whole}, {self.f.op(f'bitcast {self.kind} {p} to {i}')}")
        return self.f.op(f"bitcast {i} {scaled} to {self.kind}")


def _none(m: Vectors, v: str, a: str, b: str) -> str:
    return v


def _clamp(m: Vectors, v: str, a: str, b: str) -> str:
    return m.clamp(v, a, b)


def _leaky(m: Vectors, v: str, a: str, b: str) -> str:
    return m.where("ogt", v, m.constant(0.0), v, m.mul(v, a))


def _sigmoid(m: Vectors, v: str, a: str, b: str) -> str:
    one = m.constant(1.0)
    return m.div(one, m.add(one, m.exp(m.sub(m.constant(0.0), v))))


def _tanh(m: Vectors, v: str, a: str, b: str) -> str:
    return m.fma(m.constant(2.0), _sigmoid(m, m.add(v, v), a, b), m.constant(-1.0))


def _silu(m: Vectors, v: str, a: str, b: str) -> str:
    return m.mul(v, _sigmoid(m, v, a, b))


def _hardsigmoid(m: Vectors, v: str, a: str, b: str) -> str:
    sixth = m.constant(1 / 6)
    return m.mul(m.clamp(m.add(v, m.constant(3.0)), m.constant(0.0), m.constant(6.0)), sixth)


def _hardswish(m: Vectors, v: str, a: str, b: str) -> str:
    return m.mul(v, _hardsigmoid(m, v, a, b))


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


ACTIVATIONS: dict[str, Callable[[Vectors, str, str, str], str]] = {
    "none": _none,
    "clamp": _clamp,
    "leaky": _leaky,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": _silu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}

NOTHING = Activation()
RELU = Activation("clamp", 0.0, inf)
