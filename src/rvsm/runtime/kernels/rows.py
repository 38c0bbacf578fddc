"""Row by row: activations, sums and products of two maps, copies.

A row is ``width`` floats (positions × images). With ``ragged`` it may end inside a vector, whose other lanes are kept.
"""

from collections.abc import Callable

from rvsm.runtime.activations import ACTIVATIONS
from rvsm.runtime.kernels.frame import Kernel

POINTWISE_SLOTS = ("a", "b", "y", "channels", "height", "width", "row", "plane", "b_plane", "parameters")
SHIFT_SLOTS = ("x", "y", "y_thread", "channels", "x_plane", "y_plane", "table", "masks", "copies", "vectors", "ranges")
COPY_SLOTS = ("x", "y", "y_thread", "channels", "x_plane", "y_plane", "table", "rows", "width")


def pointwise_name(lanes: int, *, operation: str, broadcast: bool, ragged: bool, activation: str) -> str:
    """Return the name of the kernel."""
    return f"pointwise_{lanes}_{operation}{'_broadcast' * broadcast}{'_ragged' * ragged}_{activation}"


def pointwise(lanes: int, *, operation: str, broadcast: bool, ragged: bool, activation: str) -> str:
    """Return y = activation(a ∘ b), where ∘ is ``add``, ``mul``, or ``none``: y = activation(a).

    With ``broadcast``, b has one position for each channel.
    """
    name = pointwise_name(lanes, operation=operation, broadcast=broadcast, ragged=ragged, activation=activation)
    f = Kernel(name, POINTWISE_SLOTS, lanes)
    a, b, y = f.buffer("a"), f.buffer("b"), f.buffer("y")
    height, width, row, plane = (f.number(slot) for slot in ("height", "width", "row", "plane"))
    b_plane, parameters = f.number("b_plane"), f.pointer("parameters")
    first, second = (f.splat(lanes, f.load("float", f.at(parameters, 4 * k))) for k in range(2))
    start, stop = f.share(f.number("channels"))
    with f.loop(start, stop) as channel:
        factor = f.at(b, f.mul(channel.index, b_plane))
        if broadcast:
            shared = f.splat(lanes, f.load("float", factor)) if ragged else f.load(f.kind, factor)
        with f.loop(0, height) as line, _vectors(f, width, ragged) as (offset, store):
            place = f.add(f.add(f.mul(channel.index, plane), f.mul(line.index, row)), offset)
            value = f.load(f.kind, f.at(a, place))
            if operation != "none":
                other = shared if broadcast else f.load(f.kind, f.at(b, place))
                value = f.op(f"f{operation} {f.kind} {value}, {other}")
            store(ACTIVATIONS[activation](f.vectors, value, first, second), f.at(y, place))
    f.give()
    return f.text()


def copy_name(lanes: int, *, step: int, ragged: bool, own: bool) -> str:
    """Return the name of the kernel."""
    return f"copy_{lanes}_{step}{'_ragged' * ragged}{'_own' * own}"


def copy(lanes: int, *, step: int, ragged: bool, own: bool) -> str:
    """Return the kernel that copies rows, whose places are in a table, for every channel.

    With ``step`` = s it takes each s-th position: a strided convolution becomes one without stride on such copies. With
    ``own`` each thread makes copies of its own, in its own memory.
    """
    f = Kernel(copy_name(lanes, step=step, ragged=ragged, own=own), COPY_SLOTS, lanes)
    x, y, table, rows, width = f.buffer("x"), f.buffer("y"), f.pointer("table"), f.number("rows"), f.number("width")
    x_plane, y_plane = f.number("x_plane"), f.number("y_plane")
    y = f.at(y, f.mul(f.number("y_thread"), "%thread"))
    start, stop = ("0", f.number("channels")) if own else f.share(f.number("channels"))
    with f.loop(start, stop) as channel:
        source, target = f.at(x, f.mul(channel.index, x_plane)), f.at(y, f.mul(channel.index, y_plane))
        with f.loop(0, rows) as line:
            entry = f.at(table, f.mul(line.index, 16))
            here, there = f.at(source, f.load("i64", entry)), f.at(target, f.load("i64", f.at(entry, 8)))
            if ragged and step > 1:
                _take_each(f, here, there, width, step)
            else:
                with _vectors(f, width, ragged) as (offset, store):
                    store(f.load(f.kind, f.at(here, f.mul(offset, step))), f.at(there, offset))
    f.give()
    return f.text()


def shift_name(lanes: int) -> str:
    """Return the name of the kernel."""
    return f"shift_{lanes}"


def shift(lanes: int) -> str:
    """Return the kernel that makes shifted copies of planes, several of each, with zeros where a mask says.

    Each thread makes what it needs itself: to fetch it from another core would take longer.
    """
    f = Kernel(shift_name(lanes), SHIFT_SLOTS, lanes)
    x, y, table, masks = f.buffer("x"), f.buffer("y"), f.pointer("table"), f.pointer("masks")
    x_plane, y_plane, copies, vectors = (f.number(slot) for slot in ("x_plane", "y_plane", "copies", "vectors"))
    y = f.at(y, f.mul(f.number("y_thread"), "%thread"))
    mine = f.at(f.pointer("ranges"), f.mul(f.part(), 16))
    first, last = f.load("i64", mine), f.load("i64", f.at(mine, 8))
    with f.loop(0, f.number("channels")) as channel:
        source, target = f.at(x, f.mul(channel.index, x_plane)), f.at(y, f.mul(channel.index, y_plane))
        with f.loop(0, copies) as number:
            entry = f.at(table, f.mul(number.index, 16))
            here, there = f.at(source, f.load("i64", entry)), f.at(target, f.load("i64", f.at(entry, 8)))
            bits = f.at(masks, f.mul(f.mul(number.index, vectors), 2))
            with f.loop(first, last) as k:
                offset = f.mul(k.index, 4 * lanes)
                value = f.masked_load(f.at(here, offset), f.mask(f.at(bits, f.mul(k.index, 2))))
                f.store(f.kind, value, f.at(there, offset))
    f.give()
    return f.text()


def _take_each(f: Kernel, here: str, there: str, width: str, step: int) -> None:
    """Copy each ``step``-th float; every second with shuffles, otherwise one by one."""
    done = "0"
    if step == 2:
        double = f"<{2 * f.lanes} x float>"
        even = ", ".join(f"i32 {2 * k}" for k in range(f.lanes))
        done = f.op(f"and i64 {width}, {-f.lanes}")
        with f.loop(0, done, f.lanes) as k:
            both = f.load(double, f.at(here, f.mul(k.index, 8)))
            value = f.op(f"shufflevector {double} {both}, {double} poison, <{f.lanes} x i32> <{even}>")
            f.store(f.kind, value, f.at(there, f.mul(k.index, 4)))
    with f.loop(done, width) as k:
        f.store("float", f.load("float", f.at(here, f.mul(k.index, 4 * step))), f.at(there, f.mul(k.index, 4)))


class _vectors:  # noqa: N801 - read as a loop
    """Loop over the vectors of a row: gives the offset in bytes, and how to store a vector there."""

    def __init__(self, f: Kernel, width: str, ragged: bool) -> None:
        self.f, self.width, self.ragged = f, width, ragged
        self.loop = f.loop(0, width, f.lanes)

    def __enter__(self) -> tuple[str, Callable[[str, str], None]]:
        f = self.f
        index = self.loop.__enter__().index
        offset = f.mul(index, 4)
        if not self.ragged:
            return offset, lambda value, pointer: f.store(f.kind, value, pointer)
        left = f.op(f"trunc i64 {f.op(f'sub i64 {self.width}, {index}')} to i32")
        integers = f"<{f.lanes} x i32>"
        one = f.op(f"insertelement {integers} poison, i32 {left}, i64 0")
        limit = f.op(f"shufflevector {integers} {one}, {integers} poison, {integers} zeroinitializer")
        numbers = ", ".join(f"i32 {k}" for k in range(f.lanes))
        mask = f.op(f"icmp slt {integers} <{numbers}>, {limit}")
        return offset, lambda value, pointer: f.masked_store(value, pointer, mask)

    def __exit__(self, *error: object) -> None:
        self.loop.__exit__(None, None, None)
