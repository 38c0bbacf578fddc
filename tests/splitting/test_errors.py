"""Bad input: a sentence that says what was expected, what came, and what to do; and nothing half done."""

import copy
import pickle
import re
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn

import networks
import rvsm
from rvsm.splitting import METHODS

network = partial(networks.network, norm=True)


L0 = rvsm.L0(lam=1e-3)
CONSTRUCTION = {
    "beta must be > 0 and finite but is -0.1": lambda m: rvsm.RVSM(m, L0, beta=-0.1),
    "beta must be > 0 and finite but is 0": lambda m: rvsm.RVSM(m, L0, beta=0),
    "rho must be > 0 and finite but is 0": lambda m: rvsm.ADMM(m, L0, rho=0),
    "rho is missing: with a sparsity, give steps=": lambda m: rvsm.ADMM(m, sparsity=0.5),
    "with a penalty, whose threshold depends on λ/ρ, give rho=": lambda m: rvsm.ADMM(m, L0, steps=9),
    "give either rho= or pull=": lambda m: rvsm.ADMM(m, sparsity=0.5, rho=1.0, pull=3.0, steps=9),
    "pull must be > 0 and finite but is -1": lambda m: rvsm.ADMM(m, sparsity=0.5, pull=-1, steps=9),
    "a total pull of 9 needs more than 9 steps but the training has 9": lambda m: rvsm.ADMM(
        m, sparsity=0.5, pull=9, steps=9
    ),
    "lam must be > 0 and finite but is -1": lambda m: rvsm.L0(lam=-1),
    "a must be > 0 and finite but is 0": lambda m: rvsm.TransformedL1(lam=1, a=0),
    "sparsity must be in [0, 1) but is 1.0": lambda m: rvsm.RVSM(m, "l0", sparsity=1.0, steps=10),
    "for 95 % write 0.95": lambda m: rvsm.RVSM(m, "l0", sparsity=95, steps=10),
    "sparsity must be in [0, 1) but is -0.1": lambda m: rvsm.Magnitude(m, sparsity=-0.1, steps=10),
    "sparsity must be in [0, 1) but is 2": lambda m: rvsm.ADMM(m, rho=1.0, sparsity=2),
    "unknown penalty 'l3'; choose from l0, l1, tl1": lambda m: rvsm.RVSM(m, "l3", sparsity=0.5, steps=10),
    "unknown groups 'rows'; choose from element, filter": lambda m: rvsm.RVSM(m, L0, beta=1.0, groups="rows"),
    "unknown order 'prooof'; choose from proof, printed": lambda m: rvsm.RVSM(m, L0, beta=1.0, order="prooof"),
    "penalty 'l0' needs a λ, because no target sparsity sets it: write L0(lam=...)": lambda m: rvsm.RVSM(
        m, "l0", beta=1.0
    ),
    "penalty 'l1' needs a λ, because no target sparsity sets it: write L1(lam=...)": lambda m: rvsm.ProxSGD(m, "l1"),
    "beta is missing for '0.weight'": lambda m: rvsm.RVSM(m, L0),
    "sparsity= needs steps=": lambda m: rvsm.RVSM(m, "l0", sparsity=0.5),
    "steps= belongs to a target": lambda m: rvsm.RVSM(m, L0, beta=1.0, steps=10),
    "give either budget= or sparsity=": lambda m: rvsm.RVSM(m, "l0", sparsity=0.5, budget=rvsm.Budget(0.5, 10)),
    "pull= sets β for a target": lambda m: rvsm.RVSM(m, L0, beta=1.0, pull=3.0),
    "pull= sets β for a target sparsity: use it with": lambda m: rvsm.RVSM(
        m, "l0", beta=1.0, pull=3.0, sparsity=0.5, steps=9
    ),
    "a total pull of 30 needs more than 30 steps but the training has 20": lambda m: rvsm.RVSM(
        m, "l0", pull=30, sparsity=0.5, steps=20
    ),
    "penalty is missing: give an object": lambda m: rvsm.RVSM(m, None, beta=1.0),
    "penalty is missing: give an object such as rvsm.L1": lambda m: rvsm.ProxSGD(m, None),
    "penalty 'l1' needs a λ": lambda m: rvsm.RVSM(m, L0, beta=1.0, overrides={"4.*": {"penalty": "l1"}}),
    "unknown option 'sparsity' for '4.*'; choose from penalty, beta, groups": lambda m: rvsm.RVSM(
        m, L0, beta=1.0, overrides={"4.*": {"sparsity": 0.5}}
    ),
    "unknown option 'beta' for '4.*'; choose from penalty, groups": lambda m: rvsm.ProxSGD(
        m, L0, overrides={"4.*": {"beta": 0.5}}
    ),
    "unknown option 'penalty' for '4.*'; choose from groups, sparsity": lambda m: rvsm.Magnitude(
        m, sparsity=0.5, steps=9, overrides={"4.*": {"penalty": L0}}
    ),
    "unknown option 'penalty' for '4.*'; choose from rho, groups, sparsity": lambda m: rvsm.ADMM(
        m, sparsity=0.5, rho=1.0, overrides={"4.*": {"penalty": L0}}
    ),
    "overrides must be like {'fc.*': {'penalty': ...}} but is {'4.*': 0.5}": lambda m: rvsm.RVSM(
        m, L0, beta=1.0, overrides={"4.*": 0.5}
    ),
    "budget must be an rvsm.Budget(sparsity, steps) but is 0.9": lambda m: rvsm.RVSM(m, "l0", budget=0.9),
    "sparsity must be a number in [0, 1) but is '0.9'": lambda m: rvsm.RVSM(m, "l0", sparsity="0.9", steps=9),
    "ramp must be a number but is 'x'": lambda m: rvsm.Budget(0.5, 9, ramp="x"),
    "every must be an integer number of optimizer steps ≥ 1 but is 2.5": lambda m: rvsm.Budget(0.5, 9, every=2.5),
    "size of a block must be an integer ≥ 1 but is 2.5": lambda m: rvsm.Block(size=2.5),
    "include must be a list of patterns on parameter names but is [0]": lambda m: rvsm.RVSM(
        m, L0, beta=1.0, include=[0]
    ),
    "example_input must be a batch of inputs, as a tensor or a tuple of tensors, but is 3": lambda m: rvsm.RVSM(
        m, "l0", budget=rvsm.Budget(0.5, 10, by="flops"), example_input=3
    ),
    "the model cannot compute example_input of shape [2, 7]: ": lambda m: rvsm.RVSM(
        m, "l0", budget=rvsm.Budget(0.5, 10, by="flops"), example_input=torch.zeros(2, 7)
    ),
    "recalibrate expects a data loader or a tensor of inputs but got 7": lambda m: rvsm.recalibrate(m, 7),
    "two parameters have the same name": lambda m: rvsm.RVSM([("w", m[0].weight), ("w", m[4].weight)], L0, beta=1.0),
    "give ADMM either a penalty": lambda m: rvsm.ADMM(m, rho=1.0),
    "retrain must be a fraction of the steps in [0, 1) but is 1": lambda m: rvsm.ADMM(
        m, L0, rho=1.0, retrain=1, steps=9
    ),
    "retrain needs steps": lambda m: rvsm.ADMM(m, L0, rho=1.0, retrain=0.3),
    "interval must be an integer number of steps ≥ 1 but is 0": lambda m: rvsm.ADMM(m, L0, rho=1.0, interval=0),
    "Magnitude needs sparsity=": rvsm.Magnitude,
    "steps must be an integer number of optimizer steps ≥ 1 but is 2.5": lambda m: rvsm.Budget(0.5, 2.5),
    "ramp and heal must be ≥ 0 and add up": lambda m: rvsm.Budget(0.5, 10, ramp=0.8, heal=0.3),
    "floor must be in [0, 1) but is 1": lambda m: rvsm.Budget(0.5, 10, floor=1),
    "unknown scope 'Global'; choose from global, layer": lambda m: rvsm.Budget(0.5, 10, scope="Global"),
    "include: 'conv*' matches no weight; the parameters are 0.weight": lambda m: rvsm.RVSM(
        m, L0, beta=1.0, include=["conv*"]
    ),
    "exclude: '0' is a module; for all weights in it, write '0.*'": lambda m: rvsm.RVSM(m, L0, beta=1.0, exclude=["0"]),
    "exclude: 'fc' matches no weight": lambda m: rvsm.RVSM(m, L0, beta=1.0, exclude=["fc"]),
    "include must be a list of patterns but is the string '0.*'": lambda m: rvsm.RVSM(m, L0, beta=1.0, include="0.*"),
    "overrides: 'fc*' matches no sparsified weight": lambda m: rvsm.RVSM(m, L0, beta=1.0, overrides={"fc*": {}}),
    "overrides: unknown option 'betta'": lambda m: rvsm.RVSM(m, L0, beta=1.0, overrides={"0.*": {"betta": 1}}),
    "found no weights to sparsify": lambda m: rvsm.RVSM(nn.BatchNorm1d(3), L0, beta=1.0),
    "expected a torch.nn.Module or an iterable of (name, parameter)": lambda m: rvsm.RVSM(m.parameters(), L0, beta=1.0),
    "expected a torch.nn.Module or an iterable of (name, parameter) but got int": lambda m: rvsm.RVSM(3, L0, beta=1.0),
    "penalty must be an object such as rvsm.L0(lam=1e-6), or a name, but is 0.1": lambda m: rvsm.RVSM(m, 0.1, beta=1.0),
    "a budget by flops needs the module and example_input=": lambda m: rvsm.RVSM(
        m, "l0", budget=rvsm.Budget(0.5, 10, by="flops")
    ),
    "groups by filter need a tensor with at least 2 dimensions": lambda m: rvsm.RVSM(
        m, L0, beta=1.0, include=["0.bias"], groups="filter"
    ),
}


@pytest.mark.parametrize("sentence", CONSTRUCTION)
def test_construction(sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        CONSTRUCTION[sentence](network())


def test_an_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="module 'rvsm' has no attribute 'L3'; it has ACDC, ADMM"):
        rvsm.L3  # noqa: B018


def unharmed(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a step is that of the bare optimizer: nothing is left half attached."""
    before = copy.deepcopy(model.state_dict())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    return all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_attaching_to_what_is_not_possible() -> None:
    model = network()
    method = rvsm.RVSM(model, L0, beta=0.1)
    with pytest.raises(TypeError, match="LBFGS evaluates its closure several times"):
        method.attach(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(TypeError, match=r"expected a torch\.optim\.Optimizer, .* but got Sequential"):
        method.attach(model)
    with pytest.raises(ValueError, match="the optimizer trains none of the weights"):
        method.attach(torch.optim.SGD(network().parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match=r"not attached yet: call attach\(optimizer\) first"):
        method.finalize()
    with pytest.raises(RuntimeError, match="not attached yet"), method.sparse_weights():
        pass
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert unharmed(model, optimizer)
    method.attach(optimizer)
    with pytest.raises(RuntimeError, match="already attached to an optimizer"):
        method.attach(optimizer)
    for another in (optimizer, torch.optim.SGD(model.parameters(), lr=0.1)):
        with pytest.raises(RuntimeError, match=r"an attached rvsm already acts on '0\.weight'"):
            rvsm.ADMM(model, L0, rho=0.1).attach(another)


def test_a_parameter_that_has_gone() -> None:
    model = network()
    method = rvsm.RVSM(model, L0, beta=0.1)
    model[4] = nn.Identity()
    with pytest.raises(ValueError, match=r"'4\.weight' is no longer a parameter of the model"):
        method.attach(torch.optim.SGD(model.parameters(), lr=0.1))


def test_finalizing_without_having_trained() -> None:
    model = network()
    method = rvsm.RVSM(model, "l1", sparsity=0.5, steps=100).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    method.detach()
    with pytest.warns(UserWarning, match="finalized at step 0 of 100, in the phase 'ramp'"):
        method.finalize(recalibrate=torch.ones(2, 1, 6, 6))
    assert sum(int((w == 0).sum()) for w in (model[0].weight, model[4].weight)) == (72 + 512) // 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_types_are_refused(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"'0\.weight' is b?float16.*keep the weights in float32"):
        rvsm.RVSM(model, L0, beta=0.1).attach(optimizer)
    assert unharmed(model, optimizer)


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
@pytest.mark.parametrize("make", [lambda m: rvsm.RVSM(m, L0, beta=0.1), lambda m: rvsm.ADMM(m, sparsity=0.5, rho=1.0)])
def test_types_that_change_while_attached_are_refused(make, convert) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = make(model).attach(optimizer)
    convert(model)
    before = model[0].weight.detach().clone()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    for act in (optimizer.step, method.statistics, method.finalize):
        with pytest.raises(RuntimeError, match=r"'0\.weight' was float32 when .* attached but is \w+ now; convert"):
            act()
    assert torch.equal(model[0].weight, before)
    model.float()
    optimizer.zero_grad()
    method.finalize()
    convert(model)  # what is finalized may be anything
    assert 0 <= method.statistics().sparsity <= 1


def test_a_converted_model_can_be_detached_and_holds_w() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = rvsm.RVSM(model, "l0", sparsity=0.5, steps=20).attach(optimizer)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    w = method.layers[0].w.clone()
    assert not torch.equal(model[0].weight, w), "between two steps it holds v"
    model.half()
    method.detach()
    assert torch.equal(model[0].weight, w.half())


@pytest.mark.parametrize("groups", ["element", "filter"])
def test_shapes_without_values_are_refused(groups: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("meta")
    for act in (lambda: rvsm.RVSM(model, "l0", sparsity=0.5, steps=9, groups=groups), lambda: rvsm.keep_zeros(model)):
        with pytest.raises(ValueError, match=r"'0\.weight' is on the device 'meta' .* model\.to_empty"):
            act()


def test_a_pull_is_not_added_to_a_sparse_gradient() -> None:
    model = nn.Embedding(5, 3, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = rvsm.RVSM(model, L0, beta=0.1, decoupled=False, include=["weight"]).attach(optimizer)
    before = model.weight.detach().clone()
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match=r"'weight' has a sparse gradient.*sparse=False"):
        optimizer.step()
    assert torch.equal(model.weight, before)
    assert method.step == 0


def test_complex_weights_are_refused() -> None:
    w = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"'w' is complex, but penalties need real weights; leave it out"):
        rvsm.RVSM([("w", w)], L0, beta=0.1).attach(torch.optim.SGD([w], lr=0.1))


@pytest.fixture
def one_process() -> Iterator[None]:
    """A process group of one process: what is sharded over it is a shard all the same."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    ("placements", "message"),
    [
        ("SS", r"'w' is divided along 2 dimensions of its device mesh.*not with both"),
        ("RP", r"'w' is a DTensor with the placements .*only Shard and Replicate are supported"),
    ],
)
def test_tensors_that_are_divided_in_other_ways_are_refused(placements: str, message: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    kinds = {"S": Shard(0), "R": Replicate(), "P": Partial()}
    mesh = init_device_mesh("cpu", (1, 1))
    w = nn.Parameter(DTensor.from_local(torch.ones(4, 4), mesh, [kinds[p] for p in placements]))
    with pytest.raises(ValueError, match=message):
        rvsm.RVSM([("w", w)], L0, beta=0.1)


@pytest.mark.usefixtures("one_process")
def test_pairs_of_distributed_tensors_are_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    w = nn.Parameter(distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (1,))))
    with pytest.raises(ValueError, match=r"'w' is a DTensor: pass the module, not pairs"):
        rvsm.RVSM([("w", w)], L0, beta=0.1)


@pytest.mark.usefixtures("one_process")
@pytest.mark.filterwarnings("ignore")  # FSDP's own: it is deprecated, and one process is not what it is made for
@pytest.mark.parametrize("use_orig_params", [False, True])
def test_fully_sharded_models_are_refused(use_orig_params: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = network()
    early = rvsm.RVSM(model, L0, beta=0.1)
    sharded = FullyShardedDataParallel(model, use_orig_params=use_orig_params, device_id=torch.device("cpu"))
    refused = "belongs to FullyShardedDataParallel.*fully_shard"
    with pytest.raises(ValueError, match=refused):
        rvsm.RVSM(sharded, L0, beta=0.1)
    with pytest.raises(ValueError, match=refused):
        early.attach(torch.optim.SGD(sharded.parameters(), lr=0.1))


@pytest.mark.parametrize("make", [lambda m: rvsm.RVSM(m, L0, beta=10.0), lambda m: rvsm.ADMM(m, L0, rho=10.0)])
def test_a_pull_that_overshoots_moves_nothing(make) -> None:
    model = network()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[4].parameters()}], lr=0.1
    )
    make(model).attach(optimizer)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"must be < 1 but is 0\.1 × 10 = 1 for '4\.weight'"):
        optimizer.step()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_target_that_the_floor_forbids() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    budget = rvsm.Budget(0.9, 10, floor=0.2)
    with pytest.raises(ValueError, match=r"sparsity 0\.9 is not feasible: with floor=0\.2.*and 0\.79\d+"):
        rvsm.RVSM(model, "l0", budget=budget).attach(optimizer)
    assert unharmed(model, optimizer)


def test_weights_that_are_not_finite() -> None:
    for bad in (torch.nan, torch.inf):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        method = rvsm.RVSM(model, "l0", sparsity=0.5, steps=50).attach(optimizer)
        with torch.no_grad():
            model[4].weight[1, 2] = bad
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        for act in (optimizer.step, method.sparse_weights().__enter__, method.finalize, method.statistics):
            with pytest.raises(RuntimeError, match=r"the weights of '4\.weight' are not finite"):
                act()


def test_inside_the_block_the_model_is_lent() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = rvsm.RVSM(model, L0, beta=0.1).attach(optimizer)
    saved = method.state_dict()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for act in (
        optimizer.step,
        method.finalize,
        method.statistics,
        method.state_dict,
        method.sparse_weights().__enter__,
        lambda: method.load_state_dict(saved),
    ):
        with method.sparse_weights(), pytest.raises(RuntimeError, match="until the sparse_weights block ends"):
            act()
    method.finalize(recalibrate=torch.ones(2, 1, 6, 6))


def test_zeros_that_are_held_must_be_released_before_another_method() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = rvsm.RVSM(model, L0, beta=0.1).attach(optimizer)
    first.finalize(recalibrate=torch.ones(2, 1, 6, 6))
    first.detach()
    second = rvsm.RVSM(model, L0, beta=0.1)
    with pytest.raises(RuntimeError, match=r"zeros of '0\.weight' are held by an earlier method"):
        second.attach(optimizer)
    first.release()
    second.attach(optimizer)


def test_a_sparsifier_cannot_be_copied() -> None:
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"a RVSM cannot be copied or pickled.*with state_dict\(\)"):
            duplicate(rvsm.RVSM(network(), L0, beta=0.1))


def test_finalizing_twice_and_unknown_outputs() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = rvsm.RVSM(model, L0, beta=0.1).attach(optimizer)
    with pytest.raises(ValueError, match="unknown output 'w'; choose from u, masked"):
        method.finalize(output="w")
    method.finalize(recalibrate=torch.ones(2, 1, 6, 6))
    with pytest.raises(RuntimeError, match="already finalized"):
        method.finalize()


def make(name: str, model: nn.Module):
    options = {
        "rvsm": {"penalty": L0, "beta": 0.1},
        "admm": {"penalty": L0, "rho": 0.1},
        "proxsgd": {"penalty": L0},
        "magnitude": {"sparsity": 0.5, "steps": 10},
        "acdc": {"sparsity": 0.5, "steps": 10},
    }
    return METHODS[name](model, **options[name])


@pytest.mark.parametrize("name", METHODS)
def test_states_of_something_else(name: str) -> None:
    model = network()
    method = make(name, model)
    state = method.state_dict()
    other = next(n for n in METHODS if n != name)
    with pytest.raises(ValueError, match=f"expected a state of the method '{name}' but got one of '{other}'"):
        method.load_state_dict(make(other, model).state_dict())
    with pytest.raises(ValueError, match=r"missing 0\.weight(, 4\.weight)?; unexpected 1\.weight"):
        method.load_state_dict(make(name, nn.Sequential(nn.ReLU(), nn.Conv2d(1, 8, 3))).state_dict())
    wider = nn.Sequential(nn.Conv2d(1, 9, 3), *list(network())[1:])
    with pytest.raises(
        ValueError, match=r"'0\.weight' has shape \[9, 1, 3, 3\] in the state but \[8, 1, 3, 3\] in the model"
    ):
        method.load_state_dict(make(name, wider).state_dict())
    with pytest.raises(ValueError, match=r"expected the state_dict\(\) of a"):
        method.load_state_dict(model.state_dict())
    with pytest.raises(ValueError, match="format 1 but got 2"):
        method.load_state_dict({**state, "format": 2})
    with pytest.raises(ValueError, match="does not have one bit per weight"):
        method.load_state_dict({**state, "support": {"0.weight": torch.zeros(1, dtype=torch.uint8)}})
    entry = state["layers"]["0.weight"]
    damages = [
        {"layers": []},
        {"memory": []},
        {"support": None},
        {"support": {"0.weight": 3}},
        {"support": {"x": torch.zeros(1, dtype=torch.uint8)}},
        {"layers": {**state["layers"], "0.weight": None}},
        {"layers": {**state["layers"], "0.weight": {"shape": [8, 1, 3, 3]}}},
        {"layers": {**state["layers"], "0.weight": {**entry, "lam": -1.0}}},
        {"layers": {**state["layers"], "0.weight": {**entry, "beta": -1.0}}},
        {"layers": {**state["layers"], "0.weight": {**entry, "penalty": "L1(lam=3)"}}},
        {"settings": {**state["settings"], "budget": "Budget(0.3)"}},
        {"step": "x"},
        {"step": -5},
        {"finalized": True},
        {"memory": {"v": {}}},
        {"memory": {"u": {"x": torch.zeros(1)}}},
        {"memory": {"u": {"0.weight": torch.zeros(1)}}},
    ]
    for damage in damages:
        with pytest.raises(ValueError, match=r"state|support"):
            method.load_state_dict({**state, **damage})
    assert method.state_dict() == state, "a refused state changes nothing"
