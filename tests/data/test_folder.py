"""A user's own images: real files in a temporary folder."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rvsm.data import Folder
from rvsm.records import Run

Grow = Callable[..., Path]
SPLIT = {"train/a/1.png": 10, "train/a/2.png": 20, "train/b/1.png": 30, "test/a/1.png": 40, "test/b/1.png": 50}


def _values(images: object) -> list[int]:
    return images.images[:, 0, 0, 0].tolist()


def test_train_and_test_folders(tmp_path: Path, grow: Grow) -> None:
    data = Folder(grow(tmp_path / "mine", SPLIT)).load()
    assert (data.name, data.classes, data.channels, data.size) == ("mine", ("a", "b"), 3, 8)
    assert _values(data.train) == [10, 20, 30]
    assert data.train.labels.tolist() == [0, 0, 1]
    assert _values(data.test) == [40, 50]
    assert data.test.labels.tolist() == [0, 1]


def test_classes_alone_are_split_by_seed_and_share(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", {f"{kind}/{i}.png": i for kind in "ab" for i in range(20)})
    data = Folder(root).load()
    assert (len(data.train), len(data.test)) == (34, 6)
    assert data.test.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert _values(Folder(root).load().test) == _values(data.test)
    assert _values(Folder(root, test_seed=1).load().test) != _values(data.test)
    assert len(Folder(root, test_share=0.5).load().test) == 20
    both = zip(_values(data.train) + _values(data.test), [*data.train.labels, *data.test.labels], strict=True)
    assert sorted((int(y), v) for v, y in both) == [(y, v) for y in (0, 1) for v in range(20)]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("top", ["", "./", "mine/"])
def test_an_archive_gives_what_its_folder_gives(tmp_path: Path, grow: Grow, mode: str, top: str) -> None:
    root = grow(tmp_path / "mine", {**SPLIT, "train/a/._1.png": 99})
    with tarfile.open(tmp_path / "mine.tar", mode) as tar:
        for path in sorted(root.rglob("*.png"), reverse=True):
            tar.add(path, f"{top}{path.relative_to(root).as_posix()}")
        tar.add(root / "train" / "a" / "1.png", f"{top}README.txt")
    folder, archive = Folder(root).load(), Folder(tmp_path / "mine.tar").load()
    assert archive.train.images.equal(folder.train.images)
    assert archive.test.labels.equal(folder.test.labels)
    assert archive.classes == folder.classes


def test_an_archive_of_classes_alone(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", {f"{kind}/{i}.png": 10 * i for kind in "ab" for i in range(10)})
    with tarfile.open(tmp_path / "mine.tar", "w") as tar:
        tar.add(root, "mine")
    assert _values(Folder(tmp_path / "mine.tar").load().test) == _values(Folder(root).load().test)


@pytest.mark.parametrize("top", ["", "mine", "my/photos"])
def test_classes_of_an_archive_may_have_folders_of_their_own(tmp_path: Path, grow: Grow, top: str) -> None:
    names = [f"{kind}/{folder}/{i}.png" for kind in ("cat", "dog") for folder in "ab" for i in range(5)]
    root = grow(tmp_path / "mine", {name: i for i, name in enumerate(names)})
    with tarfile.open(tmp_path / "mine.tar", "w") as tar:
        tar.add(root, top)
        if top:
            tar.add(root / names[0], f"{top}/cover.png")  # beside the classes, and of none
    folder, archive = Folder(root).load(), Folder(tmp_path / "mine.tar").load()
    assert archive.classes == folder.classes == ("cat", "dog")
    assert _values(archive.train) == _values(folder.train)


@pytest.mark.parametrize("parts", [("train/", "test/"), ("", "")])
def test_the_last_version_of_a_file_in_an_archive_counts(
    tmp_path: Path, grow: Grow, encoded: Callable[..., bytes], parts: tuple[str, str]
) -> None:
    files = {f"{part}{kind}/{i}.png": 10 * i for part in set(parts) for kind in "ab" for i in range(10)}
    root = grow(tmp_path / "mine", files)
    changed = root / parts[0] / "a" / "3.png"
    contents = changed.read_bytes()
    with tarfile.open(tmp_path / "mine.tar", "w") as tar:
        tar.add(root, "mine")
        changed.write_bytes(b"damaged")
        tar.add(changed, f"mine/{changed.relative_to(root)}")
        changed.write_bytes(contents)
        tar.add(changed, f"./mine/{changed.relative_to(root)}")
    folder, archive = Folder(root).load(), Folder(tmp_path / "mine.tar").load()
    assert _values(archive.train) == _values(folder.train)
    assert _values(archive.test) == _values(folder.test)


def test_archives_may_have_the_layout_more_than_once(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", SPLIT)
    with tarfile.open(tmp_path / "mine.tar", "w") as tar:
        tar.add(root, "one")
        tar.add(root, "two")
    assert _values(Folder(tmp_path / "mine.tar").load().train) == [10, 10, 20, 20, 30, 30]


def test_a_class_whose_name_is_not_utf_8_is_refused_before_anything_is_decoded(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", {f"{kind}/{i}.png": i for kind in ("caf\udce9", "tea") for i in range(3)})
    (root / "tea" / "bad.png").write_bytes(b"bad")
    with tarfile.open(tmp_path / "mine.tar", "w") as tar:
        tar.add(root, "mine")
    for path in (root, tmp_path / "mine.tar"):
        with pytest.raises(ValueError, match=rf"the class 'caf\\udce9' in {path} has a name that is not UTF-8; rename"):
            Folder(path).load()


def test_names_decide_the_order_not_the_file_system(tmp_path: Path, grow: Grow) -> None:
    names = [f"train/{kind}/{i}.png" for kind in "ab" for i in range(150)]  # more than a thread takes at once
    values = {name: i % 256 for i, name in enumerate(sorted(names))}
    written = {name: values[name] for name in reversed(names)}
    root = grow(tmp_path / "mine", {**written, "test/a/0.png": 0, "test/b/0.png": 0})
    assert _values(Folder(root).load().train) == list(values.values())


def test_other_files_hidden_files_and_nested_folders(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", {**SPLIT, "train/b/more/deep/2.JPG": 60})
    for name in ("train/a/notes.txt", "train/.hidden/x", "train/a/.hidden.png", "train/LICENSE", "train/a/Thumbs.db"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"not an image")
    data = Folder(root).load()
    assert data.classes == ("a", "b")
    assert _values(data.train) == [10, 20, 30, 60]


def test_size_and_channels(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", SPLIT)
    grow(root, {"train/b/large.png": 60}, size=20)
    with pytest.raises(ValueError, match=r"20×20 pixels but .* has 8×8; give size="):
        Folder(root).load()
    data = Folder(root, size=12, channels=1).load()
    assert data.train.images.shape == (4, 1, 12, 12)
    assert _values(data.train) == [10, 20, 30, 60]
    assert Folder(root, size=6).load().train.images.shape == (4, 3, 6, 6)


def test_images_of_one_size_that_are_not_square_need_a_size(tmp_path: Path, encoded: Callable[..., bytes]) -> None:
    for kind in "ab":
        (tmp_path / "mine" / kind).mkdir(parents=True)
        for i in range(4):
            (tmp_path / "mine" / kind / f"{i}.png").write_bytes(encoded(np.full((6, 9, 3), 90, np.uint8)))
    with pytest.raises(ValueError, match=r"a/0\.png has 9×6 pixels, which is not square; give size="):
        Folder(tmp_path / "mine").load()
    assert Folder(tmp_path / "mine", size=6, test_share=0.5).load().size == 6


@pytest.mark.parametrize("where", ["PIL.ImageOps.fit", "numpy.stack"])
def test_too_little_memory_is_not_blamed_on_an_image(
    tmp_path: Path, grow: Grow, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("none left")

    root = grow(tmp_path / "mine", SPLIT)
    monkeypatch.setattr(where, fail)
    message = r"not enough memory for the images of .*mine at 99×99 pixels \(.*(decoded|left)\); give a smaller size"
    with pytest.raises(ValueError, match=message):
        Folder(root, size=99).load()


def test_a_damaged_image_is_named(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", SPLIT)
    bad = root / "train" / "b" / "bad.jpg"
    bad.write_bytes((root / "train/a/1.png").read_bytes()[:40])
    with pytest.raises(ValueError, match=f"{bad} cannot be read as an image"):
        Folder(root).load()
    bad.unlink()
    assert len(Folder(root).load().train) == 3


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a/1.png": 0}, r"at least two classes of images but has 1: \('a',\)"),
        ({"train/a/1.png": 0, "train/b/1.png": 0}, "only one of the folders train and test; test is missing"),
        ({**SPLIT, "test/c/1.png": 0}, "the class 'c' has test images but no training images"),
        ({**SPLIT, "train/c/notes": 0}, r"train/c has no images; each folder is a class and must have files \*\.bmp"),
        ({"a/1.png": 0, "b/1.png": 0}, "mine: the test part has no images"),
    ],
)
def test_layouts_that_are_refused(tmp_path: Path, grow: Grow, files: dict[str, int], message: str) -> None:
    images = {name: value for name, value in files.items() if name.endswith("png")}
    root = grow(tmp_path / "mine", images)
    for name in files.keys() - images.keys():
        (root / name).parent.mkdir(parents=True)
        (root / name).touch()
    with pytest.raises(ValueError, match=message):
        Folder(root, test_share=0.2).load()


def test_a_class_without_training_images_and_one_without_test_images(tmp_path: Path, grow: Grow) -> None:
    counts = {"few": 1, "many": 20}
    root = grow(tmp_path / "mine", {f"{kind}/{i}.png": 90 for kind, n in counts.items() for i in range(n)})
    with pytest.warns(UserWarning, match="mine: there are no test images of 'few', so the test accuracy ignores it"):
        Folder(root, test_share=0.1).load()
    with pytest.raises(ValueError, match="mine: all images of 'few' are kept for the test; add images, or split"):
        Folder(root, test_share=0.9).load()
    with pytest.warns(UserWarning, match="there are no test images of 'b'"):
        Folder(grow(tmp_path / "split", {n: v for n, v in SPLIT.items() if n != "test/b/1.png"})).load()


def test_images_of_16_bits_that_use_12_are_told_of(tmp_path: Path) -> None:
    for i in range(10):
        file = tmp_path / "mine" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), 4095, np.uint16)).save(file)
    for _ in range(2):  # decoded, and from the cache
        with pytest.warns(
            UserWarning, match="mine are nearly black: no pixel is above 15 of 255; in files with 16 bits"
        ):
            Folder(tmp_path / "mine", test_share=0.2).load()


def test_no_folder_and_no_images(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere does not exist"):
        Folder(tmp_path / "nowhere").load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="at least two classes of images but has 0"):
        Folder(tmp_path / "empty").load()


def test_runs_among_the_classes_are_none(tmp_path: Path, grow: Grow, caplog: pytest.LogCaptureFixture) -> None:
    root = grow(tmp_path / "mine", {f"{kind}/{i}.png": 90 for kind in "ab" for i in range(10)})
    before = Folder(root).load()
    Run.create(root / "runs" / "more" / "run-s0", config="", about={})
    grow(root, {"runs/comparison/picture.png": 1})
    Run.create(root / "mine-s0", config="", about={})
    with caplog.at_level("INFO"):
        after = Folder(root).load()
    assert (after.classes, after.fingerprint()) == (("a", "b"), before.fingerprint())
    assert f"{root / 'runs'} contains runs, so it is not used as a class of images" in caplog.text


def test_links(tmp_path: Path, grow: Grow) -> None:
    root = grow(tmp_path / "mine", SPLIT)
    (root / "train/b/linked.png").symlink_to(root / "train/a/2.png")
    assert _values(Folder(root).load().train) == [10, 20, 30, 20]
    (root / "train/b/broken.png").symlink_to("broken.png")
    with pytest.raises(ValueError, match=r"broken\.png is a broken link"):
        Folder(root).load()
    (root / "train/b/broken.png").unlink()
    (root / "train/c").symlink_to("nowhere")  # a class on a disk that is not mounted
    with pytest.raises(ValueError, match=r"train/c is a broken link; remove it, or restore its target"):
        Folder(root).load()
    (root / "train/c").unlink()
    (root / "train/b/up").symlink_to(root / "train/b")
    with pytest.raises(ValueError, match="up is a link to a folder that contains it"):
        Folder(root).load()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be >= 1 but is 0"),
        ({"channels": 4}, "3 for colour or 1 for grey but is 4"),
        ({"test_share": 0.0}, "test_share must be between 0 and 1 but is 0.0"),
    ],
)
def test_options_that_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Folder("anywhere", **options)
