import torch

from rvsm.data import Digits


def test_the_parts_are_fixed_and_balanced() -> None:
    data = Digits().load()
    assert (len(data.train), len(data.test), data.channels, data.size) == (1348, 449, 1, 8)
    assert data.classes == tuple("0123456789")
    counts = torch.cat([data.train.labels, data.test.labels]).bincount()
    assert ((data.test.labels.bincount() - counts / 4).abs() < 1).all()
    torch.manual_seed(17)
    assert Digits().load().test.images.equal(data.test.images)


def test_no_test_image_is_a_training_image() -> None:
    data = Digits().load()
    train = {bytes(image.flatten().tolist()) for image in data.train.images}
    assert not [image for image in data.test.images if bytes(image.flatten().tolist()) in train]


def test_pixels_are_scaled_to_the_whole_range_of_a_byte() -> None:
    values = Digits().load().train.images.unique()
    assert values.tolist() == [round(v * 255 / 16) for v in range(17)]
