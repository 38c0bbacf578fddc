"""Copies: inputs of a call into the arena, outputs out of it, and rows and planes between maps.

In the arena, a position is a vector of images (``images`` = lanes) or a single float (``images`` = 1). Outside, images
are stored one after the other; each is stored channel by channel, or position by position with the channels ``last``.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from rvsm.runtime.kernels.kernel import Kernel, Variant
from rvsm.runtime.kernels.player import BATCH, INPUTS, OUTPUTS, PROBLEM


@dataclass(frozen=True)
class Border(Variant):
    """The common part of copies into and out of the arena."""

    operands = ("index", "place", "channels", "height", "width", "row", "plane")
    arrays: ClassVar[int]  # the slot of the call that holds their addresses
    direction: ClassVar[int]  # 1 into the arena, −1 out of it
    images: int
    last: bool

    def _write(self, f: Kernel) -> None:
        if self.images == 1 and not self.last:
            self._whole(f)
        else:
            self._places(f)

    @abstractmethod
    def _places(self, f: Kernel) -> None:
        """Copy float by float."""

    def _whole(self, f: Kernel) -> None:
        """Copy an image that is the same inside and outside: a map without border."""
        channels, height, width = f.numbers("channels", "height", "width")
        count = f.mul(f.mul(channels, height), width)
        table = f.load("ptr", f.at("%call", 8 * self.arrays))
        data = f.load("ptr", f.at(table, f.mul(f.number("index"), 8)))
        outside = f.at(data, f.mul(f.mul("%chunk", count), 4))
        here, there = (outside, f.buffer("place"))[:: self.direction]
        start, stop = f.share(f.op(f"sdiv i64 {f.add(count, f.lanes - 1)}, {f.lanes}"))
        with f.loop(start, stop) as vector:
            offset = f.mul(vector.index, 4 * f.lanes)
            inside = f.first_lanes(f.op(f"sub i64 {count}, {f.mul(vector.index, f.lanes)}"))
            f.masked_store(f.masked_load(f.at(here, offset), inside), f.at(there, offset), inside)

    @contextmanager
    def _each(self, f: Kernel) -> Iterator[tuple[str, str, str]]:
        """Loop over channels, rows, images and columns; yields both places, and whether the image exists."""
        channels, height, width, row, plane = f.numbers("channels", "height", "width", "row", "plane")
        place = f.buffer("place")
        table = f.load("ptr", f.at("%call", 8 * self.arrays))
        data = f.load("ptr", f.at(table, f.mul(f.number("index"), 8)))
        batch = f.load("i64", f.at("%call", 8 * BATCH))
        size = f.mul(f.mul(channels, height), width)
        start, stop = f.share(channels)
        with f.loop(start, stop) as c, f.loop(0, height) as y, f.loop(0, self.images) as n:
            image = f.add(f.mul("%chunk", self.images), n.index)
            there = f.op(f"icmp slt i64 {image}, {batch}")
            across = channels if self.last else 1  # from column to column
            before = f.mul(c.index, 1 if self.last else f.mul(height, width))
            line = f.add(f.mul(image, size), f.add(f.mul(y.index, f.mul(width, across)), before))
            target = f.at(place, f.mul(c.index, plane), f.mul(y.index, row), f.mul(n.index, 4))
            with f.loop(0, width) as x:
                inside = f.at(target, f.mul(x.index, 4 * self.images))
                yield inside, f.at(data, f.mul(f.add(line, f.mul(x.index, across)), 4)), there


class Enter(Border):
    """Copies an input of the call into the arena; missing images are zero."""

    arrays = INPUTS
    direction = 1

    def _places(self, f: Kernel) -> None:
        with self._each(f) as (inside, outside, there):
            with f.unless(f.op(f"xor i1 {there}, true"), "float", [f.single(0.0)]) as value:
                value.after = [f.load("float", outside)]
            f.store("float", value.values[0], inside)


class Leave(Border):
    """Copies an output of the call out of the arena."""

    arrays = OUTPUTS
    direction = -1

    def _places(self, f: Kernel) -> None:
        with self._each(f) as (inside, outside, there), f.when(there):
            f.store("float", f.load("float", inside), outside)


@dataclass(frozen=True)
class Copy(Variant):
    """Copies rows, whose places are in a table, for every channel.

    With ``step`` = s it takes every s-th position: on such copies, a strided convolution becomes one without stride.
    With ``own`` each thread makes its own copies, in its own memory, of the rows that it needs: its ``ranges`` of the
    table. A ``ragged`` row may end inside a vector.
    """

    operands = ("x", "y", "y_thread", "channels", "x_plane", "y_plane", "table", "ranges", "width")
    step: int
    ragged: bool
    own: bool

    def _write(self, f: Kernel) -> None:
        x, y, table = f.buffer("x"), f.buffer("y"), f.pointer("table")
        width, x_plane, y_plane = f.numbers("width", "x_plane", "y_plane")
        y = f.at(y, f.mul(f.number("y_thread"), "%thread"))
        mine = f.at(f.pointer("ranges"), f.mul(f.part(), 16)) if self.own else f.pointer("ranges")
        first, last = f.load("i64", mine), f.load("i64", f.at(mine, 8))
        start, stop = ("0", f.number("channels")) if self.own else f.share(f.number("channels"))
        with f.loop(start, stop) as channel:
            source, target = f.at(x, f.mul(channel.index, x_plane)), f.at(y, f.mul(channel.index, y_plane))
            with f.loop(first, last) as line:
                entry = f.at(table, f.mul(line.index, 16))
                here, there = f.at(source, f.load("i64", entry)), f.at(target, f.load("i64", f.at(entry, 8)))
                if self.ragged:
                    take_each(f, here, there, width, self.step)
                else:
                    with f.row_vectors(width, ragged=False) as (offset, store):
                        store(f.load(f.kind, f.at(here, f.mul(offset, self.step))), f.at(there, offset))


def take_each(f: Kernel, here: str, there: str, width: str, step: int) -> None:
    """Copy every ``step``-th float of a row: with shuffles if the step is 2, one by one if it is larger."""
    if step == 1:
        with f.row_vectors(width, ragged=True) as (offset, store):
            store(f.load(f.kind, f.at(here, offset)), f.at(there, offset))
        return
    if step == 2:
        done = f.op(f"and i64 {width}, {-f.lanes}")
        with f.loop(0, done, f.lanes) as k:
            left = f.at(here, f.mul(k.index, 8))
            halves = [f.load(f.kind, f.at(left, 4 * f.lanes * half)) for half in range(2)]
            f.store(f.kind, _even(f, *halves), f.at(there, f.mul(k.index, 4)))
        rest = f.op(f"sub i64 {width}, {done}")
        with f.when(f.op(f"icmp sgt i64 {rest}, 0")):
            left, floats = f.at(here, f.mul(done, 8)), f.op(f"sub i64 {f.mul(rest, 2)}, 1")
            masks = f.first_lanes(floats), f.first_lanes(f.op(f"sub i64 {floats}, {f.lanes}"))
            halves = [f.masked_load(f.at(left, 4 * f.lanes * half), mask) for half, mask in enumerate(masks)]
            f.masked_store(_even(f, *halves), f.at(there, f.mul(done, 4)), f.first_lanes(rest))
        return
    with f.loop(0, width) as k:
        f.store("float", f.load("float", f.at(here, f.mul(k.index, 4 * step))), f.at(there, f.mul(k.index, 4)))


def _even(f: Kernel, left: str, right: str) -> str:
    """Return every second float of two vectors."""
    numbers = ", ".join(f"i32 {2 * k}" for k in range(f.lanes))
    return f.op(f"shufflevector {f.kind} {left}, {f.kind} {right}, <{f.lanes} x i32> <{numbers}>")


@dataclass(frozen=True)
class Shift(Variant):
    """Makes shifted copies of planes, several of each, with zeros according to a mask.

    ``masks`` has the place of each vector's mask among the different ones: a mask has 32 bits for each lane. Each
    thread makes the copies that it needs, because fetching them from another core would take longer.
    """

    operands = (
        *("x", "y", "y_thread", "channels", "x_plane", "y_plane"),
        *("table", "masks", "different", "copies", "vectors", "ranges"),
    )

    def _write(self, f: Kernel) -> None:
        x, y = f.buffer("x"), f.buffer("y")
        table, masks, different = (f.pointer(name) for name in ("table", "masks", "different"))
        x_plane, y_plane, copies, vectors = f.numbers("x_plane", "y_plane", "copies", "vectors")
        y = f.at(y, f.mul(f.number("y_thread"), "%thread"))
        mine = f.at(f.pointer("ranges"), f.mul(f.part(), 16))
        first, last = f.load("i64", mine), f.load("i64", f.at(mine, 8))
        with f.loop(0, f.number("channels")) as channel:
            source, target = f.at(x, f.mul(channel.index, x_plane)), f.at(y, f.mul(channel.index, y_plane))
            with f.loop(0, copies) as number:
                entry = f.at(table, f.mul(number.index, 16))
                here, there = f.at(source, f.load("i64", entry)), f.at(target, f.load("i64", f.at(entry, 8)))
                places = f.at(masks, f.mul(f.mul(number.index, vectors), 4))
                with f.loop(first, last) as k:
                    offset = f.mul(k.index, 4 * f.lanes)
                    place = f.op(f"zext i32 {f.load('i32', f.at(places, f.mul(k.index, 4)))} to i64")
                    lanes = f.load(f.vectors.integers, f.at(different, place))
                    mask = f.op(f"icmp slt {f.vectors.integers} {lanes}, zeroinitializer")
                    f.store(f.kind, f.masked_load(f.at(here, offset), mask), f.at(there, offset))


AXES = 6  # loops of a strided copy


@dataclass(frozen=True)
class Strided(Variant):
    """Copies an array of six axes with any strides: ``ranges`` has the first and last index of each, for each thread.

    An element is a vector of images, or a single float. The innermost axis is a ``row`` of neighbours in both maps, or
    a ``single`` float that fills a row, or has ``any`` strides.
    """

    operands = ("x", "y", "ranges", "strides")
    images: int
    inner: str

    def _write(self, f: Kernel) -> None:
        strides = f.pointer("strides")
        mine = f.at(f.pointer("ranges"), f.mul(f.part(), 16 * AXES))
        x, y = f.buffer("x"), f.buffer("y")
        with ExitStack() as loops:
            for k in range(AXES - 1):
                first, last = (f.load("i64", f.at(mine, 16 * k + 8 * end)) for end in range(2))
                steps = [f.load("i64", f.at(strides, 16 * k + 8 * which)) for which in range(2)]
                index = loops.enter_context(f.loop(first, last)).index
                x, y = (f.at(place, f.mul(index, step)) for place, step in zip((x, y), steps, strict=True))
            self._inner(f, x, y, mine, strides)

    def _inner(self, f: Kernel, x: str, y: str, mine: str, strides: str) -> None:
        k = AXES - 1
        first, last = (f.load("i64", f.at(mine, 16 * k + 8 * end)) for end in range(2))
        right, across = (f.load("i64", f.at(strides, 16 * k + 8 * which)) for which in range(2))
        if self.images > 1 or self.inner == "any":
            kind = f.kind if self.images > 1 else "float"
            with f.loop(first, last) as i:
                f.store(kind, f.load(kind, f.at(x, f.mul(i.index, right))), f.at(y, f.mul(i.index, across)))
            return
        one = f.splat(f.lanes, f.load("float", x)) if self.inner == "single" else ""
        with f.row_vectors(last, ragged=True) as (offset, store):
            store(one or f.load(f.kind, f.at(x, offset)), f.at(y, offset))


@dataclass(frozen=True)
class Fill(Variant):
    """Writes a map that is the same for all images, from ``values``."""

    operands = ("values", "y", "channels", "height", "width", "row", "plane")
    images: int

    def _write(self, f: Kernel) -> None:
        values, y = f.pointer("values"), f.buffer("y")
        height, width, row, plane = f.numbers("height", "width", "row", "plane")
        start, stop = f.share(f.number("channels"))
        with f.loop(start, stop) as channel, f.loop(0, height) as line:
            number = f.mul(f.add(f.mul(channel.index, height), line.index), width)
            source = f.at(values, f.mul(number, 4))
            target = f.at(y, f.mul(channel.index, plane), f.mul(line.index, row))
            if self.images == 1:
                with f.row_vectors(width, ragged=True) as (offset, store):
                    left = f.first_lanes(f.op(f"sub i64 {width}, {f.op(f'sdiv i64 {offset}, 4')}"))
                    store(f.masked_load(f.at(source, offset), left), f.at(target, offset))
            else:
                with f.loop(0, width) as k:
                    value = f.splat(f.lanes, f.load("float", f.at(source, f.mul(k.index, 4))))
                    f.store(f.kind, value, f.at(target, f.mul(k.index, 4 * self.images)))


@dataclass(frozen=True)
class Lookup(Variant):
    """Copies rows of a table whose numbers are in x, feature by feature; a wrong number is reported, and row 0 read."""

    operands = ("x", "y", "table", "rows", "features", "positions", "plane")
    images: int

    def _write(self, f: Kernel) -> None:
        x, y, table = f.buffer("x"), f.buffer("y"), f.pointer("table")
        rows, features, positions, plane = f.numbers("rows", "features", "positions", "plane")
        limit = f.op(f"sitofp i64 {rows} to float")
        batch = f.load("i64", f.at("%call", 8 * BATCH))
        found = f.op(f"alloca [{self.lanes} x ptr], align 8")  # rows of the table, for some positions at a time
        count = f.mul(positions, self.images)
        start, stop = f.share(f.op(f"sdiv i64 {f.add(count, self.lanes - 1)}, {self.lanes}"))
        with f.loop(start, stop) as some:
            first = f.mul(some.index, self.lanes)
            beyond = f.op(f"sub i64 {count}, {first}")
            here = f.op(f"select i1 {f.op(f'icmp slt i64 {beyond}, {self.lanes}')}, i64 {beyond}, i64 {self.lanes}")
            with f.loop(0, here) as k:
                place = f.add(first, k.index)
                number = f.load("float", f.at(x, f.mul(place, 4)))
                positive = f.op(f"fcmp oge float {number}, {f.single(0.0)}")
                valid = f.op(f"and i1 {positive}, {f.op(f'fcmp olt float {number}, {limit}')}")
                image = f.add(f.mul("%chunk", self.images), f.op(f"srem i64 {place}, {self.images}"))
                exists = f.op(f"icmp slt i64 {image}, {batch}")
                with f.when(f.op(f"and i1 {exists}, {f.op(f'xor i1 {valid}, true')}")):
                    f.store("i64", rows, f.at("%call", 8 * PROBLEM))
                safe = f.op(f"select i1 {valid}, float {number}, float {f.single(0.0)}")
                row = f.at(table, f.mul(f.mul(f.op(f"fptosi float {safe} to i64"), features), 4))
                f.store("ptr", row, f.at(found, f.mul(k.index, 8)))
            target = f.at(y, f.mul(first, 4))
            with f.loop(0, features) as c, f.loop(0, here) as k:
                row = f.load("ptr", f.at(found, f.mul(k.index, 8)))
                number = f.load("float", f.at(row, f.mul(c.index, 4)))
                f.store("float", number, f.at(target, f.mul(c.index, plane), f.mul(k.index, 4)))
