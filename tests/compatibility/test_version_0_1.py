"""What version 0.1 wrote is read for ever: a stopped run goes on, a finished one is used, a packed one runs.

The folders were written by version 0.1.0 with ``rvsm train`` (one of the two killed after three epochs) and
``rvsm pack``; nothing in them is made anew.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import rvsm
from rvsm.cli import main
from rvsm.train import load_network

WRITTEN = Path(__file__).parent / "version-0.1"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RVSM_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(WRITTEN / request.param, tmp_path / "run"))


@pytest.mark.parametrize("run", ["interrupted"], indirect=True)
def test_a_stopped_run_goes_on_from_its_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(run)]) == 0
    assert "continuing from step 54 of 108" in capsys.readouterr().out
    mine, theirs = (json.loads((folder / "result.json").read_text("utf-8")) for folder in (run, WRITTEN / "finished"))
    assert mine["nonzeros"] == theirs["nonzeros"]
    # Equal bit for bit on the machine that wrote it; another processor adds in another order.
    assert mine["test"]["u"]["accuracy"] == pytest.approx(theirs["test"]["u"]["accuracy"], abs=0.03)


@pytest.mark.parametrize("run", ["finished"], indirect=True)
def test_a_finished_run_is_used(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = json.loads((run / "result.json").read_text("utf-8"))["test"]["u"]["accuracy"]
    assert main(["evaluate", str(run)]) == 0
    assert f"{100 * accuracy:.2f} %" in capsys.readouterr().out
    assert main(["report", str(run), "--out", "page"]) == 0
    assert f"{100 * accuracy:.2f}" in Path("page/report.html").read_text("utf-8")


@pytest.mark.parametrize("run", ["finished"], indirect=True)
def test_a_packed_network_runs(run: Path) -> None:
    images = np.random.default_rng(0).normal(size=(5, 1, 8, 8)).astype(np.float32)
    network, _ = load_network(run)
    with torch.inference_mode():
        expected = network(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(rvsm.runtime.load(run / "model.rvsm")(images), expected, rtol=1e-4, atol=1e-5)
