"""Downloads from a real server on this machine."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import md5
from pathlib import Path

import pytest

from rvsm.data.download import download, file_md5

CONTENTS = bytes(range(256)) * 10_000
Served = Callable[..., AbstractContextManager[str]]


def _digest(contents: bytes) -> str:
    return md5(contents, usedforsecurity=False).hexdigest()


def test_the_file_arrives_whole(tmp_path: Path, served: Served) -> None:
    target = tmp_path / "new" / "file"
    with served(CONTENTS) as url:
        download(url, target, checksum=_digest(CONTENTS))
    assert target.read_bytes() == CONTENTS
    assert file_md5(target) == _digest(CONTENTS)
    assert list(target.parent.iterdir()) == [target]


def test_another_file_is_refused_and_leaves_nothing(tmp_path: Path, served: Served) -> None:
    with served(b"something else") as url, pytest.raises(ValueError, match=f"MD5 {_digest(b'something else')} but "):
        download(url, tmp_path / "file", checksum=_digest(CONTENTS))
    assert list(tmp_path.iterdir()) == []


def test_a_broken_connection_is_told_and_leaves_nothing(tmp_path: Path, served: Served) -> None:
    size = len(CONTENTS)
    with (
        served(CONTENTS[:-5], promised=size) as url,
        pytest.raises(RuntimeError, match=f"{size - 5} of {size} b"),
    ):
        download(url, tmp_path / "file", checksum=_digest(CONTENTS))
    assert list(tmp_path.iterdir()) == []


def test_no_such_file_and_no_network(tmp_path: Path, served: Served) -> None:
    with served(CONTENTS) as url, pytest.raises(RuntimeError, match=r"file2 cannot be downloaded \(Not Found\)"):
        download(f"{url}2", tmp_path / "file", checksum="")
    # The server has gone: nobody listens at this address now.
    with pytest.raises(RuntimeError, match=r"cannot be downloaded .*refused.*; without a network, get the file"):
        download(url, tmp_path / "file", checksum="")


def test_only_the_network_is_read(tmp_path: Path, served: Served) -> None:
    (tmp_path / "secret").write_text("x")
    with pytest.raises(ValueError, match="must begin with https://"):
        download(f"file://{tmp_path}/secret", tmp_path / "file", checksum=_digest(b"x"))


def test_a_folder_that_cannot_be_made(tmp_path: Path, served: Served) -> None:
    (tmp_path / "file").touch()
    with served(CONTENTS) as url, pytest.raises(RuntimeError, match="target cannot be written"):
        download(url, tmp_path / "file" / "target", checksum=_digest(CONTENTS))
