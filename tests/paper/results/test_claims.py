from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.paper.results import chance
from rvsm.paper.results.claims import CLAIMS, Channels, Open, Undecided, judged
from rvsm.paper.results.claims.claim import at_least, more_than
from rvsm.paper.results.collections import grouped
from rvsm.paper.theory.verdict import Verdict
from rvsm.records import Record
from rvsm.report import Configuration

Make = Callable[..., dict[str, Configuration]]


@pytest.fixture(autouse=True)
def two_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two points may be chance here, whatever is measured of real seeds."""
    monkeypatch.setattr(chance, "UNKNOWN_SPREAD", 2.0)


def verdict(key: str, experiments: dict[str, Configuration]) -> Verdict:
    found = CLAIMS[key](experiments)
    assert isinstance(found, Verdict), found
    assert found.statement == key
    return found


def untold(key: str, experiments: dict[str, Configuration]) -> Undecided:
    found = CLAIMS[key](experiments)
    assert isinstance(found, Undecided), found
    assert (found.statement, found.verdict) == (key, "not told apart")
    return found


def both(accuracy: tuple[float, float], loss: tuple[float | None, float | None]) -> dict[str, Any]:
    return {"test": {of: {"accuracy": a, "loss": f} for of, a, f in zip("wu", accuracy, loss, strict=True)}}


def test_without_runs_every_claim_is_open() -> None:
    found = list(judged({}))
    assert [one.statement for one in found] == list(CLAIMS)
    assert all(isinstance(one, Open) and one.verdict == "not run yet" for one in found)
    assert all("needs " in one.reason for one in found if isinstance(one, Open))


@pytest.mark.parametrize("key", [key for key in CLAIMS if not key.startswith("loss-of-u")])
def test_claims_that_need_several_runs_are_open_with_one(key: str, experiments: Make) -> None:
    one = CLAIMS[key](experiments(vgg16_l0={"sparsity": 0.9}, resnet18_rvsm_l0={"sparsity": 0.9}))
    assert isinstance(one, Open)
    assert one.as_json()["reason"] == one.reason


class TestLossOfU:
    def test_holds_with_the_share_that_is_left_as_margin(self, experiments: Make) -> None:
        found = verdict(
            "loss-of-u-resnet18",
            experiments(resnet18_rvsm_l0={"sparsity": 0.9, **both((0.9, 0.901), (0.4, 0.43))}),
        )
        assert found.verdict == "holds"
        assert found.margin == pytest.approx(0.25)  # the loss differs by 7.5 of 10 %
        assert "test loss 0.4000 at w and 0.4300 at u, accuracy 90.00 % and 90.10 %" in found.evidence
        assert "validation losses at most 50 % apart (epoch 1 of 2)" in found.evidence
        assert "not run yet" not in found.evidence
        assert "Batch norm is re-estimated for u" in found.evidence

    def test_the_accuracy_counts_too(self, experiments: Make) -> None:
        found = verdict("loss-of-u-vgg16", experiments(vgg16_l1=both((0.9, 0.894), (0.4, 0.4))))
        assert found.verdict == "fails"
        assert found.margin == pytest.approx(-0.2)
        assert found.correction is None

    def test_half_a_point_is_allowed(self, experiments: Make) -> None:
        found = verdict("loss-of-u-vgg16", experiments(vgg16_l1=both((0.9, 0.895), (0.4, 0.4))))
        assert found.verdict == "holds"

    def test_accuracies_agree_but_losses_do_not(self, experiments: Make) -> None:
        found = verdict("loss-of-u-vgg16", experiments(vgg16_l1=both((0.9, 0.9), (0.4, 0.6))))
        assert found.verdict == "fails"  # as the claim is about losses
        assert found.correction == "The accuracies agree, the losses do not."
        assert found.correction_holds

    def test_only_the_row_with_too_short_a_pull_differs(self, experiments: Make) -> None:
        found = verdict(
            "loss-of-u-vgg16",
            experiments(vgg16_l0=both((0.9, 0.9), (0.4, 0.4)), vgg16_l0_unscaled=both((0.9, 0.5), (0.4, 2.0))),
        )
        assert found.verdict == "holds with correction"
        assert found.correction == "True where the total pull Σηβ is that of 200 epochs."

    def test_with_that_pull_the_accuracies_alone_mend_nothing(self, experiments: Make) -> None:
        found = verdict(
            "loss-of-u-vgg16",
            experiments(vgg16_l0=both((0.9, 0.9), (0.4, 0.6)), vgg16_l0_unscaled=both((0.9, 0.5), (0.4, 2.0))),
        )
        assert found.verdict == "fails"
        assert found.correction == (
            "The accuracies agree where the total pull Σηβ is that of 200 epochs, the losses do not."
        )

    @pytest.mark.parametrize("losses", [(None, 0.4), (0.4, None), (None, None), (0.0, 0.4)])
    def test_what_is_no_number_is_a_violation(
        self, losses: tuple[float | None, float | None], experiments: Make
    ) -> None:
        found = verdict(
            "loss-of-u-resnet18",
            experiments(resnet18_rvsm_l0=both((0.9, 0.8), losses)),
        )
        assert found.verdict == "fails"
        assert found.margin == float("-inf")

    def test_of_one_seed_only(self, experiments: Make) -> None:
        seeds = [{"seed": k, **both((0.9, 0.8), (0.4, loss))} for k, loss in enumerate((0.4, None))]
        found = verdict("loss-of-u-resnet18", experiments(resnet18_rvsm_l0=seeds))
        assert found.verdict == "fails"
        assert "0.4000 ± 0.0000 at w and nan ± nan at u" in found.evidence

    def test_nor_is_it_mended_where_accuracies_agree(self, experiments: Make) -> None:
        found = verdict("loss-of-u-vgg16", experiments(vgg16_l1=both((0.9, 0.9), (0.4, None))))
        assert (found.verdict, found.correction) == ("fails", None)

    def test_every_seed_counts(self, experiments: Make) -> None:
        good, bad = both((0.9, 0.9), (0.4, 0.4)), both((0.9, 0.8), (0.4, 0.4))
        found = verdict("loss-of-u-resnet18", experiments(resnet18_rvsm_l0=[good, {"seed": 1, **bad}]))
        assert found.verdict == "fails"

    def test_other_rows_do_not_count(self, experiments: Make) -> None:
        off = both((0.9, 0.1), (0.4, 4.0))
        found = CLAIMS["loss-of-u-resnet18"](experiments(resnet18_admm=off, resnet18_rvsm_l0_937=off))
        assert isinstance(found, Open)

    @pytest.mark.parametrize("network", ["vgg16", "resnet18"])
    def test_where_w_is_overwritten_by_u_nothing_is_shown(self, network: str, experiments: Make) -> None:
        name = {"vgg16": "vgg16_l0_published", "resnet18": "resnet18_rvsm_l0_published"}[network]
        found = CLAIMS[f"loss-of-u-{network}"](experiments(**{name: both((0.9, 0.9), (0.4, 0.4))}))
        assert isinstance(found, Open)


class TestPenalties:
    def test_the_order_of_the_paper(self, experiments: Make) -> None:
        found = experiments(
            vgg16_l1={"accuracy": 0.957, "sparsity": 0.36},
            vgg16_tl1={"accuracy": 0.931, "sparsity": 0.63},
            vgg16_l0={"accuracy": 0.908, "sparsity": 0.87},
        )
        zeros, accuracy = verdict("penalty-sparsity", found), verdict("penalty-accuracy", found)
        assert (zeros.verdict, zeros.margin) == ("holds", pytest.approx(24))
        assert (accuracy.verdict, accuracy.margin) == ("holds", pytest.approx(2.3))
        assert "ℓ1 − Tℓ1 is +2.60 points; Tℓ1 − ℓ0 is +2.30 points; ℓ1 − ℓ0 is +4.90 points" in accuracy.evidence
        assert accuracy.correction is None

    def test_another_order(self, experiments: Make) -> None:
        found = experiments(
            vgg16_l1={"accuracy": 0.93, "sparsity": 0.63},
            vgg16_tl1={"accuracy": 0.955, "sparsity": 0.62},
            vgg16_l0={"accuracy": 0.90, "sparsity": 0.87},
        )
        zeros, accuracy = verdict("penalty-sparsity", found), verdict("penalty-accuracy", found)
        assert (zeros.verdict, zeros.margin) == ("fails", pytest.approx(-1))
        assert (accuracy.verdict, accuracy.margin) == ("holds with correction", pytest.approx(-2.5))
        assert accuracy.correction == "ℓ1 is more accurate than ℓ0."

    def test_ends_that_are_not_told_apart_mend_nothing(self, experiments: Make) -> None:
        found = experiments(vgg16_l1={"accuracy": 0.93}, vgg16_tl1={"accuracy": 0.95}, vgg16_l0={"accuracy": 0.928})
        assert verdict("penalty-accuracy", found).verdict == "fails"

    def test_equal_is_not_an_order(self, experiments: Make) -> None:
        found = experiments(vgg16_l1={}, vgg16_tl1={}, vgg16_l0={})
        assert verdict("penalty-sparsity", found).verdict == "fails"
        assert untold("penalty-accuracy", found).margin == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("middle", [0.936, 0.932, 0.921, 0.918])
    def test_a_step_within_the_noise_is_no_order_and_no_violation(self, middle: float, experiments: Make) -> None:
        l1, tl1, l0 = ({"accuracy": of} for of in (0.93, middle, 0.92))
        one = untold("penalty-accuracy", experiments(vgg16_l1=l1, vgg16_tl1=tl1, vgg16_l0=l0))
        assert one.margin == pytest.approx(100 * min(0.93 - middle, middle - 0.92), abs=1e-6)
        assert "not told apart by one seed" in one.evidence
        assert one.as_json()["verdict"] == "not told apart"

    def test_several_seeds_resolve_more(self, experiments: Make) -> None:
        def seeds(mean: float) -> list[dict[str, Any]]:
            return [{"accuracy": mean + (seed - 1) / 1000, "seed": seed} for seed in range(3)]

        found = experiments(vgg16_l1=seeds(0.93), vgg16_tl1=seeds(0.926), vgg16_l0=seeds(0.922))
        assert verdict("penalty-accuracy", found).verdict == "holds"
        near = experiments(vgg16_l1=seeds(0.93), vgg16_tl1=seeds(0.928), vgg16_l0=seeds(0.922))
        assert (
            "+0.20 points (seeds spread by 0.14, told apart from 0.23 on), not"
            in untold("penalty-accuracy", near).evidence
        )

    @given(st.permutations([0.2, 0.5, 0.8]))
    def test_one_order_of_six_holds(self, experiments: Make, zeros: list[float]) -> None:
        l1, tl1, l0 = zeros
        found = experiments(vgg16_l1={"sparsity": l1}, vgg16_tl1={"sparsity": tl1}, vgg16_l0={"sparsity": l0})
        assert (verdict("penalty-sparsity", found).verdict == "holds") == (zeros == [0.2, 0.5, 0.8])


class TestADMM:
    def test_as_published(self, experiments: Make) -> None:
        found = verdict(
            "rvsm-admm-published",
            experiments(
                resnet18_rvsm_l0_published={"accuracy": 0.891, "sparsity": 0.93},
                resnet18_admm_published={"accuracy": 0.870, "sparsity": 0.47},
            ),
        )
        assert (found.verdict, found.margin) == ("holds", pytest.approx(2.1))
        assert "+46.00 points of zeros; accuracy +2.10 points." in found.evidence
        assert found.correction is None

    def test_what_the_scripts_measured_is_w(self, experiments: Make) -> None:
        found = verdict(
            "rvsm-admm-published",
            experiments(
                resnet18_rvsm_l0_published={"sparsity": 0.93, **both((0.60, 0.87), (0.4, 0.4))},
                resnet18_admm_published={"sparsity": 0.47, **both((0.80, 0.85), (0.4, 0.4))},
            ),
        )
        assert (found.verdict, found.margin) == ("fails", pytest.approx(-20))
        assert "resnet18-rvsm-l0-published 60.00 % with 93.00 % zeros" in found.evidence
        assert "With batch norm re-estimated for u: 87.00 % and 85.00 %." in found.evidence

    @pytest.mark.parametrize(
        ("accuracy", "zeros", "margin"),
        [(0.845, 0.93, -2.5), (0.88, 0.60, 0.60 * 100 - 47 - 23.31), (0.871, 0.60, 0.60 * 100 - 47 - 23.31)],
    )
    def test_less_accuracy_or_few_more_zeros(
        self, accuracy: float, zeros: float, margin: float, experiments: Make
    ) -> None:
        found = verdict(
            "rvsm-admm-published",
            experiments(
                resnet18_rvsm_l0_published={"accuracy": accuracy, "sparsity": zeros},
                resnet18_admm_published={"accuracy": 0.87, "sparsity": 0.47},
            ),
        )
        assert (found.verdict, found.margin) == ("fails", pytest.approx(margin))

    def test_many_more_zeros_and_about_the_same_accuracy(self, experiments: Make) -> None:
        found = untold(
            "rvsm-admm-published",
            experiments(
                resnet18_rvsm_l0_published={"accuracy": 0.871, "sparsity": 0.93},
                resnet18_admm_published={"accuracy": 0.870, "sparsity": 0.47},
                resnet18_admm={"sparsity": 0.6},
                resnet18_admm_937={"sparsity": 0.937},
            ),
        )
        assert found.margin == pytest.approx(0.1)
        assert "+46.00 points of zeros; accuracy +0.10 points, not told apart by one seed" in found.evidence
        assert "60.00 % with a target of 60 % and 93.70 % with a target of 93.7 %" in found.evidence

    @pytest.mark.parametrize(("zeros", "outcome"), [(0.9, "holds"), (0.65, "fails")])
    def test_as_the_paper_writes_them_u_is_measured(self, zeros: float, outcome: str, experiments: Make) -> None:
        found = verdict(
            "rvsm-admm-proper",
            experiments(
                resnet18_rvsm_l0={"sparsity": zeros, **both((0.60, 0.87), (0.4, 0.4))},
                resnet18_admm={"sparsity": 0.6, **both((0.80, 0.84), (0.4, 0.4))},
            ),
        )
        assert found.verdict == outcome
        assert found.margin == pytest.approx(min(3, 100 * (zeros - 0.6) - 23.31))
        assert f"resnet18-rvsm-l0 87.00 % with {100 * zeros:.2f} % zeros" in found.evidence
        assert "batch norm" not in found.evidence

    @pytest.mark.parametrize(
        ("accuracy", "outcome"),
        [(0.895, "holds"), (0.885, "not told apart"), (0.855, "not told apart"), (0.845, "fails")],
    )
    def test_at_equal_sparsity(self, accuracy: float, outcome: str, experiments: Make) -> None:
        found = CLAIMS["rvsm-admm-equal-sparsity"](
            experiments(
                resnet18_rvsm_l0_937={"accuracy": accuracy, "sparsity": 0.937},
                resnet18_admm_937={"accuracy": 0.87, "sparsity": 0.9365},
                resnet18_magnitude_937={"accuracy": 0.85, "sparsity": 0.937},
            ),
        )
        assert not isinstance(found, Open)
        assert (found.verdict, found.margin) == (outcome, pytest.approx(100 * (accuracy - 0.87)))
        assert "resnet18-magnitude-937 85.00 % with 93.70 % zeros" in found.evidence

    def test_unequal_sparsities_are_not_compared(self, experiments: Make) -> None:
        found = CLAIMS["rvsm-admm-equal-sparsity"](
            experiments(resnet18_rvsm_l0_937={"sparsity": 0.937}, resnet18_admm_937={"sparsity": 0.6})
        )
        assert isinstance(found, Open)
        assert (found.verdict, found.reason) == ("cannot be judged", "the two differ by 33.70 points of zeros")


class TestChannels:
    def norms(self, *of: float) -> dict[str, Any]:
        return {"channel_norms": {"w": {"a": [1.0] * len(of)}, "u": {"a": list(of)}}}

    def test_count(self, experiments: Make) -> None:
        (one,) = experiments(
            resnet18_admm={"channel_norms": {"w": {}, "u": {"a": [2.0, 0.0, 0.019, 0.02], "b": [0.0, 0.0], "c": []}}}
        ).values()
        assert Channels.of(one) == Channels(zero=3, small=1, total=6)
        assert str(Channels.of(one)) == "3 of 6 channels are zero and 1 small"

    def test_seeds_are_averaged(self, experiments: Make) -> None:
        (one,) = experiments(resnet18_admm=[self.norms(1.0, 0.0), {"seed": 1, **self.norms(0.0, 0.0)}]).values()
        assert Channels.of(one) == Channels(zero=1.5, small=0, total=2)

    @pytest.mark.parametrize("kind", ["published", "proper", "equal-sparsity"])
    @pytest.mark.parametrize(
        ("pair", "outcome", "margin"),
        [
            (((1.0, 0.0, 0.0, 0.0), (1.0, 0.001, 0.001, 0.0)), "holds", 1),
            (((1.0, 0.0, 0.0, 0.0), (1.0, 0.5, 0.5, 0.0)), "holds with correction", -1),
            (((1.0, 1.0, 1.0, 1.0), (1.0, 0.001, 0.001, 0.0)), "holds with correction", -1),
            (((1.0, 1.0, 1.0, 1.0), (1.0, 0.5, 0.0, 0.0)), "fails", -2),
            (((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)), "fails", 0),
        ],
    )
    def test_pairs(
        self, kind: str, pair: tuple[tuple[float, ...], ...], outcome: str, margin: float, experiments: Make
    ) -> None:
        ending = {"published": "_published", "proper": "", "equal-sparsity": "_937"}[kind]
        rvsm, admm = (self.norms(*norms) for norms in pair)
        found = verdict(
            f"admm-channels-{kind}",
            experiments(**{f"resnet18_rvsm_l0{ending}": rvsm, f"resnet18_admm{ending}": admm}),
        )
        assert found.verdict == outcome
        assert found.margin == pytest.approx(margin, abs=1e-6)
        assert (found.correction is not None) == (outcome == "holds with correction")

    def test_lines_without_norms(self, experiments: Make) -> None:
        none = {"channel_norms": {"w": {}}}
        found = CLAIMS["admm-channels-proper"](experiments(resnet18_rvsm_l0=none, resnet18_admm=none))
        assert isinstance(found, Open)
        assert (found.verdict, found.reason) == ("cannot be judged", "the results have no channel norms")


class TestAccuracyKept:
    def test_holds(self, experiments: Make) -> None:
        found = verdict(
            "accuracy-kept-vgg16",
            experiments(vgg16_base={"accuracy": 0.85}, vgg16_l1={"accuracy": 0.871}, vgg16_l0={"accuracy": 0.858}),
        )
        assert (found.verdict, found.margin) == ("holds", pytest.approx(2.08))
        assert "ℓ0 +0.80 points, not told apart by one seed (paper: −1.28)" in found.evidence
        assert "; not run yet: vgg16-tl1." in found.evidence
        assert "vgg16 at width 0.25, 2 epochs" in found.evidence

    def test_fails(self, experiments: Make) -> None:
        found = verdict(
            "accuracy-kept-vgg16",
            experiments(vgg16_base={"accuracy": 0.85}, vgg16_l1={"accuracy": 0.848}, vgg16_l0={"accuracy": 0.8}),
        )
        assert (found.verdict, found.margin) == ("fails", pytest.approx(1.28 - 5))  # whatever ℓ1 does

    def test_not_told_apart(self, experiments: Make) -> None:
        found = untold(
            "accuracy-kept-resnet18",
            experiments(resnet18_sgd={"accuracy": 0.88}, resnet18_rvsm_l0={"accuracy": 0.877, "sparsity": 0.9}),
        )
        assert found.margin == pytest.approx(0.18 - 0.3)
        assert "−0.30 points, not told apart by one seed (paper: −0.18)" in found.evidence


@given(st.lists(st.floats(allow_infinity=False), min_size=1, max_size=5))
def test_a_check_passes_only_if_all_do(slack: list[float]) -> None:
    assert at_least(slack).passed == all(one >= 0 for one in slack)
    if all(one > 1e-6 for one in slack):
        assert more_than(slack).passed
    if any(not one > 0 for one in slack):
        assert not more_than(slack).passed


@given(data=st.data())
def test_no_numbers_make_a_claim_raise(data: st.DataObject, line: Callable[..., dict[str, Any]]) -> None:
    """Whatever fraction of zeros and accuracy runs have, each claim is judged or open."""
    share = st.floats(0, 1)
    names = [
        *("vgg16-base", "vgg16-l1", "vgg16-tl1", "vgg16-l0", "vgg16-l0-unscaled"),
        *("resnet18-sgd", "resnet18-admm", "resnet18-rvsm-l0", "resnet18-admm-937", "resnet18-rvsm-l0-937"),
        *("resnet18-admm-published", "resnet18-rvsm-l0-published"),
    ]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True))
    losses = st.none() | st.floats(0, 1e6)
    lines = [
        line(name, data.draw(share), data.draw(share), **both((0.5, data.draw(share)), (0.4, data.draw(losses))))
        for name in chosen
    ]
    outcomes = [one.verdict for one in judged(grouped(map(Record.of_line, lines)))]
    assert len(outcomes) == len(CLAIMS)
    known = {"holds", "holds with correction", "fails", "not run yet", "cannot be judged", "not told apart"}
    assert set(outcomes) <= known
