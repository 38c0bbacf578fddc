"""Which weights are sparsified, and how their memory and their groups are seen."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import rvsm
from rvsm.splitting.naming import select


def names(model: nn.Module | list[tuple[str, Tensor]], **patterns: list[str]) -> list[str]:
    return [layer.name for layer in select(model, patterns.get("include"), patterns.get("exclude"))]


class Everything(nn.Module):
    """One of each kind of parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(2, 4, 3)
        self.conv2 = nn.Conv2d(2, 4, 3)
        self.conv3 = nn.Conv3d(2, 4, 3)
        self.up1 = nn.ConvTranspose1d(2, 4, 3)
        self.up2 = nn.ConvTranspose2d(2, 4, 3)
        self.up3 = nn.ConvTranspose3d(2, 4, 3)
        self.linear = nn.Linear(4, 3)
        self.attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)
        self.cross = nn.MultiheadAttention(4, 2, kdim=6, vdim=5)
        self.lstm = nn.LSTM(4, 3, proj_size=2)
        self.gru = nn.GRU(4, 3, num_layers=2, bidirectional=True)
        self.rnn = nn.RNN(4, 3, bias=False)
        self.lstm_cell, self.gru_cell, self.rnn_cell = nn.LSTMCell(4, 3), nn.GRUCell(4, 3), nn.RNNCell(4, 3)
        self.embedding = nn.Embedding(10, 4)
        self.batch = nn.BatchNorm2d(4)
        self.layer = nn.LayerNorm([4, 4])
        self.group = nn.GroupNorm(2, 4)
        self.slope = nn.PReLU(4)
        self.own = nn.Parameter(torch.ones(3, 3))


def test_the_type_rule() -> None:
    assert names(Everything()) == [
        "conv1.weight",
        "conv2.weight",
        "conv3.weight",
        "up1.weight",
        "up2.weight",
        "up3.weight",
        "linear.weight",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
        "cross.q_proj_weight",
        "cross.k_proj_weight",
        "cross.v_proj_weight",
        "cross.out_proj.weight",
        "lstm.weight_ih_l0",
        "lstm.weight_hh_l0",
        "lstm.weight_hr_l0",
        *(f"gru.weight_{kind}_l{i}{way}" for i in (0, 1) for way in ("", "_reverse") for kind in ("ih", "hh")),
        "rnn.weight_ih_l0",
        "rnn.weight_hh_l0",
        *(f"{cell}_cell.weight_{kind}" for cell in ("lstm", "gru", "rnn") for kind in ("ih", "hh")),
    ]


def test_a_single_module_and_a_subclass_are_selected() -> None:
    class Named(nn.Linear):
        pass

    assert names(nn.Linear(2, 3)) == ["weight"]
    assert names(nn.Sequential(Named(2, 3))) == ["0.weight"]


def test_pairs_are_taken_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    assert names(list(model.named_parameters())) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert names(list(model.named_parameters()), exclude=["*.bias"]) == ["0.weight", "1.weight"]


def test_include_and_exclude_are_patterns_on_names() -> None:
    model = Everything()
    assert names(model, include=["conv*"]) == ["conv1.weight", "conv2.weight", "conv3.weight"]
    assert names(model, include=["conv*", "linear.*"], exclude=["conv?.*"]) == ["linear.weight"]
    assert names(model, include=["up[12].*"]) == ["up1.weight", "up2.weight"]
    # A wildcard that also matches a bias or a norm does not select it; its plain name does.
    assert names(model, include=["linear*"]) == ["linear.weight"]
    assert names(model, include=["linear.bias", "own", "batch.weight", "embedding.weight"]) == [
        "linear.bias",
        "own",
        "batch.weight",
        "embedding.weight",
    ]


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_pattern_that_matches_nothing_is_an_error(argument: str) -> None:
    with pytest.raises(ValueError, match=rf"{argument}: 'convolution\*' matches no weight"):
        names(Everything(), **{argument: ["conv*", "convolution*"]})


def test_a_pattern_that_matches_other_kinds_only_says_so() -> None:
    said = r"include: 'embed\*' matches no weight of convolutions.* write their full names: embedding\.weight$"
    with pytest.raises(ValueError, match=said):
        names(Everything(), include=["conv*", "embed*"])


COMPUTED = {
    "weight": lambda: parametrizations.weight_norm(nn.Linear(8, 8)),
    "in_proj_weight": lambda: parametrizations.weight_norm(nn.MultiheadAttention(8, 2), "in_proj_weight"),
    "weight_hh_l0": lambda: prune.random_unstructured(nn.LSTM(8, 8), "weight_hh_l0", 0.5),
    "weight_ih": lambda: parametrizations.spectral_norm(nn.GRUCell(8, 8), "weight_ih"),
}


@pytest.mark.parametrize("weight", COMPUTED)
def test_weights_computed_from_others_are_named_and_left_as_they_are(weight: str) -> None:
    model = nn.Sequential(COMPUTED[weight](), nn.Linear(8, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.warns(UserWarning, match=rf"'0\.{weight}' is computed from other parameters"):
        assert f"0.{weight}" not in names(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def old_weight_norm() -> nn.Module:
    with pytest.warns(FutureWarning, match="weight_norm"):
        return nn.utils.weight_norm(nn.Linear(8, 8))


NORMED = {
    ("parametrizations.weight.original0", "parametrizations.weight.original1"): COMPUTED["weight"],
    ("weight_g", "weight_v"): old_weight_norm,
}


@pytest.mark.parametrize("parts", NORMED)
def test_the_direction_of_a_weight_norm_is_refused_and_its_length_is_not(parts: tuple[str, str]) -> None:
    model = nn.Sequential(NORMED[parts](), nn.Linear(8, 8))
    with (
        pytest.warns(UserWarning, match=r"'0\.weight' is computed .* remove the computation first") as caught,
        pytest.raises(ValueError, match=rf"'0\.{parts[1]}' is the direction v .* NaN; remove the computation first"),
    ):
        rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=1.0, include=["1.*", f"0.{parts[1]}"])
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="is computed"):
        assert names(model, include=[f"0.{parts[0]}"]) == [f"0.{parts[0]}"]


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_string_instead_of_a_list_is_an_error(argument: str) -> None:
    with pytest.raises(TypeError, match=r"write \['conv\*'\]"):
        names(Everything(), **{argument: "conv*"})


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="found no weights"):
        names(nn.Sequential(nn.BatchNorm1d(3), nn.Embedding(2, 3)))
    with pytest.raises(ValueError, match="found no weights"):
        names(nn.Linear(2, 3), exclude=["weight"])


@pytest.mark.parametrize("wrong", [3, [nn.Linear(2, 2)], [("w", 1.0)], nn.Linear(2, 2).parameters()])
def test_anything_else_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module or an iterable"):
        names(wrong)


def test_tied_weights_count_once() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    assert names(tied) == ["0.weight"]
    shared = nn.Linear(4, 4)
    assert names(nn.Sequential(shared, nn.ReLU(), shared)) == ["0.weight"]
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleDict({"embedding": embedding, "body": nn.Linear(4, 4), "head": head})
    assert names(model) == names(model, include=["*"]) == ["body.weight"], "tied to an embedding: left alone"
    assert names(model, include=["body.*", "head.weight"]) == ["body.weight", "head.weight"], "unless it is named"
    assert names(model, include=["embedding.weight"]) == ["embedding.weight"]


def test_tied_weights_are_counted_once_in_the_statistics() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    sparsifier = rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=1.0).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    statistics = sparsifier.statistics()
    assert [layer.weights for layer in statistics.layers] == [16]
    assert statistics.parameters == 20


WRAPPERS = {
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "parallel": nn.DataParallel,
    "both": lambda model: nn.DataParallel(torch.compile(model, backend="eager")),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapped_models_keep_plain_names(wrapper: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    wrapped = WRAPPERS[wrapper](model)
    assert names(wrapped) == ["0.weight", "2.weight"]
    assert names(wrapped, include=["2.*"]) == ["2.weight"]
    assert all(a.w is b.w for a, b in zip(select(wrapped, None, None), select(model, None, None), strict=True))


def test_lazy_modules_are_refused_until_they_have_a_shape() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"'0\.weight' has no shape yet; run one batch"):
        names(model)
    assert names(model, exclude=["0.*"]) == ["1.weight"]
    model(torch.ones(2, 3))
    assert names(model) == ["0.weight", "1.weight"]


def test_excluding_one_name_of_a_tied_weight_excludes_it() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert [layer.name for layer in select(model, None, ["1.*"])] == ["2.weight"]
