"""The paper's two tables, and which experiment stands for which row."""

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """What the paper prints: the test accuracy and the share of zeros, in percent."""

    accuracy: float
    sparsity: float


@dataclass(frozen=True)
class PrintedRow:
    """An experiment, what it is called in a table and in a small picture, and the paper's figures, if any."""

    experiment: str
    label: str
    short: str
    printed: Printed | None


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        key: what it is called in our files.
        title: its caption.
        network: the network's key, which is how the names of its experiments begin.
        called: the network's name.
        setting: how the paper trained.
        rows: the dense network first, against which accuracies are compared.

    """

    key: str
    title: str
    network: str
    called: str
    setting: str
    rows: tuple[PrintedRow, ...]

    @property
    def base(self) -> PrintedRow:
        """The row of the dense network."""
        return self.rows[0]

    def lost(self, row: PrintedRow) -> float | None:
        """Return by how many points the paper's row is below its dense network."""
        if row.printed is None or self.base.printed is None:
            return None
        return round(self.base.printed.accuracy - row.printed.accuracy, 2)


_VGG_L0 = Printed(92.54, 86.89)
_ADMM, _RVSM = Printed(94.84, 47.08), Printed(94.89, 93.70)

TABLE_1 = PaperTable(
    key="table-1",
    title="Table 1: RVSM under different penalties, VGG-16 on CIFAR-10",
    network="vgg16",
    called="VGG-16",
    setting="the whole network, λ = 1e-5, β = 1e-2, a = 1; epochs are not said",
    rows=(
        PrintedRow("vgg16-base", "base model", "base", Printed(93.82, 0.0)),
        PrintedRow("vgg16-l1", "ℓ1", "ℓ1", Printed(93.7, 35.68)),
        PrintedRow("vgg16-tl1", "Tℓ1", "Tℓ1", Printed(93.07, 63.34)),
        PrintedRow("vgg16-l0", "ℓ0", "ℓ0", _VGG_L0),
        PrintedRow("vgg16-l0-unscaled", "ℓ0, the paper's λ and β", "ℓ0, unscaled", _VGG_L0),
        PrintedRow("vgg16-l0-published", "ℓ0, as the authors' scripts", "ℓ0, scripts", _VGG_L0),
        PrintedRow("vgg16-l0-869", "ℓ0, 86.9 % asked", "ℓ0 86.9 %", None),
    ),
)
TABLE_2 = PaperTable(
    key="table-2",
    title="Table 2: ADMM and RVSM (ℓ0), ResNet-18 on CIFAR-10",
    network="resnet18",
    called="ResNet-18",
    setting="the whole network, 200 epochs, λ = 1e-6, β = 8e-2; ADMM with 60 % and ρ = 1e-2; zeros of all weights",
    rows=(
        PrintedRow("resnet18-sgd", "SGD", "SGD", Printed(95.07, 0.0)),
        PrintedRow("resnet18-admm", "ADMM, 60 % asked", "ADMM 60 %", _ADMM),
        PrintedRow("resnet18-admm-published", "ADMM, as the authors' scripts", "ADMM, scripts", _ADMM),
        PrintedRow("resnet18-rvsm-l0", "RVSM (ℓ0)", "RVSM", _RVSM),
        PrintedRow("resnet18-rvsm-l0-published", "RVSM (ℓ0), as the authors' scripts", "RVSM, scripts", _RVSM),
        PrintedRow("resnet18-admm-937", "ADMM, 93.7 % asked", "ADMM 93.7 %", None),
        PrintedRow("resnet18-rvsm-l0-937", "RVSM (ℓ0), 93.7 % asked", "RVSM 93.7 %", None),
        PrintedRow("resnet18-magnitude-937", "magnitude pruning, 93.7 % asked, by half-time", "magnitude", None),
        PrintedRow("resnet18-magnitude-937-late", "magnitude pruning, 93.7 % asked, by 70 %", "magnitude, late", None),
    ),
)
TABLES = (TABLE_1, TABLE_2)

PUBLISHED = {
    "rvsm-published": "RVSM of the published script",
    "admm-published": "ADMM of the published script",
}
"""What tables call the methods of the authors' scripts."""

PAIRS = {
    "published": ("resnet18-rvsm-l0-published", "resnet18-admm-published"),
    "proper": ("resnet18-rvsm-l0", "resnet18-admm"),
    "equal-sparsity": ("resnet18-rvsm-l0-937", "resnet18-admm-937"),
}
"""Experiments with RVSM and with ADMM that are compared: by the scripts, by the paper, and at 93.7 % zeros."""

MAGNITUDE = ("resnet18-magnitude-937", "resnet18-magnitude-937-late")
"""Experiments with magnitude pruning beside those of equal sparsity."""

UNSCALED = "“Unscaled” has the paper's own λ and β, and a percentage is the share of zeros that was asked for."
SHORT = f"“Scripts” is the method as the authors' scripts do it. {UNSCALED}"
"""What the short names mean, for captions."""


def label(experiment: str) -> str:
    """Return what an experiment is called in tables and pictures.

    >>> label("vgg16-tl1"), label("another")
    ('Tℓ1', 'another')
    """
    return next((row.label for table in TABLES for row in table.rows if row.experiment == experiment), experiment)


def is_of_the_paper(names: Container[str]) -> bool:
    """Return whether experiments are a repetition of the paper's tables: one stands for a printed row."""
    return any(row.printed is not None and row.experiment in names for table in TABLES for row in table.rows)
