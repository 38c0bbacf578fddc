"""Files that are there as a whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a temporary path in the target's folder; on leaving, its contents reach the disk and take the target's name.

    If the block raises, the target stays as it was and the temporary file goes. The last of several processes wins.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "a.txt")
    ...     with replacing(target) as temporary:
    ...         length = temporary.write_text("whole")
    ...     target.read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.touch(exist_ok=False)
        permissions = temporary.stat().st_mode  # as the user's umask allows; some writers give fewer
        yield temporary
        temporary.chmod(permissions)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
