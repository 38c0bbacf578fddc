"""A cache for each test, so that none touches the user's; images to write; a server to download from."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RVSM_CACHE", str(folder))
    return folder


@pytest.fixture
def encoded() -> Callable[..., bytes]:
    """Return the bytes of an image file of one grey value, or of an array of pixels."""

    def encode(pixels: int | np.ndarray = 0, *, size: int = 8, suffix: str = "png") -> bytes:
        array = np.full((size, size, 3), pixels, np.uint8) if isinstance(pixels, int) else pixels
        file = BytesIO()
        Image.fromarray(array).save(file, {"jpg": "jpeg"}.get(suffix.lower(), suffix))
        return file.getvalue()

    return encode


@pytest.fixture
def grow(encoded: Callable[..., bytes]) -> Callable[[Path, dict[str, int]], Path]:
    """Write an image of the given grey value to each of the paths under a folder."""

    def write(root: Path, files: dict[str, int], **options: int) -> Path:
        for name, value in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(value, suffix=path.suffix[1:], **options))
        return root

    return write


@contextmanager
def _served(contents: bytes, *, promised: int | None = None) -> Iterator[str]:
    """Serve the contents at /file; the server may promise more than it gives."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/file":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(promised or len(contents)))
            self.end_headers()
            self.wfile.write(contents)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/file"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def served() -> Callable[..., AbstractContextManager[str]]:
    return _served
