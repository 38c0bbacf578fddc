"""The examples run as they are, each in a process and a folder of its own."""

import re
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from commands import script
from processes import Process, run_together

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


def run(name: str, folder: Path) -> str:
    example = partial(script, str(EXAMPLES / f"{name}.py"))
    if name == "train_fsdp":
        ended = run_together([example, example], folder=folder)
    else:
        ended = [Process(example, folder=folder, environment={"HF_HUB_OFFLINE": "1"}).ended()]
    assert all(one.status == 0 for one in ended), ended
    return ended[0].printed


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
        command = [sys.executable, str(EXAMPLES / "run_without_torch.py"), *PACKED]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert re.search(LAST_WORDS["run_without_torch"], done.stdout)


def test_every_row_of_the_table_in_the_readme_links_to_an_example_and_a_test() -> None:
    part = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- works with -->")[2]
    rows = part.partition("<!-- end -->")[0].strip().splitlines()[2:]
    assert len(rows) >= 6
    for row in rows:
        links = re.findall(r"\]\(([^)]+)\)", row)
        assert any(link.startswith("examples/") for link in links), row
        assert any(link.startswith("tests/") for link in links), row
        assert all((ROOT / link).is_file() for link in links), row
