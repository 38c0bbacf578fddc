import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rvsm.data import Images, moments


def _images(n: int = 6, channels: int = 3, size: int = 4) -> Images:
    pixels = torch.randint(0, 256, (n, channels, size, size), dtype=torch.uint8)
    return Images(pixels, torch.arange(n) % 3)


def test_chosen_by_index_in_that_order_or_by_mask() -> None:
    images = _images()
    chosen = images[torch.tensor([4, 1])]
    assert len(chosen) == 2
    assert chosen.images.equal(images.images[[4, 1]])
    assert chosen.labels.tolist() == [1, 1]
    assert images[images.labels == 2].images.equal(images.images[[2, 5]])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            torch.zeros(2, 3, 4, 4),
            torch.zeros(2).long(),
            r"images must be uint8 .* are float32 of shape \[2, 3, 4, 4\]",
        ),
        (torch.zeros(2, 4, 4).byte(), torch.zeros(2).long(), r"but are uint8 of shape \[2, 4, 4\]"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.zeros(2), r"labels must be int64 of shape \[n\] but are float32"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.zeros(3).long(), "2 images need 2 labels but got 3"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.tensor([0, -1]), "labels must be >= 0 but the smallest is -1"),
    ],
)
def test_refused(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Images(images, labels)


def test_moments_are_those_of_the_pixels_in_double_precision() -> None:
    images = _images(50, size=9)
    pixels = images.images.double() / 255
    mean, std = moments(images)
    torch.testing.assert_close(torch.tensor(mean, dtype=torch.double), pixels.mean((0, 2, 3)))
    torch.testing.assert_close(torch.tensor(std, dtype=torch.double), pixels.std((0, 2, 3), correction=0))
    assert all(type(value) is float for value in (*mean, *std))


@given(st.permutations(range(6)))
def test_moments_do_not_depend_on_the_order(order: list[int]) -> None:
    pixels = (torch.arange(6 * 3 * 16) * 37 % 256).byte().view(6, 3, 4, 4)
    images = Images(pixels, torch.zeros(6).long())
    assert moments(images) == moments(images[torch.tensor(order)])


def test_moments_of_constant_and_of_no_images() -> None:
    assert moments(Images(torch.full((3, 1, 2, 2), 51).byte(), torch.zeros(3).long())) == ((0.2,), (1.0,))
    with pytest.raises(ValueError, match="moments of no images"):
        moments(_images(0))
