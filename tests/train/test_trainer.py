import copy
import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rvsm.train.measure
import rvsm.train.trainer
from rvsm.config import Config, read_config
from rvsm.data import Batches, Dataset, Images
from rvsm.records.states import load, save
from rvsm.train import Trainer, summary
from rvsm.train.result import finish

PLAIN = """
import torch
from torch import nn

def linear(*, channels: int, classes: int, hidden: int = 12):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, hidden), nn.ReLU(), nn.Linear(hidden, classes))

def convolution(*, classes: int = 10):
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, classes))

def many(*, classes: int):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 1))

def two():
    class Two(nn.Module):
        def forward(self, x):
            return x, x
    return Two()

def nothing():
    return 3

class Untrainable(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, x):
        if self.training:
            return {}["mask"]
        return super().forward(x.flatten(1))

class Unprepared(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def prepare(self):
        pass

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, x):
        return x.flatten(1)[:, :10] * self.scale

class Prepared(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.last = nn.Linear(64, classes)
        self.register_buffer("mean", None)

    def prepare(self, x):
        self.mean = x.mean(0)

    def forward(self, x):
        return self.last((x - self.mean).flatten(1))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"nets_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def dense(*flags: str) -> Config:
    words = ["--method.name", "dense", "--training.epochs", "2", "--training.batch", "250"]
    return read_config(flags=["--training.precision", "float32", *words, *flags])


def gradients(trainer: Trainer) -> list[torch.Tensor]:
    """The gradients of the first step, as the optimizer sees them."""
    found: list[torch.Tensor] = []

    def look(*_: Any) -> None:
        found.extend(p.grad.clone() for p in trainer.model.parameters() if p.grad is not None)

    trainer.optimizer.register_step_pre_hook(look)
    x, y = next(trainer.batches.epoch(0))
    trainer.train_step(x, y)
    return found


class TestStep:
    @pytest.mark.parametrize("parts", ["2", "3", "250"])
    @pytest.mark.parametrize("smoothing", ["0", "0.2"])
    def test_parts_of_a_batch_give_its_gradient(self, module: str, digits: Dataset, parts: str, smoothing: str) -> None:
        flags = ["--model.name", f"{module}:linear", "--training.label_smoothing", smoothing]
        whole = Trainer(dense(*flags), digits)
        parted = Trainer(dense(*flags, "--training.accumulate", parts), digits)
        for g, h in zip(gradients(whole), gradients(parted), strict=True):
            torch.testing.assert_close(g, h, rtol=1e-4, atol=1e-6)
        assert whole._running["loss"] == pytest.approx(parted._running["loss"], rel=1e-5)
        assert whole._running["correct"] == parted._running["correct"]

    def test_the_gradient_is_that_of_the_mean_cross_entropy(self, module: str, digits: Dataset) -> None:
        trainer = Trainer(dense("--model.name", f"{module}:linear", "--training.label_smoothing", "0.1"), digits)
        model = copy.deepcopy(trainer.model)
        x, y = next(trainer.batches.epoch(0))
        # q = 0.9 · one-hot + 0.1/10
        q = 0.9 * nn.functional.one_hot(y, 10) + 0.01
        (-(q * model(x).log_softmax(1)).sum(1).mean()).backward()
        for g, p in zip(gradients(trainer), model.parameters(), strict=True):
            assert p.grad is not None
            torch.testing.assert_close(g, p.grad, rtol=1e-4, atol=1e-6)

    def test_clip(self, module: str, digits: Dataset) -> None:
        free = gradients(Trainer(dense("--model.name", f"{module}:linear"), digits))
        clipped = gradients(Trainer(dense("--model.name", f"{module}:linear", "--training.clip", "0.01"), digits))
        norm = torch.cat([g.flatten() for g in free]).norm()
        assert norm > 0.1
        assert torch.cat([g.flatten() for g in clipped]).norm() == pytest.approx(0.01, rel=1e-3)
        for g, h in zip(free, clipped, strict=True):
            torch.testing.assert_close(g * (0.01 / norm), h, rtol=1e-3, atol=1e-7)

    def test_a_high_limit_changes_nothing(self, module: str, digits: Dataset) -> None:
        free = gradients(Trainer(dense("--model.name", f"{module}:linear"), digits))
        clipped = gradients(Trainer(dense("--model.name", f"{module}:linear", "--training.clip", "1e6"), digits))
        assert all(torch.equal(g, h) for g, h in zip(free, clipped, strict=True))

    def test_layouts_agree(self, module: str, digits: Dataset) -> None:
        trained = []
        for layout in ("true", "false"):
            flags = ["--model.name", f"{module}:convolution", "--training.channels_last", layout]
            trainer = Trainer(dense(*flags, "--optimizer.lr", "0.01"), digits)
            assert trainer.placement.channels_last == (layout == "true")
            trainer.run()
            trained.append(trainer.model)
        for p, q in zip(trained[0].parameters(), trained[1].parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
        assert trained[0][2].weight.is_contiguous(memory_format=torch.channels_last)
        assert trained[1][2].weight.is_contiguous()

    def test_precision(self, small: Any, digits: Dataset) -> None:
        seen = set()
        trainer = Trainer(small("--training.precision", "bfloat16"), digits)
        trainer.model[0].register_forward_hook(lambda *args: seen.add(args[2].dtype))
        x, y = next(trainer.batches.epoch(0))
        trainer.train_step(x, y)
        assert seen == {torch.bfloat16}
        assert Trainer(small("--training.precision", "float32"), digits).placement.precision == "float32"

    def test_frozen_weights_stay(self, module: str, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        made = rvsm.train.trainer.build.network

        def frozen(*args: Any, **about: int) -> nn.Module:
            model = made(*args, **about)
            model[1].requires_grad_(False)
            return model

        monkeypatch.setattr(rvsm.train.trainer.build, "network", frozen)
        trainer = Trainer(dense("--model.name", f"{module}:linear"), digits)
        before = trainer.model[1].weight.clone()
        trainer.run()
        assert torch.equal(trainer.model[1].weight, before)


class TestImages:
    def test_validation_images_are_not_trained_on(self, small: Any) -> None:
        # Each image says its own number, so that it can be recognised.
        numbers = torch.arange(200).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
        images = Images(numbers, torch.arange(200) % 10)
        data = Dataset(images, images[torch.arange(50)], tuple("0123456789"), "numbers")
        trainer = Trainer(small("--training.batch", "20", "--training.validation", "0.25"), data)
        assert trainer.validation is not None
        held = {int(image[0, 0, 0]) for image in trainer.validation.images.images}
        taken = {int(image[0, 0, 0]) for image in trainer.batches.images.images}
        assert len(held) == 50
        assert held | taken == set(range(200))
        assert not held & taken
        again = Trainer(small("--training.batch", "20", "--training.validation", "0.25", "--seed", "1"), data)
        assert again.validation is not None
        assert {int(image[0, 0, 0]) for image in again.validation.images.images} != held

    def test_no_validation(self, small: Any, train: Any) -> None:
        run = train(small("--training.validation", "0"))
        assert all("w" not in record and "u" not in record for record in run.metrics())
        assert all("sparsity" in record for record in run.metrics())

    def test_test_images_are_looked_at_once_at_the_end(
        self, small: Any, digits: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[str] = []
        test = digits.test.images
        epoch = Batches.epoch

        def watch(self: Batches, number: int, **which: int) -> Any:
            seen.append("test" if self.images.images.data_ptr() == test.data_ptr() else "other")
            return epoch(self, number, **which)

        monkeypatch.setattr(Batches, "epoch", watch)
        trainer = Trainer(small(), digits)
        trainer.run()
        assert seen
        assert "test" not in seen
        del seen[:]
        finish(trainer)
        assert seen.count("test") == 2  # once for w, once for u

    def test_moments_come_from_the_training_part_alone(self, small: Any, digits: Dataset) -> None:
        strange = Images(torch.full_like(digits.test.images, 255), digits.test.labels)
        one, other = Trainer(small(), digits), Trainer(small(), replace(digits, test=strange))
        assert one.moments == other.moments

    @pytest.mark.parametrize("flags", [[], ["--model.width", "3"]])
    def test_looking_changes_nothing(self, small: Any, train: Any, flags: list[str]) -> None:
        often, seldom = (train(small("--training.evaluate_every", every, *flags)) for every in ("1", "3"))
        assert all(torch.equal(w, seldom.weights()[name]) for name, w in often.weights().items())
        assert [record["epoch"] for record in seldom.metrics()] == [3]

    def test_the_last_epoch_is_always_looked_at(self, small: Any, train: Any) -> None:
        run = train(small("--training.evaluate_every", "2"))
        assert [record["epoch"] for record in run.metrics()] == [2, 3]
        assert train(small("--training.evaluate_every", "100")).metrics()[0]["epoch"] == 3

    def test_the_loss_is_the_mean_since_the_last_look(self, small: Any, train: Any) -> None:
        often, seldom = (train(small("--training.evaluate_every", every)).metrics() for every in ("1", "3"))
        assert seldom[0]["loss"] == pytest.approx(sum(record["loss"] for record in often) / 3, rel=1e-6)

    def test_a_batch_larger_than_the_data(self, small: Any, digits: Dataset) -> None:
        trainer = Trainer(small("--training.batch", "5000", "--training.epochs", "20"), digits)
        assert len(trainer.batches) == 1
        trainer.run()

    def test_a_data_set_of_a_few_images(self, small: Any, digits: Dataset) -> None:
        few = replace(digits, train=digits.train[torch.arange(12)], test=digits.test[torch.arange(3)])
        trainer = Trainer(small("--training.batch", "4", "--training.epochs", "8"), few)
        trainer.run()
        assert finish(trainer)[1]["steps"] == trainer.step


class TestModels:
    def test_a_model_that_does_not_fit_the_images(self, digits: Dataset) -> None:
        colours = [
            Images(part.images.expand(-1, 3, 8, 8).contiguous(), part.labels) for part in (digits.train, digits.test)
        ]
        config = read_config(flags=["--model.name", "torch.nn:Linear", "--model.in_features", "3",
                                    "--model.out_features", "10", "--budget.sparsity", "0.5"])  # fmt: skip
        data = Dataset(*colours, digits.classes, "colours")
        message = r"the model 'torch.nn:Linear' cannot take images of shape \[3, 8, 8\]: RuntimeError: mat1 and mat2"
        with pytest.raises(ValueError, match=message) as error:
            Trainer(config, data)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("name", "got"), [("many", r"\[2, 11\]"), ("two", "tuple")], ids=["eleven classes", "two outputs"]
    )
    def test_outputs_that_are_no_scores(self, module: str, digits: Dataset, name: str, got: str) -> None:
        message = (
            rf"'{module}:{name}' must return scores of shape \[2, 10\] for 2 images of 10 classes but returned {got}"
        )
        with pytest.raises(ValueError, match=message):
            Trainer(dense("--model.name", f"{module}:{name}"), digits)

    def test_no_model_at_all(self, module: str, digits: Dataset) -> None:
        with pytest.raises(ValueError, match=r"must return a torch\.nn\.Module but returned 3"):
            Trainer(dense("--model.name", f"{module}:nothing"), digits)

    def test_a_model_that_raises_where_only_a_training_comes(self, module: str, digits: Dataset) -> None:
        trainer = Trainer(dense("--model.name", f"{module}:Untrainable"), digits)
        with pytest.raises(
            ValueError, match=rf"'{module}:Untrainable' failed in step 1: KeyError: 'mask' \(.*, line \d+\)"
        ):
            trainer.run()
        with pytest.raises(ValueError, match=rf"'{module}:Unprepared' cannot prepare itself: TypeError: .*prepare\(\)"):
            Trainer(dense("--model.name", f"{module}:Unprepared"), digits)

    def test_a_model_without_any_matrix(self, module: str, digits: Dataset) -> None:
        trainer = Trainer(dense("--model.name", f"{module}:Scale"), digits)
        trainer.run()
        result = finish(trainer)[1]
        assert (result["weights"], result["sparsity"], result["multiplications_saved"]) == (0, 0.0, None)
        assert summary(result).startswith("test accuracy")

    def test_multiplications_are_those_of_the_whole_network(self, module: str, digits: Dataset) -> None:
        words = ["--model.name", f"{module}:linear", "--method.name", "magnitude", "--budget.sparsity", "0.5"]
        words += ["--method.include", '["1.weight"]', "--training.epochs", "2", "--training.batch", "250"]
        trainer = Trainer(read_config(flags=words), digits)
        trainer.run()
        result = finish(trainer)[1]
        assert result["sparsity"] == 0.5
        assert result["multiplications_saved"] == pytest.approx(0.5 * 64 * 12 / (64 * 12 + 12 * 10))

    def test_a_model_that_prepares_itself(self, module: str, digits: Dataset) -> None:
        trainer = Trainer(dense("--model.name", f"{module}:Prepared"), digits)
        assert float(trainer.model.mean.mean()) == pytest.approx(0, abs=1e-3)  # of all normalised images

    def test_trying_changes_nothing(self, small: Any, digits: Dataset) -> None:
        torch.manual_seed(0)
        from rvsm.config import build
        from rvsm.train.restoring import seed_all

        config = small()
        seed_all(config.seed)
        fresh = build.network(config, channels=digits.channels, classes=len(digits.classes), size=digits.size)
        trainer = Trainer(config, digits)
        assert all(torch.equal(w, trainer.model.state_dict()[name]) for name, w in fresh.state_dict().items())
        assert trainer.model.training

    def test_a_device_that_is_not_there(self, small: Any, digits: Dataset) -> None:
        for device in ("gpu", "cuda:99"):
            with pytest.raises(
                ValueError, match=rf"training\.device '{device}' cannot be used: .*; choose cpu, cuda or"
            ):
                Trainer(small("--training.device", device), digits)


def test_the_result_is_plain_and_complete(small: Any, train: Any) -> None:
    result = train(small()).result()
    assert json.loads(json.dumps(result)) == result
    assert {"epochs", "steps", "seconds", "test", "sparsity", "sparsity_of_all", "weights", "parameters", "nonzeros",
            "layers", "histogram", "channel_norms", "classes", "input"} <= set(result)  # fmt: skip
    assert result["input"] == [1, 8, 8]
    assert result["histogram"]["u"]["zeros"] == result["weights"] - sum(result["histogram"]["u"]["counts"])
    assert sum(result["histogram"]["w"]["counts"]) + result["histogram"]["w"]["zeros"] == result["weights"]
    for name, norms in result["channel_norms"]["u"].items():
        assert len(norms) == result["layers"][name]["shape"][0]


def test_the_whole_state_is_in_the_state(small: Any, digits: Dataset) -> None:
    one, other = Trainer(small(), digits), Trainer(small(), digits)
    one.run()
    other.load_state(one.state())
    assert other.step == one.step
    assert (other.method is None) == (one.method is None)
    assert all(torch.equal(w, other.model.state_dict()[name]) for name, w in one.model.state_dict().items())


def strides(tensor: torch.Tensor) -> list[int]:
    """The strides that mean something: not those of dimensions of size one."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_momentum_comes_back_in_the_layout_of_its_weight(
    small: Any, digits: Dataset, tmp_path: Path, optimizer: str
) -> None:
    # In another layout the same numbers would be added in another order, on hardware where that matters.
    one, other = (Trainer(small("--optimizer.name", optimizer), digits) for _ in range(2))
    one.run()
    save(one.state(), tmp_path / "x")
    other.load_state(load(tmp_path / "x"))
    found = 0
    for p, q in zip(one.model.parameters(), other.model.parameters(), strict=True):
        for name, value in one.optimizer.state[p].items():
            if torch.is_tensor(value):
                assert torch.equal(value, other.optimizer.state[q][name])
                assert strides(value) == strides(other.optimizer.state[q][name])
                found += value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
    assert found


def test_signals_are_given_back(small: Any, train: Any) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    train(small())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_that_is_ignored_stays_so(small: Any, train: Any) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen = []
    try:
        config = small()
        step = Trainer.train_step
        with pytest.MonkeyPatch.context() as patch:
            look = lambda *a: (seen.append(signal.getsignal(signal.SIGINT)), step(*a))[1]  # noqa: E731
            patch.setattr(Trainer, "train_step", look)
            train(config)
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(seen) == {signal.SIG_IGN}


def test_memory_is_flat(small: Any, train: Any) -> None:
    run = train(small("--training.epochs", "16"))
    memory = [record["memory"] for record in run.metrics()]
    if memory[0] is None:
        pytest.skip("this system does not tell how much memory a process has")
    assert memory[-1] - memory[5] < 30  # megabytes: three in each epoch would be too many
