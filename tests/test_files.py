import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rvsm.files import printable, remove_leftovers, replacing, write_text


def test_the_new_contents_take_the_name(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "a.bin"
    with replacing(target) as temporary:
        assert temporary.parent == target.parent  # a rename between file systems is no rename
        temporary.write_bytes(b"new")
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["a.bin"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError, MemoryError])
def test_an_exception_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(error), replacing(target) as temporary:  # noqa: PT012 - the block is what is tested
        temporary.write_text("half of the n")
        raise error
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_block_that_writes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(target):
        pass
    assert target.read_text() == "old"


KILLED = """
import os, signal, sys
from pathlib import Path
from rvsm.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_the_old_file_and_a_leftover_that_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "a"
    write_text("old", target)
    assert subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False).returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    assert len(os.listdir(tmp_path)) == 2
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["a"]


def test_leftovers_alone_are_removed(tmp_path: Path) -> None:
    kept = {".hidden", "a.tmp", "metrics.jsonl", ".notes.tmp", ".a.0123.tmp", ".x.tmp.txt", "b.0123456789abcdef.tmp"}
    for name in (*kept, ".a.0123456789abcdef.tmp"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".cache.0123456789abcdef.tmp").mkdir()
    remove_leftovers(tmp_path)
    assert set(os.listdir(tmp_path)) == kept | {".cache.0123456789abcdef.tmp"}
    remove_leftovers(tmp_path / "nowhere")


def test_leftovers_of_one_name_that_nobody_is_writing(tmp_path: Path) -> None:
    ages = {".a.0000000000000000.tmp": 100, ".a.1111111111111111.tmp": 1, ".a.b.0000000000000000.tmp": 100}
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    remove_leftovers(tmp_path, of="a", unchanged_for=50)
    assert set(os.listdir(tmp_path)) == {".a.1111111111111111.tmp", ".a.b.0000000000000000.tmp"}


def test_two_at_once_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    with replacing(target) as one:
        one.write_text("one")
        with replacing(target) as other:
            assert other != one
            other.write_text("other")
        assert target.read_text() == "other"
    assert target.read_text() == "one"  # the last to finish


def test_permissions_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text("x", tmp_path / "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_text_in_any_alphabet_byte_for_byte(tmp_path: Path) -> None:
    text = "ℓ0 für 学习\r\n\n\u2028"
    write_text(text, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == text.encode()


def test_contents_are_synced_before_the_name_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # After a loss of power, a name without its contents would be an empty file.
    events: list[str] = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("sync"), sync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("name"), rename(self, to))[1])
    write_text("x", tmp_path / "a")
    assert events == ["sync", "name", "sync"]  # the file, its name, the folder


def test_only_what_is_printable_is_printed() -> None:
    assert printable("layer1.conv é 学习 ✓") == "layer1.conv é 学习 ✓"
    assert printable("\x1b[31m\r\n\u202e\ud800\x9b") == r"\x1b[31m\r\n\u202e\ud800\x9b"
