from pathlib import Path

import pytest

from rvsm.config import config_of, read_config
from rvsm.config.sections import CHOICES

TARGET = ["--budget.sparsity", "0.9"]


def write(folder: Path, text: str, name: str = "experiment.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


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

    def test_the_file_is_named_whatever_is_wrong_with_it(self, tmp_path: Path) -> None:
        file = write(tmp_path, "[training]\nepochs = 'x'\n[budget]\nsparsity = 0.9")
        with pytest.raises(ValueError, match=r"experiment\.toml: training\.epochs must be an integer but is 'x'"):
            read_config(file)
        file = write(tmp_path, "[budget]\nsparsity = 90")
        with pytest.raises(ValueError, match=r"experiment\.toml: \[budget\] sparsity must be"):
            read_config(file)
        with pytest.raises(ValueError, match=r"experiment\.toml with --seed x: seed must be"):
            read_config(file, ["--seed", "x"])

    def test_the_file_of_a_run_is_named(self) -> None:
        file = Path("runs/a/config.toml")
        with pytest.raises(ValueError, match=r"^runs/a/config\.toml: budget\.sparsity is missing: .*; restore what"):
            config_of({"budget": {"ramp": 0.1}}, file)

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
        assert (
            refused("x.toml") == "expected --section.option VALUE but found 'x.toml'; a file comes before the options"
        )
        assert refused("--seed") == "--seed needs a value: --seed VALUE"
        assert refused("--seed", "--name", "x") == "--seed needs a value: --seed VALUE"
        assert "'-x'" in refused(*TARGET, "-x", "3")

    def test_options_without_their_section_and_the_folder_of_a_run(self) -> None:
        assert refused("--sparsity", "0.9") == "unknown key 'sparsity'; did you mean 'budget.sparsity'?"
        assert refused("--lr", "0.1") == "unknown key 'lr'; did you mean 'optimizer.lr'?"
        assert refused("--runs", "x") == (
            "unknown key 'runs'; the folder of a run is rvsm train --run, that of several rvsm compare --runs"
        )

    def test_no_abbreviations(self) -> None:
        assert "unknown key" in refused(*TARGET, "--training.ep", "3")


class TestValues:
    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("training.epochs", "three", "an integer"),
            ("training.epochs", "3.5", "an integer"),
            ("training.epochs", "true", "an integer"),
            ("training.epochs", "", "an integer"),
            ("training.epochs", "null", "an integer"),
            ("seed", "x", "an integer"),
            ("budget.sparsity", "most", "a number or null"),
            ("budget.sparsity", "nan", "a number or null"),
            ("optimizer.lr", "inf", "a number"),
            ("training.clip", "high", "a number or null"),
            ("training.compile", "maybe", "true or false"),
            ("training.precision", "float16", "auto or float32 or bfloat16"),
            ("method.order", "reverse", "proof or printed"),
            ("method.exclude", "conv1.*", "a list of strings or null"),
        ],
    )
    def test_wrong_types(self, key: str, value: str, expected: str) -> None:
        example = "; a list is written [a, b]" if "list" in expected else ""
        assert refused(*TARGET, f"--{key}", value) == f"{key} must be {expected} but is {value!r}{example}"

    def test_wrong_types_of_entries(self) -> None:
        for value in ("0.9", "[0.9]", "[0.9, 0.99, 0.999]", "[a, b]"):
            text = refused(*TARGET, "--optimizer.name", "adamw", "--optimizer.betas", value)
            assert text.startswith(f"optimizer.betas must be a list of 2 numbers but is {value!r}; a list")
        text = refused(*TARGET, "--schedule.name", "step", "--schedule.drops", "0.5")
        assert text == "schedule.drops must be a list of numbers but is '0.5'; a list is written [a, b]"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("epochs = true", "training.epochs must be an integer but is True"),
            ("epochs = 1.5", "training.epochs must be an integer but is 1.5"),
            ("epochs = [3]", r"training.epochs must be an integer but is \[3\]"),
            ("epochs = 2026-01-01", "training.epochs must be an integer but is .*2026"),
            ("epochs = {a = 1}", "training.epochs must be an integer but is .*"),
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
            (["--training.validation", "1"], "training.validation must be a fraction in [0, 1) but is 1.0"),
            (
                ["--training.label_smoothing", "-0.1"],
                "training.label_smoothing must be a fraction in [0, 1) but is -0.1",
            ),
            (["--training.clip", "0"], "training.clip must be a norm > 0, or null, but is 0.0"),
            (
                ["--training.batch", "4", "--training.accumulate", "8"],
                "training.accumulate must be at most the number of images in a batch, 4, but is 8",
            ),
            (["--augment.crop", "-1"], "augment.crop must be a number of pixels ≥ 0 but is -1"),
            (["--budget.sparsity", "90"], "[budget] sparsity must be in [0, 1) but is 90.0; for 90 % write 0.9"),
            (["--budget.sparsity", "-0.5"], "[budget] sparsity must be in [0, 1) but is -0.5"),
            (
                ["--budget.ramp", "0.9"],
                "[budget] ramp and heal must be ≥ 0 and add up to at most 1 but are 0.9 and 0.3",
            ),
            (["--schedule.warmup", "1"], "[schedule] warmup must be a fraction in [0, 1) but is 1.0"),
            (
                ["--groups.name", "block", "--groups.size", "0"],
                "[groups] size of a block must be an integer ≥ 1 but is 0",
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
        assert text == "penalty.lam and a budget exclude each other: the target sets λ; leave one of them out"

    def test_the_target_is_the_budgets(self) -> None:
        assert refused("--method.sparsity", "0.9").endswith("the target is budget.sparsity")

    def test_a_budget_without_its_sparsity(self) -> None:
        assert refused("--budget.ramp", "0.5").startswith("budget.sparsity is missing: give --budget.sparsity")

    def test_methods_without_a_section(self) -> None:
        assert "has no budget; leave the section out, or choose rvsm or magnitude" in refused(
            "--method.name", "dense", *TARGET
        )
        assert "has no penalty" in refused("--method.name", "magnitude", "--penalty.name", "l1", *TARGET)
        assert "has no groups" in refused("--method.name", "dense", "--groups.name", "filter")

    def test_magnitude(self) -> None:
        assert refused("--method.name", "magnitude") == (
            "magnitude needs a target: give --budget.sparsity 0.9, or --budget.speedup 5"
        )
        assert refused("--method.name", "acdc") == (
            "acdc needs a target: give --budget.sparsity 0.9, or --budget.speedup 5"
        )

    def test_admm_needs_one_of_two(self) -> None:
        admm = ["--method.name", "admm", "--method.rho", "0.01"]
        penalty = ["--penalty.name", "l0", "--penalty.lam", "1e-3"]
        assert "either" in refused(*admm)
        assert "either" in refused(*admm, "--method.sparsity", "0.6", *penalty)
        assert "give --method.rho" in refused(*admm[:2], *penalty)
        assert read_config(flags=[*admm[:2], "--method.sparsity", "0.6"]).method.options.get("rho") is None
        assert read_config(flags=[*admm, *penalty]).penalty is not None
        assert read_config(flags=[*admm, *penalty[2:]]) == read_config(flags=[*admm, *penalty])
