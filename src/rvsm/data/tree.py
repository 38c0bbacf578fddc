"""Read images in folders named after their classes, on disk or in a tar archive, into tensors.

The layout is ``train/<class>/…`` and ``test/<class>/…``, or ``<class>/…`` alone. Hidden files, and files without the
suffix of an image, are skipped.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rvsm.cores import usable_cores
from rvsm.data.archive import Member, members
from rvsm.data.dataset import Images
from rvsm.data.decode import SUFFIXES, decode, decode_file

_CHUNK = 64
_log = logging.getLogger(__name__)
Pixels = NDArray[np.uint8]


class Entry(NamedTuple):
    """An image file: its part ("train", "test" or "" for both), its class, its name in the class, and its contents."""

    part: str
    kind: str
    name: str
    contents: bytes | Path

    def decode(self, *, channels: int, size: int | None) -> Pixels:
        """Return the pixels."""
        if isinstance(self.contents, Path):
            return decode_file(self.contents, channels=channels, size=size)
        return decode(self.contents, "/".join(filter(None, self[:3])), channels=channels, size=size)


def in_folder(root: Path) -> list[Entry]:
    """Return the image files under a folder; a class without images is an error."""
    if not root.is_dir():
        raise ValueError(f"{root} does not exist" if not root.exists() else f"{root} is not a folder")
    parts = ["train", "test"] if (root / "train").is_dir() or (root / "test").is_dir() else [""]
    entries = []
    for part in parts:
        if not (root / part).is_dir():
            raise ValueError(
                f"{root} has only one of the folders train and test; {part} is missing: give both or neither"
            )
        for kind in sorted(path for path in _listed(root / part) if path.is_dir()):
            if _holds_runs(kind):
                _log.info("%s contains runs, so it is not used as a class of images", kind)
                continue
            _check_name(kind.name, root)
            files = sorted(_image_files(kind))
            if not files:
                suffixes = ", ".join(f"*{suffix}" for suffix in sorted(SUFFIXES))
                raise ValueError(
                    f"{kind} has no images; each folder is a class and must have files {suffixes}; add images or"
                    " remove it"
                )
            entries += [Entry(part, kind.name, file.relative_to(kind).as_posix(), file) for file in files]
    return entries


def in_archive(path: Path) -> Iterator[Entry]:
    """Iterate over the image files of a tar archive; folders around the layout are ignored.

    ``tar --append`` and ``--update`` can leave several versions of a file. The last one counts, as on extraction.
    """
    newest = {member.path: member.entry.offset for member in _images_of(path)}
    around = _around(newest)
    for member in _images_of(path):
        parts = member.path.parts
        place = _split_at(parts)
        part, kind = ("", around) if place is None else (parts[place], place + 1)
        if len(parts) > kind + 1 and member.entry.offset == newest[member.path]:
            _check_name(parts[kind], path)
            yield Entry(part, parts[kind], "/".join(parts[kind + 1 :]), member.read())


def _images_of(path: Path) -> Iterator[Member]:
    for member in members(path):
        hidden = any(part.startswith((".", "__MACOSX")) for part in member.path.parts)
        if not hidden and _is_image(member.path) and len(member.path.parts) > 1:
            yield member


def _split_at(parts: Sequence[str]) -> int | None:
    """Return the position of the folder train or test in a path, if there is one."""
    return next((i for i, part in enumerate(parts[:-2]) if part in ("train", "test")), None)


def _around(files: Iterable[PurePosixPath]) -> int:
    """Return how many nested folders are around the classes if there are no folders train and test.

    Classes may have subfolders, so the names of all images are needed to find out.
    """
    folders = {file.parts[:-1] for file in files if _split_at(file.parts) is None}
    depth = 0
    while len({f[depth] for f in folders if len(f) > depth}) == 1 and any(len(f) > depth + 1 for f in folders):
        depth += 1
    return depth


def assemble(entries: Iterable[Entry], *, channels: int, size: int | None) -> tuple[dict[str, Images], tuple[str, ...]]:
    """Decode all images; return those of each part, sorted by class and name, and the sorted classes.

    There are as many decoding threads as processors, since Pillow releases the interpreter lock while it decodes.
    """
    found = sorted(_decoded(entries, channels=channels, size=size), key=lambda pair: pair[0])
    classes = tuple(sorted({kind for (part, kind, _), _ in found if part != "test"}))
    parts: dict[str, Images] = {}
    for part in sorted({key[0] for key, _ in found}):
        here = [(key, pixels) for key, pixels in found if key[0] == part]
        kinds = [kind for (_, kind, _), _ in here]
        if other := [kind for kind in kinds if kind not in classes]:
            raise ValueError(
                f"the class {other[0]!r} has test images but no training images; add some, or remove the test images"
            )
        labels = torch.tensor([classes.index(kind) for kind in kinds])
        parts[part] = Images(torch.from_numpy(np.stack([pixels for _, pixels in here])), labels)
    return parts, classes


def _decoded(
    entries: Iterable[Entry], *, channels: int, size: int | None
) -> Iterator[tuple[tuple[str, str, str], Pixels]]:
    def work(chunk: list[Entry]) -> list[tuple[tuple[str, str, str], Pixels]]:
        return [(entry[:3], entry.decode(channels=channels, size=size)) for entry in chunk]

    workers = usable_cores()
    pool = ThreadPoolExecutor(workers)
    remaining = iter(entries)
    pending: deque[Future[list[tuple[tuple[str, str, str], Pixels]]]] = deque()
    first: tuple[str, Pixels] | None = None
    try:
        while True:
            # A bounded queue, so that files are not read much faster than they are decoded.
            while len(pending) < 4 * workers and (chunk := list(islice(remaining, _CHUNK))):
                pending.append(pool.submit(work, chunk))
            if not pending:
                return
            for key, pixels in pending.popleft().result():
                first = first or ("/".join(filter(None, key)), pixels)
                _check_shape(first, "/".join(filter(None, key)), pixels)
                yield key, pixels
    finally:
        pool.shutdown(cancel_futures=True)


def _check_name(kind: str, root: Path) -> None:
    """Raise if the name of a class cannot be written into a report."""
    try:
        kind.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the class {kind!r} in {root} has a name that is not UTF-8; rename its folder") from None


def _check_shape(first: tuple[str, Pixels], name: str, pixels: Pixels) -> None:
    _, height, width = pixels.shape
    if pixels.shape != first[1].shape:
        raise ValueError(
            f"{name} has {width}×{height} pixels but {first[0]} has {first[1].shape[2]}×{first[1].shape[1]}; give size="
            " to scale all images to one size"
        )
    if height != width:
        raise ValueError(
            f"{name} has {width}×{height} pixels, which is not square; give size= to crop and scale images"
        )


def _listed(folder: Path) -> list[Path]:
    try:
        found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {error.strerror or error}") from error
    if lost := [path for path in found if path.is_symlink() and not path.exists()]:  # a whole class, perhaps
        raise ValueError(f"{min(lost)} is a broken link; remove it, or restore its target")
    return found


def _holds_runs(folder: Path) -> bool:
    """Return whether a folder contains runs, for example after a training in the folder of the images."""
    return any((file.parent / "checkpoints").is_dir() for file in folder.rglob("config.toml"))


def _image_files(folder: Path, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[Path]:
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise ValueError(f"{folder} is a link to a folder that contains it; remove it")
    for path in _listed(folder):
        if path.is_dir():
            yield from _image_files(path, above | {here})
        elif _is_image(path):
            if not path.is_file():
                raise ValueError(f"{path} is not a file; remove it")
            yield path


def _is_image(path: PurePosixPath | Path) -> bool:
    return path.suffix.lower() in SUFFIXES
