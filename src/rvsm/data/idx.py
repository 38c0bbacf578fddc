"""The IDX format of the MNIST family: a magic number, the sizes of the dimensions, and the data."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

_MOST_BYTES = 1 << 30


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Return the unsigned bytes of an IDX file, plain or compressed with gzip (detected from the contents).

    The file must have this number of ``dimensions``, and exactly as many bytes as their sizes require.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels-idx1-ubyte")
    ...     length = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    ...     read_idx(path, dimensions=1)
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if compressed else path.open("rb") as file:
            magic = file.read(4)
            if magic != bytes([0, 0, 8, dimensions]):
                raise ValueError(
                    f"{path} must begin with the bytes 0 0 8 {dimensions}, as IDX files of bytes in {dimensions}"
                    f" dimensions do, but begins with {' '.join(map(str, magic)) or 'nothing'}; check that it is the"
                    " right file"
                )
            header = file.read(4 * dimensions)
            if len(header) < 4 * dimensions:
                raise ValueError(f"{path} ends within its header; get a new copy")
            shape = struct.unpack(f">{dimensions}I", header)
            count = math.prod(shape)
            if count > _MOST_BYTES:
                raise ValueError(f"{path} declares {count} bytes of data, more than the limit of {_MOST_BYTES}")
            data = file.read(count + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged or truncated ({error}); get a new copy") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) != count:
        came = f"only {len(data)}" if len(data) < count else "more"
        raise ValueError(f"{path} must hold {'×'.join(map(str, shape))} bytes but holds {came}; get a new copy")
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.uint8).reshape(shape))
