"""The room as the library finds it: methods of files and of run folders, commands, and the name rvsm.theory."""

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rvsm
from rvsm.cli import COMMANDS
from rvsm.config import read_config
from rvsm.config.sections import CHOICES
from rvsm.paper.published import PublishedADMM, PublishedRVSM
from rvsm.plugins import plugins
from rvsm.records import Run
from rvsm.train import StoppedError, resume, session, start
from rvsm.train.recorder import Recorder

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
PAPER = sorted((EXPERIMENTS / "paper").glob("*.toml"))
METHODS = {
    "rvsm-published": ["--penalty.lam", "1e-4", "--method.beta", "0.1"],
    "admm-published": ["--method.rho", "0.1", "--method.sparsity", "0.6"],
}
LEARNING = ["--model.width", "16", "--training.epochs", "3", "--training.batch", "64"]


def test_the_methods_are_found_by_their_entry_points() -> None:
    found = plugins("rvsm.methods")
    assert (found["rvsm-published"], found["admm-published"]) == (PublishedRVSM, PublishedADMM)
    assert found.items() <= CHOICES["method"].entries.items()


def test_the_commands_are_found_by_their_entry_points() -> None:
    assert COMMANDS["theory"][1] == "judge every statement of the paper, with pictures and a page: rvsm theory"
    assert COMMANDS["results"][1].endswith(": rvsm results FILE.jsonl…")


def test_the_theory_has_a_short_name() -> None:
    assert rvsm.theory.__name__ == "rvsm.paper.theory"
    code = "import sys; sys.modules['torch'] = None; import rvsm; rvsm.theory"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "rvsm.theory needs torch, which is not installed: pip install 'rvsm[torch]'" in done.stderr
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    names = set(re.findall(r"rvsm\.theory\.(\w+)", text))
    assert names
    assert all(hasattr(rvsm.theory, name) for name in names)


def refused(*flags: str) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is what is tested
        read_config(flags=flags)
    return str(error.value)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_configuration_may_not_say(method: str) -> None:
    published = ["--method.name", method]
    told = refused(*published, "--budget.sparsity", "0.9")
    assert "has no budget; leave the section out, or choose rvsm or magnitude" in told
    decided = "method.epoch_steps is decided by the rest of the training; leave it out"
    assert refused(*published, "--method.epoch_steps", "3") == decided
    assert "method.exclude is an option of" in refused(*published, "--method.exclude", "[a]")
    needed = {"rvsm-published": "method.beta", "admm-published": "method.rho"}[method]
    assert f"{needed} is missing" in refused(*published)


class StopAt(Recorder):
    """Asks itself to stop after a step, as Ctrl-C does."""

    step = 0

    def on_step(self, trainer: Any) -> None:
        if trainer.step == self.step:
            self._ask(2, None)
        super().on_step(trainer)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_learns_and_goes_on_after_a_stop(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_config(flags=[*LEARNING, "--method.name", method, *METHODS[method]])
    start(config, tmp_path / "whole", Console(file=io.StringIO()))
    whole = Run(tmp_path / "whole")
    result = whole.result()
    assert result is not None
    assert result["test"]["u"]["accuracy"] > 0.7
    assert set(result["layers"]) == {"0.weight", "3.weight", "7.weight"}  # the linear layer is left alone
    assert result["sparsity"] > 0.1
    assert all(record["gap"] == 0 for record in whole.metrics()), "w is overwritten at the end of each epoch"
    for step in (10, result["steps"] // 3):  # within an epoch, and at the end of one
        folder = tmp_path / f"stopped-{step}"
        with monkeypatch.context() as patch:
            patch.setattr(StopAt, "step", step)
            patch.setattr(session, "Recorder", StopAt)
            with pytest.raises(StoppedError):
                start(config, folder, Console(file=io.StringIO()))
        resume(folder, Console(file=io.StringIO()))
        weights = Run(folder).weights()
        assert all((weights[name] == value).all() for name, value in whole.weights().items())


def test_the_files_of_the_paper_differ_in_their_rows_only() -> None:
    """The same network, data and course of training in each table; and the numbers that the paper gives."""
    for network, files in (("vgg16", 5), ("resnet18", 5)):
        tables = [read_config(file).table() for file in PAPER if file.stem.startswith(network)]
        assert len(tables) == files
        for table in tables:
            for own in ("name", "method", "penalty", "groups"):
                table.pop(own, None)
            assert table == tables[0]
            assert table["model"] == {"name": network, "width": 1.0}
            assert (table["training"]["epochs"], table["training"]["validation"]) == (200, 0.0)
            assert table["schedule"]["drops"] == [0.4, 0.6, 0.8]


@pytest.mark.parametrize("row", ["vgg16-l0", "resnet18-rvsm-l0", "resnet18-admm"])
def test_a_published_row_has_the_numbers_of_the_papers_row(row: str) -> None:
    paper, published = (read_config(EXPERIMENTS / "paper" / f"{row}{end}.toml") for end in ("", "-published"))
    assert published.penalty == paper.penalty
    assert published.method.name == f"{paper.method.name}-published"
    for option, value in published.method.options.items():
        assert paper.method.options[option] == value, option
