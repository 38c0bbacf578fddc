import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rvsm.data import Batches, Cutout, Flip, Images, RandomCrop, moments

MEAN, STD = (0.2, 0.5, 0.7), (0.1, 0.2, 0.3)


def _images(n: int = 50, size: int = 6) -> Images:
    pixels = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8)
    pixels[:, 0, 0, 0] = torch.arange(n)  # so that each image can be told
    return Images(pixels, torch.arange(n))


def _batches(images: Images, batch_size: int = 8, *, seed: int = 0, **options: object) -> Batches:
    return Batches(images, batch_size, seed=seed, mean=MEAN, std=STD, **options)


def _same(first: list, second: list) -> bool:
    return len(first) == len(second) and all(
        a.equal(b) and y.equal(z) for (a, y), (b, z) in zip(first, second, strict=True)
    )


def test_normalised_as_the_formula_says() -> None:
    images = _images()
    for x, y in _batches(images).epoch(0):
        mean, std = (torch.tensor(v, dtype=torch.double).view(3, 1, 1) for v in (MEAN, STD))
        expected = (images.images[y].double() / 255 - mean) / std
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        torch.testing.assert_close(x.double(), expected, atol=1e-5, rtol=1e-6)


def test_training_pixels_get_mean_0_and_deviation_1() -> None:
    images = _images(200)
    mean, std = moments(images)
    x = torch.cat([x for x, _ in Batches(images, 64, seed=0, mean=mean, std=std).epoch(0)]).double()
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3), correction=0), torch.ones(3).double(), atol=1e-6, rtol=0)


@given(n=st.integers(1, 60), size=st.integers(1, 70), drop=st.booleans(), epoch=st.integers(0, 5))
def test_every_image_once_in_each_epoch(n: int, size: int, drop: bool, epoch: int) -> None:
    images = _images(n, size=1)
    if drop and n < size:
        with pytest.raises(ValueError, match=f"{n} images are too few for a batch of {size}"):
            _batches(images, size, drop_last=drop)
        return
    batches = _batches(images, size, drop_last=drop)
    labels = [y.tolist() for _, y in batches.epoch(epoch)]
    assert len(labels) == len(batches)
    assert all(len(part) == size for part in labels[:-1])
    seen = sorted(label for part in labels for label in part)
    assert seen == sorted(set(seen))
    assert len(seen) == (n // size * size if drop else n)


@given(seed=st.integers(-(2**63), 2**63), epoch=st.integers(0, 1000), start=st.integers(0, 7))
def test_an_epoch_resumes_at_any_batch_whatever_was_drawn_meanwhile(seed: int, epoch: int, start: int) -> None:
    images = _images()
    augment = [RandomCrop(padding=2), Flip(), Cutout(size=2)]
    whole = list(_batches(images, seed=seed, augment=augment).epoch(epoch))
    torch.rand(start + 1)
    rest = list(_batches(images, seed=seed, augment=augment).epoch(epoch, start=start))
    assert _same(rest, whole[start:])


def test_epochs_seeds_and_batches_differ() -> None:
    images = Images(torch.randint(0, 256, (64, 3, 8, 8)).byte()[:1].expand(64, -1, -1, -1), torch.arange(64))
    augment = [RandomCrop(padding=4)]
    first, again = (list(_batches(images, 32, augment=augment).epoch(0)) for _ in range(2))
    assert _same(first, again)
    assert not first[0][0].equal(first[1][0])  # one image, another crop in each batch
    other_epoch = list(_batches(images, 32, augment=augment).epoch(1))
    other_seed = list(_batches(images, 32, seed=1, augment=augment).epoch(0))
    for other in (other_epoch, other_seed):
        assert not other[0][1].equal(first[0][1])
        assert not other[0][0].equal(first[0][0])
    # (seed 0, epoch 1) and (seed 1, epoch 0) are not the same either
    assert not _same(other_epoch, other_seed)


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    batches = _batches(_images(), augment=[RandomCrop(padding=2), Flip(), Cutout(size=2)])
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = list(batches.epoch(3))
    assert torch.get_rng_state().equal(state)
    torch.manual_seed(2)
    assert _same(first, list(batches.epoch(3)))


def test_two_epochs_can_be_read_at_the_same_time() -> None:
    batches = _batches(_images(), augment=[Flip()])
    alone = list(batches.epoch(0))
    together = [pair[0] for pair in zip(batches.epoch(0), batches.epoch(1), strict=True)]
    assert _same(alone, together)


def test_without_shuffle_the_order_is_that_of_the_images() -> None:
    labels = torch.cat([y for _, y in _batches(_images(), shuffle=False).epoch(4)])
    assert labels.tolist() == list(range(50))


def test_channels_last_changes_the_layout_only() -> None:
    images = _images()
    augment = [RandomCrop(padding=2), Flip(), Cutout(size=2)]
    plain = list(_batches(images, augment=augment).epoch(0))
    last = list(_batches(images, augment=augment, channels_last=True).epoch(0))
    assert _same(plain, last)
    assert all(x.is_contiguous() for x, _ in plain)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in last)


def test_images_are_left_as_they_were() -> None:
    images = _images()
    before = images.images.clone()
    list(_batches(images, augment=[RandomCrop(padding=2), Flip(), Cutout(size=2)]).epoch(0))
    assert images.images.equal(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be >= 1 but is 0"),
        ({"mean": (0.5,)}, "3 channels need 3 means and standard deviations but got 1 and 3"),
        ({"std": (0.1, 0.0, 0.1)}, r"must be > 0 but are \(0.1, 0.0, 0.1\)"),
        ({"std": (0.1, float("nan"), 0.1)}, "must be > 0"),
        ({"batch_size": 64, "drop_last": True}, "50 images are too few for a batch of 64; .* drop_last=False"),
    ],
)
def test_options_that_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Batches(_images(), **{"batch_size": 8, "seed": 0, "mean": MEAN, "std": STD, **options})


def test_epochs_that_are_refused_at_once() -> None:
    batches = _batches(_images())
    assert list(batches.epoch(0, start=len(batches))) == []
    with pytest.raises(ValueError, match="the number of an epoch must be >= 0 but is -1"):
        batches.epoch(-1)
    with pytest.raises(ValueError, match=r"start must be in \[0, 7\], the batches of an epoch, but is 8"):
        batches.epoch(0, start=8)
