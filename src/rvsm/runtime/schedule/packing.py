"""Weights in the order in which the kernel reads them: records of an offset and the values of a block of channels."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SHARED = 0.25  # the minimum fraction of weights in channels that share their pattern with others

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Packed:
    """A stream of records; ``starts[pass, block]`` is where the records of a block begin, in bytes.

    ``channels`` and ``bias`` are [pass, block, channel in the block], since each pass has its own order of the blocks.
    Thread t has the blocks ``cuts[t]`` to ``cuts[t + 1]``, which contain the same channels in each pass.
    """

    stream: NDArray[np.int32]
    starts: Integers
    channels: Integers
    bias: Floats
    cuts: Integers

    @property
    def passes(self) -> int:
        """The number of passes over the input channels."""
        return len(self.starts)

    @property
    def blocks(self) -> int:
        """The number of blocks of output channels."""
        return int(self.starts.shape[1]) - 1


def dense_blocks(channels: int, groups: int) -> dict[int, Integers]:
    """Return all channels in blocks of 4, 2 or 1 of the same group, by the size of the block.

    >>> {size: blocks.tolist() for size, blocks in dense_blocks(7, 1).items()}
    {4: [[0, 1, 2, 3]], 2: [[4, 5]], 1: [[6]]}
    """
    blocks = _blocks(channel * groups // channels for channel in range(channels))
    return {size: np.array(blocks[size], dtype=np.int64) for size in (4, 2, 1) if blocks[size]}


def sparse_blocks(weights: Floats, groups: int) -> dict[int, Integers]:
    """Return the channels in blocks of 4, 2 or 1 that have their non-zero weights at the same places."""
    rows = np.packbits(weights.reshape(len(weights), -1) != 0, axis=1)
    inside = len(weights) // groups
    blocks = _blocks((channel // inside, row.tobytes()) for channel, row in enumerate(rows))
    counts = np.count_nonzero(weights.reshape(len(weights), -1), axis=1)
    shared = sum(int(counts[channels].sum()) for size in (4, 2) for channels in blocks[size])
    if shared <= SHARED * counts.sum():  # may be chance, and is not worth another kernel
        return {1: np.arange(len(weights), dtype=np.int64)[:, None]}
    return {size: np.array(sorted(blocks[size]), dtype=np.int64) for size in (4, 2, 1) if blocks[size]}


def _blocks(keys: Iterable[Hashable]) -> dict[int, list[list[int]]]:
    """Return the channels in blocks of 4, 2 or 1 whose keys are equal, by the size of the block."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for channel, key in enumerate(keys):
        alike[key].append(channel)
    blocks: dict[int, list[list[int]]] = {4: [], 2: [], 1: []}
    for channels in alike.values():
        start = 0
        for size, found in blocks.items():
            while len(channels) - start >= size:
                found.append(channels[start : start + size])
                start += size
    return blocks


def pack(
    weights: Floats, bias: Floats, blocks: Integers, offsets: Integers, group_bytes: int, *, groups: int, passes: int,
    dense: bool, threads: int,
) -> Packed:  # fmt: skip
    """Return the stream for ``blocks`` (blocks × channels in a block).

    ``offsets`` (input channels of a group × taps) are those of the first group, in bytes; the next group begins
    ``group_bytes`` later. With ``dense``, zeros are stored, too. In each pass, the blocks of each of the ``threads``
    are sorted by their number of records, so that the CPU almost always predicts the end of the loop over records.
    """
    count, block = blocks.shape
    inputs, taps = offsets.shape
    flat = weights.reshape(len(weights), inputs, taps)[blocks]  # blocks × block × inputs × taps
    present = np.ones((count, inputs, taps), dtype=np.bool_) if dense else (flat != 0).any(axis=1)
    shift = (blocks[:, 0] // max(1, len(weights) // groups)) * group_bytes
    cuts = _fair(present.sum(axis=(1, 2)) + 16, threads)
    owner = np.searchsorted(cuts[1:-1], np.arange(count), side="right")
    parts: list[NDArray[np.int32]] = []
    starts = np.zeros((passes, count + 1), dtype=np.int64)
    channels = np.empty((passes, count, block), dtype=np.int64)
    done = 0
    for k, (low, high) in enumerate(spans(inputs, passes)):
        here = present[:, low:high].reshape(count, -1)
        lengths = here.sum(axis=1)
        order = np.lexsort((-lengths, owner))
        where, which = np.nonzero(here[order])
        block_of = order[where]
        records = np.empty((len(where), 1 + block), dtype=np.int32)
        records[:, 0] = offsets[low:high].reshape(-1)[which] + shift[block_of]
        part = flat[:, :, low:high].reshape(count, block, -1).transpose(0, 2, 1)
        records[:, 1:] = np.ascontiguousarray(part[block_of, which]).view(np.int32)
        starts[k, 1:] = np.cumsum(lengths[order])
        starts[k] = done + starts[k] * 4 * (1 + block)
        done += records.nbytes
        parts.append(records.reshape(-1))
        channels[k] = blocks[order]
    return Packed(np.concatenate(parts), starts, channels, bias[channels], cuts)


def _fair(work: Integers, parts: int) -> Integers:
    """Return where to cut a sequence of work items, so that the parts are nearly equal."""
    total = np.concatenate([[0], np.cumsum(work)])
    cuts = np.searchsorted(total, total[-1] * np.arange(parts + 1) / parts)
    cuts[0], cuts[-1] = 0, len(work)
    return np.asarray(cuts, dtype=np.int64)


def spans(count: int, parts: int) -> list[tuple[int, int]]:
    """Return range(count) cut into parts of nearly the same length.

    >>> spans(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def thread_ranges(tiles: int, packed: Packed, threads: int, input_bytes: int) -> Integers:
    """Return first and last tile, first and last block: for a single thread, then for each of several.

    If tiles are divided, every thread reads all records. If blocks are divided, by the number of their records, every
    thread reads all of the input. The smaller one is chosen, unless the tiles cannot be divided fairly.
    """
    rows: list[Sequence[int]] = [(0, tiles, 0, packed.blocks)]
    fair = tiles % threads == 0 or tiles >= 8 * threads
    if packed.blocks < 2 * threads or (fair and packed.stream.nbytes <= input_bytes):
        rows += [(low, high, 0, packed.blocks) for low, high in spans(tiles, threads)]
    else:
        rows += [(0, tiles, int(low), int(high)) for low, high in pairwise(packed.cuts)]
    return np.array(rows, dtype=np.int64)
