import pytest

from rvsm.config import Config, differences, read_config

TARGET = ["--budget.sparsity", "0.9"]


def test_fingerprint_ignores_name_and_seed_and_the_machine_and_nothing_else() -> None:
    base = read_config(flags=TARGET)
    prints = {base.fingerprint()}
    same_training = (
        ["--name", "other"],
        ["--seed", "7"],
        ["--training.epochs", "30"],
        ["--training.threads", "1"],
        ["--training.device", "cpu"],
        ["--training.checkpoint_every", "5"],
    )
    for same in same_training:
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


def test_with_seed() -> None:
    config = read_config(flags=TARGET)
    assert config.with_seed(3).seed == 3
    assert config.with_seed(3).with_seed(0) == config


def test_differences_in_words() -> None:
    ours = read_config(flags=TARGET)
    theirs = read_config(flags=["--training.epochs", "12", "--penalty.lam", "1e-6", "--method.beta", "0.1"])
    told = differences(ours, theirs)
    assert "training.epochs 30 → 12" in told
    assert "penalty.lam unset → 1e-06" in told
    assert "budget.sparsity 0.9 → unset" in told
    assert differences(ours, ours) == []


def test_a_configuration_cannot_be_changed() -> None:
    config: Config = read_config(flags=TARGET)
    with pytest.raises(AttributeError):
        config.seed = 3  # type: ignore[misc]
