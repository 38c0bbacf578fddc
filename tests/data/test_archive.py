import io
import tarfile
from pathlib import Path

import pytest

from rvsm.data import archive
from rvsm.data.archive import members


def _tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            tar.addfile(entry, io.BytesIO(contents))
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_reads_all_files_however_compressed(tmp_path: Path, mode: str) -> None:
    path = _tar(tmp_path / "some.tar", {"a/b.txt": b"one", "c": b"", "./d": b"two" * 1000}, mode)
    assert [(str(m.path), m.read()) for m in members(path)] == [("a/b.txt", b"one"), ("c", b""), ("d", b"two" * 1000)]


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    path = _tar(tmp_path / "some.tar", {"fine": b"x", name: b"y"})
    with pytest.raises(ValueError, match=f"holds a file '{name}', which points outside the archive"):
        list(members(path))


def test_links_and_folders_are_passed_over_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "some.tar"
    with tarfile.open(path, "w") as tar:
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "x"), (tarfile.DIRTYPE, "")):
            entry = tarfile.TarInfo(f"entry{kind.decode()}")
            entry.type, entry.linkname = kind, target
            tar.addfile(entry)
    assert list(members(path)) == []
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_archive_is_told(tmp_path: Path, mode: str, share: float) -> None:
    noise = bytes(i * i * 7 % 251 for i in range(30_000))
    path = _tar(tmp_path / "some.tar", {f"{i}": noise[i:] for i in range(10)}, mode)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"some\.tar is not a tar archive, or is damaged or truncated"):
        [member.read() for member in members(path)]


def test_a_plain_tar_cut_between_two_files_is_told_too(tmp_path: Path) -> None:
    path = _tar(tmp_path / "some.tar", {"a": b"x" * 512, "b": b"y" * 512})
    path.write_bytes(path.read_bytes()[:1024])  # the header and the contents of the first file
    with pytest.raises(ValueError, match="it has no end mark"):
        [member.read() for member in members(path)]


def test_what_is_no_archive_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello" * 1000)
    with pytest.raises(ValueError, match="text is not a tar archive"):
        list(members(tmp_path / "text"))
    with pytest.raises(ValueError, match="nowhere does not exist"):
        list(members(tmp_path / "nowhere"))


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _tar(tmp_path / "some.tar.gz", {"zeros": bytes(5000)}, "w:gz")
    monkeypatch.setattr(archive, "_MOST_BYTES", 4999)
    with pytest.raises(ValueError, match=r"zeros in .*some\.tar\.gz has 5000 bytes, more than 4999"):
        [member.read() for member in members(path)]
