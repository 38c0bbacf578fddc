"""What ``--param`` says: ranges and choices, typed by the options of the configuration."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.config import read_config
from rvsm.sweep.space import Choices, Range, Space, asked, read_space, words

NAMES = st.from_regex(r"[a-z]{1,8}\.[a-z_]{1,8}", fullmatch=True)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**6), 10**6)
PLAIN = st.from_regex(r"[a-z][a-z0-9_.]{0,7}", fullmatch=True)
LISTS = st.lists(st.floats(0, 1), min_size=1, max_size=3).map(repr)


def read(*params: str, flags: tuple[str, ...] = ()) -> Space:
    return read_space(params, None, flags)[0]


class TestWords:
    @settings(max_examples=50)
    @given(NAMES, NUMBERS, NUMBERS, st.booleans())
    def test_a_range(self, name: str, low: float, high: float, log: bool) -> None:
        found = asked(f"{name}={low!r}:{high!r}{':log' * log}")
        assert found == (name, (repr(low), repr(high)), True, log)

    @settings(max_examples=50)
    @given(NAMES, st.lists(PLAIN | LISTS | NUMBERS.map(repr), min_size=2, max_size=5, unique=True))
    def test_choices(self, name: str, values: list[str]) -> None:
        assert asked(f"{name}={','.join(values)}") == (name, tuple(values), False, False)

    @settings(max_examples=50)
    @given(st.text(max_size=20))
    def test_anything_is_read_or_refused_with_a_sentence(self, text: str) -> None:
        try:
            found = asked(text)
        except ValueError as error:
            assert "--param" in str(error)  # noqa: PT017
        else:
            assert found.name
            assert len(found.words) >= 2

    def test_a_choice_may_have_colons_and_commas(self) -> None:
        assert asked("model.name=nets:small,nets:large").words == ("nets:small", "nets:large")
        assert asked("""method.exclude=['a,b', c],["d"]""").words == ("['a,b', c]", '["d"]')

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("budget.sparsity", "expects NAME=low:high, NAME=low:high:log or NAME=a,b,c but got 'budget.sparsity'"),
            ("=1:2", "expects NAME="),
            ("a.b=1:2:exp", "only :log can follow but 'exp' does"),
            ("a.b=l0", "a value that is the same in all trials is a flag: --a.b l0"),
            ("a.b=l0,", "a value is empty"),
            ("a.b=l0,l1,l0", "'l0' is given twice"),
        ],
    )
    def test_refused(self, text: str, sentence: str) -> None:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            asked(text)


class TestTypes:
    def test_ranges_have_the_types_of_their_options(self) -> None:
        space = read("budget.sparsity=0.8:0.99", "training.epochs=5:20", "optimizer.lr=1e-2:1:log", "training.clip=1:2")
        assert space == (
            Range("budget.sparsity", 0.8, 0.99),
            Range("training.epochs", 5, 20),
            Range("optimizer.lr", 0.01, 1.0, log=True),
            Range("training.clip", 1.0, 2.0),
        )
        assert [type(p.low) for p in space if isinstance(p, Range)] == [float, int, float, float]

    def test_an_option_that_only_a_choice_has(self) -> None:
        space = read("penalty.a=0.5:2", "budget.sparsity=0.5,0.9", flags=("--penalty.name=tl1",))
        assert space[0] == Range("penalty.a", 0.5, 2.0)

    def test_reading_what_is_written_gives_the_same(self) -> None:
        space = read("budget.sparsity=0.8:0.99", "training.epochs=5:20:log", "penalty.name=l0,tl1")
        assert read(*map(str, space)) == space

    @pytest.mark.parametrize(
        ("params", "sentence"),
        [
            (["budget.sparsty=0.8:0.9"], "unknown key 'budget.sparsty'; did you mean 'budget.sparsity'?"),
            (["bugdet.sparsity=0.8:0.9"], "unknown section 'bugdet'; did you mean 'budget'?"),
            (["budget.sparsity=0.8:high"], "budget.sparsity must be a number or null but is 'high'"),
            (["training.epochs=5:7.5"], "training.epochs must be an integer but is '7.5'"),
            (["training.epochs=5:inf"], "training.epochs must be an integer but is 'inf'"),
            (["penalty.name=l0,tl2"], "unknown penalty.name 'tl2'; did you mean 'tl1'?"),
            (["augment.flip=0:1"], "augment.flip must be true or false but is '0'"),
            (["penalty.name=1:2"], "unknown penalty.name '1'"),
            (["training.precision=1:2"], "training.precision must be auto or float32 or bfloat16 but is '1'"),
            (["training.device=1:2"], "training.device is not a number; give its values as a,b,c"),
            (["optimizer.lr=1:0.1"], "the lower end comes first, and the ends differ"),
            (["optimizer.lr=0:0.1:log"], "on a logarithmic scale the lower end must be above 0"),
            (["optimizer.lr=0.1:1", "optimizer.lr=1,2"], "--param optimizer.lr is given twice"),
            (["name=a,b"], "a sweep names its trials"),
            ([], "a sweep needs at least one parameter"),
        ],
    )
    def test_refused(self, params: list[str], sentence: str) -> None:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            read(*params, flags=("--budget.sparsity=0.5",) if not any("budget" in p for p in params) else ())


class TestCorners:
    @pytest.mark.parametrize(
        ("params", "sentence"),
        [
            (["budget.sparsity=0.8:1.5"], "--budget.sparsity=1.5: [budget]"),
            (["budget.ramp=0.2:0.8"], "ramp and heal must be ≥ 0 and add up to at most 1 but are 0.8 and 0.3"),
            (["penalty.name=tl1,l0", "penalty.a=1:2"], "penalty.a is an option of penalty.name = 'tl1'"),
            (["training.validation=0.0:0.5"], "a sweep compares trials on validation images"),
            (["optimizer.lr=0.1,fast"], "optimizer.lr must be a number but is 'fast'"),
        ],
    )
    def test_contradictions(self, params: list[str], sentence: str, tmp_path: Path) -> None:
        file = tmp_path / "x.toml"
        file.write_text("[budget]\nsparsity = 0.5\n")
        with pytest.raises(ValueError, match=re.escape(sentence)):
            read_space(params, file, ())

    def test_many_are_checked_in_pairs(self) -> None:
        space = Space(Choices(f"a.b{i}", ("x", "y", "z")) for i in range(6))
        corners = list(space.corners())
        assert len(corners) == 15 * 9 < 3**6
        seen = {(i, a, j, b) for c in corners for i, a in c.items() for j, b in c.items() if i != j}
        assert len(seen) == 30 * 9

    def test_combinations(self) -> None:
        space = Space([Choices("p.name", ("l0", "l1")), Range("t.epochs", 3, 5)])
        assert space.size == 6
        assert len({tuple(space.combination(i).items()) for i in range(6)}) == 6
        assert Space([Range("o.lr", 0.1, 1.0)]).size is None

    def test_flags(self) -> None:
        flags = words({"budget.sparsity": 0.1 + 0.2, "training.epochs": 3, "penalty.name": "l1"})
        config = read_config(flags=flags)
        assert config.budget is not None
        assert (config.budget["sparsity"], config.training.epochs) == (0.1 + 0.2, 3)
