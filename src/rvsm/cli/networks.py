"""The commands that use networks: pack, bench, profile, info, evaluate and predict."""

import argparse
import json
from pathlib import Path
from typing import Any

from rvsm.cli.terminal import add_allow_import, parser_of, path, show


def pack(words: list[str]) -> None:
    """Write a network to a file for the sparse runtime."""
    parser = parser_of("pack", "Compile a network for the sparse runtime and write it to a file.")
    parser.add_argument(
        "source", metavar="RUN|module:callable", help="a finished run, or a callable that makes the network"
    )
    _add_network(parser)
    parser.add_argument("--out", type=path, help="the file to write (default: model.rvsm in the run's folder, or here)")
    parser.add_argument(
        "--lengths",
        type=int,
        metavar="N",
        help="make a file for sequences of any length up to N; the first size of --input is the length of an example,"
        " which should differ from all other sizes in the network",
    )
    parser.add_argument(
        "--values",
        choices=("float32", "bfloat16", "int8"),
        default="float32",
        help="how non-zero weights are stored; bfloat16 and int8 make smaller files, and the change of the outputs is"
        " printed (default: float32)",
    )
    parser.add_argument(
        "--limit", type=float, help="write nothing if the outputs change by more than this fraction, such as 0.02"
    )
    options = parser.parse_args(words)
    from rvsm.bench import pack

    run = Path(options.source)
    out = options.out or (run / "model.rvsm" if run.is_dir() else Path("model.rvsm"))
    how = {"lengths": options.lengths, "values": options.values, "limit": options.limit}
    show(pack(options.source, out, **_network(options), **how))
    show(out)


def bench(words: list[str]) -> None:
    """Time a network in several engines."""
    parser = parser_of("bench", "Time a network in the sparse runtime and in other engines.")
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
    parser.add_argument("--threads", type=int, help="threads of every engine (default: as many as torch uses)")
    parser.add_argument("--keep", action="store_true", help="save size and speeds in the run's folder, for reports")
    options = parser.parse_args(words)
    from rvsm.bench import bench, measure

    how = {"batches": options.batches, "threads": options.threads}
    if not options.keep:
        show(bench(options.source, against=options.against, **_network(options), **how))
    elif options.weights or options.against or options.input or options.integers:
        raise ValueError(
            "--keep needs the folder of a run, which has its own weights and image shape; leave out --weights,"
            " --against, --input and --integers"
        )
    else:
        show(measure(Path(options.source), **how, allow_import=options.allow_import))


def profile(words: list[str]) -> None:
    """Measure how long each layer takes in the sparse runtime, depending on its zeros."""
    parser = parser_of(
        "profile",
        "Measure how long each layer of a network takes in the sparse runtime on this machine, depending on its zeros,"
        " and write it to a file for rvsm train --budget.speedup 5 --budget.profile FILE. Measure on the machine on"
        " which the network will run, with its batch size and number of threads, while nothing else runs there.",
    )
    parser.add_argument("source", metavar="RUN|module:callable", help="a run, or a callable that makes the network")
    _add_network(parser)
    parser.add_argument("--batch", type=int, default=64, help="examples in a call (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of a call (default: OMP_NUM_THREADS, or all cores)")
    parser.add_argument(
        "--groups", help="which weights are zero together, as in the training (default: those of the run, or element)"
    )
    parser.add_argument("--size", type=int, help="the number of output channels in a block, for --groups block")
    parser.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="parameters that stay dense, as in the training"
    )
    parser.add_argument("--out", type=path, default=Path("profile.json"), help="the file (default: %(default)s)")
    options = parser.parse_args(words)
    from rvsm.bench import profile

    zeros = {"groups": options.groups, "size": options.size, "exclude": options.exclude}
    how = {"batch": options.batch, "threads": options.threads}
    show(profile(options.source, options.out, **_network(options), **zeros, **how))
    show(options.out)


def info(words: list[str]) -> None:
    """Describe the contents of a packed file."""
    parser = parser_of("info", "Describe the contents of a packed file.")
    parser.add_argument("file", type=path, metavar="FILE", help="a file written by rvsm pack or program.save")
    options = parser.parse_args(words)
    from rvsm.runtime import describe

    show(describe(options.file))


def evaluate(words: list[str]) -> None:
    """Measure the accuracy of a run or a packed file."""
    parser = parser_of(
        "evaluate",
        "Measure the accuracy of a finished run or a packed file, on its test images or on those of another data set.",
        usage="rvsm evaluate RUN|FILE [--run RUN] [--json] [--data.option VALUE …]",
        epilog="--data.path, --data.name and so on choose other images; rvsm train --help lists these options.",
        allow_abbrev=False,
    )
    _add_classifier(parser)
    options, flags = parser.parse_known_args(words)
    if wrong := [word for word in flags if word.startswith("-") and not word.startswith("--data.")]:
        parser.error(f"unrecognized option {wrong[0]}")
    from rvsm.inference import images_of, load_classifier

    classifier = load_classifier(options.source, run=options.run, allow_import=options.allow_import)
    found = classifier.evaluate(images_of(classifier.run, flags))
    if options.json:
        show(json.dumps(found))
    else:
        show(f"accuracy {100 * found['accuracy']:.2f} %, loss {found['loss']:.4f}, on {found['images']} test images")


def predict(words: list[str]) -> None:
    """Print the classes of images."""
    parser = parser_of(
        "predict",
        "Print the class and its probability for each image, with a finished run or a packed file. Images are cropped"
        " to squares, scaled and normalised as in the run.",
        allow_abbrev=False,
    )
    _add_classifier(parser)
    parser.add_argument("images", nargs="+", type=path, metavar="IMAGE", help="image files")
    options = parser.parse_args(words)
    from rvsm.inference import load_classifier

    classifier = load_classifier(options.source, run=options.run, allow_import=options.allow_import)
    width = max(map(len, classifier.classes))
    for found in classifier.predict(options.images):
        if options.json:
            show(json.dumps({"file": found.file, "class": found.name, "probability": found.probability}))
        else:
            show(f"{found.name:{width}}  {100 * found.probability:6.2f} %  {found.file}")


def _add_network(parser: argparse.ArgumentParser) -> None:
    weights = "the weights for module:callable: a .safetensors file, or a .pt file that holds only tensors"
    parser.add_argument("--weights", type=path, help=weights)
    parser.add_argument("--input", type=_shape, metavar="C,H,W", help="the shape of one example; not needed for a run")
    parser.add_argument(
        "--integers", action="store_true", help="the input consists of integers, such as the indices of words"
    )
    add_allow_import(parser)


def _network(options: argparse.Namespace) -> dict[str, Any]:
    """Return what ``_add_network`` has read."""
    return {
        "weights": options.weights,
        "shape": options.input,
        "integers": options.integers,
        "allow_import": options.allow_import,
    }


def _add_classifier(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=path, metavar="RUN|FILE", help="the folder of a finished run, or a packed file")
    parser.add_argument(
        "--run", type=path, help="the run that a packed file was made from (default: the folder of the file)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_allow_import(parser)


def _shape(text: str) -> tuple[int, ...]:
    """Return integers separated by commas."""
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected integers such as 3,32,32 but got {text!r}") from None
