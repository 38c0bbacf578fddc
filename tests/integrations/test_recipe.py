"""What may be asked for before there is a model."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import rvsm
from rvsm.integrations.sparse_training import Recipe


def recipe(**given: Any) -> Recipe:
    options = {k: v for k, v in given.items() if k not in ("method", "sparsity", "budget")}
    return Recipe(
        method=given.get("method", "rvsm"),
        sparsity=given.get("sparsity"),
        budget=given.get("budget"),
        options=options,
    )


def test_a_method_is_built_for_the_steps_that_a_trainer_finds() -> None:
    built = recipe(sparsity=0.5, penalty="tl1", pull=7.0).build(nn.Linear(9, 9), 40)
    assert isinstance(built, rvsm.RVSM)
    assert (built.budget, built.pull) == (rvsm.Budget(0.5, 40), 7.0)
    built = recipe(sparsity=0.5, budget={"ramp": 0.2}, method="magnitude").build(nn.Linear(9, 9), 40)
    assert built.budget == rvsm.Budget(0.5, 40, ramp=0.2)
    assert isinstance(recipe(sparsity=0.5, method="admm").build(nn.Linear(9, 9), 40), rvsm.ADMM)
    assert isinstance(recipe(penalty=rvsm.L1(lam=1e-3), method="proxsgd").build(nn.Linear(9, 9), None), rvsm.ProxSGD)


def test_a_method_of_another_distribution_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "made_method-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: made-method\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[rvsm.methods]\nmade = made_method:Made\n")
    (tmp_path / "made_method.py").write_text("import rvsm\n\nclass Made(rvsm.Magnitude):\n    name = 'made'\n")
    monkeypatch.syspath_prepend(tmp_path)
    built = recipe(sparsity=0.5, method="made").build(nn.Linear(9, 9), 40)
    assert (type(built).__module__, built.name) == ("made_method", "made")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give sparsity=, the final fraction of zeros, or penalty= with its λ"),
        ({"method": "rsvm", "sparsity": 0.9}, "unknown method 'rsvm'; choose from rvsm, admm"),
        ({"sparsity": 90}, "sparsity must be in .* for 90 % write 0.9"),
        ({"sparsity": 0.9, "penatly": "l0"}, "rvsm has no option 'penatly'; it has beta, decoupled, example_input"),
        ({"sparsity": 0.9, "budget": rvsm.Budget(0.9, 10)}, "budget must be a dict of further options of the target"),
        ({"sparsity": 0.9, "budget": {"steps": 10}}, "budget must be a dict of further options of the target"),
        ({"sparsity": 0.9, "budget": {"by": "bytes"}}, "unknown by 'bytes'; choose from weights, flops, time"),
        ({"sparsity": 0.9, "budget": {"speedup": 5}}, "needs sparsity=, such as 0.9, or speedup=, such as 5, but both"),
        ({"budget": {"speedup": 0.5}}, "speedup must be > 1"),
        ({"penalty": rvsm.L0(lam=1.0), "beta": 1.0, "budget": {"by": "flops"}}, "give sparsity=, too"),
        ({"method": "admm", "sparsity": 0.9, "budget": {"by": "flops"}}, "admm has no budget"),
        ({"method": "proxsgd", "sparsity": 0.9}, "proxsgd takes no sparsity; give it a penalty with its λ"),
    ],
)
def test_what_cannot_work_is_refused_at_once(given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        recipe(**given)
