"""The examples run as they are, each in a process and a folder of its own."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PACKED = ("digits.rvsm", "digits.npz")  # what train_plain leaves, and run_without_torch reads
LAST_WORDS = {
    "train_plain": r"accuracy with 90\.0% zeros: [89]\d\.\d%",
    "finetune_dense_checkpoint": r"with 90\.0% zeros: [89]\d\.\d%",
    "train_lightning": r"90\.00% of the sparsified weights are zero",
    "train_transformers": r"90\.00% of the sparsified weights are zero",
    "train_accelerate": r"epoch 9: 90\.0% zeros, accuracy of the sparse copy [89]\d\.\d%",
    "train_fsdp": r"accuracy with 90\.0% zeros, sharded over 2 processes: [89]\d\.\d%",
    "shrink_channels": r"difference of the outputs: \de-0[4-9]\n21442 parameters became \d{4}; accuracy: [89]\d\.\d%",
    "run_without_torch": r"accuracy: [89]\d\.\d%; torch is loaded: False",
}


def run(name: str, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    # What torchrun runs, with a port that is free.
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if name == "train_fsdp" else []
    command = [sys.executable, *launcher, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(LAST_WORDS)


@pytest.mark.parametrize("name", [name for name in LAST_WORDS if name != "run_without_torch"])
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    library = name.removeprefix("train_")
    if library in ("lightning", "transformers", "accelerate") and find_spec(library) is None:
        pytest.skip(f"the extra {library!r} is not installed")
    if name == "shrink_channels":
        pytest.importorskip("torch_pruning")
    assert re.search(LAST_WORDS[name], run(name, tmp_path))
    if name == "train_plain":
        assert re.search(LAST_WORDS["run_without_torch"], run("run_without_torch", tmp_path, *PACKED))


def test_every_row_of_the_table_in_the_readme_links_to_an_example_and_a_test() -> None:
    part = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- works with -->")[2]
    rows = part.partition("<!-- end -->")[0].strip().splitlines()[2:]
    assert len(rows) >= 6
    for row in rows:
        links = re.findall(r"\]\(([^)]+)\)", row)
        assert any(link.startswith("examples/") for link in links), row
        assert any(link.startswith("tests/") for link in links), row
        assert all((ROOT / link).is_file() for link in links), row
