"""What the command line says of itself."""

import re
from pathlib import Path

import pytest

from rvsm.cli import COMMANDS, main


class TestHelp:
    def test_without_arguments(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 2
        assert "rvsm COMMAND …" in capsys.readouterr().err

    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_all_commands(self, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main([flag])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert all(re.search(rf"^  {name}\b", text, re.MULTILINE) for name in COMMANDS)

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["--version"])
        assert ended.value.code == 0
        assert re.match(r"rvsm \d+\.\d+", capsys.readouterr().out)

    @pytest.mark.parametrize("words", [["train", "--run", ""], ["compare", "--runs", ""], ["resume", ""]])
    def test_an_empty_path_is_not_the_folder_here(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "expected a path but got an empty string; write . for the current folder" in capsys.readouterr().err

    def test_a_command_that_does_not_exist(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["trian"])
        assert ended.value.code == 2
        assert "train" in capsys.readouterr().err

    def test_train(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", "--help"]) == 0
        text = capsys.readouterr().out
        for key in ("--run", "--name", "--seed", "--training.epochs", "--optimizer.lr", "--penalty.lam"):
            assert key in text
        for key in ("--budget.sparsity", "--data.name", "--model.width", "--augment.crop", "--groups.name"):
            assert key in text
        assert "rvsm train [FILE]" in text

    def test_train_shows_the_options_of_the_flags_entries(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", "--penalty.name", "tl1", "--help"]) == 0
        assert "--penalty.a" in capsys.readouterr().out

    def test_train_shows_the_options_of_a_files_entries(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("x.toml").write_text("[penalty]\nname = 'tl1'\n")
        assert main(["train", "x.toml", "-h"]) == 0
        assert "--penalty.a" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("command", "words"),
        [
            ("compare", ["--seeds", "--runs", "--out", "--section.option"]),
            ("report", ["RUN", "--out"]),
            ("resume", ["RUN"]),
        ],
    )
    def test_others(self, command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        try:
            assert main([command, "--help"]) == 0
        except SystemExit as ended:
            assert ended.code == 0  # noqa: PT017
        text = capsys.readouterr().out
        assert f"usage: rvsm {command}" in text
        assert all(word in text for word in words)

    @pytest.mark.parametrize("words", [["resume"], ["report"], ["resume", "a", "b"], ["train", "--run"]])
    def test_misuse(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "usage" in capsys.readouterr().err
