from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from rvsm.records import check_weights
from rvsm.records.states import load_weights, save_weights


class Counting(nn.Linear):
    """A model with a state that is no tensor."""

    extra: Any = None

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


@pytest.mark.parametrize(
    "extra", [{"version": 2, "widths": (3, 4), 5: None}, [1.5, "text"], None, {"scale": torch.arange(3), "#0": 1}]
)
def test_what_is_no_tensor_is_kept(extra: Any, tmp_path: Path) -> None:
    model = nn.Sequential(Counting(2, 3), nn.ParameterList([torch.ones(1)]))
    model[0].extra = extra
    check_weights(model.state_dict())
    save_weights(model.state_dict(), tmp_path / "x")
    again = nn.Sequential(Counting(2, 3), nn.ParameterList([torch.ones(1)]))
    again.load_state_dict(load_weights(tmp_path / "x"))
    assert again[0].weight.equal(model[0].weight)
    assert repr(again[0].extra) == repr(extra)


def test_an_ordinary_state_is_an_ordinary_file(tmp_path: Path) -> None:
    state = nn.Linear(2, 3).state_dict()
    save_weights(state, tmp_path / "x")
    found = load_file(tmp_path / "x")
    assert found.keys() == state.keys()
    assert all(found[name].equal(state[name]) for name in state)


@pytest.mark.parametrize(
    "bad", [{1, 2}, object(), torch.eye(2).to_sparse(), [b"bytes"]], ids=lambda bad: type(bad).__name__
)
def test_what_no_file_can_hold_is_told_before_it_is_written(bad: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"the model's state has 'bad', which a file of weights cannot hold \(.+\); let"
    ):
        check_weights({"good": torch.ones(1), "bad": bad})


@pytest.mark.parametrize("contents", [b"", b"not weights" * 10])
def test_damaged_files_are_named(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(contents)
    with pytest.raises(
        ValueError, match=r"x cannot be read \(.*\); check that it is complete and that the run is finished"
    ):
        load_weights(tmp_path / "x")
