"""What all ranks must see alike, and what they send each other for it."""

import warnings
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

import rvsm
from rvsm.splitting.ranks import Ranks
from rvsm.splitting.shards import local
from splitting.sharded.comparing import raises, weights
from splitting.sharded.models import (
    SCHEDULE,
    SLOW,
    STEPS,
    batches,
    network,
    optimizer_of,
    perceptron,
    shard,
    step,
    train,
)
from splitting.sharded.runs import on


@on("two")
def damage_on_one_rank_is_an_error_on_all() -> None:
    model = shard(perceptron())
    method = train(model, rvsm.RVSM(model, "l0", **SLOW), 3)
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
    method = train(model, rvsm.RVSM(model, "l0", **SLOW), 3)  # in the ramp, v is neither w nor u
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
