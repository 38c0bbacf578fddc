"""The commands that use trained networks: evaluate, predict and collect."""

import argparse
import json

from rvsm.cli.arguments import add_allow_import, path
from rvsm.cli.showing import show


def evaluate(words: list[str]) -> int:
    """Measure the accuracy of a run or a packed file."""
    parser = _parser(
        "evaluate",
        "Measure the accuracy of a finished run or a packed file, on its test images or on those of another data set.",
        usage="rvsm evaluate RUN|FILE [--run RUN] [--json] [--data.option VALUE …]",
        epilog="--data.path, --data.name and so on choose other images; rvsm train --help lists these options.",
    )
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
    return 0


def predict(words: list[str]) -> int:
    """Print the classes of images."""
    parser = _parser(
        "predict",
        "Print the class and its probability for each image, with a finished run or a packed file. Images are cropped"
        " to squares, scaled and normalised as in the run.",
    )
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
    return 0


def collect(words: list[str]) -> int:
    """Save finished runs as lines of a text file."""
    parser = argparse.ArgumentParser(
        prog="rvsm collect",
        description="Save finished runs as lines of a small text file, the source of tables of results.",
    )
    parser.add_argument("runs", nargs="+", type=path, metavar="RUN", help="folders of finished runs")
    parser.add_argument(
        "--into", type=path, required=True, metavar="FILE.jsonl",
        help="the file; a line with the same name, options and seed is replaced",
    )  # fmt: skip
    options = parser.parse_args(words)
    from rvsm.collect import collect
    from rvsm.records import Run

    new, replaced = collect([Run(folder) for folder in options.runs], options.into)
    show(f"{options.into}: {new} new, {replaced} replaced")
    return 0


def _parser(
    command: str, description: str, usage: str | None = None, epilog: str | None = None
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"rvsm {command}", description=description, usage=usage, epilog=epilog, allow_abbrev=False
    )
    parser.add_argument("source", type=path, metavar="RUN|FILE", help="the folder of a finished run, or a packed file")
    parser.add_argument(
        "--run", type=path, help="the run that a packed file was made from (default: the folder of the file)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_allow_import(parser)
    return parser
