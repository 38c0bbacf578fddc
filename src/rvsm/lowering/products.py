"""Products of two computed tensors: sums over the axes that both have and the result has not, as einsum writes them."""

from collections.abc import Sequence
from math import prod

from rvsm.lowering.alignment import Slot, common_slots, joined, view_of
from rvsm.lowering.draft import node
from rvsm.lowering.values import Value, settled
from rvsm.runtime.plan.tensors import Contraction


def product(name: str, a: Value, b: Value, equation: str, scale: float = 1.0) -> Value:
    """Return a product such as "bij,bjk->bik", by letters as in einsum; raise ValueError if it is no such product."""
    given, result = equation.replace(" ", "").split("->")
    first, second = given.split(",")
    if (len(first), len(second)) != (a.rank, b.rank) or not set(result) <= set(first) | set(second):
        raise ValueError(f"{equation} of other tensors")
    for move_a, move_b in ((False, False), (True, False), (False, True), (True, True)):
        try:
            return _product(
                name,
                _ready(a, first, second, result) if move_a else a,
                _ready(b, second, first, result) if move_b else b,
                (first, second, result),
                scale,
            )
        except _OrderError:
            continue
    raise ValueError(f"{equation} of tensors in too many parts")


class _OrderError(ValueError):
    """The numbers of a tensor do not lie as the product needs them."""


def _ready(value: Value, own: str, other: str, result: str) -> Value:
    """Return a tensor in an order that a product can read: what both have, what is summed, what it has alone."""
    kinds = [0 if c in other and c in result else 1 if c in other else 2 for c in own]
    return settled(value, sorted(value.view.keys, key=lambda key: kinds[key[0]]))


def _product(name: str, a: Value, b: Value, letters: tuple[str, str, str], scale: float) -> Value:
    first, second, result = letters
    every = "".join(dict.fromkeys(result + first + second))
    dims = [[value.view.dims[own.index(c)] if c in own else () for c in every]
            for value, own in ((a, first), (b, second))]  # fmt: skip
    slots, structure = common_slots(dims)

    def part(*, in_a: bool, in_b: bool, kept: bool) -> list[int]:
        wanted = [c for c in every if (c in first, c in second, c in result) == (in_a, in_b, kept)]
        return [k for c in wanted for k in structure[every.index(c)] if k is not None]

    outer, rows = part(in_a=True, in_b=True, kept=True), part(in_a=True, in_b=False, kept=True)
    columns, summed = part(in_a=False, in_b=True, kept=True), part(in_a=True, in_b=True, kept=False)
    if part(in_a=True, in_b=False, kept=False) or part(in_a=False, in_b=True, kept=False):
        raise ValueError("sums of a single tensor")
    # Vectors run along the rows of a, so that the sums of a softmax over columns lie beside each other; else along
    # the columns of b.
    flipped = _step(slots, rows, 0) == 1 or (_step(slots, columns, 1) != 1 and not columns)
    left, right = (b, a) if flipped else (a, b)
    m, n = (columns, rows) if flipped else (rows, columns)
    which = (1, 0) if flipped else (0, 1)
    if _step(slots, n, which[1]) != 1 and prod(slots[k].size for k in n) > 1:
        raise _OrderError
    around = joined([slots[k] for k in outer])
    if len(around) > 2:
        raise _OrderError
    around = [Slot(0, 1, (0, 0))] * (2 - len(around)) + around
    inner = _one(joined([slots[k] for k in summed]))
    down, across = (_one(_joined_in(slots, group, side)) for group, side in ((m, which[0]), (n, which[1])))
    operation = Contraction(
        name=name, a=0, b=0, sizes=(around[0].size, around[1].size, down.size, across.size, inner.size),
        a_strides=(*(slot.strides[which[0]] for slot in around), down.strides[which[0]], inner.strides[which[0]]),
        b_strides=(*(slot.strides[which[1]] for slot in around), inner.strides[which[1]]),
        a_offset=left.view.offset, b_offset=right.view.offset, scale=scale,
    )  # fmt: skip
    made = node(operation, [left.node, right.node])
    places = [structure[every.index(c)] for c in result]
    return Value(made, view_of(places, [slot.size for slot in slots], [*outer, *m, *n]))


def _joined_in(slots: Sequence[Slot], group: Sequence[int], side: int) -> list[Slot]:
    """Return slots of one tensor alone, joined."""
    alone = [Slot(0, slots[k].size, (slots[k].strides[side],) * 2) for k in group]
    return joined(alone)


def _step(slots: Sequence[Slot], group: Sequence[int], side: int) -> int:
    """Return the distance of neighbours along some slots, or 0 if they do not count on, or if there is only one."""
    found = _joined_in(slots, group, side)
    return found[0].strides[side] if len(found) == 1 else 0


def _one(slots: Sequence[Slot]) -> Slot:
    """Return the only slot; one of size 1 if there is none."""
    if len(slots) > 1:
        raise _OrderError
    return slots[0] if slots else Slot(0, 1, (0, 0))
