"""Zeros, multiplications and statistics against literal counts and formulas."""

from itertools import pairwise
from math import prod, sqrt

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

import rvsm
from networks import network
from rvsm.metrics import LayerStatistics, Statistics, multiplications, sparsity, zeros
from rvsm.penalties import PENALTIES


def test_zeros_are_exact_ones() -> None:
    w = torch.tensor([[0.0, -0.0, 1e-45], [torch.nan, torch.inf, -1.0]])
    assert zeros(w) == 2
    assert zeros(w.T) == 2
    assert zeros(torch.zeros(0)) == 0
    assert zeros(torch.tensor([0, 3, 0])) == 2


def test_sparsity_is_over_all_entries_of_all_tensors() -> None:
    assert sparsity(w for w in [torch.zeros(3, 5), torch.ones(5), torch.zeros(0)]) == 0.75
    assert sparsity([]) == 0.0


# The multiplications of one weight


class Called(nn.Module):
    """A module that is called twice, at two resolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.conv(x)[..., ::2, ::2])


MODULES = {
    "plain": (nn.Conv2d(3, 8, 3), (3, 9, 9), 7 * 7),
    "stride": (nn.Conv2d(3, 8, 3, stride=2, padding=1), (3, 9, 9), 5 * 5),
    "padding": (nn.Conv2d(3, 8, (3, 5), padding=(2, 1)), (3, 9, 9), 11 * 7),
    "same": (nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect"), (3, 9, 9), 81),
    "dilation": (nn.Conv2d(3, 8, 3, dilation=2), (3, 9, 9), 5 * 5),
    "groups": (nn.Conv2d(6, 8, 3, groups=2), (6, 9, 9), 7 * 7),
    "depthwise": (nn.Conv2d(6, 6, 3, groups=6), (6, 9, 9), 7 * 7),
    "conv1d": (nn.Conv1d(3, 8, 3), (3, 9), 7),
    "conv3d": (nn.Conv3d(3, 8, 3), (3, 5, 6, 7), 3 * 4 * 5),
    "transposed": (nn.ConvTranspose2d(3, 8, 4, stride=2, padding=1), (3, 9, 9), 81),
    "transposed-groups": (nn.ConvTranspose2d(6, 8, 3, groups=2), (6, 5, 5), 25),
    "transposed-1d": (nn.ConvTranspose1d(4, 6, 3, stride=3), (4, 5), 5),
    "linear": (nn.Linear(12, 5), (12,), 1),
    "linear-on-rows": (nn.Linear(12, 5), (7, 12), 7),
    "linear-on-grid": (nn.Linear(12, 5), (7, 3, 12), 21),
}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("batch", [1, 4])
def test_multiplications_of_one_module(module: str, batch: int) -> None:
    layer, shape, expected = MODULES[module]
    model, x = nn.Sequential(nn.Identity(), layer), torch.randn(batch, *shape)
    counts = multiplications(model, x)
    assert counts == {"1.weight": expected}
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    assert counter.get_total_flops() == 2 * batch * expected * layer.weight.numel()


def test_a_module_that_is_called_twice_counts_both() -> None:
    assert multiplications(Called(), torch.randn(2, 3, 8, 8)) == {"conv.weight": 64 + 16}


def test_tied_weights_count_all_their_uses() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 2))
    model[2].weight = model[0].weight
    counts = multiplications(model, torch.randn(2, 3, 6))
    assert counts == {"0.weight": 6, "2.weight": 6, "3.weight": 3}
    shared = nn.Linear(6, 6)
    assert multiplications(nn.Sequential(shared, shared), torch.randn(2, 6)) == {"0.weight": 2, "1.weight": 2}


def test_a_single_module_has_a_plain_name() -> None:
    assert multiplications(nn.Linear(3, 2), torch.randn(4, 3)) == {"weight": 1}


def attended(module: nn.MultiheadAttention, *inputs: Tensor) -> tuple[dict[str, float], int]:
    """Return the counts, and the multiplications of all projections by torch's own counter."""
    counts = multiplications(module, inputs)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.train()(*inputs, need_weights=True)
    by_operation = counter.get_flop_counts()["Global"]
    projections = sum(count for op, count in by_operation.items() if str(op) in ("aten.addmm", "aten.mm"))
    return counts, projections // 2


@pytest.mark.parametrize("batch", [1, 3])
def test_self_attention_counts_each_row(batch: int) -> None:
    module, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(batch, 5, 8)
    counts, by_torch = attended(module, x, x, x)
    assert counts == {"in_proj_weight": 5, "out_proj.weight": 5}
    assert by_torch == batch * 5 * (3 * 64 + 64)


def test_cross_attention_counts_the_rows_that_each_projection_sees() -> None:
    module = nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True)
    query, key, value = torch.randn(3, 5, 8), torch.randn(3, 7, 6), torch.randn(3, 7, 4)
    counts, by_torch = attended(module, query, key, value)
    assert counts == {"q_proj_weight": 5, "k_proj_weight": 7, "v_proj_weight": 7, "out_proj.weight": 5}
    assert by_torch == 3 * (5 * 64 + 7 * 48 + 7 * 32 + 5 * 64)


def test_cross_attention_with_one_matrix_counts_its_mean() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    query, key = torch.randn(3, 5, 8), torch.randn(3, 8, 8)
    counts, by_torch = attended(module, query, key, key)
    assert counts == {"in_proj_weight": (5 + 8 + 8) / 3, "out_proj.weight": 5}
    assert by_torch == 3 * round(counts["in_proj_weight"] * 192 + 5 * 64)


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up = nn.ConvTranspose1d(8, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        attended, _ = self.attention(value=x, query=x[:, :2], key=x)
        return self.up(input=attended.transpose(1, 2))


def test_keyword_arguments_are_counted_alike() -> None:
    counts = multiplications(ByKeyword(), torch.randn(3, 5, 8))
    assert counts == {"attention.in_proj_weight": 4, "attention.out_proj.weight": 2, "up.weight": 2}


def test_a_transformer_layer_is_counted_completely() -> None:
    model = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    assert multiplications(model, torch.randn(3, 5, 8)) == {
        "self_attn.in_proj_weight": 5,
        "self_attn.out_proj.weight": 5,
        "linear1.weight": 5,
        "linear2.weight": 5,
    }


def test_recurrent_layers_work_at_every_time() -> None:
    model = nn.LSTM(4, 8, num_layers=2, bidirectional=True, batch_first=True)
    counts = multiplications(model, torch.zeros(5, 7, 4))
    assert counts == {name: 7.0 for name, _ in model.named_parameters() if name.startswith("weight")}
    assert multiplications(nn.GRUCell(4, 8), torch.zeros(5, 4)) == {"weight_ih": 1.0, "weight_hh": 1.0}


def test_packed_sequences_count_the_times_that_they_have() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(4, 8, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(pack_padded_sequence(x, [3, 1], batch_first=True))[1]

    assert multiplications(Packed(), torch.zeros(2, 3, 4)) == {"rnn.weight_ih_l0": 2.0, "rnn.weight_hh_l0": 2.0}


def test_counting_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.ReLU())
    model[1].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    multiplications(model, torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model] == [True, False, True, True]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_counting_that_fails_leaves_no_trace_either() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(1000, 2))
    with pytest.raises(ValueError, match=r"cannot compute example_input of shape \[2, 3, 8, 8\]: mat1 and mat2"):
        multiplications(model, torch.randn(2, 3, 8, 8))
    assert all(module.training and not module._forward_hooks for module in model.modules())


# Statistics


def test_the_shares_have_their_two_denominators() -> None:
    layers = (
        LayerStatistics("a", (4, 5), zeros=10, gap=3.0, threshold=0.1, lam=0.5, beta=1.0),
        LayerStatistics("b", (60,), zeros=50, gap=4.0, threshold=0.0, lam=None, beta=None),
    )
    statistics = Statistics(layers, parameters=100, parameter_zeros=65, penalty=2.0, coupling=0.5)
    assert [layer.weights for layer in layers] == [20, 60]
    assert [layer.sparsity for layer in layers] == [0.5, 50 / 60]
    assert statistics.sparsity == 60 / 80
    assert statistics.sparsity_of_all == 65 / 100
    assert statistics.gap == 5.0
    assert statistics.group_sparsity is None
    assert statistics.lagrangian(loss=1.0) == 3.5
    assert str(statistics).splitlines() == [
        "layer               shape     zeros   threshold           λ",
        "a                     4×5    50.00%         0.1         0.5",
        "b                      60    83.33%           0           -",
        "75.00% of the sparsified weights are zero, 65.00% of all 100 parameters; ‖w − u‖ = 5",
    ]


def test_the_share_of_groups_is_printed_beside_that_of_weights() -> None:
    layers = (
        LayerStatistics("a", (4, 10), zeros=10, gap=0.0, threshold=0.1, lam=0.5, beta=1.0, groups=4, zero_groups=1),
        LayerStatistics("b", (60,), zeros=50, gap=0.0, threshold=0.0, lam=None, beta=None),
    )
    statistics = Statistics(layers, parameters=100, parameter_zeros=60, penalty=0.0, coupling=0.0)
    assert statistics.group_sparsity == 1 / 4
    assert str(statistics).splitlines() == [
        "layer               shape     zeros      zero groups   threshold           λ",
        "a                    4×10    25.00%           1 of 4         0.1         0.5",
        "b                      60    83.33%                -           0           -",
        "60.00% of the sparsified weights are zero, 25.00% of the groups; ‖w − u‖ = 0",
    ]


def unbiased() -> nn.Sequential:
    model = network(2, 6, 5, norm=True, dtype=torch.float64)
    nn.init.zeros_(model[4].bias)
    return model


@pytest.mark.parametrize("penalty", PENALTIES)
def test_statistics_are_those_of_the_sparse_copy(penalty: str) -> None:
    model, betas = unbiased(), {"0.weight": 0.5, "4.weight": 0.4}
    p = PENALTIES[penalty](lam=1.0).with_threshold(0.05, 1 / 0.5)
    sparsifier = rvsm.RVSM(model, p, beta=0.5, overrides={"4.*": {"beta": 0.4}})
    statistics = sparsifier.attach(torch.optim.SGD(model.parameters(), lr=0.1)).statistics()
    penalties = couplings = square = 0.0
    for row in statistics.layers:
        w, beta = model.get_parameter(row.name).detach(), betas[row.name]
        u = p.prox(w, 1 / beta)
        assert row.shape == tuple(w.shape)
        assert row.zeros == int((u == 0).sum())
        assert 0 < row.zeros < prod(row.shape)
        assert row.gap == pytest.approx(float(((w - u) ** 2).sum().sqrt()))
        assert (row.lam, row.beta) == (p.lam, beta)
        assert row.threshold == p.threshold(1 / beta)
        assert float(w[u == 0].abs().max()) <= row.threshold < float(w[u != 0].abs().min())
        penalties += float(p.value(u))
        couplings += beta / 2 * float(((w - u) ** 2).sum())
        square += float(((w - u) ** 2).sum())
    assert statistics.penalty == pytest.approx(penalties)
    assert statistics.coupling == pytest.approx(couplings)
    assert statistics.gap == pytest.approx(sqrt(square))
    assert statistics.lagrangian(0.7) == pytest.approx(0.7 + penalties + couplings)
    gone = sum(row.zeros for row in statistics.layers)
    assert statistics.sparsity == gone / (108 + 480)
    # Over all parameters: the biases of the linear layer and of the batch norm are zero, too.
    assert statistics.parameters == sum(w.numel() for w in model.parameters())
    assert statistics.sparsity_of_all == (gone + 5 + 6) / statistics.parameters


def test_statistics_of_groups_use_the_penalty_of_groups() -> None:
    model, beta = unbiased(), 0.5
    sparsifier = rvsm.RVSM(model, rvsm.L1(lam=0.03), beta=beta, groups="filter", include=["4.weight"])
    statistics = sparsifier.attach(torch.optim.SGD(model.parameters(), lr=0.1)).statistics()
    w = model[4].weight.detach()
    norms = w.norm(dim=1, keepdim=True)
    u = w * (1 - 0.03 / beta * sqrt(96) / norms).clamp_min(0)
    assert statistics.penalty == pytest.approx(0.03 * sqrt(96) * float(u.norm(dim=1).sum()))
    assert statistics.coupling == pytest.approx(beta / 2 * float((w - u).square().sum()))
    assert statistics.layers[0].zeros == 96 * int((u == 0).all(dim=1).sum())
    assert statistics.layers[0].groups == 5
    assert statistics.layers[0].zero_groups == int((u == 0).all(dim=1).sum())


def test_pairs_of_names_and_parameters_are_all_there_is() -> None:
    w = nn.Parameter(torch.tensor([[0.01, 1.0], [0.02, -2.0]]))
    sparsifier = rvsm.RVSM([("w", w)], rvsm.L0(lam=0.1), beta=1.0).attach(torch.optim.SGD([w], lr=0.1))
    statistics = sparsifier.statistics()
    assert (statistics.sparsity, statistics.sparsity_of_all, statistics.parameters) == (0.5, 0.5, 4)


def test_the_coupling_falls_as_the_lagrangian_does() -> None:
    """Gradient descent on a quadratic with a fixed λ decreases f(w) + λP(u) + (β/2)‖w − u‖² at each step."""
    generator = torch.Generator().manual_seed(5)
    truth = torch.randn(20, 20, generator=generator, dtype=torch.float64)
    w = nn.Parameter(torch.randn(20, 20, generator=generator, dtype=torch.float64))
    optimizer = torch.optim.SGD([w], lr=0.1)
    sparsifier = rvsm.RVSM([("w", w)], rvsm.L0(lam=0.05), beta=0.5).attach(optimizer)
    values = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (w - truth).square().sum() / 2
        values.append(sparsifier.statistics().lagrangian(loss.item()))
        loss.backward()
        optimizer.step()
    assert all(after < before for before, after in pairwise(values))
