"""A picture of what the three outputs cost: u, w on the support of u, and ADMM's u."""

from matplotlib.figure import Figure as Canvas

from rvsm.pages import PALETTE, Figure
from rvsm.paper.theory.comparison import OUTPUTS, sparsity_study
from rvsm.paper.theory.pictures.convergence import LABELS

_NAMES = {"u": "RVSM, u", "masked": "RVSM, w on the support of u", "admm": "ADMM, u"}
_STYLES = {"u": "o-", "masked": "s-", "admm": "^--"}


def sparsity_against_error(quick: bool = False) -> Figure:
    """Draw the error against the zeros, one point for each λ, and one λ marked on all curves."""
    shares = [0.03 * 1.8**j for j in range(6)] if quick else [0.03 * 1.35**j for j in range(12)]
    seeds = 12 if quick else 40
    study = sparsity_study(shares, seeds=seeds, steps=200 if quick else 300)
    marked = len(shares) // 2

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 3, sharex=True, sharey=True)
        for axes, name in zip(panels, LABELS, strict=True):
            p = study.penalties.index(name)
            for o, output in enumerate(OUTPUTS):
                zeros, loss = 100 * study.sparsity[o, p], study.loss[o, p]
                look = {"color": PALETTE[o], "markersize": 4, "linewidth": 1.2}
                hollow = {"markerfacecolor": "none"} if output == "admm" else {}
                axes.semilogy(zeros, loss, _STYLES[output], label=_NAMES[output], **look, **hollow)
            zeros, loss = 100 * study.sparsity[:, p, marked], study.loss[:, p, marked]
            ring = {"markersize": 11, "markerfacecolor": "none", "markeredgecolor": PALETTE[3], "markeredgewidth": 1.8}
            axes.semilogy(zeros, loss, "o", label=f"λ/β = {shares[marked]:.2f}/√d", **ring)
            axes.set(title=LABELS[name], xlabel="zeros (%)", xlim=(0, 102))
            axes.minorticks_off()
        panels[0].set_ylabel(f"mean squared error f, mean over {seeds} runs")
        handles, labels = panels[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)

    return Figure(
        "sparsity-against-error",
        "What is the best output? (d = 20, k = 4; w* has 5 large and 15 small entries; each point is one λ; lower and"
        " further right is better.) At the same number of zeros, w on the support of u has the smallest error, by far"
        " for ℓ1 and Tℓ1. Their u pays for its shrinkage and lies on, or a little above, the curve of ADMM's u. For ℓ0,"
        " u is w on its support, and ADMM's u is behind. The rings are the same λ: there ADMM has fewer zeros and a"
        " smaller error, so compare at equal zeros, not at equal λ.",
        draw,
        size=(8.5, 3.9),
    )
