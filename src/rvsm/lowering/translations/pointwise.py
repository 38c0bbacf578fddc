"""Activations, and arithmetic with values and constants."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rvsm.lowering.alignment import aligned
from rvsm.lowering.draft import Floats, affine, is_constant, node
from rvsm.lowering.place import Place
from rvsm.lowering.values import EXACT, Value, as_value, is_tensor, is_value, settled
from rvsm.runtime.plan.operation import NOTHING, Activation
from rvsm.runtime.plan.operations import Pointwise
from rvsm.runtime.plan.tensors import Constant

INTEGERS = (torch.int64, torch.int32)
POWERS = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def activated(at: Place, x: Any, activation: Activation) -> Value | None:
    """Return an activation of a value."""
    if not is_value(x) or at.dtype in INTEGERS:
        return None
    given = x if x.most else settled(x, x.view.in_memory(x.view.keys))
    made = node(Pointwise(name=at.name, operation="none", a=0, activation=activation), [given.node])
    return Value(made, given.view)


def combined(at: Place, operation: str, *given: Any, activation: Activation = NOTHING) -> Value | None:
    """Return an operation of arithmetic on values, known tensors and numbers, broadcast to one size."""
    values = [as_value(at.name, x) for x in given]
    if None in values or at.dtype in INTEGERS:
        return None
    together = aligned([value for value in values if value is not None])
    made = Pointwise(
        name=at.name, operation=operation, a=0, b=0, c=0 if len(given) > 2 else None, activation=activation
    )
    return Value(node(made, together.nodes), together.view)


def clamp(at: Place, x: Any, low: Any = None, high: Any = None) -> Value | None:
    """Return x between two ends."""
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    if not all(isinstance(end, int | float) for end in ends):
        return None
    return activated(at, x, Activation("clamp", float(ends[0]), float(ends[1])))


def leaky(at: Place, x: Any, slope: float = 0.01) -> Value | None:
    """Return x, multiplied by a slope where it is negative."""
    return activated(at, x, Activation("leaky", slope))


def prelu(at: Place, x: Any, slope: Any) -> Value | None:
    """Return x, multiplied by a slope, or by one for each channel, where it is negative."""
    if not is_value(x) or not is_constant(slope):
        return None
    if slope.numel() == 1:
        return leaky(at, x, slope.item())
    return combined(at, "slope", x, slope.reshape(1, -1, *[1] * (x.rank - 2)))


def gelu(at: Place, x: Any, approximate: str = "none") -> Value | None:
    """Return x·Φ(x), exactly or with tanh."""
    return activated(at, x, Activation("gelu" if approximate == "none" else "gelu_tanh"))


def elu(at: Place, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value | None:
    """Return alpha·(eˣ − 1) for negative numbers."""
    return activated(at, x, Activation("elu", float(alpha * scale), float(scale))) if input_scale == 1 else None


SELU = (1.6732632423543772, 1.0507009873554805)


def softplus(at: Place, x: Any, beta: float = 1, threshold: float = 20) -> Value | None:
    """Return log(1 + eˣ)."""
    return activated(at, x, Activation("softplus")) if beta == 1 and threshold >= 17 else None


def power(at: Place, x: Any, exponent: Any) -> Value | None:
    """Return a power with a number as exponent."""
    if not isinstance(exponent, int | float):
        return None
    if exponent == 1:
        return x if is_value(x) else None
    if exponent == 4:
        return activated(at, activated(at, x, Activation("square")), Activation("square"))
    if exponent in POWERS:
        return activated(at, x, Activation(POWERS[float(exponent)]))
    return None if float(exponent).is_integer() else activated(at, x, Activation("power", float(exponent)))


def _with_constant(at: Place, x: Value, given: Any, operation: str) -> Value | None:
    """Return x ∘ a constant: as a convolution of one tap, which can be folded, if it has one number for a channel."""
    other = as_value(at.name, given)
    if other is None or at.dtype != torch.float32:
        return None
    together = aligned([x, other])
    source, known = together.nodes
    channels, *positions = known.shape
    if not (isinstance(known.operation, Constant) and known.weights is not None and positions == [1, 1]):
        return combined(at, operation, x, given)
    if channels not in (1, source.shape[0]) or operation not in ("add", "sub", "mul", "div"):
        return combined(at, operation, x, given)
    row = np.broadcast_to(known.weights.reshape(-1), (source.shape[0],)).astype(np.float32)
    if not np.isfinite(row).all():
        return combined(at, operation, x, given)
    return Value(affine(at.name, source, *_coefficients(operation, row)), together.view)


def _coefficients(operation: str, row: Floats) -> tuple[Floats, Floats]:
    """Return scale and shift of x ∘ a constant for each channel."""
    if operation in ("add", "sub"):
        return np.ones_like(row), row if operation == "add" else -row
    with np.errstate(divide="ignore"):
        return row if operation == "mul" else np.float32(1) / row, np.zeros_like(row)


def bound_of(x: Any) -> float:
    """Return a number that no integer or truth value of a value, tensor or number exceeds."""
    if is_value(x):
        return 1 if x.dtype == torch.bool else x.bound
    return float(abs(x)) if isinstance(x, int) else float(x.abs().max()) if is_tensor(x) else math.inf


def _integers(at: Place, a: Any, b: Any, operation: str) -> Value | None:
    """Return a sum or a product of integers, if it is certain to be exact in float32."""
    first, second = bound_of(a), bound_of(b)
    bound = first * second if operation == "mul" else first + second
    if bound > EXACT or operation not in ("add", "sub", "mul"):
        return None
    made = combined(replace(at, dtype=torch.float32), operation, a, b)
    return None if made is None else replace(made, bound=int(bound))


def two(at: Place, a: Any, b: Any, alpha: float = 1, *, operation: str) -> Value | None:
    """Return a sum or a product of two values, or of a value and a constant."""
    if at.dtype in INTEGERS:
        return _integers(at, a, b, operation) if alpha == 1 else None
    if alpha != 1:
        b = scaled(at, b, alpha)
    if is_value(a):
        return combined(at, operation, a, b) if is_value(b) else _with_constant(at, a, b, operation)
    if operation == "sub":
        return two(at, scaled(at, b, -1), a, operation="add")
    if operation == "div":
        return two(at, activated(at, b, Activation("reciprocal")), a, operation="mul")
    return _with_constant(at, b, a, operation) if is_value(b) else None


def scaled(at: Place, x: Any, factor: float) -> Any:
    """Return a value, a tensor or a number times a number."""
    if is_value(x):
        return _with_constant(Place(at.name, x.sizes, at.dtype), x, float(factor), "mul")
    return x * factor if isinstance(x, int | float | torch.Tensor) else None


def reverse_minus(at: Place, a: Any, b: Any, alpha: float = 1) -> Value | None:
    """Return b − a."""
    return two(at, b, a, alpha, operation="sub")


def divide(at: Place, a: Any, b: Any, *, rounding_mode: Any = None) -> Value | None:
    """Return a / b."""
    return two(at, a, b, operation="div") if rounding_mode is None else None


def fused(at: Place, x: Any, a: Any, b: Any, *, value: float = 1, operation: str) -> Value | None:
    """Return x + value · (a ∘ b)."""
    if not is_value(a) and not is_value(b):
        return None
    inside = next(each for each in (a, b) if is_value(each))
    return two(at, x, two(Place(at.name, inside.sizes, at.dtype), a, b, operation=operation), value, operation="add")


def compare(at: Place, a: Any, b: Any, *, operation: str) -> Value | None:
    """Return 1 where a comparison holds, otherwise 0."""
    if operation == "unequal":
        same = compare(at, a, b, operation="equal")
        return None if same is None else activated(at, same, Activation("line", -1.0, 1.0))
    swapped = {"above": "below", "at_least": "at_most"}
    if is_value(a) and isinstance(b, int | float):
        return activated(at, a, Activation(operation, float(b)))
    if operation in swapped:
        return combined(at, swapped[operation], b, a)
    return combined(at, operation, a, b)


def choose(at: Place, condition: Any, a: Any, b: Any) -> Value | None:
    """Return a where a condition holds, otherwise b."""
    return combined(at, "choose", a, b, condition) if is_value(condition) or is_value(a) or is_value(b) else None


def masked_fill(at: Place, x: Any, mask: Any, value: Any) -> Value | None:
    """Return a value with a number wherever a mask is set."""
    return choose(at, mask, float(value) if isinstance(value, int | float) else value, x)


def logical(at: Place, a: Any, b: Any, *, operation: str) -> Value | None:
    """Return "and" or "or" of truth values."""
    truth = all(getattr(x, "dtype", None) == torch.bool for x in (a, b))
    return combined(at, operation, a, b) if truth and at.dtype == torch.bool else None


def negation(at: Place, x: Any) -> Value | None:
    """Return whether truth values are not set."""
    return activated(at, x, Activation("equal", 0.0)) if is_value(x) and at.dtype == torch.bool else None


def convert(at: Place, x: Any, *others: Any, **options: Any) -> Value | None:
    """Return a value as another type; all of them are float32 numbers here, and truth values 0 or 1."""
    if not isinstance(x, Value):
        return None
    if at.dtype == torch.bool and x.dtype != torch.bool:
        return activated(at, x, Activation("choose", 1.0, 0.0))
    if x.dtype == torch.bool:
        return replace(x, bound=1)
    return x if x.dtype == at.dtype or (x.dtype in INTEGERS and at.dtype in (*INTEGERS, torch.float32)) else None
