"""One threshold over all shards, for single weights and for groups."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import rvsm
from rvsm.splitting import Method
from splitting.sharded.comparing import both, compare, raises, zeros_of
from splitting.sharded.models import SCHEDULE, STEPS, batches, network, perceptron, perceptron_times, shard
from splitting.sharded.runs import on


@on("four")
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
    over_three = {"10.weight": {"groups": rvsm.Block(size=7, weighted=False)}}
    compare(lambda m: rvsm.RVSM(m, "l0", groups=rvsm.Block(size=4), overrides=over_three, **SCHEDULE), exact=False)


@on("two")
def rows_and_columns_of_kernels_are_those_of_one_process() -> None:
    overrides = {"0.weight": {"groups": "row"}, "10.weight": {"groups": "element"}}
    compare(lambda m: rvsm.RVSM(m, "l1", groups="column", overrides=overrides, **SCHEDULE), exact=False)


@on("two")
def coupled_channels_are_those_of_one_process() -> None:
    def network() -> nn.Sequential:
        torch.default_generator.manual_seed(0)
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
        budget = rvsm.Budget(0.7, STEPS, ramp=1 / 3, **options)
        compare(lambda m: rvsm.RVSM(m, "l0", budget=budget, example_input=next(batches(m))), model, exact=exact)

    with_budget(scope="layer")
    with_budget(normalize=True)
    with_budget(network, by="flops")
    with_budget(by="time", profile=perceptron_times())
    with_budget(floor=0.2)
    raises(ValueError, "is not feasible", lambda: with_budget(floor=0.5))
