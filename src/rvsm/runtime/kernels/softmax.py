"""Softmax over the channels of each position, in three walks over them: the maximum, the sum, the result."""

from dataclasses import dataclass

from rvsm.runtime.kernels.kernel import Kernel, Variant


@dataclass(frozen=True)
class Softmax(Variant):
    """y = exp(x − max) / sum, or with ``log`` (x − max) − log(sum); vectors run over images, or over positions.

    The maximum is subtracted first, so that nothing overflows; rounding errors of the sum are carried along (Kahan), so
    that it is as exact for many channels as for few. A ``ragged`` row may end inside a vector.
    """

    operands = ("x", "y", "channels", "height", "width", "row", "plane")
    log: bool
    ragged: bool

    def write(self, f: Kernel) -> None:
        """Write loops over rows and vectors, and three over channels."""
        m = f.vectors
        x, y = f.buffer("x"), f.buffer("y")
        channels, height, width, row, plane = f.numbers("channels", "height", "width", "row", "plane")
        lowest, zero = m.constant(float("-inf")), m.constant(0.0)
        start, stop = f.share(height)
        with f.loop(start, stop) as line, f.row_vectors(width, ragged=self.ragged) as (offset, store):
            place = f.add(f.mul(line.index, row), offset)
            source, target = f.at(x, place), f.at(y, place)
            with f.loop(0, channels, carry=[(f.kind, lowest)]) as c:
                value = f.load(f.kind, f.at(source, f.mul(c.index, plane)))
                c.after = [m.where("ogt", value, c.values[0], value, c.values[0])]
            most = c.values[0]
            with f.loop(0, channels, carry=[(f.kind, zero), (f.kind, zero)]) as c:
                power = m.exp(m.sub(f.load(f.kind, f.at(source, f.mul(c.index, plane))), most))
                if not self.log:
                    store(power, f.at(target, f.mul(c.index, plane)))
                total, lost = c.values
                term = m.sub(power, lost)
                larger = m.add(total, term)
                c.after = [larger, m.sub(m.sub(larger, total), term)]
            total = c.values[0]
            logarithm = m.log(total) if self.log else ""
            with f.loop(0, channels) as c:
                here = f.mul(c.index, plane)
                if self.log:
                    result = m.sub(m.sub(f.load(f.kind, f.at(source, here)), most), logarithm)
                else:
                    result = m.div(f.load(f.kind, f.at(target, here)), total)
                store(result, f.at(target, here))
