import os
import stat
from pathlib import Path

import pytest

from rvsm.data.atomic import replacing


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file"
    with replacing(target) as temporary:
        temporary.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(target) as temporary:
        temporary.write_text(f"half of the n{1 // 0}")
    assert target.read_text() == "old"
    assert os.listdir(target.parent) == ["file"]


def test_the_target_is_not_there_before_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with replacing(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == target.parent
    assert target.read_text() == "new"


def test_permissions_are_those_of_the_umask_whatever_the_writer_gave(tmp_path: Path) -> None:
    target = tmp_path / "file"
    old = os.umask(0o027)
    try:
        with replacing(target) as temporary:
            temporary.write_text("new")
            temporary.chmod(0o600)
    finally:
        os.umask(old)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
