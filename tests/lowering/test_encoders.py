"""Whole encoders and decoders, of PyTorch and of Transformers: native, equal, and run from a file without PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from files import run_files
from rvsm.lowering import MixedProgram, compile
from rvsm.runtime import Program
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.tensors import Rearrangement

Make = Callable[[int], tuple[Tensor, ...]]
LENGTH = 9


def words(batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(50, (batch, LENGTH)),)


def masked_words(batch: int) -> tuple[Tensor, ...]:
    mask = torch.randint(2, (batch, LENGTH))
    mask[:, 0] = 1
    return (*words(batch), mask)


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def networks() -> dict[str, tuple[nn.Module, Make]]:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    bert = transformers.BertConfig(**small, vocab_size=50, max_position_embeddings=16)
    gpt = transformers.GPT2Config(
        n_embd=32, n_layer=1, n_head=4, vocab_size=50, n_positions=16, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    vit = transformers.ViTConfig(**small, image_size=16, patch_size=4)
    return {
        "encoder": (encoder(), lambda n: (torch.randn(n, LENGTH, 16),)),
        "norms first": (encoder(norm_first=True, activation="gelu"), lambda n: (torch.randn(n, LENGTH, 16),)),
        "bert": (transformers.BertModel(bert), masked_words),
        "gpt": (transformers.GPT2LMHeadModel(gpt), words),
        "vit": (transformers.ViTModel(vit), lambda n: (torch.randn(n, 3, 16, 16),)),
    }


@pytest.fixture(scope="module")
def compiled() -> dict[str, tuple[nn.Module, Make, Program | MixedProgram]]:
    torch.manual_seed(0)
    found = {}
    for name, (model, make) in networks().items():
        for parameter in model.eval().parameters():
            parameter.data *= torch.rand_like(parameter) < 0.5
        found[name] = (model, make, compile(model, make(2), threads=2))
    return found


def test_like_pytorch(compiled: dict[str, Any]) -> None:
    for name, (model, make, program) in compiled.items():
        for batch in (1, 3, 17):
            given = make(batch)
            with torch.inference_mode():
                expected = model(*given)
            result = program(*given)
            assert type(result) is type(expected), name
            for found, wanted in zip(tree_leaves(result), tree_leaves(expected), strict=True):
                assert float((found - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max()), (name, batch)


def test_files_run_without_pytorch(compiled: dict[str, Any], tmp_path: Path) -> None:
    cases = {}
    for name, (_, make, program) in compiled.items():
        program.save(tmp_path / f"{name}.rvsm")  # so all of it is native
        cases[name] = (f"{name}.rvsm", make(3))
    for name, results in run_files(tmp_path, cases).items():
        assert ("0" not in results) == (name in ("bert", "gpt", "vit"))
        if name == "bert":
            assert list(results) == ["last_hidden_state", "pooler_output"]
        for found, wanted in zip(results.values(), tree_leaves(compiled[name][2](*cases[name][1])), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


def test_tokens_stay_in_one_order(compiled: dict[str, Any]) -> None:
    """Heads are views of the features; the projections are sparse layers; nothing moves between them."""
    operations = compiled["encoder"][2].plan.operations
    assert not any(isinstance(o, Rearrangement) and not o.is_range for o in operations)
    assert sum(isinstance(o, Convolution) for o in operations) == 2 * 4
    assert len(operations) == 2 * 9
