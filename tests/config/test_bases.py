"""A file may add to another one."""

import os
import sys
from pathlib import Path

import pytest

from rvsm.config import as_toml, config_of, help_of, read_config
from rvsm.records import Run

BASE = """
name = "the base's"
seed = 5
[optimizer]
lr = 0.5
momentum = 0.8
[training]
epochs = 7
[budget]
sparsity = 0.9
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(file: str, text: str) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refused(file: Path, *flags: str) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        read_config(file, list(flags))
    assert "\n" not in str(error.value)
    return str(error.value)


class TestInheritance:
    def test_a_file_adds_to_its_base_and_flags_to_both(self) -> None:
        write("base.toml", BASE)
        row = write("row.toml", 'base = "base.toml"\n[optimizer]\nlr = 0.25\n[model]\nwidth = 8')
        config = read_config(row, ["--training.epochs", "9"])
        assert (config.seed, config.optimizer.options["lr"], config.optimizer.options["momentum"]) == (5, 0.25, 0.8)
        assert (config.training.epochs, config.model.options, config.budget is not None) == (9, {"width": 8}, True)

    def test_it_is_the_same_as_one_long_file(self) -> None:
        write("base.toml", BASE)
        row = write("row.toml", 'base = "base.toml"\n[optimizer]\nlr = 0.25')
        whole = write("deep/row.toml", BASE.replace("lr = 0.5", "lr = 0.25").replace('name = "the base\'s"', ""))
        assert read_config(row) == read_config(whole)
        assert read_config(row).fingerprint() == read_config(whole).fingerprint()

    def test_chains_and_folders(self) -> None:
        """A base is relative to the file that names it, wherever the command is run."""
        write("base.toml", BASE)
        write("tables/one.toml", 'base = "../base.toml"\n[training]\nbatch = 16\n[optimizer]\nlr = 0.3')
        two = write("tables/rows/two.toml", 'base = "../one.toml"\n[training]\nbatch = 32')
        config = read_config(two.resolve())
        assert (config.training.epochs, config.training.batch, config.optimizer.options["lr"]) == (7, 32, 0.3)
        os.chdir("tables")
        assert read_config(Path("rows/two.toml")) == config

    def test_a_name_is_not_inherited(self) -> None:
        """Runs are kept by name: a row of its base's name would be taken for it."""
        write("base.toml", BASE)
        assert read_config(write("row.toml", 'base = "base.toml"')).name == "row"
        assert read_config(write("row.toml", 'base = "base.toml"\nname = "mine"')).name == "mine"

    def test_what_a_run_keeps_is_whole(self) -> None:
        write("base.toml", BASE)
        kept = as_toml(read_config(write("row.toml", 'base = "base.toml"')))
        assert "base" not in kept
        assert "momentum = 0.8" in kept

    def test_help_knows_the_entries_of_the_base(self) -> None:
        write("base.toml", "[penalty]\nname = 'tl1'")
        assert "--penalty.a" in help_of([], write("row.toml", 'base = "base.toml"'))


class TestErrors:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("[training]\nepoch = 3", "unknown key 'training.epoch'; did you mean 'training.epochs'?"),
            ("[training]\nepochs = 'x'", "training.epochs must be an integer but is 'x'"),
            ("[optimizer]\nname = 'sdg'", "unknown optimizer.name 'sdg'; did you mean 'sgd'?"),
        ],
    )
    def test_the_file_that_is_wrong_is_named(self, line: str, message: str) -> None:
        write("base.toml", f"{line}\n[budget]\nsparsity = 0.9")
        text = refused(write("row.toml", 'base = "base.toml"'))
        assert text.startswith(f"row.toml: {message}")
        assert text.endswith("(in base.toml, its base)")
        write("base.toml", BASE)
        text = refused(write("row.toml", f'base = "base.toml"\n{line}'))
        assert text.startswith(f"row.toml: {message}")
        assert "its base" not in text

    def test_an_entry_that_does_not_know_the_options_of_the_base(self) -> None:
        write("base.toml", BASE)
        text = refused(write("row.toml", 'base = "base.toml"\n[optimizer]\nname = "adamw"'))
        told = "optimizer.momentum is an option of optimizer.name = 'sgd', which is not chosen (in base.toml, its base)"
        assert text == f"row.toml: {told}"

    def test_circles(self) -> None:
        one = write("one.toml", 'base = "one.toml"')
        assert refused(one) == "one.toml: its bases form a cycle: one.toml → one.toml"
        write("b/two.toml", 'base = "../one.toml"')
        one = write("one.toml", 'base = "b/two.toml"')
        told = "one.toml: its bases form a cycle: one.toml → b/two.toml → b/../one.toml"
        assert refused(one) == told
        start = write("start.toml", 'base = "one.toml"')
        assert "start.toml → one.toml → b/two.toml → b/../one.toml" in refused(start)
        Path("link.toml").symlink_to("start.toml")
        write("start.toml", 'base = "link.toml"')
        assert "start.toml → link.toml" in refused(start)

    def test_no_such_base(self) -> None:
        row = write("rows/row.toml", 'base = "bas.toml"')
        told = "rows/row.toml: its base rows/bas.toml is not a file; write the path relative to the folder of"
        assert refused(row).startswith(told)
        Path("rows/bas.toml").mkdir()
        assert refused(row).startswith(told)
        Path("rows/bas.toml").rmdir()
        os.mkfifo("rows/bas.toml")  # reading it would never end
        assert refused(row).startswith(told)
        Path("rows/loop.toml").symlink_to("loop.toml")
        for odd in ("", ".", "a\\u0000b", "loop.toml"):
            assert "is not a file; write the path relative" in refused(write("rows/row.toml", f'base = "{odd}"'))

    @pytest.mark.parametrize("base", ["3", "[]", "['base.toml']", "{a = 1}", "true"])
    def test_not_a_path(self, base: str) -> None:
        assert refused(write("row.toml", f"base = {base}")).startswith("row.toml: base must be the path of a TOML file")

    def test_a_base_that_is_damaged(self) -> None:
        write("base.toml", "= 3")
        assert refused(write("row.toml", 'base = "base.toml"')).startswith("base.toml is not a TOML file: ")

    def test_a_base_in_another_place(self) -> None:
        """Neither on the command line, nor in a section, nor in what a run keeps, where it might name any file."""
        write("base.toml", BASE)
        with pytest.raises(ValueError, match="base is the first line of a TOML file"):
            read_config(flags=["--base", "base.toml", "--budget.sparsity", "0.9"])
        assert "unknown key 'model.base'" in refused(write("row.toml", f'{BASE}\n[model]\nbase = "base.toml"'))
        table = {**read_config(Path("base.toml")).table(), "base": "base.toml"}
        with pytest.raises(ValueError, match=r"^a/config\.toml: base is the first line of a TOML file"):
            config_of(table, Path("a/config.toml"))

    def test_a_base_imports_nothing(self) -> None:
        write("base_net.py", "raise SystemExit")
        write("base.toml", f"{BASE}\n[model]\nname = 'base_net:net'")
        text = refused(write("row.toml", 'base = "base.toml"'))
        assert "'base_net:net' would be imported and called" in text
        assert "base_net" not in sys.modules


def test_a_run_of_a_file_with_a_base_needs_no_base(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rvsm.cli import main

    write("base.toml", "[training]\nepochs = 1\nbatch = 256\n[model]\nwidth = 4\n[budget]\nsparsity = 0.5")
    write("row.toml", 'base = "base.toml"\n[budget]\nsparsity = 0.6')
    assert main(["train", "row.toml", "--run", "a"]) == 0
    Path("base.toml").unlink()
    assert Run(Path("a")).config()["budget"]["sparsity"] == 0.6
    assert main(["resume", "a"]) == 0
    assert main(["evaluate", "a"]) == 0
