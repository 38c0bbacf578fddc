"""Maximum and mean over windows.

Windows are products of rows and columns: two small tables say where they begin and how many positions they have.
"""

from rvsm.runtime.kernels.frame import Kernel

SLOTS = ("x", "y", "channels", "x_plane", "y_plane", "lines", "height", "columns", "width", "row", "column")
ENTRY_BYTES = 32  # place in the input, place in the output, positions in the window, and their part of the divisor


def pooling_name(lanes: int, *, kind: str, images: int) -> str:
    """Return the name of the kernel."""
    return f"pooling_{lanes}_{kind}_{images}"


def pooling(lanes: int, *, kind: str, images: int) -> str:
    """Return the kernel for the ``max`` or the ``mean`` (sum / divisor) of windows.

    A position is a vector of images, or one float if ``images`` is 1. Like PyTorch's, the maximum of a window with NaN
    is NaN.
    """
    f = Kernel(pooling_name(lanes, kind=kind, images=images), SLOTS, lanes)
    vector = images > 1
    value = f.kind if vector else "float"
    x, y, height, width = f.buffer("x"), f.buffer("y"), f.number("height"), f.number("width")
    lines, columns = f.pointer("lines"), f.pointer("columns")
    x_plane, y_plane, row, column = (f.number(slot) for slot in ("x_plane", "y_plane", "row", "column"))
    start, stop = f.share(f.number("channels"))
    literal = f.single(float("-inf") if kind == "max" else 0.0)
    initial = f.splat(lanes, literal) if vector else literal
    with f.loop(start, stop) as channel:
        source, target = f.at(x, f.mul(channel.index, x_plane)), f.at(y, f.mul(channel.index, y_plane))
        with f.loop(0, height) as j:
            above = f.at(lines, f.mul(j.index, ENTRY_BYTES))
            top, down, tall, across = (f.load("i64", f.at(above, 8 * k)) for k in range(4))
            with f.loop(0, width) as i:
                beside = f.at(columns, f.mul(i.index, ENTRY_BYTES))
                left, right, wide, along = (f.load("i64", f.at(beside, 8 * k)) for k in range(4))
                corner = f.at(source, top, left)
                with f.loop(0, tall, carry=[(value, initial)]) as line:
                    begin = f.at(corner, f.mul(line.index, row))
                    with f.loop(0, wide, carry=[(value, line.values[0])]) as place:
                        new = f.load(value, f.at(begin, f.mul(place.index, column)))
                        place.after = [_combine(f, kind, value, place.values[0], new)]
                    line.after = place.values
                result = line.values[0]
                if kind == "mean":
                    divisor = f.op(f"sitofp i64 {f.mul(across, along)} to double")
                    factor = f.op(f"fptrunc double {f.op(f'fdiv double 1.0, {divisor}')} to float")
                    result = f.op(f"fmul {value} {result}, {f.splat(lanes, factor) if vector else factor}")
                f.store(value, result, f.at(target, down, right))
    f.give()
    return f.text()


def _combine(f: Kernel, kind: str, value: str, old: str, new: str) -> str:
    if kind == "mean":
        return f.op(f"fadd {value} {old}, {new}")
    bits = f"<{f.lanes} x i1>" if value == f.kind else "i1"
    larger = f.op(f"fcmp ogt {value} {new}, {old}")
    missing = f.op(f"fcmp uno {value} {new}, {new}")
    return f.op(f"select {bits} {f.op(f'or {bits} {larger}, {missing}')}, {value} {new}, {value} {old}")
