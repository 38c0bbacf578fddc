"""What processes do that train one model, mostly a sharded one; test_sharded.py reads what each of them reports.

    python sharded.py FOLDER [CHECK …]

One process imports torch, then it forks: one process, two, four, and one again. The checks run one after the other on
all ranks, in the order in which they are written. If one fails, those after it do not run. A model with shards gets the
same batches on all ranks as the model without, so that the average of the gradients is the same number, and what is
computed elementwise must be equal bit for bit.
"""

import gc
import json
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # FSDP imports it in its first step
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import rvsm
from rvsm.runtime.kernels.jit import machine
from rvsm.splitting import Method
from rvsm.splitting.magnitudes import Magnitudes, survey
from rvsm.splitting.ranks import Ranks
from rvsm.splitting.selection import candidates, cutoffs, removals, smallest, together
from rvsm.splitting.shards import local
from rvsm.timing import Curve, LayerTimes, Profile

FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()  # for what the processes write
STEPS = 8
SCHEDULE = {"budget": rvsm.Budget(0.7, STEPS, every=2)}
Make = Callable[[nn.Module], Method]


def network() -> nn.Sequential:
    """Return a network with rows that 2 and 4 do not divide, and with fewer rows than ranks."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 10, 3, bias=False), nn.BatchNorm2d(10), nn.ReLU(),
        nn.ConvTranspose2d(10, 6, 3, groups=2, bias=False), nn.ReLU(),
        nn.Conv2d(6, 10, 3, groups=2, bias=False), nn.ReLU(),
        nn.ConvTranspose2d(10, 7, 2, bias=False), nn.ReLU(), nn.Flatten(),
        nn.Linear(7 * 25, 3),
    )  # fmt: skip


def perceptron() -> nn.Sequential:
    """Return two linear layers of 11 and 3 rows."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(13, 11), nn.ReLU(), nn.Linear(11, 3))


def perceptron_times() -> Profile:
    """Return times of the two linear layers, of which the first is dearer and no faster with a few zeros."""
    first = LayerTimes((11, 13), "element", Curve((0.0, 0.6, 1.0), (1e-6, 1e-3, 1.001e-3)))
    last = LayerTimes((3, 11), "element", Curve((0.0, 1.0), (1e-6, 1e-4)))
    return Profile(machine().name, 64, 1, ((13,),), 1e-5, {"0.weight": first, "2.weight": last})


def batches(model: nn.Module, count: int = STEPS) -> Iterator[Tensor]:
    """Yield the same inputs on all ranks, whatever the random state."""
    draw = torch.Generator().manual_seed(1)
    shape = (8, 3, 6, 6) if len(model) > 3 else (8, 13)  # type: ignore[arg-type]
    for _ in range(count):
        yield torch.randn(shape, generator=draw)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum, in which no sum over several tensors depends on the way they are divided."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def shard(model: nn.Sequential, **options: Any) -> nn.Sequential:
    """Return the model in one group, or a larger one with its first and its last layer in groups of their own."""
    if len(model) > 3:
        fully_shard(model[0], **options)
        fully_shard(model[-1], **options)
    fully_shard(model, **options)
    return model


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def train(model: nn.Module, method: Method, count: int = STEPS, seen: list[float] | None = None) -> Method:
    """Attach the method and train; note all thresholds and λ on the way."""
    optimizer = optimizer_of(model)
    method.attach(optimizer)
    for x in batches(model, count):
        step(model, optimizer, x)
        if seen is not None:
            seen += [layer.threshold for layer in method.layers]
            seen += [0.0 if layer.penalty is None else layer.penalty.lam for layer in method.layers]
    return method


def both(alone: nn.Module, ours: Method, divided: nn.Module, theirs: Method, *, exact: bool) -> None:
    """Train the model without and that with shards, finalize them, and compare everything that can be seen."""
    one: list[float] = []
    many: list[float] = []
    train(alone, ours, seen=one), train(divided, theirs, seen=many)
    for found, expected in zip(many, one, strict=True):
        assert close(found, expected, exact=exact), f"a threshold or λ is {found} and not {expected}"
    ours.finalize(), theirs.finalize()
    same(alone, ours, divided, theirs, exact=exact)
    assert theirs.statistics().sparsity > 0.1


def whole(w: Tensor) -> Tensor:
    """Return a parameter as one tensor."""
    return w.full_tensor().detach() if hasattr(w, "full_tensor") else w.detach().clone()


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights of a model as whole tensors."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    return {name: whole(w) for name, w in model.named_parameters()}


def compare(
    make: Make,
    model: Callable[[], nn.Sequential] = network,
    sharded: Callable[[nn.Sequential], nn.Sequential] = shard,
    *,
    exact: bool = True,
) -> tuple[nn.Module, Method]:
    """Train with and without shards, compare everything that can be seen, and return the model with shards."""
    alone, divided = model(), sharded(model())
    ours, theirs = make(alone), make(divided)
    both(alone, ours, divided, theirs, exact=exact)
    theirs.release()
    return divided, theirs


def same(alone: nn.Module, ours: Method, divided: nn.Module, theirs: Method, *, exact: bool) -> None:
    """Compare weights, zeros and statistics, and these between the ranks."""
    one, many = weights(alone), weights(divided)
    for name in one:
        equal(many[name], one[name], name, exact=exact)
        assert torch.equal(many[name] == 0, one[name] == 0), f"zeros of {name}"
    found, expected = theirs.statistics(), ours.statistics()
    for row, like in zip(found.layers, expected.layers, strict=True):
        assert (row.name, row.shape, row.zeros) == (like.name, like.shape, like.zeros), (row, like)
        assert (row.groups, row.zero_groups) == (like.groups, like.zero_groups), (row, like)
        assert close(row.gap, like.gap), (row, like)
    assert (found.parameters, found.parameter_zeros) == (expected.parameters, expected.parameter_zeros)
    assert close(found.penalty, expected.penalty)
    assert close(found.coupling, expected.coupling)
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, repr(found))
    assert len(set(everywhere)) == 1, everywhere


def equal(found: Tensor, expected: Tensor, name: str, *, exact: bool) -> None:
    if exact:
        assert torch.equal(found, expected), f"{name}: differs by {float((found - expected).abs().max()):.3g}"
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, msg=lambda said: f"{name}: {said}")


def close(found: float, expected: float, *, exact: bool = False) -> bool:
    return found == expected if exact else abs(found - expected) <= 1e-5 * abs(expected) + 1e-12


def zeros_of(model: nn.Module, method: Method) -> tuple[int, int]:
    """Return how many sparsified weights are zero, and how many there are."""
    found = [weights(model)[layer.name] for layer in method.layers]
    return sum(int((w == 0).sum()) for w in found), sum(w.numel() for w in found)


def raises(kind: type[BaseException], words: str, act: Callable[[], object]) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        act()


RUNS = {"one": 1, "two": 2, "four": 4, "last": 1}
"""How many processes run at a time."""

CHECKS: list[tuple[Callable[[], None], tuple[str, ...]]] = []


def on(*runs: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Run a check in these runs."""

    def add(check: Callable[[], None]) -> Callable[[], None]:
        CHECKS.append((check, runs))
        return check

    return add


# Without shards


@contextmanager
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@on("four")
@without_warnings()
def the_sums_of_ranks_are_exact_and_counted() -> None:
    ranks, rank = Ranks(dist.group.WORLD), dist.get_rank()
    assert Ranks.of(dist.group.WORLD) is Ranks.of(dist.group.WORLD)
    assert (ranks.size, ranks.rank) == (4, rank)
    numbers = [torch.tensor([10**16 + r, 2**r]) for r in range(4)]
    assert ranks.sum_(numbers[rank].clone()).tolist() == sum(numbers).tolist()  # type: ignore[union-attr]
    assert ranks.max_(numbers[rank].clone()).tolist() == numbers[3].tolist()
    lower = sum(numbers[:rank], torch.zeros(2, dtype=torch.int64))
    assert ranks.before(numbers[rank]).tolist() == lower.tolist()
    assert (ranks.messages, ranks.sent) == ((4, 64), (4, 64), (3, 48), (2, 32))[rank]
    assert ranks.sum_(torch.tensor(0.5, dtype=torch.float64)) == 2


@on("four")
@without_warnings()
def four_processes_choose_what_one_chooses() -> None:
    draw = torch.Generator().manual_seed(0)
    layers = []
    for n, cuts in ((100_000, [30_000, 30_000, 70_000]), (3_000, [1_000, 1_200, 3_000]), (40_000, [1, 2, 20_000])):
        w = torch.randn(n, generator=draw)
        w = w if n == 100_000 else (w * 8).round() / 8  # without and with ties
        costs = torch.randint(1, 9, (n,), generator=draw) if n == 3_000 else torch.ones(1)
        layers.append((w, costs.double(), cuts))

    def chosen(here: list[Magnitudes]) -> tuple[list[int], list[float], list[Tensor]]:
        pool = candidates(survey(here), [5] * len(here))
        counts, at = together(pool, 0.8 * sum(each.population.total for each in pool))
        gone = removals([each.population for each in pool], counts)
        masks = [removal.mask(next(iter(m.parts)).abs()) for m, removal in zip(here, gone, strict=True)]
        return counts, cutoffs(pool, counts, at), masks

    ranks, rank = Ranks.of(dist.group.WORLD), dist.get_rank()
    parts = []
    for w, costs, cuts in layers:
        own = costs if len(costs) == 1 else costs.tensor_split(cuts)[rank]
        parts.append(Magnitudes([w.tensor_split(cuts)[rank]], costs=own.numpy(), ranks=ranks))
    counts, thresholds, masks = chosen(parts)
    expected = chosen([Magnitudes([w], costs=costs.numpy()) for w, costs, _ in layers])
    assert (counts, thresholds) == expected[:2]
    for (w, _, cuts), count, mask in zip(layers, counts, masks, strict=True):
        assert torch.equal(mask, smallest(w.abs(), count).tensor_split(cuts)[rank])


@on("two")
@without_warnings()
def every_rank_has_the_statistics_of_all_batches() -> None:
    rank, draw = dist.get_rank(), torch.Generator().manual_seed(0)
    data = [list(shift + torch.randn(12, 16, 4, generator=draw)) for shift in (0, 3)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    sparsifier = rvsm.RVSM(parallel, "l0", sparsity=0.5, steps=10).attach(optimizer)
    for x in data[rank][:10]:
        step(parallel, optimizer, x)
    if rank == 0:  # alone: the other one waits for nothing here
        with sparsifier.sparse_weights(recalibrate=data[0]):
            model.eval()(data[0][0])
    before = model[1].running_mean.clone()
    failed = (RuntimeError, "1 of the other ranks failed here"), (ValueError, "recalibrate got no batches")
    raises(*failed[rank], lambda: sparsifier.finalize(recalibrate=data[0] if rank == 0 else []))
    assert torch.equal(model[1].running_mean, before)
    sparsifier.finalize(recalibrate=data[rank][: 2 + rank])  # two batches on one rank, three on the other
    alone = deepcopy(model)
    states: list[Any] = [None, None]
    dist.all_gather_object(states, model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    rvsm.recalibrate(alone, [*data[0][:2], *data[1][:3]])
    torch.testing.assert_close(alone[1].running_mean, model[1].running_mean)
    torch.testing.assert_close(alone[1].running_var, model[1].running_var)
    assert alone[1].num_batches_tracked == model[1].num_batches_tracked == 5


# One threshold over all shards


@on("two", "four")
def single_weights_are_those_of_one_process_bit_for_bit() -> None:
    model, method = compare(lambda m: rvsm.RVSM(m, "l0", **SCHEDULE))
    zero, total = zeros_of(model, method)
    assert abs(zero - 0.7 * total) <= 0.5, (zero, total)


@on("four")
def filters_are_those_of_one_process() -> None:
    compare(lambda m: rvsm.RVSM(m, "l0", groups="filter", example_input=next(batches(m)), **SCHEDULE), exact=False)


@on("four")
def channels_have_parts_on_all_ranks() -> None:
    compare(lambda m: rvsm.RVSM(m, "l0", groups="channel", example_input=next(batches(m)), **SCHEDULE), exact=False)


@on("four")
def blocks_have_parts_on_neighbouring_ranks() -> None:
    compare(lambda m: rvsm.RVSM(m, "l0", groups=rvsm.Block(size=4), **SCHEDULE), exact=False)
    over_three = rvsm.Block(size=7, weighted=False)
    compare(lambda m: rvsm.RVSM(m, "l0", groups=over_three, **SCHEDULE), perceptron, exact=False)


@on("two")
def rows_and_columns_of_kernels_are_those_of_one_process() -> None:
    overrides = {"0.weight": {"groups": "row"}, "10.weight": {"groups": "element"}}
    compare(lambda m: rvsm.RVSM(m, "l1", groups="column", overrides=overrides, **SCHEDULE), exact=False)


@on("two")
def coupled_channels_are_those_of_one_process() -> None:
    def network() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 10, 3), nn.BatchNorm2d(10), nn.ReLU(),
            nn.ConvTranspose2d(10, 7, 2), nn.ReLU(), nn.Flatten(), nn.Linear(7 * 25, 3),
        )  # fmt: skip

    def attach_later(make: Callable[[nn.Module], Method]) -> None:
        alone, divided = network(), network()
        ours, theirs = make(alone), make(divided)
        fully_shard(divided, ignored_params={divided[1].weight})  # which is a part of the first layer's channels
        both(alone, ours, divided, theirs, exact=False)

    example = {"groups": "coupled", "example_input": torch.zeros(1, 3, 6, 6)}
    attach_later(lambda m: rvsm.RVSM(m, "l0", exclude=["6.weight"], **example, **SCHEDULE))
    attach_later(lambda m: rvsm.ADMM(m, sparsity=0.5, rho=0.1, interval=2, exclude=["6.weight"], **example))
    model = shard(network())
    refused = "construct the method before the model is sharded"
    raises(ValueError, refused, lambda: rvsm.ADMM(model, sparsity=0.5, rho=0.1, **example))


@on("four")
def outputs_without_weights_in_use_are_those_of_the_whole_layer() -> None:
    alone, divided = network(), shard(network())
    for ours, theirs in zip(
        rvsm.Magnitude(alone, **SCHEDULE).layers, rvsm.Magnitude(divided, **SCHEDULE).layers, strict=True
    ):
        unused = torch.rand(ours.w.shape, generator=torch.Generator().manual_seed(0)) < 0.9
        expected = ours.emptied_outputs(unused).expand(unused.shape)
        assert theirs.shard is not None
        part = theirs.shard.of(unused)
        assert torch.equal(theirs.emptied_outputs(part).expand(part.shape), theirs.shard.of(expected)), ours.name


@on("two")
def budgets_use_the_numbers_of_the_whole_layers() -> None:
    def with_budget(model: Callable[[], nn.Sequential] = perceptron, **options: Any) -> None:
        exact = not options.get("normalize")
        budget = rvsm.Budget(0.7, STEPS, **options)
        compare(lambda m: rvsm.RVSM(m, "l0", budget=budget, example_input=next(batches(m))), model, exact=exact)

    with_budget(scope="layer")
    with_budget(normalize=True)
    with_budget(network, by="flops")
    with_budget(by="time", profile=perceptron_times())
    with_budget(floor=0.2)
    raises(ValueError, "is not feasible", lambda: with_budget(floor=0.5))


# Methods


@on("two")
def every_option_of_rvsm_works() -> None:
    for options in ({"gradient": "u"}, {"order": "printed"}, {"decoupled": False, "gradient": "w"}):
        compare(lambda m, o=options: rvsm.RVSM(m, "l0", **o, **SCHEDULE), perceptron)  # type: ignore[misc]
    compare(lambda m: rvsm.RVSM(m, rvsm.L0(lam=2e-3), beta=0.1), perceptron)
    by_channel: dict[str, Any] = {"groups": "channel", "overrides": {"0.weight": {"groups": "filter"}}}
    compare(lambda m: rvsm.RVSM(m, rvsm.L1(lam=2e-2), beta=0.1, gradient="u", **by_channel), perceptron, exact=False)


@on("two")
def every_penalty_works_on_channels() -> None:
    from rvsm.penalties import PENALTIES

    for kind in PENALTIES.values():
        copies = []
        for model in (perceptron(), shard(perceptron())):
            penalty = kind(lam=1.0).with_threshold(0.15, 10.0)
            method = train(model, rvsm.RVSM(model, penalty, beta=0.1, groups="channel", include=["2.weight"]), 2)
            with method.sparse_weights():
                copies.append(weights(model)["2.weight"])
            method.detach()
        equal(copies[1], copies[0], kind.__name__, exact=False)
        assert 0 < int((copies[0] == 0).sum()) < copies[0].numel(), kind.__name__


@on("two")
def every_method_works() -> None:
    named = {"include": ["0.weight", "2.weight"]}
    compare(lambda m: rvsm.ProxSGD(m, rvsm.L1(lam=0.1)), perceptron)
    compare(lambda m: rvsm.ProxSGD(m, rvsm.L1(lam=0.2), groups="channel", **named), perceptron, exact=False)
    compare(lambda m: rvsm.ADMM(m, sparsity=0.6, steps=STEPS, retrain=0.3, interval=2), perceptron)
    compare(
        lambda m: rvsm.ADMM(m, sparsity=0.6, rho=0.1, interval=3, groups="channel", **named), perceptron, exact=False
    )
    compare(lambda m: rvsm.ADMM(m, rvsm.L0(lam=1e-3), rho=0.1, groups="channel", **named), perceptron, exact=False)
    compare(lambda m: rvsm.Magnitude(m, **SCHEDULE), perceptron)
    compare(lambda m: rvsm.Magnitude(m, groups=rvsm.Block(size=2), **named, **SCHEDULE), perceptron, exact=False)
    compare(lambda m: rvsm.ACDC(m, cycles=2, **SCHEDULE), perceptron)


# FSDP2's own options


@on("two")
def mixed_precision_keeps_the_weights_in_float32() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = shard(perceptron(), mp_policy=policy)
    method = train(model, rvsm.RVSM(model, "l0", **SCHEDULE))
    method.finalize()
    zero, total = zeros_of(model, method)
    assert abs(zero - 0.7 * total) <= 0.5, (zero, total)
    assert all(w.dtype == torch.float32 for w in model.parameters())


@on("two")
def gradients_are_accumulated_without_messages() -> None:
    results = []
    for sync in (True, False):
        model = shard(perceptron())
        optimizer = optimizer_of(model)
        method = rvsm.RVSM(model, "l0", **SCHEDULE).attach(optimizer)
        for x in batches(model):
            optimizer.zero_grad()
            for i, part in enumerate(x.chunk(2)):
                model.set_requires_gradient_sync(sync or i == 1)  # type: ignore[operator]
                (model(part).square().mean() / 2).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        method.finalize()
        results.append(weights(model))
    for name, w in results[0].items():
        equal(results[1][name], w, name, exact=False)
        assert torch.equal(results[1][name] == 0, w == 0)


@on("two")
def offloading_and_resharding_change_nothing() -> None:
    for options in ({"offload_policy": CPUOffloadPolicy(pin_memory=False)}, {"reshard_after_forward": False}):
        compare(lambda m: rvsm.RVSM(m, "l0", **SCHEDULE), perceptron, lambda m, o=options: shard(m, **o))  # type: ignore[misc]


@on("two")
def gradients_are_clipped_by_the_norm_of_all_shards() -> None:
    results = []
    for model in (perceptron(), shard(perceptron())):
        optimizer = optimizer_of(model)
        method = rvsm.RVSM(model, "l0", **SCHEDULE).attach(optimizer)
        for x in batches(model):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
        method.finalize()
        results.append(weights(model))
    for name, w in results[0].items():
        equal(results[1][name], w, name, exact=False)


@on("two")
def parameters_that_fsdp_leaves_alone_are_whole_on_each_rank() -> None:
    def ignoring(model: nn.Sequential) -> nn.Sequential:
        fully_shard(model, ignored_params={model[0].weight})
        assert not hasattr(model[0].weight, "to_local")
        return model

    compare(lambda m: rvsm.RVSM(m, "l0", **SCHEDULE), perceptron, ignoring)
    named = {"groups": "channel", "include": ["0.weight", "2.weight"]}
    compare(lambda m: rvsm.RVSM(m, "l0", **named, **SCHEDULE), perceptron, ignoring, exact=False)


@on("two")
def tied_weights_count_once() -> None:
    def tied() -> nn.Sequential:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(13, 13), nn.ReLU(), nn.Linear(13, 13, bias=False))
        model[2].weight = model[0].weight
        return model

    def at_root(model: nn.Sequential) -> nn.Sequential:
        fully_shard(model)
        return model

    compare(lambda m: rvsm.RVSM(m, "l0", **SCHEDULE), tied, at_root)


# Other meshes


@on("four")
def shards_can_be_replicated() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for groups in ("element", "channel"):
        named = {"groups": groups, "include": ["0.weight", "2.weight"]}
        make: Make = lambda m, o=named: rvsm.RVSM(m, "l0", **o, **SCHEDULE)  # type: ignore[misc] # noqa: E731
        compare(make, perceptron, lambda m: shard(m, mesh=mesh), exact=groups == "element")


@on("two")
def tensor_parallel_layers_are_divided_along_either_dimension() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))

    def parallel(model: nn.Sequential) -> nn.Sequential:
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return model

    def wide() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(13, 10), nn.ReLU(), nn.Linear(10, 3))

    for groups in ("element", "filter", "channel", "row", "column", "block"):
        named = {"groups": groups, "include": ["0.weight", "2.weight"]}
        make: Make = lambda m, o=named: rvsm.RVSM(m, "l0", **o, **SCHEDULE)  # type: ignore[misc] # noqa: E731
        compare(make, wide, parallel, exact=False)


@on("four")
def layers_on_different_processes_are_refused() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = perceptron()
    fully_shard(model[0], mesh=mesh["shard"])
    fully_shard(model[2])
    method = rvsm.RVSM(model, "l0", **SCHEDULE)
    raises(ValueError, "give all sharded layers of a method the same mesh", lambda: method.attach(optimizer_of(model)))


# What all ranks must see alike


@on("two")
def damage_on_one_rank_is_an_error_on_all() -> None:
    model = shard(perceptron())
    method = train(model, rvsm.RVSM(model, "l0", **SCHEDULE), 3)
    with torch.no_grad():
        if dist.get_rank() == 1:
            local(model[0].weight)[0, 0] = torch.nan
    raises(RuntimeError, "the weights of '0.weight' are not finite", method.statistics)
    raises(RuntimeError, "the weights of '0.weight' are not finite", method.finalize)


@on("two")
def one_rank_alone_can_print_a_method_and_take_its_state() -> None:
    model = shard(perceptron())
    method = train(model, rvsm.RVSM(model, "l0", groups="channel", include=["0.weight"], **SCHEDULE))
    if dist.get_rank() == 1:
        assert "1 layer with 143 weights" in repr(method)
        assert method.state_dict()["step"] == STEPS
    dist.barrier()


@on("two")
def an_evaluation_reads_the_sparse_copy_and_leaves_nothing_behind() -> None:
    model = shard(network())
    method = train(model, rvsm.RVSM(model, "l0", **SCHEDULE), 3)  # in the ramp, v is neither w nor u
    x = next(batches(model))
    model.eval()
    before = weights(model)
    dense = model(x)  # the root keeps what it has gathered
    with method.sparse_weights():
        sparse = model(x)
        assert not torch.equal(sparse, dense)
    assert torch.equal(model(x), dense)
    after = weights(model)
    assert all(torch.equal(after[name], w) for name, w in before.items())
    method.detach()
    assert not torch.equal(model(x), dense)  # at w, no longer at v


@on("two")
def batch_norm_is_recalibrated_with_the_batches_of_all_ranks() -> None:
    model = shard(network())
    method = train(model, rvsm.RVSM(model, "l0", **SCHEDULE))
    mine = [x + dist.get_rank() for x in batches(model, 3)]

    def broken() -> Iterator[Tensor]:
        yield mine[0]
        if dist.get_rank() == 1:
            raise OSError("no such file")
        yield mine[1]

    kept = model[1].running_mean.clone()
    expected = (OSError, "no such file") if dist.get_rank() == 1 else (RuntimeError, "1 of the other ranks failed here")
    raises(*expected, lambda: method.finalize(recalibrate=broken()))
    assert torch.equal(model[1].running_mean, kept)
    method.finalize(recalibrate=mine[: 2 + dist.get_rank()])  # both use two
    alone = network()
    alone.load_state_dict({**model.state_dict(), **weights(model)})
    rvsm.recalibrate(alone, [x + rank for rank in range(2) for x in batches(model, 2)])
    torch.testing.assert_close(model[1].running_mean, alone[1].running_mean)
    torch.testing.assert_close(model[1].running_var, alone[1].running_var)


@on("four")
def zeros_are_kept_applied_and_released_on_all_ranks() -> None:
    model, copy = shard(perceptron()), shard(perceptron())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rvsm.keep_zeros(copy).remove()
    assert "found no zeros to keep" in str(said[0].message)
    method = train(model, rvsm.RVSM(model, "l0", **SCHEDULE))
    method.finalize()
    method.apply_zeros(copy)
    zeros = {layer.name: weights(model)[layer.name] == 0 for layer in method.layers}
    assert all(torch.equal(weights(copy)[name] == 0, zero) for name, zero in zeros.items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no rank may miss zeros, although the last one has no weights
        support = rvsm.keep_zeros(copy)
    optimizer = optimizer_of(copy)
    for x in batches(copy, 2):
        step(copy, optimizer, x)
    assert all(torch.equal(weights(copy)[name] == 0, zero) for name, zero in zeros.items())
    support.remove()
    rvsm.release(model)
    optimizer = optimizer_of(model)
    for x in batches(model, 2):
        step(model, optimizer, x)
    assert not any(torch.equal(weights(model)[name] == 0, zero) for name, zero in zeros.items())
    with torch.no_grad():
        method = rvsm.RVSM(model, "l0", **SCHEDULE)
    train(model, method)
    if dist.get_rank() == 0:
        with torch.no_grad():
            local(model[0].weight).add_(1.0)  # other code writes into weights that are zero
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        method.finalize()
    assert "weights that should be zero were not" in str(said[0].message), [str(each.message) for each in said]


# Checkpoints


MAKE: dict[str, Make] = {
    "rvsm": lambda m: rvsm.RVSM(m, "l0", **SCHEDULE),
    "printed": lambda m: rvsm.RVSM(m, "l0", order="printed", **SCHEDULE),
    "admm": lambda m: rvsm.ADMM(m, sparsity=0.6, rho=0.1, interval=3, steps=STEPS, retrain=0.2),
    "channels": lambda m: rvsm.RVSM(m, "l0", groups="channel", include=["0.weight", "2.weight"], **SCHEDULE),
}
SAVED = [("rvsm", 3), ("rvsm", 7), ("printed", 5), ("admm", 4), ("channels", 3)]
"""After how many steps the checkpoints are saved: in the ramp, on hold, and while the zeros are fixed."""


def everything(model: nn.Module, optimizer: torch.optim.Optimizer, method: Method) -> dict[str, Any]:
    """Return what a checkpoint holds: the model, the optimizer and the method."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer, "sparsifier": method.portable()}


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, method: Method) -> None:
    """Load a checkpoint into objects that have just been made."""
    from torch.distributed.checkpoint.state_dict import set_state_dict

    found = everything(model, optimizer, method)
    dcp.load(found, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])


def resume(path: Path, make: Make, begin: int, sharded: Callable[[nn.Sequential], nn.Sequential]) -> nn.Sequential:
    """Return a model that has been trained to the end from a checkpoint."""
    model = sharded(perceptron())
    with torch.no_grad():
        for w in model.parameters():
            local(w).zero_()  # so that what is right came from the checkpoint
    method, optimizer = make(model), optimizer_of(model)
    load(path, model, optimizer, method)
    method.attach(optimizer)
    assert bool(method.state_dict()["support"]) == (begin > 6)  # in the phase "heal"
    for i, x in enumerate(batches(model)):
        if i >= begin:
            step(model, optimizer, x)
    method.finalize()
    return model


def uninterrupted(make: Make) -> nn.Sequential:
    model = perceptron()
    train(model, make(model)).finalize()
    return model


def resumed_alike(folder: Path, sharded: Callable[[nn.Sequential], nn.Sequential]) -> None:
    """Resume each checkpoint in a folder, and compare with a training of one process that was not interrupted."""
    expected = {name: weights(uninterrupted(make)) for name, make in MAKE.items()}
    for name, begin in SAVED:
        found = weights(resume(folder / f"{name}-{begin}", MAKE[name], begin, sharded))
        for key, w in expected[name].items():
            equal(found[key], w, f"{key} of {name}, saved after {begin} steps", exact=name != "channels")


def save_all(folder: Path, sharded: Callable[[nn.Sequential], nn.Sequential]) -> None:
    """Save the checkpoints of several trainings."""
    for name, make in MAKE.items():
        model = sharded(perceptron())
        method, optimizer = make(model), optimizer_of(model)
        method.attach(optimizer)
        for i, x in enumerate(batches(model), 1):
            step(model, optimizer, x)
            if (name, i) in SAVED:
                dcp.save(everything(model, optimizer, method), checkpoint_id=folder / f"{name}-{i}")


@on("one")
def one_process_saves_checkpoints_in_each_phase() -> None:
    save_all(FOLDER / "one", lambda model: model)


@on("two")
def two_processes_save_checkpoints_in_each_phase() -> None:
    save_all(FOLDER / "two", shard)


@on("two")
def a_state_is_loaded_by_the_same_processes_without_files() -> None:
    for make in MAKE.values():
        model, again = shard(perceptron()), shard(perceptron())
        method, optimizer = make(model), optimizer_of(model)
        method.attach(optimizer)
        for x in batches(model, 5):
            step(model, optimizer, x)
        other, another = make(again), optimizer_of(again)
        again.load_state_dict(model.state_dict())
        another.load_state_dict(deepcopy(optimizer.state_dict()))  # it keeps the tensors that it gets
        other.load_state_dict(method.state_dict())
        other.attach(another)
        for x in batches(model, 3):
            step(model, optimizer, x), step(again, another, x)
        assert all(torch.equal(a, b) for a, b in zip(weights(model).values(), weights(again).values(), strict=True))


@on("four")
def four_processes_resume_what_two_have_saved() -> None:
    resumed_alike(FOLDER / "two", shard)


@on("two")
def two_processes_resume_what_one_has_saved() -> None:
    resumed_alike(FOLDER / "one", shard)


@on("last")
def one_process_resumes_what_two_have_saved() -> None:
    resumed_alike(FOLDER / "two", lambda model: model)


@on("two")
def messages_are_few_and_small() -> None:
    """A look needs a few kB, a step without a look nothing, and channels one message before and one after the step."""
    for groups, expected in (("element", 0), ("channel", 2)):
        model = shard(perceptron())
        ranks = Ranks.of(model[0].weight.device_mesh.get_group())  # type: ignore[union-attr]
        optimizer, budget = optimizer_of(model), rvsm.Budget(0.7, 99, every=2)
        rvsm.RVSM(model, "l0", groups=groups, include=["0.weight"], budget=budget).attach(optimizer)
        for i, x in enumerate(batches(model, 4)):
            messages, sent = ranks.messages, ranks.sent
            step(model, optimizer, x)
            assert (ranks.messages - messages == expected) == (i % 2 == 1), (groups, i, ranks.messages - messages)
            assert ranks.sent - sent < 100_000


# At last, because few survive


@on("four")
def those_who_lose_a_rank_stop_with_an_error() -> None:
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("one", "two"))
    model = shard(perceptron(), mesh=mesh["two"])
    method = train(model, rvsm.RVSM(model, "l0", groups="channel", include=["0.weight"], **SCHEDULE), 3)
    optimizer = optimizer_of(model)
    method.detach()
    method.attach(optimizer)
    if rank == 1:  # in a step, after its backward pass
        optimizer.register_step_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    if rank in (0, 1):
        raises(RuntimeError, "", lambda: [step(model, optimizer, x) for x in batches(model)])
    else:  # in an evaluation

        def evaluate() -> None:
            with method.sparse_weights():
                if rank == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                model(next(batches(model)))

        raises(RuntimeError, "", evaluate)
    saved_by_two(mesh["one"])


def saved_by_two(mesh: DeviceMesh) -> None:
    """Two ranks are left: they save a checkpoint, and one of them dies while it writes the next one."""
    make, model = MAKE["rvsm"], shard(perceptron(), mesh=mesh)
    method, optimizer = make(model), optimizer_of(model)
    method.attach(optimizer)
    for i, x in enumerate(batches(model), 1):
        step(model, optimizer, x)
        if i == 3:
            good = FOLDER / "four" / "rvsm-3"
            dcp.save(everything(model, optimizer, method), checkpoint_id=good, process_group=mesh.get_group())

    class Writer(dcp.FileSystemWriter):
        def write_data(self, *args: Any, **kwargs: Any) -> Any:
            if dist.get_rank() == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write_data(*args, **kwargs)

    raises(
        BaseException,
        "",
        lambda: dcp.save(
            everything(model, optimizer, method),
            storage_writer=Writer(FOLDER / "four" / "bad"),
            process_group=mesh.get_group(),
        ),
    )
    assert not (FOLDER / "four" / "bad" / ".metadata").exists()


@on("last")
def the_checkpoint_before_the_one_that_was_interrupted_can_be_loaded() -> None:
    found = weights(resume(FOLDER / "four" / "rvsm-3", MAKE["rvsm"], 3, lambda model: model))
    for name, w in weights(uninterrupted(MAKE["rvsm"])).items():
        equal(found[name], w, name, exact=True)


def run(name: str, rank: int, only: list[str]) -> None:
    """Run the checks of a run as one of its ranks, and write what happened."""
    if RUNS[name] > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{FOLDER}/{name}/store",
            rank=rank,
            world_size=RUNS[name],
            timeout=timedelta(seconds=60),
        )
    report: dict[str, str] = {}
    for check, runs in CHECKS:
        if name in runs and (not only or check.__name__ in only):
            try:
                check()
                report[check.__name__] = ""
            except BaseException:  # those of torch.distributed.checkpoint are not an Exception
                report[check.__name__] = traceback.format_exc()
            (FOLDER / name / f"report-{rank}.json").write_text(json.dumps(report))
            if report[check.__name__]:
                os._exit(1)  # the others wait for this one, and see that it is gone
    os._exit(0)


def main() -> None:
    """Fork the processes of each run, wait for them, and write how they ended."""
    warnings.simplefilter("ignore")  # those that matter are caught where they are expected
    gc.freeze()  # a collection in a child would read, and so copy, every page of what has been imported
    ended: dict[str, list[int]] = {}
    for name, processes in RUNS.items():
        (FOLDER / name).mkdir()
        children: list[int] = []
        for rank in range(processes):
            children.append(os.fork())
            if not children[-1]:
                run(name, rank, sys.argv[2:])
        ended[name] = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    (FOLDER / "ended.json").write_text(json.dumps(ended))


if __name__ == "__main__":
    main()
