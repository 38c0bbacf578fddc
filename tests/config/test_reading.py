import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.config import Augment, Training, as_toml, config_of, help_of, read_config
from rvsm.config.sections import CHOICES, PLAIN
from rvsm.splitting import Budget

TARGET = ["--budget.sparsity", "0.9"]
ENTRIES = [(section, name) for section, known in CHOICES.items() for name in known.entries]
NEEDED = {
    ("data", "folder"): ["--data.path", "images"],
    ("method", "dense"): [],
    ("method", "admm"): ["--method.rho", "0.01", "--method.sparsity", "0.6"],
    ("method", "proxsgd"): ["--penalty.lam", "1e-4"],
    ("method", "rvsm-published"): ["--method.beta", "0.01", "--penalty.lam", "1e-4"],
    ("method", "admm-published"): ["--method.rho", "0.01", "--method.sparsity", "0.6"],
}
"""What an entry cannot do without, where that is not a target sparsity."""


def flags_for(section: str, name: str) -> list[str]:
    more = NEEDED.get((section, name), [])
    target = [] if section == "method" and (section, name) in NEEDED else TARGET
    return [f"--{section}.name", name, *more, *target]


def write(folder: Path, text: str, name: str = "experiment.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(("section", "name"), [(s, n) for s, chosen in CHOICES.items() for n in chosen.entries])
def test_help_is_for_people(section: str, name: str) -> None:
    text = help_of([f"--{section}.name", name])
    assert not re.search(r"`|type:|Optional|Union|Literal|Mapping|<class '|\bNone\b", text)


class TestRoundTrip:
    @pytest.mark.parametrize(("section", "name"), ENTRIES)
    def test_every_entry_of_every_registry(self, section: str, name: str, tmp_path: Path) -> None:
        config = read_config(flags=flags_for(section, name))
        again = read_config(write(tmp_path, as_toml(config)))
        assert again == config
        assert config_of(tomllib.loads(as_toml(again))) == config
        assert as_toml(again) == as_toml(config)

    @pytest.mark.parametrize(("section", "name"), ENTRIES)
    def test_a_file_with_nothing_but_names(self, section: str, name: str, tmp_path: Path) -> None:
        flags = flags_for(section, name)
        keys = [word.removeprefix("--").partition(".") for word in flags[::2]]
        tables: dict[str, list[str]] = {}
        for (part, _, option), value in zip(keys, flags[1::2], strict=True):
            is_text = option in ("name", "path")
            tables.setdefault(part, []).append(f"{option} = {value!r}" if is_text else f"{option} = {value}")
        text = "\n".join(f"[{part}]\n" + "\n".join(lines) for part, lines in tables.items())
        from_file = read_config(write(tmp_path, text, "run.toml"))
        assert from_file == read_config(flags=flags)

    def test_lists_tables_and_paths(self, tmp_path: Path) -> None:
        text = """
            name = "all kinds"
            [optimizer]
            name = "adamw"
            betas = [0.8, 0.95]
            [schedule]
            name = "step"
            drops = [0.25, 0.5]
            [method]
            exclude = ["0.*", "fc.weight"]
            overrides = {"3.*" = {sparsity = 0.5}}
            [budget]
            sparsity = 0.9
        """
        config = read_config(write(tmp_path, text))
        assert config.optimizer.options["betas"] == (0.8, 0.95)
        assert config.schedule.options["drops"] == (0.25, 0.5)
        assert config.method.options["exclude"] == ["0.*", "fc.weight"]
        assert config.method.options["overrides"] == {"3.*": {"sparsity": 0.5}}
        assert config_of(tomllib.loads(as_toml(config))) == config

    @settings(max_examples=25)
    @given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 10**9), st.integers(-(2**63), 2**63 - 1))
    def test_numbers_to_the_last_bit(self, lr: float, epochs: int, seed: int) -> None:
        line = [f"--optimizer.lr={lr!r}", f"--training.epochs={epochs}", f"--seed={seed}"]
        config = read_config(flags=[*TARGET, *line])
        assert (config.optimizer.options["lr"], config.training.epochs, config.seed) == (lr, epochs, seed)
        assert config_of(tomllib.loads(as_toml(config))) == config

    @settings(max_examples=25)
    @given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30))
    def test_names_in_any_alphabet(self, name: str) -> None:
        config = read_config(flags=[*TARGET, f"--name={name}"])
        assert config.name == name
        assert config_of(tomllib.loads(as_toml(config))).name == name

    @pytest.mark.parametrize("name", ["null", "true", "1e-6", "[a]", "{a: 1}", "3", "a: b", "#", "ℓ0, 90 %", "--x"])
    def test_texts_that_look_like_something_else(self, name: str, tmp_path: Path) -> None:
        config = read_config(flags=[*TARGET, f"--name={name}", "--data.name=folder", f"--data.path={name}"])
        assert config.name == name
        again = read_config(write(tmp_path, as_toml(config)))
        assert again.name == name
        assert again == config

    def test_null_is_the_same_as_nothing(self) -> None:
        said = read_config(flags=[*TARGET, "--training.clip", "null", "--training.threads", "null"])
        assert said == read_config(flags=TARGET)
        assert said.training.clip is None

    def test_no_option_would_lose_a_null(self) -> None:
        # A file leaves null out, so null must be the default of each option that can be null.
        entries = [entry for known in CHOICES.values() for entry in known.entries.values()]
        for maker in [*entries, *PLAIN.values()]:
            for parameter in inspect.signature(maker).parameters.values():
                if "None" in str(parameter.annotation):
                    assert parameter.default in (None, inspect.Parameter.empty), (maker, parameter)


class TestPrecedence:
    def test_flags_override_the_file(self, tmp_path: Path) -> None:
        file = write(tmp_path, "seed = 3\n[training]\nepochs = 7\nbatch = 32\n[budget]\nsparsity = 0.5")
        config = read_config(file, ["--training.epochs", "9"])
        assert (config.training.epochs, config.training.batch, config.seed) == (9, 32, 3)

    def test_the_last_of_two_flags_wins(self) -> None:
        assert read_config(flags=[*TARGET, "--seed", "1", "--seed=2"]).seed == 2

    def test_a_flag_may_choose_another_entry(self, tmp_path: Path) -> None:
        file = write(tmp_path, "[optimizer]\nname = 'sgd'\n[budget]\nsparsity = 0.5")
        assert read_config(file, ["--optimizer.name", "adamw"]).optimizer.options["lr"] == 1e-3

    def test_the_name_is_that_of_the_file_unless_it_says_otherwise(self, tmp_path: Path) -> None:
        text = "[budget]\nsparsity = 0.5"
        assert read_config(write(tmp_path, text, "vgg-95.toml")).name == "vgg-95"
        assert read_config(write(tmp_path, f"name = 'mine'\n{text}")).name == "mine"
        assert read_config(write(tmp_path, f"name = 'mine'\n{text}"), ["--name", "yours"]).name == "yours"
        assert read_config(flags=TARGET).name == "run"

    def test_defaults_are_those_of_the_entries(self) -> None:
        config = read_config(flags=TARGET)
        assert (config.training, config.augment) == (Training(), Augment())
        assert config.budget is not None
        assert Budget(steps=10, **config.budget) == Budget(sparsity=0.9, steps=10)

    def test_a_negative_number_after_a_flag(self) -> None:
        assert read_config(flags=[*TARGET, "--seed", "-1"]).seed == -1


class TestFiles:
    @pytest.mark.parametrize(
        "contents",
        [b"\x00\x01\x80\xff", b"= 3", b"[a", b"\xff\xfe[\x00a\x00]", b'name = "a"\nname = "b"'],
    )
    def test_not_toml(self, contents: bytes, tmp_path: Path) -> None:
        file = tmp_path / "x.toml"
        file.write_bytes(contents)
        with pytest.raises(ValueError, match=r"x\.toml is not a TOML file: ") as error:
            read_config(file)
        assert "\n" not in str(error.value)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"there is no file .*nope\.toml; give a TOML file"):
            read_config(tmp_path / "nope.toml")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is a folder; give a TOML file, or use rvsm resume"):
            read_config(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="how many zeros"):
            read_config(write(tmp_path, ""))

    @pytest.mark.parametrize("text", ["budget = 0.9", "[[budget]]\nsparsity = 0.9", "[a.b.c]\nd = 1", "[a]"])
    def test_shapes_that_are_not_sections(self, text: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r".") as error:
            read_config(write(tmp_path, text))
        assert "\n" not in str(error.value)

    def test_unicode(self, tmp_path: Path) -> None:
        file = write(tmp_path, 'name = "ℓ0 für 学习"\n[budget]\nsparsity = 0.9', "größe.toml")
        assert read_config(file).name == "ℓ0 für 学习"

    def test_a_byte_order_mark_and_windows_lines(self, tmp_path: Path) -> None:
        file = tmp_path / "x.toml"
        file.write_bytes(b"[budget]\r\nsparsity = 0.9\r\n")
        assert read_config(file).budget is not None


class TestHelp:
    def test_every_option_of_the_defaults(self) -> None:
        text = help_of([])
        for section, maker in PLAIN.items():
            for field in fields(maker):
                if (section, field.name) != ("budget", "steps"):
                    assert f"--{section}.{field.name}" in text
        for section, known in CHOICES.items():
            assert f"--{section}.name" in text
            for name in known.entries:
                assert name in text
        for key in ("--name", "--seed", "--penalty.lam", "--method.beta", "--optimizer.momentum", "--groups.weighted"):
            assert key in text

    @pytest.mark.parametrize(("section", "name"), ENTRIES)
    def test_every_option_of_every_entry(self, section: str, name: str) -> None:
        text = help_of([f"--{section}.name", name])
        known = CHOICES[section]
        for option in inspect.signature(known.entries[name]).parameters:
            of_budget = (section, option) == ("method", "sparsity") and not name.startswith("admm")
            hidden = option in known.given or of_budget
            assert (f"--{section}.{option} " in text) != hidden, option

    def test_options_are_explained(self) -> None:
        text = " ".join(help_of([]).split())
        assert "passes over the training images" in text
        assert "the largest learning rate; the schedule multiplies it" in text

    @pytest.mark.parametrize(("section", "name"), ENTRIES)
    def test_every_option_is_explained(self, section: str, name: str) -> None:
        """An option whose docstring says nothing would show its type alone."""
        text = " ".join(help_of([f"--{section}.name", name]).split())
        assert re.findall(r"--([\w.]+) [A-Z_0-9]+ \(", text) == []

    def test_lines_fit_a_terminal_and_break_no_name(self) -> None:
        lines = help_of([]).splitlines()
        assert max(map(len, lines)) <= 80
        assert not any(line.endswith("-") for line in lines)

    def test_of_a_file(self, tmp_path: Path) -> None:
        file = write(tmp_path, "[penalty]\nname = 'scad'")
        assert "--penalty.a" in help_of([], file)
