import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rvsm.data import Dataset, Digits, Images
from rvsm.data.dataset import stratified


def _images(n: int, *, height: int = 4, width: int = 4, label: int = 0) -> Images:
    return Images(torch.zeros(n, 1, height, width).byte(), torch.full((n,), label))


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 2**40),
)
def test_each_class_gives_its_share_to_one_image(counts: list[int], share: float, seed: int) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels))]
    held = stratified(labels, share, seed=seed)
    total = round(share * len(labels))
    assert int(held.sum()) == total
    for kind, count in enumerate(counts):
        exact = count * total / len(labels)
        assert abs(int(held[labels == kind].sum()) - exact) < 1
    assert held.equal(stratified(labels, share, seed=seed))


def test_seeds_differ_and_every_image_can_be_held_out() -> None:
    labels = torch.arange(100) % 4
    masks = torch.stack([stratified(labels, 0.2, seed=seed) for seed in range(60)])
    assert masks.any(0).all()
    assert len({tuple(mask.tolist()) for mask in masks}) == 60


def test_hold_out_parts_the_training_images() -> None:
    dataset = Digits().load()
    train, validation = dataset.hold_out(0.2, seed=3)
    assert (len(train), len(validation)) == (1078, 270)
    both = torch.cat([train.images, validation.images]).flatten(1)
    assert both.unique(dim=0).equal(dataset.train.images.flatten(1).unique(dim=0))
    again, _ = dataset.hold_out(0.2, seed=3)
    assert again.images.equal(train.images)
    whole, nothing = dataset.hold_out(0.0, seed=3)
    assert whole.images.equal(dataset.train.images)
    assert len(nothing) == 0


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\)"):
        Digits().load().hold_out(share, seed=0)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (_images(2), _images(0), "toy: the test part has no images"),
        (_images(2, label=1), _images(2), "toy: a train image has label 1, but there are 1 classes"),
        (_images(2), _images(2, height=5, width=5), r"train images are \[1, 4, 4\] but test images \[1, 5, 5\]"),
        (_images(2, width=5), _images(2, width=5), "must be square but are 4×5"),
    ],
)
def test_inconsistent_parts_are_refused(train: Images, test: Images, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset(train, test, ("one",), "toy")


def _random(n: int, size: int) -> Dataset:
    images = Images(torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8), torch.zeros(n).long())
    return Dataset(images[torch.arange(10, n)], images[torch.arange(10)], ("a",), "toy")


def test_the_fingerprint_sees_every_image_of_a_small_data_set() -> None:
    data = _random(150, 8)
    before = data.fingerprint()
    for part in (data.train, data.test):
        for image in part.images:
            image[0, 0, 0] += 1
            assert data.fingerprint() != before
            image[0, 0, 0] -= 1
    assert data.fingerprint() == before


def test_the_fingerprint_of_a_large_data_set_is_that_of_older_runs() -> None:
    data = _random(200, 256)
    before = data.fingerprint()
    data.train.images[1] += 1
    assert data.fingerprint() == before
    data.train.images[101] += 1
    assert data.fingerprint() != before
