"""A cache of decoded images, so that they are decoded only once.

The file is in the user's cache directory, or in the directory that the environment variable RVSM_CACHE names. It is
never next to the source, where the provider of the images could have put a file with other labels. A file that is
damaged, of another format or older than its source is not used but written again. Deleting it is always safe.
"""

import json
import logging
import os
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rvsm.data.dataset import Dataset, Images
from rvsm.files import remove_leftovers, replacing

_FORMAT = 1
_TENSORS = ("train.images", "train.labels", "test.images", "test.labels")
_ABANDONED = 3600.0
"""Seconds after which an unfinished cache file counts as abandoned; it is as large as the images."""
_log = logging.getLogger(__name__)


def cache_directory() -> Path:
    """Return the directory for caches and downloads: $RVSM_CACHE, $XDG_CACHE_HOME/rvsm or ~/.cache/rvsm."""
    if chosen := os.environ.get("RVSM_CACHE"):
        return Path(chosen).expanduser()
    # The XDG specification says to ignore a relative path.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "rvsm"


def cached(
    source: Path, files: Iterable[Path], options: Mapping[str, object], decode: Callable[[], Dataset]
) -> Dataset:
    """Return the data set that ``decode`` makes from the source, from the cache if it is valid.

    Args:
        source: the archive or folder of the images; the name of the cache depends on its path.
        files: all relevant files; if one of them changes in name, size or time, the cache is stale.
        options: everything else that the result depends on; each combination has its own cache.
        decode: the function that decodes the images.

    """
    source = source.resolve()
    state = _fingerprint(source, files)
    chosen = json.dumps([str(source), dict(options)], sort_keys=True).encode()
    digest = blake2b(chosen, digest_size=6).hexdigest()
    place = cache_directory() / f"{source.name[:40]}.{digest}.rvsm-cache"
    remove_leftovers(place.parent, of=place.name, unchanged_for=_ABANDONED)
    if place.is_file():
        try:
            return _read(place, state)
        except Exception as error:  # whatever the error, the images can be decoded again
            _log.info("The cache %s is not used: %s", place, error)
    dataset = decode()
    _write(place, state, dataset)
    return dataset


def _fingerprint(source: Path, files: Iterable[Path]) -> str:
    digest = blake2b(digest_size=16)
    root = source if source.is_dir() else source.parent
    for file in sorted(files):
        status = file.stat()
        name = os.path.relpath(file.absolute(), root)
        digest.update(json.dumps([name, status.st_size, status.st_mtime_ns]).encode())
    return digest.hexdigest()


def _read(place: Path, state: str) -> Dataset:
    """Return the data set in the file; raise unless the file is intact."""
    with safe_open(place, framework="pt") as file:
        head = _head(file.metadata())
        if head["source"] != state:
            raise ValueError("the source has changed")
        if sorted(file.keys()) != sorted(_TENSORS):
            raise ValueError("its tensors are not the expected ones")
        tensors = {name: file.get_tensor(name) for name in _TENSORS}
    train, test = (Images(tensors[f"{part}.images"], tensors[f"{part}.labels"]) for part in ("train", "test"))
    dataset = Dataset(train, test, tuple(head["classes"]), head["name"])
    for name, tensor in tensors.items():
        if _checksum(tensor) != head["checksums"].get(name):
            raise ValueError(f"the checksum of {name} is wrong")
    return dataset


def _head(metadata: dict[str, str] | None) -> dict[str, Any]:
    head = json.loads((metadata or {}).get("rvsm", "null"))
    kinds = {"format": int, "source": str, "name": str, "classes": list, "checksums": dict}
    if not isinstance(head, dict) or any(not isinstance(head.get(key), kind) for key, kind in kinds.items()):
        raise ValueError("its metadata is not that of a cache")
    if head["format"] != _FORMAT or not all(isinstance(name, str) for name in head["classes"]):
        raise ValueError(f"it has format {head['format']}, not {_FORMAT}")
    return head


def _write(place: Path, state: str, dataset: Dataset) -> None:
    """Write the cache; warn if it cannot be written."""
    parts = {"train": dataset.train, "test": dataset.test}
    tensors = {f"{part}.images": images.images.contiguous() for part, images in parts.items()}
    tensors |= {f"{part}.labels": images.labels.contiguous() for part, images in parts.items()}
    head = {
        "format": _FORMAT,
        "source": state,
        "name": dataset.name,
        "classes": dataset.classes,
        "checksums": {name: _checksum(tensor) for name, tensor in tensors.items()},
    }
    try:
        with replacing(place) as temporary:
            temporary.touch()
            permissions = temporary.stat().st_mode  # those of the umask; safetensors would let nobody else read
            save_file(tensors, temporary, {"rvsm": json.dumps(head)})
            temporary.chmod(permissions)
    except (OSError, SafetensorError) as error:
        warnings.warn(
            f"decoded images cannot be cached and will be decoded again next time ({place.parent}: {error}); set the"
            " environment variable RVSM_CACHE to a writable folder",
            stacklevel=4,
        )
    else:
        _log.info("Decoded images are cached in %s", place)


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.numpy().data)
