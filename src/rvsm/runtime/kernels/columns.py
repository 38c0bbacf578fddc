"""A dense matrix times a few columns: layers with few positions and many weights, such as the last ones of a ResNet.

Vectors over positions would be nearly empty, or would need each weight in all of their lanes. Here vectors run over the
outputs: the matrix is stored as for a single column (see matvec.py), and each of its vectors meets the inputs of all
positions. At the end, the sums are transposed, since the positions of an output are neighbours in a map.
"""

from dataclasses import dataclass

from rvsm.runtime.kernels.kernel import Kernel, Variant
from rvsm.runtime.kernels.matvec import blocks_of_outputs
from rvsm.runtime.kernels.pointwise import CODE


@dataclass(frozen=True)
class DenseColumns(Variant):
    """So many ``vectors`` of outputs at so many ``positions``, at most as many as there are lanes."""

    operands = (
        "x",
        "x_thread",  # bytes from one thread's copies of the input to the next one's; 0 if there is one input for all
        "step",  # bytes from an input to the next one; its positions are neighbours
        "y",
        "y_plane",  # bytes from output to output
        "residual",  # place of the map that is added before the activation; negative if there is none
        "matrix",
        "bias",
        "inputs",
        "outputs",
        "parameters",  # two floats for the activation
    )
    activation: str
    vectors: int
    positions: int

    def _write(self, f: Kernel) -> None:
        x = f.at(f.buffer("x"), f.mul(f.number("x_thread"), "%thread"))
        y, bias, parameters = f.buffer("y"), f.pointer("bias"), f.pointer("parameters")
        residual, outputs, plane = f.numbers("residual", "outputs", "y_plane")
        a, b = (f.splat(f.lanes, f.load("float", f.at(parameters, 4 * k))) for k in range(2))
        there = f.first_lanes(str(self.positions))
        size = f.lanes * self.vectors
        room = f.op(f"alloca [{size * self.positions} x float], align 64")
        strided = [f"i32 {f.lanes * p if p < self.positions else -1}" for p in range(f.lanes)]
        with_residual = f.op(f"icmp sge i64 {residual}, 0")
        for first, sums in blocks_of_outputs(f, x, f.number("step"), vectors=self.vectors, positions=self.positions):
            for k, total in enumerate(sums):
                f.store(f.kind, total, f.at(room, 4 * f.lanes * k))
            beyond = f.add(first, size)
            last = f.op(f"select i1 {f.op(f'icmp slt i64 {beyond}, {outputs}')}, i64 {beyond}, i64 {outputs}")
            with f.loop(first, last) as output:
                within = f.op(f"sub i64 {output.index}, {first}")
                vector, lane = (f.op(f"{kind} i64 {within}, {f.lanes}") for kind in ("sdiv", "srem"))
                place = f.at(room, f.mul(vector, 4 * f.lanes * self.positions), f.mul(lane, 4))
                value = f.gather(place, f"<{', '.join(strided)}>")
                value = f.vectors.add(value, f.splat(f.lanes, f.load("float", f.at(bias, f.mul(output.index, 4)))))
                offset = f.mul(output.index, plane)
                with f.unless(f.op(f"xor i1 {with_residual}, true"), f.kind, [value]) as added:
                    other = f.masked_load(f.at(f.at("%arena", residual), offset), there)
                    added.after = [f.vectors.add(value, other)]
                f.masked_store(CODE[self.activation](f.vectors, added.values[0], a, b), f.at(y, offset), there)
