"""Batch-norm statistics are estimated anew, and nothing else changes."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rvsm


def network(dropout: float = 0.5) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8, momentum=0.3),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(8 * 16, 6),
        nn.BatchNorm1d(6, momentum=None),
    )


def batches(sizes: list[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [1 + 2 * torch.randn(size, 3, 6, 6, generator=generator) for size in sizes]


def literal(model: nn.Sequential, inputs: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Return the average mean and (unbiased) variance of both batch norms over the batches."""
    sums = [[torch.zeros(8), torch.zeros(8)], [torch.zeros(6), torch.zeros(6)]]
    conv, first, linear = model[0], model[1], model[5]
    with torch.no_grad():
        for x in inputs:
            y = conv(x)
            flat = y.transpose(0, 1).flatten(1)
            mean, biased = flat.mean(dim=1), flat.var(dim=1, correction=0)
            sums[0][0] += mean
            sums[0][1] += flat.var(dim=1)
            z = (y - mean.view(-1, 1, 1)) / (biased.view(-1, 1, 1) + first.eps).sqrt()
            z = z * first.weight.view(-1, 1, 1) + first.bias.view(-1, 1, 1)
            out = linear(z.clamp_min(0).flatten(1))
            sums[1][0] += out.mean(dim=0)
            sums[1][1] += out.var(dim=0)
    return [(mean / len(inputs), variance / len(inputs)) for mean, variance in sums]


def assert_statistics(model: nn.Sequential, expected: list[tuple[Tensor, Tensor]]) -> None:
    for norm, (mean, variance) in zip((model[1], model[6]), expected, strict=True):
        torch.testing.assert_close(norm.running_mean, mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var, variance, rtol=1e-4, atol=1e-5)


def warmed_up() -> nn.Sequential:
    """Return a network whose statistics and affine weights are not those of a fresh one."""
    model = network()
    with torch.no_grad():
        for norm in (model[1], model[6]):
            norm.weight.uniform_(0.5, 2)
            norm.bias.normal_()
        for _ in range(3):
            model(5 * torch.randn(4, 3, 6, 6))
    return model


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes", [[16], [16, 16, 16], [20, 7, 3]], ids=str)
def test_the_statistics_are_the_plain_average_over_the_batches(sizes: list[int], training: bool) -> None:
    model = warmed_up().train(training)
    recalibrated = batches(sizes)
    rvsm.recalibrate(model, recalibrated)
    assert_statistics(model, literal(model, recalibrated))
    assert int(model[1].num_batches_tracked) == len(sizes)


@pytest.mark.parametrize(("examples", "used"), [(1, 1), (8, 1), (9, 2), (24, 3), (10**6, 5)])
def test_it_stops_after_so_many_examples(examples: int, used: int) -> None:
    model, drawn = warmed_up(), []

    def generator() -> Iterator[Tensor]:
        for x in batches([8] * 5):
            drawn.append(x)
            yield x

    rvsm.recalibrate(model, generator(), examples=examples)
    assert len(drawn) == used
    assert_statistics(model, literal(model, drawn))


def test_two_thousand_examples_by_default() -> None:
    model, drawn = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)), []

    def endless() -> Iterator[Tensor]:
        while True:
            drawn.append(512)
            yield torch.randn(512, 1)

    rvsm.recalibrate(model, endless())
    assert sum(drawn) == 2048


def test_only_the_statistics_change() -> None:
    model = warmed_up()
    model[1].eval()  # frozen by its user, and so it stays
    model[3].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model[0].weight.grad = torch.ones_like(model[0].weight)
    rvsm.recalibrate(model, batches([16, 16]))
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed <= {f"{i}.{name}" for i in (1, 6) for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert {"1.running_mean", "1.running_var", "6.running_mean", "6.running_var"} <= changed
    assert [m.training for m in model] == [True, False, True, False, True, True, True]
    assert (model[1].momentum, model[6].momentum) == (0.3, None)
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.grad is None for name, p in model.named_parameters() if name != "0.weight")


def test_dropout_does_not_disturb() -> None:
    one = warmed_up()
    other = copy.deepcopy(one)
    other[3].p = 0.0
    for model in (one, other):
        rvsm.recalibrate(model.train(), batches([16]))
    assert torch.equal(one[6].running_mean, other[6].running_mean)


def test_gradients_are_neither_made_nor_left_switched_off() -> None:
    model = warmed_up()
    rvsm.recalibrate(model, batches([4]))
    assert torch.is_grad_enabled()
    assert model[1].running_mean.grad_fn is None


# Batches


def test_one_tensor_is_one_batch() -> None:
    model, x = warmed_up(), batches([12])[0]
    rvsm.recalibrate(model, x)
    assert_statistics(model, literal(model, [x]))


def test_a_data_loader_of_a_tensor_dataset() -> None:
    model, x = warmed_up(), batches([12])[0]
    rvsm.recalibrate(model, DataLoader(TensorDataset(x, torch.zeros(12)), batch_size=4))
    assert_statistics(model, literal(model, list(x.split(4))))


@pytest.mark.parametrize("empty", [[], iter([]), "used"], ids=["list", "iterator", "exhausted generator"])
def test_no_batch_is_a_clear_error_and_leaves_the_statistics(empty: Any) -> None:
    if empty == "used":
        empty = (x for x in batches([4]))
        list(empty)
    model = warmed_up()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"recalibrate got no batches: .*not an exhausted generator"):
        rvsm.recalibrate(model, empty)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_finalize_that_fails_leaves_the_model_to_be_finalized_again() -> None:
    model = warmed_up()
    sparsifier = rvsm.RVSM(model, rvsm.L1(lam=0.02), beta=1.0).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    u = rvsm.L1(lam=0.02).prox(before["0.weight"], 1.0)
    with pytest.raises(ValueError, match="recalibrate got no batch"):
        sparsifier.finalize(recalibrate=iter([]))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    sparsifier.finalize(recalibrate=batches([8]))
    assert torch.equal(model[0].weight.detach(), u)


# Which modules


def test_a_model_without_batch_norm_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    untouched = iter(batches([4]))
    rvsm.recalibrate(model, untouched)
    assert len(list(untouched)) == 1


def test_batch_norm_without_running_statistics_is_left_alone() -> None:
    stateless = nn.BatchNorm2d(8, track_running_stats=False)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), stateless)
    untouched = iter(batches([4]))
    rvsm.recalibrate(model, untouched)
    assert len(list(untouched)) == 1
    mixed = nn.Sequential(*model, nn.BatchNorm2d(8))
    rvsm.recalibrate(mixed, batches([16]))
    assert stateless.running_mean is None
    torch.testing.assert_close(mixed[2].running_mean, torch.zeros(8), rtol=0, atol=1e-5)


def test_a_network_without_parameters() -> None:
    model, x = nn.BatchNorm1d(3, affine=False), torch.randn(50, 3)
    rvsm.recalibrate(model, [x])
    torch.testing.assert_close(model.running_mean, x.mean(dim=0))


def test_a_compiled_model() -> None:
    model, x = warmed_up(), batches([12])[0]
    compiled = torch.compile(model, backend="eager")
    rvsm.recalibrate(compiled, [x])
    assert_statistics(model, literal(model, [x]))


# What it is for


def test_the_statistics_are_those_of_the_sparse_network() -> None:
    model, inputs = warmed_up(), batches([32, 32])
    rvsm.recalibrate(model, inputs)
    dense = literal(model, inputs)
    assert_statistics(model, dense)
    trained = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = rvsm.L0(lam=1.0).with_threshold(float(model[0].weight.detach().abs().quantile(0.9)), 1.0)
    sparsifier = rvsm.RVSM(model, penalty, beta=1.0).attach(optimizer)

    thresholded = copy.deepcopy(model)
    with torch.no_grad():
        for layer in (thresholded[0], thresholded[5]):
            layer.weight.copy_(penalty.prox(layer.weight, 1.0))
    sparse = literal(thresholded, inputs)
    assert (sparse[0][1] / dense[0][1]).median() < 0.7

    with sparsifier.sparse_weights(recalibrate=inputs):
        assert_statistics(model, sparse)
        # With them, a batch is normalised as in training; with those of the dense weights it is not.
        model.eval()
        with torch.no_grad():
            spread = model[1](model[0](torch.cat(inputs))).std(dim=(0, 2, 3))
            alive = model[0].weight.flatten(1).any(dim=1)
            torch.testing.assert_close(spread[alive], model[1].weight[alive], rtol=0.05, atol=0.01)
    assert all(torch.equal(value, trained[key]) for key, value in model.state_dict().items())
    assert all(m.training for m in model.modules())

    with sparsifier.sparse_weights():
        assert_statistics(model, dense)

    sparsifier.finalize(recalibrate=inputs)
    assert_statistics(model, sparse)


def test_the_block_ends_by_an_exception_with_everything_back() -> None:
    model = warmed_up()
    sparsifier = rvsm.RVSM(model, rvsm.L0(lam=0.01), beta=1.0).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    before = {key: value.clone() for key, value in model.state_dict().items()}

    def evaluate() -> None:
        with sparsifier.sparse_weights(recalibrate=batches([8])):
            assert not torch.equal(model[1].running_mean, before["1.running_mean"])
            model.eval()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate()
    with pytest.raises(ValueError, match="no batch"), sparsifier.sparse_weights(recalibrate=[]):
        pass
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(m.training for m in model.modules())


def test_pairs_of_parameters_have_no_network_to_recalibrate() -> None:
    w = nn.Parameter(torch.randn(4, 4))
    sparsifier = rvsm.RVSM([("w", w)], rvsm.L0(lam=0.01), beta=1.0).attach(torch.optim.SGD([w], lr=0.1))
    before = w.detach().clone()
    with pytest.raises(ValueError, match="recalibrate needs the network"):
        sparsifier.finalize(recalibrate=batches([4]))
    assert torch.equal(w.detach(), before)


def test_norms_that_evaluation_does_not_run_keep_their_statistics() -> None:
    class WithHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.BatchNorm1d(3), nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.body(x)
            return y + self.head(y) if self.training else y

    model = WithHead()
    model(torch.randn(8, 3))
    before = copy.deepcopy(model.head.state_dict())
    rvsm.recalibrate(model, [5 + torch.randn(8, 3)])
    assert all(torch.equal(value, before[name]) for name, value in model.head.state_dict().items())
    assert float(model.body.running_mean.min()) > 3


def test_a_last_batch_of_one_example_is_passed_over() -> None:
    model, twin = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = torch.randn(9, 3)
    rvsm.recalibrate(model, [x[:8], x[8:]])
    rvsm.recalibrate(twin, [x[:8]])
    assert torch.equal(model.running_var, twin.running_var)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        rvsm.recalibrate(model, [x[8:]])
