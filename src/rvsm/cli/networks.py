"""The commands about networks: pack, bench and info."""

import argparse
from pathlib import Path

from rvsm.cli.arguments import add_allow_import, path
from rvsm.cli.showing import show


def pack(words: list[str]) -> int:
    """Write a network to a file for the sparse runtime."""
    parser = argparse.ArgumentParser(
        prog="rvsm pack", description="Compile a network for the sparse runtime and write it to a file."
    )
    parser.add_argument(
        "source", metavar="RUN|module:callable", help="a finished run, or a callable that makes the network"
    )
    _add_network(parser)
    parser.add_argument("--out", type=path, help="the file to write (default: model.rvsm in the run's folder, or here)")
    options = parser.parse_args(words)
    from rvsm.bench import pack

    run = Path(options.source)
    out = options.out or (run / "model.rvsm" if run.is_dir() else Path("model.rvsm"))
    described = pack(
        options.source, out, weights=options.weights, shape=options.input, allow_import=options.allow_import
    )
    show(described)
    show(out)
    return 0


def bench(words: list[str]) -> int:
    """Time a network in several engines."""
    parser = argparse.ArgumentParser(
        prog="rvsm bench", description="Time a network in the sparse runtime and in alternative engines."
    )
    parser.add_argument(
        "source", metavar="RUN|module:callable|FILE", help="a finished run, a network, or a packed file"
    )
    _add_network(parser)
    parser.add_argument(
        "--against", metavar="module:callable", help="the original network, if the source is a packed file"
    )
    parser.add_argument(
        "--batches", type=_shape, default=(1, 16, 64), metavar="N,N,…", help="batch sizes (default: 1,16,64)"
    )
    parser.add_argument("--threads", type=int, help="threads of every engine (default: that of torch)")
    parser.add_argument("--keep", action="store_true", help="save size and speeds in the run's folder, for reports")
    options = parser.parse_args(words)
    from rvsm.bench import bench, measure

    if options.keep:
        if options.weights or options.against or options.input:
            raise ValueError(
                "--keep needs the folder of a run, which has its own weights and image shape; leave out --weights,"
                " --against and --input"
            )
        kept = measure(
            Path(options.source), batches=options.batches, threads=options.threads, allow_import=options.allow_import
        )
        show(kept)
        return 0
    shown = bench(
        options.source,
        weights=options.weights,
        against=options.against,
        shape=options.input,
        batches=options.batches,
        threads=options.threads,
        allow_import=options.allow_import,
    )
    show(shown)
    return 0


def info(words: list[str]) -> int:
    """Describe the contents of a packed file."""
    parser = argparse.ArgumentParser(prog="rvsm info", description="Describe the contents of a packed file.")
    parser.add_argument("file", type=path, metavar="FILE", help="a file written by rvsm pack or program.save")
    options = parser.parse_args(words)
    from rvsm.runtime import describe

    show(describe(options.file))
    return 0


def _add_network(parser: argparse.ArgumentParser) -> None:
    weights = "the weights for module:callable: a .safetensors file, or a .pt file that holds only tensors"
    parser.add_argument("--weights", type=path, help=weights)
    parser.add_argument("--input", type=_shape, metavar="C,H,W", help="the shape of one image; not needed for a run")
    add_allow_import(parser)


def _shape(text: str) -> tuple[int, ...]:
    """Return integers separated by commas."""
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected integers such as 3,32,32 but got {text!r}") from None
