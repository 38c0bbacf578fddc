import inspect
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.config import Augment, Config, Training, as_toml, config_of, differences, help_of, read_config
from rvsm.config.sections import CHOICES, PLAIN
from rvsm.splitting import Budget

TARGET = ["--budget.sparsity", "0.9"]
ENTRIES = [(section, name) for section, known in CHOICES.items() for name in known.entries]
NEEDED = {
    ("data", "folder"): ["--data.path", "images"],
    ("method", "dense"): [],
    ("method", "admm"): ["--method.rho", "0.01", "--method.sparsity", "0.6"],
    ("method", "proxsgd"): ["--penalty.lam", "1e-4"],
}
"""What an entry cannot do without, where that is not a target sparsity."""


def flags_for(section: str, name: str) -> list[str]:
    more = NEEDED.get((section, name), [])
    target = [] if section == "method" and name in ("dense", "admm", "proxsgd") else TARGET
    return [f"--{section}.name", name, *more, *target]


def write(folder: Path, text: str, name: str = "experiment.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


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
        assert config.optimizer.options["betas"] == [0.8, 0.95]
        assert config.schedule.options["drops"] == [0.25, 0.5]
        assert config.method.options["exclude"] == ["0.*", "fc.weight"]
        assert config.method.options["overrides"] == {"3.*": {"sparsity": 0.5}}
        assert config_of(tomllib.loads(as_toml(config))) == config

    @settings(max_examples=25, deadline=None)
    @given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 10**9), st.integers(-(2**63), 2**63 - 1))
    def test_numbers_to_the_last_bit(self, lr: float, epochs: int, seed: int) -> None:
        line = [f"--optimizer.lr={lr!r}", f"--training.epochs={epochs}", f"--seed={seed}"]
        config = read_config(flags=[*TARGET, *line])
        assert (config.optimizer.options["lr"], config.training.epochs, config.seed) == (lr, epochs, seed)
        assert config_of(tomllib.loads(as_toml(config))) == config

    @settings(max_examples=25, deadline=None)
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


def refused(*flags: str) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        read_config(flags=list(flags))
    text = str(error.value)
    assert "\n" not in text
    assert "<class" not in text
    return text


class TestTypos:
    @pytest.mark.parametrize(
        ("key", "nearest"),
        [
            ("budget.sparsty", "budget.sparsity"),
            ("training.epoch", "training.epochs"),
            ("training.label-smoothing", "training.label_smoothing"),
            ("optimizer.learning_rate", "optimizer.lr"),
            ("sed", "seed"),
            ("augment.cutuot", "augment.cutout"),
            ("schedule.warm_up", "schedule.warmup"),
        ],
    )
    def test_nearest_key(self, key: str, nearest: str) -> None:
        text = refused(*TARGET, f"--{key}", "1")
        assert f"unknown key {key!r}" in text
        if key != "optimizer.learning_rate":
            assert f"did you mean {nearest!r}?" in text
        assert nearest in text  # among those that there are

    @pytest.mark.parametrize(("section", "nearest"), [("trainin", "training"), ("bugdet", "budget"), ("date", "data")])
    def test_nearest_section(self, section: str, nearest: str) -> None:
        text = refused(*TARGET, f"--{section}.epochs", "1")
        assert f"unknown section {section!r}; did you mean {nearest!r}?" in text

    @pytest.mark.parametrize(
        ("section", "name", "nearest"),
        [
            ("optimizer", "adam", "adamw"),
            ("model", "resnet-18", "resnet18"),
            ("data", "cifar-10", "cifar10"),
            ("schedule", "cosin", "cosine"),
            ("method", "rsvm", "rvsm"),
            ("penalty", "tl", "tl1"),
            ("groups", "filters", "filter"),
        ],
    )
    def test_nearest_entry(self, section: str, name: str, nearest: str) -> None:
        text = refused(*TARGET, f"--{section}.name", name)
        assert f"unknown {section}.name {name!r}; did you mean {nearest!r}?" in text
        assert all(entry in text for entry in CHOICES[section].entries)

    def test_nothing_near(self) -> None:
        text = refused(*TARGET, "--optimizer.name", "qqqq")
        assert text == "unknown optimizer.name 'qqqq'; choose from sgd, adamw"

    def test_the_file_is_named(self, tmp_path: Path) -> None:
        file = write(tmp_path, "[training]\nepoch = 3\n[budget]\nsparsity = 0.9")
        with pytest.raises(ValueError, match=r"experiment\.toml: unknown key 'training\.epoch'.*'training\.epochs'"):
            read_config(file)

    def test_a_key_of_another_entry(self) -> None:
        text = refused(*TARGET, "--optimizer.betas", "[0.9, 0.99]")
        assert text == "optimizer.betas is an option of optimizer.name = 'adamw', which is not chosen"
        text = refused(*TARGET, "--penalty.a", "3")
        assert text == "penalty.a is an option of penalty.name = 'tl1' or 'scad', which is not chosen"

    @pytest.mark.parametrize("key", ["model.classes", "model.size", "method.model", "budget.steps"])
    def test_a_key_that_the_training_decides(self, key: str) -> None:
        text = refused(*TARGET, f"--{key}", "3")
        assert key in text
        assert "which is not chosen" not in text

    @pytest.mark.parametrize("flag", ["--training", "--budget", "--config", "--print_config", "--help", "--", "--=1"])
    def test_no_options_of_the_parser_itself(self, flag: str) -> None:
        refused(*TARGET, flag, "x")

    def test_words_out_of_place(self) -> None:
        assert refused("x.toml") == "expected --section.option VALUE but found 'x.toml'"
        assert refused("--seed") == "--seed needs a value: --seed VALUE"
        assert refused("--seed", "--name", "x") == "--seed needs a value: --seed VALUE"
        assert "'-x'" in refused(*TARGET, "-x", "3")

    def test_no_abbreviations(self) -> None:
        assert "unknown key" in refused(*TARGET, "--training.ep", "3")


class TestValues:
    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("training.epochs", "three", "a whole number"),
            ("training.epochs", "3.5", "a whole number"),
            ("training.epochs", "true", "a whole number"),
            ("training.epochs", "", "a whole number"),
            ("training.epochs", "null", "a whole number"),
            ("seed", "x", "a whole number"),
            ("budget.sparsity", "most", "a number"),
            ("budget.sparsity", "nan", "a number"),
            ("optimizer.lr", "inf", "a number"),
            ("training.clip", "high", "a number or null"),
            ("training.compile", "maybe", "true or false"),
            ("training.precision", "float16", "auto or float32 or bfloat16"),
            ("method.order", "reverse", "proof or printed"),
            ("method.exclude", "conv1.*", "a list of texts or null"),
        ],
    )
    def test_wrong_types(self, key: str, value: str, expected: str) -> None:
        assert refused(*TARGET, f"--{key}", value) == f"{key} must be {expected} but is {value!r}"

    def test_wrong_types_of_entries(self) -> None:
        for value in ("0.9", "[0.9]", "[0.9, 0.99, 0.999]", "[a, b]"):
            text = refused(*TARGET, "--optimizer.name", "adamw", "--optimizer.betas", value)
            assert text == f"optimizer.betas must be a list of two, a number and a number but is {value!r}"
        text = refused(*TARGET, "--schedule.name", "step", "--schedule.drops", "0.5")
        assert text == "schedule.drops must be a list of numbers but is '0.5'"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("epochs = true", "training.epochs must be a whole number but is True"),
            ("epochs = 1.5", "training.epochs must be a whole number but is 1.5"),
            ("epochs = [3]", r"training.epochs must be a whole number but is \[3\]"),
            ("epochs = 2026-01-01", "training.epochs must be a whole number but is .*2026"),
            ("epochs = {a = 1}", "training.epochs must be a whole number but is .*"),
            ("validation = nan", "training.validation must be a number but is nan"),
            ("label_smoothing = inf", "training.label_smoothing must be a number but is inf"),
            ("compile = 'perhaps'", "training.compile must be true or false but is 'perhaps'"),
        ],
    )
    def test_wrong_types_in_a_file(self, text: str, message: str, tmp_path: Path) -> None:
        file = write(tmp_path, f"[budget]\nsparsity = 0.9\n[training]\n{text}")
        with pytest.raises(ValueError, match=message):
            read_config(file)

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--training.epochs", "0"], "training.epochs must be at least 1 but is 0"),
            (["--training.batch", "-2"], "training.batch must be at least 1 but is -2"),
            (["--training.threads", "0"], "training.threads must be at least 1, or null, but is 0"),
            (["--training.validation", "1"], "training.validation must be a share in [0, 1) but is 1.0"),
            (["--training.label_smoothing", "-0.1"], "training.label_smoothing must be a share in [0, 1) but is -0.1"),
            (["--training.clip", "0"], "training.clip must be a norm > 0, or null, but is 0.0"),
            (
                ["--training.batch", "4", "--training.accumulate", "8"],
                "training.accumulate = 8 parts of a batch of 4 would be empty",
            ),
            (["--augment.crop", "-1"], "augment.crop must be a number of pixels ≥ 0 but is -1"),
            (["--budget.sparsity", "90"], "[budget] sparsity must be in [0, 1) but is 90.0; for 90 % write 0.9"),
            (["--budget.sparsity", "-0.5"], "[budget] sparsity must be in [0, 1) but is -0.5"),
            (
                ["--budget.ramp", "0.9"],
                "[budget] ramp and heal must be ≥ 0 and add up to at most 1 but are 0.9 and 0.3",
            ),
            (["--schedule.warmup", "1"], "[schedule] warmup must be a share of the training in [0, 1) but is 1.0"),
            (
                ["--groups.name", "block", "--groups.size", "0"],
                "[groups] size of a block must be a whole number ≥ 1 but is 0",
            ),
            (["--penalty.name", "tl1", "--penalty.a", "-1"], "[penalty] a must be > 0 and finite but is -1.0"),
        ],
    )
    def test_out_of_range(self, flags: list[str], message: str) -> None:
        assert refused(*TARGET, *flags) == message

    @pytest.mark.parametrize(
        "flags",
        [
            ["--optimizer.lr", "-1"],
            ["--optimizer.momentum", "-0.1"],
            ["--optimizer.weight_decay", "-1"],
            ["--optimizer.momentum", "0"],  # Nesterov without momentum
            ["--optimizer.name", "adamw", "--optimizer.betas", "[0.9, 1.5]"],
        ],
    )
    def test_an_optimizer_that_torch_refuses(self, flags: list[str]) -> None:
        assert refused(*TARGET, *flags).startswith("[optimizer] ")

    @pytest.mark.parametrize("seed", [2**64, -(2**64)])
    def test_a_seed_beyond_64_bits(self, seed: int) -> None:
        assert "seed" in refused(*TARGET, f"--seed={seed}")


class TestTargets:
    def test_nothing_said(self) -> None:
        text = refused()
        assert "how many zeros" in text
        assert "--budget.sparsity 0.9" in text
        assert "--penalty.lam" in text

    def test_half_of_the_papers_parameters(self) -> None:
        assert "--method.beta" in refused("--penalty.lam", "1e-6")
        assert "penalty.lam is missing" in refused("--method.beta", "0.08")
        assert "how many zeros" in refused("--method.name", "proxsgd")
        config = read_config(flags=["--penalty.lam", "1e-6", "--method.beta", "0.08"])
        assert config.budget is None
        assert config.penalty is not None
        assert config.penalty.options == {"lam": 1e-6}

    def test_a_weight_and_a_target_exclude_each_other(self) -> None:
        text = refused(*TARGET, "--penalty.lam", "1e-6")
        assert text == "penalty.lam and a budget exclude each other: budget.sparsity sets λ; leave one of them out"

    def test_the_target_is_the_budgets(self) -> None:
        assert refused("--method.sparsity", "0.9").endswith("the target of this method is budget.sparsity")

    def test_a_budget_without_its_sparsity(self) -> None:
        assert refused("--budget.ramp", "0.5").startswith("budget.sparsity is missing: give --budget.sparsity")

    def test_methods_without_a_section(self) -> None:
        assert "has no budget; leave the section out, or choose rvsm or magnitude" in refused(
            "--method.name", "dense", *TARGET
        )
        assert "has no penalty" in refused("--method.name", "magnitude", "--penalty.name", "l1", *TARGET)
        assert "has no groups" in refused("--method.name", "dense", "--groups.name", "filter")

    def test_magnitude(self) -> None:
        assert refused("--method.name", "magnitude") == ("magnitude pruning needs a target: give --budget.sparsity 0.9")

    def test_admm_needs_one_of_two(self) -> None:
        admm = ["--method.name", "admm", "--method.rho", "0.01"]
        penalty = ["--penalty.name", "l0", "--penalty.lam", "1e-3"]
        assert "either" in refused(*admm)
        assert "either" in refused(*admm, "--method.sparsity", "0.6", *penalty)
        assert "method.rho is missing" in refused("--method.name", "admm", "--method.sparsity", "0.6")
        assert read_config(flags=[*admm, *penalty]).penalty is not None
        assert read_config(flags=[*admm, *penalty[2:]]) == read_config(flags=[*admm, *penalty])


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
            hidden = option in known.given or ((section, option) == ("method", "sparsity") and name != "admm")
            assert (f"--{section}.{option} " in text) != hidden, option

    def test_options_are_explained(self) -> None:
        text = " ".join(help_of([]).split())
        assert "passes over the training images" in text
        assert "the share of zeros over the sparsified weights" in text
        assert "the largest learning rate; the schedule multiplies it" in text

    def test_nothing_of_the_parser_shows(self) -> None:
        text = help_of([])
        assert "--training CONFIG" not in text
        assert "<class" not in text

    def test_of_a_file(self, tmp_path: Path) -> None:
        file = write(tmp_path, "[penalty]\nname = 'scad'")
        assert "--penalty.a" in help_of([], file)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


class TestOwnModels:
    TEXT = """
from torch import nn

def small(*, channels: int, classes: int, hidden: int = 8, bias: bool = True):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, hidden, bias), nn.Linear(hidden, classes))

def untyped(width=3):
    return nn.Linear(width, width)

number = 3
"""

    def test_its_arguments_are_options(self, elsewhere: Path) -> None:
        write(elsewhere, self.TEXT, "own_model_one.py")
        config = read_config(flags=[*TARGET, "--model.name", "own_model_one:small", "--model.hidden", "16"])
        assert config.model.options == {"hidden": 16, "bias": True}  # channels and classes come from the data
        assert config_of(tomllib.loads(as_toml(config))) == config
        assert "--model.hidden" in help_of(["--model.name", "own_model_one:small"])

    def test_arguments_without_types(self, elsewhere: Path) -> None:
        write(elsewhere, self.TEXT, "own_model_two.py")
        config = read_config(flags=[*TARGET, "--model.name", "own_model_two:untyped", "--model.width", "5"])
        assert config.model.options == {"width": 5}

    def test_errors(self, elsewhere: Path) -> None:
        write(elsewhere, self.TEXT, "own_model_three.py")
        name = ["--model.name", "own_model_three:small"]
        assert "did you mean 'model.hidden'?" in refused(*TARGET, *name, "--model.hiden", "3")
        assert refused(*TARGET, *name, "--model.hidden", "x") == "model.hidden must be a whole number but is 'x'"
        assert "callables there are small, untyped" in refused(*TARGET, "--model.name", "own_model_three:smal")
        assert "is a int" in refused(*TARGET, "--model.name", "own_model_three:number")
        assert "there is no module 'own_model_nowhere'" in refused(*TARGET, "--model.name", "own_model_nowhere:small")
        assert "or your own as module:callable" in refused(*TARGET, "--model.name", "smal")


class TestDifferences:
    def test_fingerprint_ignores_name_and_seed_and_nothing_else(self) -> None:
        base = read_config(flags=TARGET)
        prints = {base.fingerprint()}
        for same in (["--name", "other"], ["--seed", "7"], ["--training.epochs", "30"]):
            assert read_config(flags=[*TARGET, *same]).fingerprint() == base.fingerprint()
        changes = [
            ["--data.name", "fashion-mnist"],
            ["--model.width", "16"],
            ["--model.name", "lenet5"],
            ["--optimizer.lr", "0.05"],
            ["--optimizer.nesterov", "false"],
            ["--schedule.warmup", "0.1"],
            ["--training.epochs", "31"],
            ["--training.precision", "float32"],
            ["--training.clip", "1"],
            ["--training.threads", "1"],
            ["--augment.flip", "true"],
            ["--method.order", "printed"],
            ["--method.exclude", "[a]"],
            ["--penalty.name", "l1"],
            ["--groups.name", "filter"],
            ["--budget.sparsity", "0.91"],
            ["--budget.floor", "0"],
        ]
        for change in changes:
            prints.add(read_config(flags=[*TARGET, *change]).fingerprint())
        assert len(prints) == 1 + len(changes)
        assert all(len(text) == 8 for text in prints)

    def test_with_seed(self) -> None:
        config = read_config(flags=TARGET)
        assert config.with_seed(3).seed == 3
        assert config.with_seed(3).with_seed(0) == config

    def test_differences_in_words(self) -> None:
        ours = read_config(flags=TARGET)
        theirs = read_config(flags=["--training.epochs", "12", "--penalty.lam", "1e-6", "--method.beta", "0.1"])
        told = differences(ours, theirs)
        assert "training.epochs 30 → 12" in told
        assert "penalty.lam unset → 1e-06" in told
        assert "budget.sparsity 0.9 → unset" in told
        assert differences(ours, ours) == []

    def test_a_configuration_cannot_be_changed(self) -> None:
        config: Config = read_config(flags=TARGET)
        with pytest.raises(AttributeError):
            config.seed = 3  # type: ignore[misc]
