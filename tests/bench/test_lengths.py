"""``rvsm pack --lengths``: a file for sequences of any length, from the command line."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rvsm.cli import main
from rvsm.runtime import SequenceProgram, load


class Words(nn.Module):
    """Words, the class of each, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(50, 8), nn.Linear(8, 6)

    def forward(self, words: Tensor) -> dict[str, Tensor]:
        found = self.layer(self.table(words)).softmax(-1)
        return {"each": found, "mean": found.mean(1)}


def test_a_file_for_all_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = Words().eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    out = tmp_path / "words.rvsm"
    network = [f"{__name__}:Words", "--weights", str(tmp_path / "weights.pt"), "--out", str(out)]

    def refused(*words: str) -> str:
        assert main(["pack", *network, *words]) == 1
        assert not out.exists()
        return capsys.readouterr().err

    assert "cannot take floats of shape (1, 9): " in (error := refused("--input", "9", "--lengths", "40"))
    assert "--integers if it consists of integers, such as the indices of words" in error
    example = ["--input", "9", "--integers"]
    assert "the length of the longest sequence, at least 16, but is 8" in refused(*example, "--lengths", "8")
    assert "must be a length from 2 to 40" in refused("--input", "41", "--integers", "--lengths", "40")

    assert main(["pack", *network, *example, "--lengths", "40", "--values", "bfloat16"]) == 0
    shown = capsys.readouterr().out
    assert "for the longest sequences, which may have 1 to 40 positions" in shown
    assert "this changes the outputs by 0." in shown  # per cent: of random words, not of equal ones
    program = load(out, threads=1)
    assert isinstance(program, SequenceProgram)
    for length in (1, 7, 40):
        words = torch.randint(50, (3, length))
        with torch.inference_mode():
            expected = model(words)
        for name, found in program(words).items():
            torch.testing.assert_close(found, expected[name], rtol=0.02, atol=0)
