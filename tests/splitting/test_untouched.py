"""A model that stays dense for the most part does not stay so without a word."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.metrics import multiplications

L0 = rvsm.L0(lam=1e-3)


class Conv1D(nn.Module):
    """The linear layer of GPT-2, as Transformers have it."""

    __module__ = "transformers.pytorch_utils"

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


class GPT(nn.Module):
    """Embedding, two linear layers of its own kind, and a head that is tied to the embedding."""

    def __init__(self, width: int = 16, words: int = 20) -> None:
        super().__init__()
        self.wte = nn.Embedding(words, width)
        self.up, self.down = Conv1D(2 * width, width), Conv1D(width, 2 * width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.lm_head(self.down(torch.relu(self.up(self.wte(words)))))


def test_the_blocks_of_gpt_are_sparsified_and_its_tied_embedding_is_not() -> None:
    sparsifier = rvsm.RVSM(GPT(), L0, beta=1.0)
    assert [layer.name for layer in sparsifier.layers] == ["up.weight", "down.weight"]


def test_a_filter_of_a_transposed_linear_layer_is_an_output() -> None:
    layer = rvsm.RVSM(GPT(), L0, beta=1.0, groups="filter").layers[0]
    w = layer.w.detach()
    torch.testing.assert_close(layer.magnitudes(w).flatten(), w.square().mean(0).sqrt())
    first = torch.arange(32).view(32, 1) == 0
    assert layer.spread(first)[:, 0].all()
    assert not layer.spread(first)[:, 1:].any()


def test_the_multiplications_of_a_transposed_linear_layer() -> None:
    counted = multiplications(GPT(), torch.zeros(3, 7, dtype=torch.int64))
    assert counted["up.weight"] == counted["down.weight"] == counted["lm_head.weight"] == 7


def test_a_budget_over_the_blocks_is_met() -> None:
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    words = torch.randint(20, (4, 7))
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.8, steps=40).attach(optimizer)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
        optimizer.step()
    sparsifier.finalize()
    assert rvsm.metrics.sparsity([model.up.weight, model.down.weight]) == pytest.approx(0.8, abs=1e-3)
    assert model.wte.weight.all()


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.ones(40, 30))


def test_types_that_are_not_known_are_named() -> None:
    model = nn.Sequential(Own(), nn.Linear(8, 8), nn.Embedding(10, 30))
    said = r"only 4% of the model's 1,564 weights in matrices .* types Own \(1,200\), Embedding \(300\)\. Name"
    with pytest.warns(UserWarning, match=said) as caught:
        rvsm.RVSM(model, L0, beta=1.0)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"only 18% of .* types Embedding \(300\)\."):
        rvsm.RVSM(model, L0, beta=1.0, exclude=["0.kernel"])


@pytest.mark.parametrize("options", [{"include": ["1.*"]}, {"exclude": ["0.*", "2.weight"]}, {"include": ["0.kernel"]}])
def test_what_the_user_chose_needs_no_word(options: dict) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rvsm.RVSM(nn.Sequential(Own(), nn.Linear(8, 8), nn.Embedding(10, 30)), L0, beta=1.0, **options)
