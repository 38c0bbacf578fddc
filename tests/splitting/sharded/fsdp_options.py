"""FSDP2's own options."""

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

import rvsm
from splitting.sharded.comparing import compare, equal, weights, zeros_of
from splitting.sharded.models import SCHEDULE, batches, optimizer_of, perceptron, shard, train
from splitting.sharded.runs import on


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
        torch.default_generator.manual_seed(0)
        model = nn.Sequential(nn.Linear(13, 13), nn.ReLU(), nn.Linear(13, 13, bias=False))
        model[2].weight = model[0].weight
        return model

    def at_root(model: nn.Sequential) -> nn.Sequential:
        fully_shard(model)
        return model

    compare(lambda m: rvsm.RVSM(m, "l0", **SCHEDULE), tied, at_root)
