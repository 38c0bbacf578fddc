"""What every method of the registry has to be; and that one file and one line make one."""

import importlib.util
import inspect
import tomllib
from functools import partial
from pathlib import Path

import pytest
import torch
from docstring_parser import parse
from torch import nn

import networks
import rvsm
from commands import run_code
from processes import Process
from rvsm.integrations.sparse_training import Recipe
from rvsm.splitting import METHODS, Method

FILE = Path(__file__).parent / "fading.py"
SHARED = ["groups", "include", "exclude", "overrides", "example_input"]
STEPS = 40


@pytest.fixture(scope="module")
def fading() -> type[Method]:
    spec = importlib.util.spec_from_file_location("fading", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind: type[Method] = module.Fading
    return kind


@pytest.mark.parametrize("name", METHODS)
def test_the_name_is_that_of_the_registry(name: str) -> None:
    assert METHODS[name].name == name


@pytest.mark.parametrize("name", METHODS)
def test_every_argument_is_documented_once(name: str) -> None:
    told = [argument.arg_name for argument in parse(METHODS[name].__doc__ or "").params]
    assert told == list(inspect.signature(METHODS[name]).parameters)


@pytest.mark.parametrize("name", [name for name in METHODS if "published" not in name])
def test_shared_arguments_are_the_same_everywhere(name: str) -> None:
    ours, theirs = (inspect.signature(kind).parameters for kind in (METHODS[name], rvsm.RVSM))
    assert [ours[argument] for argument in SHARED] == [theirs[argument] for argument in SHARED]


@pytest.mark.parametrize("argument", SHARED)
def test_shared_arguments_are_written_in_one_file(argument: str) -> None:
    files = Path(inspect.getfile(rvsm.splitting)).parent.glob("*.py")
    written = [file.name for file in files if f"        {argument}: " in file.read_text("utf-8")]
    functions = {"profiling.py"}  # rvsm.profile is not a method, and has its own words for some of them
    methods = {"algorithm.py", "layers.py"} | ({"admm.py"} if argument == "overrides" else set())
    assert set(written) <= methods | functions


network = partial(networks.perceptron, 20, 30, 4, seed=0)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, t: int) -> None:
    x = torch.randn(16, 20, generator=torch.Generator().manual_seed(t))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def test_a_new_method_has_budget_phases_state_and_end(fading: type[Method]) -> None:
    def begun() -> tuple[nn.Module, torch.optim.Optimizer, Method]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return model, optimizer, fading(model, sparsity=0.9, steps=STEPS, rate=0.2, exclude=["*.bias"])

    model, optimizer, method = begun()
    method.attach(optimizer)
    saved, phases = {}, set()
    for t in range(STEPS):
        if t in (7, 22, 33):
            saved[t] = [model.state_dict(), optimizer.state_dict(), method.state_dict()]
            saved[t] = torch.utils._pytree.tree_map(lambda v: v.clone() if torch.is_tensor(v) else v, saved[t])
        phases.add(method.phase)
        step(model, optimizer, t)
    assert phases == {"ramp", "hold", "heal"}
    with method.sparse_weights():
        assert method.layers.memory == {}, "once the zeros are fixed there is nothing to keep"
    method.finalize()
    assert sum(int((w == 0).sum()) for w in (model[0].weight, model[2].weight)) == 648
    assert repr(method).startswith("Fading(L0, sparsity=0.9, steps=40, finalized")
    for stop, (weights, moments, state) in saved.items():
        again, optimizer, resumed = begun()
        again.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        resumed.attach(optimizer).load_state_dict(state)
        assert ("u" in resumed.layers.memory) == (stop < 28)
        for t in range(stop, STEPS):
            step(again, optimizer, t)
        resumed.finalize()
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"different rate: 0\.2, but here it is 0\.1"):
        fading(network(), sparsity=0.9, steps=STEPS, exclude=["*.bias"]).load_state_dict(state)


def test_a_line_in_the_registry_is_enough_for_callbacks(fading: type[Method], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "fading", fading)
    recipe = Recipe(method="fading", sparsity=0.5, budget={"ramp": 0.2}, options={"rate": 0.3, "include": ["0.weight"]})
    built = recipe.build(network(), steps=10)
    assert isinstance(built, fading)
    assert built.rate == 0.3
    assert built.budget == rvsm.Budget(0.5, 10, ramp=0.2)
    assert [layer.name for layer in built.layers] == ["0.weight"]


def test_a_line_in_the_registry_is_enough_for_the_command_line(tmp_path: Path) -> None:
    words = (
        "train --method.name fading --method.rate 0.3 --budget.sparsity 0.4 --training.epochs 1 --model.width 4"
        " --method.exclude ['*.bias'] --run one"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(FILE.parent)!r})\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'rvsm']:\n"
        "    del sys.modules[name]\n"  # to be imported with the line in the registry
        "from fading import Fading\n"
        "from rvsm.splitting import METHODS\n"
        "METHODS['fading'] = Fading\n"
        "from rvsm.cli import main\n"
        f"assert main({words.split()!r}) == 0\n"
        "main(['train', '--method.name', 'fading', '--help'])\n"
    )
    done = Process(run_code, program, folder=tmp_path).ended()
    assert done.status == 0, done
    written = tomllib.loads((tmp_path / "one" / "config.toml").read_text("utf-8"))
    assert (written["method"]["name"], written["method"]["rate"]) == ("fading", 0.3)
    assert (tmp_path / "one" / "result.json").exists()
    assert "the fraction of its way to u that w makes in a step" in done.printed
    assert "shell patterns of the parameters to leave dense" in done.printed
