"""Recurrent layers: an operation that walks along the positions of a map, with a state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rvsm.runtime.plan.operation import Operation, Shape, check_choice


class Cell(NamedTuple):
    """The numbers of a hidden unit: ``gates``, which are computed at each position, and ``states``, which are kept."""

    gates: int
    states: int


CELLS = {"lstm": Cell(4, 2), "gru": Cell(3, 1), "tanh": Cell(1, 1), "relu": Cell(1, 1)}
"""The cells; tanh and relu are those of ``nn.RNN``. Gates have PyTorch's order; an LSTM's states are h and c."""


@dataclass(frozen=True, kw_only=True)
class Recurrence(Operation):
    """state ← cell(source at a position, weights · h + bias), from the first position to the last, or ``backward``.

    The source has the gates of all positions as channels, in one row: what the inputs contribute, which needs no state.
    The result has the states of all positions as channels; h, the first of them, is the output.
    """

    kind = "recurrence"
    since = 5
    takes = ("source", "state")
    source: int
    state: int
    cell: str
    backward: bool = False

    @property
    def numbers(self) -> Cell:
        """The numbers of gates and states of a hidden unit."""
        return CELLS[self.cell]

    def weight_shape(self, sources: Sequence[Shape]) -> tuple[int, ...]:
        """Return the gates of all hidden units, and the hidden units."""
        return sources[0][0], sources[0][0] // self.numbers.gates

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the states of all hidden units as channels, and the positions."""
        check_choice("cell", self.cell, tuple(CELLS))
        channels, height, width = sources[0]
        if channels % self.numbers.gates or height != 1:
            raise ValueError(
                f"{self.cell} needs {self.numbers.gates} gates for each unit, in one row, not {sources[0]}"
            )
        states = channels // self.numbers.gates * self.numbers.states
        if sources[1] != (states, 1, 1):
            raise ValueError(f"the first state must have the shape {(states, 1, 1)} but has {sources[1]}")
        return states, 1, width

    @property
    def label(self) -> str:
        """The cell, and its direction."""
        return f"{self.cell}, backward" if self.backward else self.cell
