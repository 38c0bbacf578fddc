"""The paper's two tables, and the experiment that corresponds to each row."""

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """What the paper prints: the test accuracy and the fraction of zeros, in percent."""

    accuracy: float
    sparsity: float


@dataclass(frozen=True)
class PrintedRow:
    """An experiment, its labels in tables and in small pictures, and the paper's figures, if any."""

    experiment: str
    label: str
    short: str
    printed: Printed | None


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    key: str  # its name in our files
    title: str  # its caption
    network: str  # the network's key, with which the names of its experiments begin
    called: str  # the network's name
    setting: str  # how the paper trained
    rows: tuple[PrintedRow, ...]  # the first is the dense network, with which accuracies are compared

    @property
    def base(self) -> PrintedRow:
        """The row of the dense network."""
        return self.rows[0]

    def lost(self, row: PrintedRow) -> float | None:
        """Return how many points the paper's row loses to its dense network."""
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
    setting="the whole network, λ = 1e-5, β = 1e-2, a = 1; the number of epochs is not stated",
    rows=(
        PrintedRow("vgg16-base", "base model", "base", Printed(93.82, 0.0)),
        PrintedRow("vgg16-l1", "ℓ1", "ℓ1", Printed(93.7, 35.68)),
        PrintedRow("vgg16-tl1", "Tℓ1", "Tℓ1", Printed(93.07, 63.34)),
        PrintedRow("vgg16-l0", "ℓ0", "ℓ0", _VGG_L0),
        PrintedRow("vgg16-l0-unscaled", "ℓ0, the paper's λ and β", "ℓ0, unscaled", _VGG_L0),
        PrintedRow("vgg16-l0-published", "ℓ0, as in the authors' scripts", "ℓ0, scripts", _VGG_L0),
        PrintedRow("vgg16-l0-869", "ℓ0, target 86.9 %", "ℓ0 86.9 %", None),
    ),
)
TABLE_2 = PaperTable(
    key="table-2",
    title="Table 2: ADMM and RVSM (ℓ0), ResNet-18 on CIFAR-10",
    network="resnet18",
    called="ResNet-18",
    setting="the whole network, 200 epochs, λ = 1e-6, β = 8e-2; ADMM with 60 % and ρ = 1e-2; zeros over all weights",
    rows=(
        PrintedRow("resnet18-sgd", "SGD", "SGD", Printed(95.07, 0.0)),
        PrintedRow("resnet18-admm", "ADMM, target 60 %", "ADMM 60 %", _ADMM),
        PrintedRow("resnet18-admm-published", "ADMM, as in the authors' scripts", "ADMM, scripts", _ADMM),
        PrintedRow("resnet18-rvsm-l0", "RVSM (ℓ0)", "RVSM", _RVSM),
        PrintedRow("resnet18-rvsm-l0-published", "RVSM (ℓ0), as in the authors' scripts", "RVSM, scripts", _RVSM),
        PrintedRow("resnet18-admm-937", "ADMM, target 93.7 %", "ADMM 93.7 %", None),
        PrintedRow("resnet18-rvsm-l0-937", "RVSM (ℓ0), target 93.7 %", "RVSM 93.7 %", None),
        PrintedRow("resnet18-magnitude-937", "magnitude pruning, target 93.7 %, by half-time", "magnitude", None),
        PrintedRow("resnet18-magnitude-937-late", "magnitude pruning, target 93.7 %, by 70 %", "magnitude, late", None),
    ),
)
TABLES = (TABLE_1, TABLE_2)

PUBLISHED = {
    "rvsm-published": "RVSM of the published script",
    "admm-published": "ADMM of the published script",
}
"""The names of the authors' scripts' methods in tables."""

PAIRS = {
    "published": ("resnet18-rvsm-l0-published", "resnet18-admm-published"),
    "proper": ("resnet18-rvsm-l0", "resnet18-admm"),
    "equal-sparsity": ("resnet18-rvsm-l0-937", "resnet18-admm-937"),
}
"""Experiments with RVSM and with ADMM that are compared: as in the scripts, as in the paper, and at 93.7 % zeros."""

MAGNITUDE = ("resnet18-magnitude-937", "resnet18-magnitude-937-late")
"""Experiments with magnitude pruning at the same sparsity."""

UNSCALED = "“Unscaled” has the paper's own λ and β. A percentage is the target for zeros."
SHORT = f"“Scripts” is the method as in the authors' scripts. {UNSCALED}"
"""The meaning of the short names, for captions."""


def label(experiment: str) -> str:
    """Return the label of an experiment in tables and pictures.

    >>> label("vgg16-tl1"), label("another")
    ('Tℓ1', 'another')
    """
    return next((row.label for table in TABLES for row in table.rows if row.experiment == experiment), experiment)


def is_of_the_paper(names: Container[str]) -> bool:
    """Return whether experiments repeat the paper's tables: at least one corresponds to a printed row."""
    return any(row.printed is not None and row.experiment in names for table in TABLES for row in table.rows)
