"""A picture of what the three outputs cost: u, w on the support of u, and ADMM's u."""

from matplotlib.figure import Figure as Canvas

from rvsm.pages import PALETTE, Figure
from rvsm.theory.comparison import sparsity_study
from rvsm.theory.pictures.convergence import LABELS


def sparsity_against_error() -> Figure:
    """Draw the distance from the truth against the zeros, one point for each λ."""
    study = sparsity_study([0.03 * 1.35**j for j in range(12)], seeds=40, steps=300)
    labels = {"u": "RVSM, u", "masked": "RVSM, w on the support of u", "admm": "ADMM, u"}

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 3, sharex=True, sharey=True)
        for axes, name in zip(panels, LABELS, strict=True):
            p = study.penalties.index(name)
            for o, (output, style) in enumerate(zip(study.outputs, ("o-", "s-", "^--"), strict=True)):
                zeros, error = 100 * study.sparsity[o, p], study.error[o, p]
                axes.plot(zeros, error, style, color=PALETTE[o], markersize=3.5, label=labels[output])
            axes.set(title=LABELS[name], xlabel="zeros (%)", ylim=(0, 0.75))
        panels[0].set_ylabel("distance from w*, mean over 40 runs")
        panels[2].legend(fontsize=8, loc="upper left")

    return Figure(
        "sparsity-against-error",
        "What is the best output? (d = 20, k = 4; w* has 5 large and 15 small entries; each point is one λ.) At the"
        " same number of zeros, w on the support of u is closest to w*. For ℓ1 and Tℓ1, u pays for its shrinkage,"
        " and ADMM's u, whose multiplier closes the gap, lies between. For ℓ0, u is w on its support, and ADMM's u is"
        " behind. At the same λ, point for point, ADMM has fewer zeros.",
        draw,
        size=(8.5, 3.6),
    )
