from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.schedules import SCHEDULES, Constant, Cosine, OneCycle, Schedule, Step

MADE: list[Schedule] = [
    *(maker() for maker in SCHEDULES.values()),
    Constant(warmup=0.2),
    Step(warmup=0.1, drops=(0.5,), gamma=0.5),
    Cosine(warmup=0.25, final=0.1),
    OneCycle(peak=0.0, start=0.5),
    OneCycle(peak=0.5, start=0.0, final=0.3),
]


@pytest.mark.parametrize("schedule", MADE, ids=repr)
class TestAll:
    def test_the_whole_rate_is_reached_and_never_exceeded(self, schedule: Schedule) -> None:
        values = [schedule.factor(i / 1000) for i in range(1000)]
        assert max(values) <= 1 + 1e-12
        assert max(values) > 0.99
        assert min(values) >= 0

    def test_continuous_but_for_drops(self, schedule: Schedule) -> None:
        jumps = [
            i for i in range(1, 10_000) if abs(schedule.factor(i / 10_000) - schedule.factor((i - 1) / 10_000)) > 0.005
        ]
        expected = [round(drop * 10_000) for drop in schedule.drops] if isinstance(schedule, Step) else []
        # a drop from a hundredth to a thousandth is too small to be seen here
        assert jumps == [at for at in expected if at in jumps]
        if expected:
            assert jumps[0] == expected[0]

    def test_pure(self, schedule: Schedule) -> None:
        assert schedule.factor(0.37) == schedule.factor(0.37)


class TestValues:
    def test_constant(self) -> None:
        assert [Constant().factor(p) for p in (0, 0.5, 0.999)] == [1, 1, 1]
        assert isclose(Constant(warmup=0.2).factor(0.05), 0.25)
        assert Constant(warmup=0.2).factor(0) == 1e-3  # never zero
        assert Constant(warmup=0.2).factor(0.2) == 1

    def test_step(self) -> None:
        schedule = Step(drops=(0.5, 0.75), gamma=0.2)
        assert [round(schedule.factor(p), 6) for p in (0, 0.499, 0.5, 0.749, 0.75, 0.99)] == [
            1,
            1,
            0.2,
            0.2,
            0.04,
            0.04,
        ]
        assert Step(drops=()).factor(0.9) == 1

    def test_step_is_the_papers(self) -> None:
        assert [round(Step().factor(epoch / 200), 4) for epoch in (79, 80, 119, 120, 160)] == [1, 0.1, 0.1, 0.01, 0.001]

    def test_cosine(self) -> None:
        assert isclose(Cosine().factor(0), 1)
        assert isclose(Cosine().factor(0.5), 0.5)
        assert 0 < Cosine().factor(0.9999) < 1e-6
        assert isclose(Cosine(final=0.2).factor(0.5), 0.6)
        assert isclose(Cosine(warmup=0.5).factor(0.75), 0.5)
        assert isclose(Cosine(warmup=0.5).factor(0.25), 0.5)
        assert isclose(Cosine(warmup=0.5).factor(0.5), 1)

    def test_onecycle(self) -> None:
        schedule = OneCycle(peak=0.25, start=0.2, final=0.1)
        assert [round(schedule.factor(p), 6) for p in (0, 0.125, 0.25, 0.625)] == [0.2, 0.6, 1, 0.55]
        assert isclose(schedule.factor(1 - 1e-12), 0.1)

    @given(st.floats(0, 0.99), st.floats(0, 0.99), st.floats(0, 1, exclude_max=True))
    def test_any_shares(self, warmup: float, final: float, progress: float) -> None:
        for schedule in (Cosine(warmup=warmup, final=final), OneCycle(peak=warmup, final=final, start=final)):
            assert -1e-12 <= schedule.factor(progress) <= 1 + 1e-12


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("maker", "name"),
    [(Constant, "warmup"), (Step, "warmup"), (Cosine, "warmup"), (Cosine, "final")]
    + [(OneCycle, name) for name in ("peak", "start", "final")],
)
def test_fractions(maker: type, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be a fraction in \[0, 1\) but is {value}"):
        maker(**{name: value})


def test_drops_and_gamma() -> None:
    with pytest.raises(ValueError, match=r"drops must be a fraction in \[0, 1\) but is 80"):
        Step(drops=(80, 120))
    for gamma in (0, -1, 2, float("nan")):
        with pytest.raises(ValueError, match=r"gamma must be in \(0, 1\] but is"):
            Step(gamma=gamma)
