"""Networks for sequences of any length: equal to PyTorch for each, and run from files without PyTorch."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from files import run_files
from rvsm.lowering import compile
from rvsm.lowering.lengths import LEAST
from rvsm.runtime import SequenceProgram

Make = Callable[[int, int], tuple[Tensor, ...]]


class HandWritten(nn.Module):
    """Words with a table of positions and a causal mask, which are as long as the features are many."""

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(50, width), nn.Parameter(torch.randn(longest, width))
        self.project, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, 6), nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((longest, longest), -torch.inf).triu(1))

    def forward(self, words: Tensor) -> tuple[Tensor, ...]:
        batch, length = words.shape
        x = self.table(words) + self.places[:length]
        q, k, v = self.project(self.norm(x)).view(batch, length, 3, 4, -1).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1]) + self.mask[:length, :length]
        y = torch.einsum("bhqk,bhkd->bqhd", scores.softmax(-1), v).reshape(batch, length, -1)
        return self.out(y), y.mean(1), y[:, -1]


class Encoder(nn.Module):
    """PyTorch's encoder with a mask for padding and a causal one."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.encoder(x, mask=mask, src_key_padding_mask=padding, is_causal=True)


class Recurrent(nn.Module):
    """A recurrent layer, which torch.export unrolls, and a convolution along the positions that needs three of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.RNN(5, 7, batch_first=True), nn.Conv1d(7, 4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, last = self.layer(x)
        return self.out(y.transpose(1, 2)).amax(2), last


def words(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randint(50, (batch, length)),)


def padded(batch: int, length: int) -> tuple[Tensor, ...]:
    padding = torch.rand(batch, length) < 0.3
    padding[:, 0] = False
    return torch.randn(batch, length, 16), padding


def masked(batch: int, length: int) -> tuple[Tensor, ...]:
    mask = torch.randint(2, (batch, length))
    mask[:, 0] = 1
    return (*words(batch, length), mask)


def networks() -> dict[str, tuple[nn.Module, Make, tuple[int, ...]]]:
    """Return networks, their inputs, and lengths of which the first and the last are the limits."""
    found: dict[str, tuple[nn.Module, Make, tuple[int, ...]]] = {
        "hand-written": (HandWritten(512, 512), words, (1, 7, 128, 512)),
        "encoder": (Encoder(), padded, (1, 7, 40)),
        "recurrent": (Recurrent(), lambda n, length: (torch.randn(n, length, 5),), (3, 7, 20)),
    }
    try:
        import transformers
    except ImportError:
        return found
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    bert = transformers.BertConfig(**small, vocab_size=50, max_position_embeddings=512)
    return {**found, "bert": (transformers.BertModel(bert), masked, (1, 7, 128, 512))}


@pytest.fixture(scope="module")
def compiled() -> dict[str, tuple[nn.Module, Make, tuple[int, ...], SequenceProgram]]:
    torch.manual_seed(0)
    made = {}
    for name, (model, make, lengths) in networks().items():
        for parameter in model.eval().parameters():
            parameter.data *= torch.rand_like(parameter) < 0.5
        program = compile(model, make(2, 9), lengths=lengths[-1], threads=1)
        assert isinstance(program, SequenceProgram)
        made[name] = (model, make, lengths, program)
    return made


def test_like_pytorch(compiled: dict[str, Any]) -> None:
    for name, (model, make, lengths, program) in compiled.items():
        assert (program.shortest, program.longest) == (lengths[0], lengths[-1]), name
        for length in lengths:
            given = make(3, length)
            with torch.inference_mode():
                expected = model(*given)
            result = program(*given)
            assert type(result) is type(expected), name
            for found, wanted in zip(tree_leaves(result), tree_leaves(expected), strict=True):
                assert found.shape == wanted.shape
                assert float((found - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max()), (name, length)
        with pytest.raises(ValueError, match=f"may have {lengths[0]} to {lengths[-1]} positions but these have"):
            program(*make(1, lengths[-1] + 1))


def test_files_run_without_pytorch(compiled: dict[str, Any], tmp_path: Path) -> None:
    cases, expected = {}, {}
    for name, (_, make, lengths, program) in compiled.items():
        program.save(tmp_path / f"{name}.rvsm")
        for length in lengths[:2]:
            given = make(2, length)
            cases[f"{name} {length}"] = (f"{name}.rvsm", given)
            expected[f"{name} {length}"] = tree_leaves(program(*given))
    # load() would also make the programs for the longest sequences
    load = "rvsm.runtime.SequenceProgram(rvsm.runtime.read(Path(file)), threads=1)"
    for name, results in run_files(tmp_path, cases, load=load).items():
        for found, wanted in zip(results.values(), expected[name], strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


class Fickle(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.shape[1] > 4 else x


class Sorted(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sort(1)[0]


def test_what_cannot_have_free_lengths_is_refused() -> None:
    x = torch.randn(2, 9, 3)
    for wrong in (LEAST - 1, 0, 40.0, True):
        with pytest.raises(ValueError, match=f"lengths must be the length of the longest sequence, at least {LEAST}"):
            compile(nn.Linear(3, 3).eval(), x, lengths=wrong)  # type: ignore[arg-type]
    for example in (torch.randn(2), torch.randn(2, 1, 3), torch.randn(2, 41, 3)):
        with pytest.raises(ValueError, match=r"must be a length from 2 to 40, as in \(batch, length, …\), but"):
            compile(nn.Linear(3, 3).eval(), example, lengths=40)
    with pytest.raises(ValueError, match="the model cannot take sequences of 40 positions: "):
        compile(HandWritten(39, 8).eval(), words(2, 9), lengths=40)
    with pytest.raises(ValueError, match="for 1 positions, the model does not compute the same as for other lengths"):
        compile(Fickle(3, 3).eval(), x, lengths=40)
    with pytest.raises(ValueError, match=r"the runtime needs PyTorch for aten\.sort"):
        compile(Sorted(3, 3).eval(), x, lengths=40)
