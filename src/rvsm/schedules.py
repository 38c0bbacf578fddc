"""Schedules of the learning rate: pure functions of the progress of training, so that a resumed run needs no state."""

from dataclasses import dataclass
from math import cos, pi
from typing import Protocol


class Schedule(Protocol):
    """How the learning rate changes."""

    def factor(self, progress: float) -> float:
        """Return the factor of the learning rate at a progress in [0, 1)."""


@dataclass(frozen=True)
class Constant:
    """A constant learning rate, after a linear warm-up.

    Args:
        warmup: the fraction of the training during which the learning rate rises to its full value.

    """

    warmup: float = 0.0

    def __post_init__(self) -> None:
        _require_fraction("warmup", self.warmup)

    def factor(self, progress: float) -> float:
        """Return 1, or less during the warm-up."""
        return _warm(self.warmup, progress)


@dataclass(frozen=True)
class Step:
    """A learning rate that drops suddenly, by the same factor each time.

    The paper's 200 epochs with drops at 80, 120 and 160 are drops at 0.4, 0.6 and 0.8 of any training:

    >>> [round(Step().factor(epoch / 200), 4) for epoch in (0, 79, 80, 120, 160)]
    [1.0, 1.0, 0.1, 0.01, 0.001]

    Args:
        drops: the fractions of the training after which the learning rate drops.
        gamma: the factor applied at each drop.
        warmup: the fraction of the training during which the learning rate rises to its full value.

    """

    drops: tuple[float, ...] = (0.4, 0.6, 0.8)
    gamma: float = 0.1
    warmup: float = 0.0

    def __post_init__(self) -> None:
        _require_fraction("warmup", self.warmup)
        for drop in self.drops:
            _require_fraction("drops", drop)
        if not 0 < self.gamma <= 1:
            raise ValueError(f"gamma must be in (0, 1] but is {self.gamma}")

    def factor(self, progress: float) -> float:
        """Return gamma to the power of the number of drops so far."""
        passed = sum(progress >= drop for drop in self.drops)
        return _warm(self.warmup, progress) * self.gamma**passed


@dataclass(frozen=True)
class Cosine:
    """Half a cosine, from the full learning rate down to almost zero.

    >>> [round(Cosine().factor(progress), 3) for progress in (0, 0.5, 0.75)]
    [1.0, 0.5, 0.146]

    Args:
        warmup: the fraction of the training during which the learning rate rises to its full value.
        final: the fraction of the learning rate that is left at the end.

    """

    warmup: float = 0.0
    final: float = 0.0

    def __post_init__(self) -> None:
        _require_fraction("warmup", self.warmup)
        _require_fraction("final", self.final)

    def factor(self, progress: float) -> float:
        """Return the value of the cosine, or of a line during the warm-up."""
        if progress < self.warmup:
            return _warm(self.warmup, progress)
        through = (progress - self.warmup) / (1 - self.warmup)
        return self.final + (1 - self.final) * (1 + cos(pi * through)) / 2


@dataclass(frozen=True)
class OneCycle:
    """A linear rise followed by a linear fall, as in fast training recipes.

    >>> [round(OneCycle(peak=0.25, start=0.2).factor(progress), 3) for progress in (0, 0.125, 0.25, 0.625)]
    [0.2, 0.6, 1.0, 0.5]

    Args:
        peak: the fraction of the training after which the learning rate is largest.
        start: the fraction of the learning rate to start with.
        final: the fraction of the learning rate that is left at the end.

    """

    peak: float = 0.23
    start: float = 0.2
    final: float = 0.0

    def __post_init__(self) -> None:
        for name in ("peak", "start", "final"):
            _require_fraction(name, getattr(self, name))

    def factor(self, progress: float) -> float:
        """Return the value of the rising or the falling line."""
        if progress < self.peak:
            return self.start + (1 - self.start) * progress / self.peak
        return 1 - (1 - self.final) * (progress - self.peak) / (1 - self.peak)


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "step": Step, "cosine": Cosine, "onecycle": OneCycle}


def _warm(warmup: float, progress: float) -> float:
    """Return the factor of a linear warm-up; never zero, so that the first step moves."""
    return max(progress / warmup, 1e-3) if progress < warmup else 1.0


def _require_fraction(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be a fraction in [0, 1) but is {value}")
