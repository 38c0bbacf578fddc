"""Download a file, completely or not at all."""

import logging
from collections.abc import Iterator
from hashlib import md5
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from rvsm.files import replacing

_TIMEOUT = 30.0
_CHUNK = 1 << 20
_log = logging.getLogger(__name__)


def download(url: str, target: Path, *, checksum: str) -> None:
    """Download the URL to the target if its MD5 is ``checksum``.

    Publishers of data sets provide MD5 checksums. They detect damage, but do not protect against attacks.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the url must begin with https:// or http:// but is {url!r}")
    _log.info("Downloading %s to %s", url, target)
    try:
        with replacing(target) as temporary:
            with temporary.open("wb") as file:
                for chunk in _chunks(url):
                    file.write(chunk)
            if (came := file_md5(temporary)) != checksum:
                raise ValueError(f"{url} returned a file with MD5 {came} but {checksum} was expected; try again later")
    except OSError as error:
        raise RuntimeError(f"{target} cannot be written: {error.strerror or error}") from error


def file_md5(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal digits."""
    digest = md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _chunks(url: str) -> Iterator[bytes]:
    came, expected = 0, None
    try:
        with urlopen(url, timeout=_TIMEOUT) as response:
            expected = response.headers.get("Content-Length")
            while chunk := response.read(_CHUNK):
                came += len(chunk)
                yield chunk
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise RuntimeError(
            f"{url} cannot be downloaded ({reason}); without a network, get the file in another way and give its path"
        ) from error
    if expected is not None and came != int(expected):
        raise RuntimeError(f"the download of {url} ended after {came} of {expected} bytes; try again")
