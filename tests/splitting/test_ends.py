"""The outputs of a network are no groups to remove, nor are its inputs."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.splitting.ends import find_ends


def names(model: nn.Module, example: Tensor | None) -> tuple[list[str], list[str]]:
    """Return the names at the two ends of a network."""
    ends = find_ends(model, example)
    tensors = list(model.named_parameters())
    return [n for n, w in tensors if id(w) in ends.first], [n for n, w in tensors if id(w) in ends.last]


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 4)
    )


class TwoHeads(nn.Module):
    """The heads are registered before the body, and both are read from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(8, 4), nn.Linear(8, 1)
        self.inner = nn.Linear(8, 8)
        self.left, self.right = nn.Linear(6, 8, bias=False), nn.Linear(6, 8)

    def forward(self, x: Tensor, *, scale: float = 1.0, mask: Tensor | None = None) -> dict[str, Tensor]:
        x = x if mask is None else x * mask
        y = self.inner(torch.relu(self.left(x) + self.right(x))) * scale
        return {"policy": self.policy(y), "value": torch.tanh(self.value(y))}


class Residual(nn.Module):
    """Has a branch, a weight of its own, and what forward leaves in the module."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Parameter(torch.randn(4, 8))
        self.stem, self.block = nn.Linear(6, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.stem(x)
        y = self.norm(self.seen + self.block(self.seen))
        return y @ self.mixing.t()


class Reader(nn.Module):
    """Words in, words out; cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.embedding(x)
        if len(y) > 0:
            y = y + self.attention(y, y, y)[0]
        return self.head(self.lstm(y)[0])


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor, list[str], list[str]]] = {
    "convnet": (convnet, torch.zeros(2, 3, 6, 6), ["0.weight"], ["5.weight"]),
    "two heads": (TwoHeads, torch.zeros(2, 6), ["left.weight", "right.weight"], ["policy.weight", "value.weight"]),
    "residual": (Residual, torch.zeros(2, 6), ["stem.weight"], ["mixing"]),
    "one layer": (lambda: nn.Linear(3, 2), torch.zeros(2, 3), ["weight"], ["weight"]),
    "attention": (
        lambda: nn.Sequential(nn.Linear(3, 8), nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 2)),
        torch.zeros(2, 5, 3),
        ["0.weight"],
        ["2.weight"],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("by_example", [True, False])
def test_the_ends_are_found_with_and_without_an_example(case: str, by_example: bool) -> None:
    make, example, first, last = CASES[case]
    assert names(make(), example if by_example else None) == (first, last)


def test_a_network_that_cannot_be_traced_is_followed_by_its_example() -> None:
    words = torch.zeros(2, 5, dtype=torch.int64)
    assert not find_ends(Reader()).exact
    assert names(Reader(), None)[1] == ["head.weight"]
    first, last = names(Reader(), words)
    assert (first, last) == ([], ["head.weight"]), "the network's inputs are words, which only the embedding reads"


def test_a_head_of_another_kind_is_a_head_all_the_same() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)))
    for example in (torch.zeros(2, 6), None):
        assert "0.weight" not in names(model, example)[1]


@pytest.mark.parametrize("example", [None, torch.zeros(2, 6)])
def test_looking_changes_nothing(example: Tensor | None) -> None:
    model = Residual()
    model.stem.requires_grad_(False)
    kept, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    find_ends(model, example)
    assert all(torch.equal(w, kept[name]) for name, w in model.state_dict().items())
    assert model.training
    assert [w.requires_grad for w in model.stem.parameters()] == [False, False]
    assert torch.equal(torch.get_rng_state(), state)
    if example is None:
        assert model.seen is None


SPARED = {
    "filter": ("outputs", "5.weight"),
    "row": ("outputs", "5.weight"),
    "channel": ("inputs", "0.weight"),
}


@pytest.mark.parametrize("groups", SPARED)
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_the_network_keeps_all_its_outputs_and_inputs(groups: str, scope: str) -> None:
    model = convnet()
    side, spared = SPARED[groups]
    budget = rvsm.Budget(0.5, 20, scope=scope)
    with pytest.warns(UserWarning, match=rf"the groups of '{spared}' are {side} of the network, .* exclude="):
        sparsifier = rvsm.RVSM(model, "l0", budget=budget, groups=groups)
    assert spared not in [layer.name for layer in sparsifier.layers]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier.attach(optimizer)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 6, 6)).square().mean().backward()
        optimizer.step()
    sparsifier.finalize(recalibrate=torch.randn(8, 3, 6, 6))
    assert dict(model.named_parameters())[spared].all()
    assert sparsifier.statistics().sparsity == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"include": ["0.weight", "3.weight", "5.weight"]},
        {"overrides": {"5.*": {"groups": "filter"}}},
        {"groups": rvsm.Block(size=2)},
        {"groups": "element"},
        {"groups": "row", "exclude": ["5.*"]},
    ],
    ids=str,
)
def test_nothing_is_said_of_what_was_named_or_is_no_output(options: dict) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsifier = rvsm.RVSM(convnet(), "l0", **{"groups": "filter", "sparsity": 0.5, "steps": 20, **options})
    assert len(sparsifier.layers) == (2 if "exclude" in options else 3)


def test_excluding_the_head_does_not_make_the_layer_before_it_a_head() -> None:
    sparsifier = rvsm.RVSM(convnet(), "l0", sparsity=0.5, steps=20, groups="filter", exclude=["5.weight"])
    assert [layer.name for layer in sparsifier.layers] == ["0.weight", "3.weight"]


def test_pairs_have_no_ends() -> None:
    pairs = [(name, w) for name, w in convnet().named_parameters() if w.dim() > 1]
    assert len(rvsm.RVSM(pairs, "l0", sparsity=0.5, steps=20, groups="filter").layers) == 3


def test_a_single_layer_is_not_left_without_a_word() -> None:
    with (
        pytest.warns(UserWarning, match="'weight' are outputs"),
        pytest.raises(ValueError, match=r"found no groups to remove.* include="),
    ):
        rvsm.RVSM(nn.Linear(8, 4), "l0", sparsity=0.5, steps=20, groups="filter")
