"""The borders of a network: images come in as rows of floats, one image after the other, and leave so.

Inside, a position is a vector of images (``images`` = lanes) or a single float (``images`` = 1). Outside, an image
has one channel after the other, or one position after the other with the channels ``last``.
"""

from rvsm.runtime.kernels.frame import Kernel
from rvsm.runtime.kernels.player import BATCH, INPUTS, OUTPUTS

SLOTS = ("index", "place", "channels", "height", "width", "row", "plane")


def enter(lanes: int, images: int, *, last: bool) -> str:
    """Return the kernel that brings an input of the call into the arena; images that are not there are zero."""
    f = Kernel(enter_name(lanes, images, last=last), SLOTS, lanes)
    inside, outside, there = _walk(f, images, INPUTS, last)
    with f.unless(f.op(f"xor i1 {there}, true"), "float", [f.single(0.0)]) as value:
        value.after = [f.load("float", outside)]
    f.store("float", value.values[0], inside)
    return _close(f)


def leave(lanes: int, images: int, *, last: bool) -> str:
    """Return the kernel that takes an output of the call from the arena."""
    f = Kernel(leave_name(lanes, images, last=last), SLOTS, lanes)
    inside, outside, there = _walk(f, images, OUTPUTS, last)
    with f.when(there):
        f.store("float", f.load("float", inside), outside)
    return _close(f)


def enter_name(lanes: int, images: int, *, last: bool) -> str:
    """Return the name of the kernel."""
    return f"enter_{lanes}_{images}" + "_last" * last


def leave_name(lanes: int, images: int, *, last: bool) -> str:
    """Return the name of the kernel."""
    return f"leave_{lanes}_{images}" + "_last" * last


def _walk(f: Kernel, images: int, pointers: int, last: bool) -> tuple[str, str, str]:
    """Open loops over channels, rows, images and columns; return both places and whether there is such an image."""
    channels, height, width = (f.number(slot) for slot in ("channels", "height", "width"))
    row, plane, place = f.number("row"), f.number("plane"), f.buffer("place")
    table = f.load("ptr", f.at("%call", 8 * pointers))
    data = f.load("ptr", f.at(table, f.mul(f.number("index"), 8)))
    batch = f.load("i64", f.at("%call", 8 * BATCH))
    size = f.mul(f.mul(channels, height), width)
    start, stop = f.share(channels)
    c = f.enter(f.loop(start, stop)).index
    y = f.enter(f.loop(0, height)).index
    n = f.enter(f.loop(0, images)).index
    image = f.add(f.mul("%chunk", images), n)
    there = f.op(f"icmp slt i64 {image}, {batch}")
    across = channels if last else 1  # from column to column
    line = f.add(f.mul(y, f.mul(width, across)), f.mul(c, 1 if last else f.mul(height, width)))
    line = f.add(f.mul(image, size), line)
    target = f.at(place, f.mul(c, plane), f.mul(y, row), f.mul(n, 4))
    x = f.enter(f.loop(0, width)).index
    return f.at(target, f.mul(x, 4 * images)), f.at(data, f.mul(f.add(line, f.mul(x, across)), 4)), there


def _close(f: Kernel) -> str:
    f.leave_all()
    f.give()
    return f.text()
