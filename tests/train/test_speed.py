"""Trainings to a target speed."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import rvsm
from rvsm.bench import commands
from rvsm.cli import main
from rvsm.collect import collect, read
from rvsm.config import Config, read_config
from rvsm.data import Dataset
from rvsm.records import Run
from rvsm.report.configurations import configurations
from rvsm.report.page import page
from rvsm.timing import Curve
from rvsm.train import StoppedError, resume, session, start
from rvsm.train.recorder import Recorder
from rvsm.train.trainer import Trainer

SMALL = ["--model.width", "4", "--training.epochs", "3", "--training.batch", "256"]


@pytest.fixture(scope="module")
def made(measured: Path) -> Path:
    """The same profile with other times, with which zeros are worth much."""
    profile = rvsm.Profile.load(measured)
    curve = Curve((0.0, 0.6, 1.0), (1e-6, 1e-3, 1.1e-3))
    times = {name: replace(times, seconds=curve) for name, times in profile.layers.items()}
    file = measured.with_name("made.json")
    replace(profile, layers=times, fixed=1e-4, calls=None).save(file)
    return file


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the network, by the command: the only measurement of this file."""
    file = tmp_path_factory.mktemp("profile") / "profile.json"
    module = file.with_name("own_convnet.py")
    module.write_text(
        "import rvsm.models\n\ndef small():\n    return rvsm.models.convnet(width=4, channels=1, size=8)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(module.parent)
        words = ["own_convnet:small", "--input", "1,8,8", "--batch", "16", "--threads", "1", "--out", str(file)]
        assert main(["profile", *words]) == 0
    return file


class StopAt(Recorder):
    """Asks itself to stop after the seventh step of twelve, as Ctrl-C does."""

    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == 7:
            self._ask(2, None)
        super().on_step(trainer)


def config_of(file: Path, speedup: float) -> Config:
    return read_config(flags=[*SMALL, "--budget.speedup", str(speedup), "--budget.profile", str(file)])


def test_a_run_meets_its_speed_and_shows_it(made: Path, digits: Dataset, tmp_path: Path) -> None:
    target = 1.8
    folder, text = tmp_path / "run", io.StringIO()
    result = start(config_of(made, target), folder, Console(file=text, width=200), digits)
    assert result["speed"]["predicted"] == pytest.approx(target, rel=0.02)  # a weight of the first layer is worth 1 %
    assert result["speed"]["measured"] > 0
    assert result["speed"]["target"] == target
    assert f"{result['speed']['predicted']:5.2f} × as fast  heal" in text.getvalue()
    run = Run(folder)
    assert run.metrics()[-1]["speedup"] == pytest.approx(result["speed"]["predicted"])
    assert run.profile() == rvsm.Profile.load(made)
    assert f"({result['speed']['predicted']:.2f} × predicted)" in session.summary(result)
    told = page(*configurations([run]))
    assert "as fast as the dense network in the runtime" in told.lead
    figures = {figure.name: figure for section in told.sections for figure in section.figures}
    assert "Predicted speed" in figures["sparsity-and-gap"].drawings()["wide"].svg
    collect([run], tmp_path / "lines.jsonl")
    [line] = read(tmp_path / "lines.jsonl")
    assert line.outcome is not None
    assert line.outcome.speed.predicted == pytest.approx(result["speed"]["predicted"], rel=1e-5)
    assert "profile" not in json.loads((tmp_path / "lines.jsonl").read_text())["options"]["budget"]


def test_it_resumes_with_the_times_that_it_began_with(
    made: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "moved.json"
    file.write_bytes(made.read_bytes())
    config = config_of(file, 1.2)
    start(config, tmp_path / "whole", Console(file=io.StringIO()), digits)
    with monkeypatch.context() as patch:
        patch.setattr(session, "Recorder", StopAt)
        with pytest.raises(StoppedError):
            start(config, tmp_path / "stopped", Console(file=io.StringIO()), digits)
    file.unlink()  # the folder has its own copy
    resume(tmp_path / "stopped", Console(file=io.StringIO()), digits)
    weights = [Run(tmp_path / name).weights() for name in ("whole", "stopped")]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--budget.speedup", "1"], "[budget] speedup must be > 1 but is 1.0"),
        (["--budget.speedup", "5", "--budget.sparsity", "0.9"], "both are given"),
        (["--budget.speedup", "5", "--budget.by", "flops"], "not by='flops'"),
        (["--budget.sparsity", "0.9", "--budget.profile", "a.json"], "budget.profile belongs to a target speed"),
        (["--budget.profile", "a.json"], "budget.sparsity is missing: give --budget.sparsity 0.9, or a target speed"),
        (["--budget.speedup", "fast"], "budget.speedup must be a number or null but is 'fast'"),
    ],
)
def test_wrong_options_are_a_sentence(flags: list[str], sentence: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the sentence is compared below
        read_config(flags=flags)
    assert sentence in str(error.value)


def test_a_training_that_cannot_reach_it_leaves_no_folder(made: Path, digits: Dataset, tmp_path: Path) -> None:
    for file, speedup, sentence in (
        (tmp_path / "nowhere.json", 2, "does not exist or is not a file; give a profile that rvsm profile wrote"),
        (made, 1000, "speedup 1000 is not feasible"),
    ):
        with pytest.raises(ValueError, match=sentence):
            start(config_of(file, speedup), tmp_path / "run", Console(file=io.StringIO()), digits)
        assert not (tmp_path / "run").exists()


def test_a_file_that_cannot_be_written_is_refused_before_the_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for out, sentence in ((tmp_path, "is a folder; give"), (tmp_path / "file" / "p.json", "cannot be written: ")):
        assert main(["profile", "rvsm.models:convnet", "--input", "1,8,8", "--out", str(out)]) == 1
        assert sentence in capsys.readouterr().err


def test_the_profile_of_a_run_has_the_groups_of_its_training(
    made: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ["--groups.name", "block", "--groups.size", "2", "--method.exclude", '["0.*"]']
    config = read_config(flags=[*SMALL, "--training.epochs", "1", *groups, "--budget.sparsity", "0.5"])
    start(config, tmp_path / "run", Console(file=io.StringIO()), digits)
    given: dict[str, object] = {}
    monkeypatch.setattr(
        "rvsm.splitting.profile", lambda *_, **options: given.update(options) or rvsm.Profile.load(made)
    )
    commands.profile(str(tmp_path / "run"), tmp_path / "profile.json")
    assert (given["groups"], list(given["exclude"])) == (rvsm.Block(size=2), ["0.*"])
    commands.profile(str(tmp_path / "run"), tmp_path / "profile.json", groups="filter")
    assert given["groups"] == "filter"


def test_the_command_refuses_what_it_cannot_measure(capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in (
        (["rvsm.models:convnet", "--input", "1,8,8", "--size", "4"], "--size is the size of a block"),
        (["rvsm.models:convnet", "--input", "1,8,8", "--groups", "blocks"], "unknown groups 'blocks'"),
        (["rvsm.models:convnet", "--input", "1,8,8", "--batch", "0"], "batch must be at least 1"),
        (["rvsm.models:convnet"], "the shape of an example is needed"),
    ):
        assert main(["profile", *words]) == 1
        assert sentence in capsys.readouterr().err
