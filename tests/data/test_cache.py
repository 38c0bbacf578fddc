"""The cache of decoded images: used when good, rebuilt when not, and never in the way."""

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from commands import run_code
from processes import Process
from rvsm.data import Dataset, Images
from rvsm.data.cache import cache_directory, cached

FILES = {f"{part}/{kind}/{i}.png": 10 * i for part in ("train", "test") for kind in "ab" for i in range(3)}


class Decoder:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Dataset:
        self.calls += 1
        images = Images((torch.arange(6 * 3 * 4 * 4) % 251).byte().view(6, 3, 4, 4), torch.arange(6) % 2)
        return Dataset(images, images[torch.tensor([1, 2])], ("a", "b"), "toy")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "toy.tar"
    path.parent.mkdir()
    path.write_bytes(b"contents")
    return path


def _load(source: Path, decoder: Decoder, **options: object) -> Dataset:
    return cached(source, [source], options, decoder)


def _only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_decoded_once_and_equal(source: Path, cache: Path) -> None:
    decoder = Decoder()
    first, second = _load(source, decoder), _load(source, decoder)
    assert decoder.calls == 1
    for part in ("train", "test"):
        assert getattr(first, part).images.equal(getattr(second, part).images)
        assert getattr(first, part).labels.equal(getattr(second, part).labels)
    assert (second.classes, second.name) == (("a", "b"), "toy")
    assert _only(cache).suffix == ".rvsm-cache"


def test_each_choice_of_options_has_its_own(source: Path, cache: Path) -> None:
    decoder = Decoder()
    for size in (8, 16, 8, 16):
        _load(source, decoder, size=size)
    assert decoder.calls == 2
    assert len(list(cache.iterdir())) == 2


def test_a_changed_source_is_decoded_again(source: Path, cache: Path) -> None:
    decoder = Decoder()
    _load(source, decoder)
    source.write_bytes(b"other contents")
    _load(source, decoder)
    assert decoder.calls == 2
    os.utime(source, ns=(0, 0))
    _load(source, decoder)
    _load(source, decoder)
    assert decoder.calls == 3
    other = source.with_name("more")
    other.touch()
    cached(source, [source, other], {}, decoder)
    assert decoder.calls == 4
    assert len(list(cache.iterdir())) == 1


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _rubbish(path: Path) -> None:
    path.write_bytes(b"\xff" * 100)


def _edited(change: Callable[[dict[str, torch.Tensor], dict[str, object]], None]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        with safe_open(path, framework="pt") as file:
            head = json.loads(file.metadata()["rvsm"])
        change(tensors, head)
        save_file(tensors, path, {"rvsm": json.dumps(head)})

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        _truncated,
        _flipped,
        _empty,
        _rubbish,
        _edited(lambda tensors, head: head.update(format=99)),
        _edited(lambda tensors, head: head.update(classes=["a"])),
        _edited(lambda tensors, head: head.update(classes=[1, 2])),
        _edited(lambda tensors, head: head.update(checksums={})),
        _edited(lambda tensors, head: head.clear()),
        _edited(lambda tensors, head: tensors.pop("test.labels")),
        _edited(lambda tensors, head: tensors.update({"more": torch.zeros(1)})),
        _edited(lambda tensors, head: tensors.update({"train.images": tensors["train.images"].float()})),
        _edited(lambda tensors, head: tensors.update({"train.images": tensors["train.images"].bfloat16()})),
        _edited(lambda tensors, head: tensors.update({"train.images": tensors["train.images"][:, :, :3].clone()})),
        _edited(lambda tensors, head: tensors.update({"train.labels": tensors["train.labels"] + 5})),
        _edited(lambda tensors, head: tensors.update({"train.labels": tensors["train.labels"][:0]})),
    ],
)
def test_a_damaged_cache_is_rebuilt(source: Path, cache: Path, damage: Callable[[Path], None]) -> None:
    decoder = Decoder()
    good = _load(source, decoder)
    contents = _only(cache).read_bytes()
    damage(_only(cache))
    again = _load(source, decoder)
    assert decoder.calls == 2
    assert again.train.images.equal(good.train.images)
    assert _only(cache).read_bytes() == contents


def test_what_a_kill_left_of_a_cache_goes_when_nobody_is_writing_it(source: Path, cache: Path) -> None:
    decoder = Decoder()
    _load(source, decoder)
    name = _only(cache).name
    for ending, age in (("0" * 16, 7200), ("1" * 16, 60)):
        left = cache / f".{name}.{ending}.tmp"
        left.write_bytes(b"half")
        os.utime(left, (time.time() - age,) * 2)
    _load(source, decoder)
    assert {path.name for path in cache.iterdir()} == {name, f".{name}.{'1' * 16}.tmp"}


def test_an_open_data_set_outlives_its_cache(source: Path, cache: Path) -> None:
    decoder = Decoder()
    _load(source, decoder)
    mapped = _load(source, decoder)
    before = mapped.train.images.clone()
    os.utime(source, ns=(0, 0))
    _load(source, decoder)
    _only(cache).unlink()
    assert mapped.train.images.equal(before)


def test_a_cache_that_came_with_the_source_is_not_used(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RVSM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    decoder = Decoder()
    _load(source, decoder)
    assert list(source.parent.iterdir()) == [source]
    kept = _only(tmp_path / "xdg" / "rvsm")
    beside = source.with_name(kept.name)
    kept.rename(beside)
    swap = _edited(lambda tensors, head: tensors["train.labels"].copy_(1 - tensors["train.labels"]))
    swap(beside)
    again = _load(source, decoder)
    assert decoder.calls == 2
    assert again.train.labels.tolist() == [0, 1] * 3


def test_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_directory() == Path(os.environ["RVSM_CACHE"])
    monkeypatch.delenv("RVSM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == tmp_path / ".cache" / "rvsm"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/xdg")
    assert cache_directory() == Path("/var/xdg/rvsm")


def test_a_cache_that_cannot_be_written_is_only_a_warning(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RVSM_CACHE", str(tmp_path / "file"))
    decoder = Decoder()
    with pytest.warns(UserWarning, match=r"cannot be cached .* set the environment variable RVSM_CACHE"):
        data = _load(source, decoder)
    assert len(data.train) == 6


def test_others_may_read_it_if_the_umask_lets_them(source: Path, cache: Path) -> None:
    old = os.umask(0o027)
    try:
        _load(source, Decoder())
    finally:
        os.umask(old)
    assert stat.S_IMODE(_only(cache).stat().st_mode) == 0o640


def test_a_full_disk_is_only_a_warning(tmp_path: Path, cache: Path, grow: Callable[..., Path]) -> None:
    root = grow(tmp_path / "mine", FILES)
    code = (
        "import resource; from rvsm.data import Folder; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        f"print(len(Folder({str(root)!r}).load().train), 'images')"
    )
    done = Process(run_code, code, environment={"RVSM_CACHE": str(cache)}).ended()
    assert done.status == 0, done.printed
    assert "decoded images cannot be cached" in done.printed
    assert "6 images" in done.printed
    assert list(cache.iterdir()) == []


def test_processes_that_decode_at_the_same_time_all_succeed(
    tmp_path: Path, cache: Path, grow: Callable[..., Path]
) -> None:
    root = grow(tmp_path / "mine", FILES)
    code = (
        "import os, time; from rvsm.data import Folder\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.001)\n"
        f"for _ in range(20):\n"
        f"    data = Folder({str(root)!r}).load()\n"
        f"    assert len(data.train) == 6 and int(data.test.images.sum()) == 11520\n"
        f"    for name in os.listdir(os.environ['RVSM_CACHE']):\n"
        f"        if name.endswith('rvsm-cache'):\n"
        f"            try: os.unlink(os.path.join(os.environ['RVSM_CACHE'], name))\n"
        f"            except FileNotFoundError: pass\n"
    )
    processes = [Process(run_code, code, environment={"RVSM_CACHE": str(cache)}) for _ in range(3)]
    (tmp_path / "go").touch()
    ended = [process.ended() for process in processes]
    assert [one.status for one in ended] == [0, 0, 0], ended
    assert [path for path in cache.iterdir() if path.suffix == ".tmp"] == []
