"""LaTeX: the tables of the paper with our numbers, in the layout of the original.

In: an analysis. Out: text for ``\\input``. A study with cells of a published table gets
that table (``ave`` over ``max``, the best in bold); every study gets its comparisons.
"""

from collections.abc import Sequence
from typing import Final

from adadecay.lab import paper
from adadecay.lab.report.text import Numbers
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.paper_claims import cells_of_the_paper
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import standard

__all__ = ["escape", "tex_tables"]

MISSING: Final = "--"
HEAD: Final = (
    "% Needs \\usepackage{array} and\n"
    "% \\newcolumntype{P}[1]{>{\\centering\\arraybackslash}p{#1}}\n"
)
SIGNS: Final = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "θ": r"$\theta$",
    "−": r"$-$",
    "–": "--",
    "·": r"$\cdot$",
}


def escape(text: str) -> str:
    """Return text as LaTeX prints it.

    Example:
        >>> from adadecay.lab.report.latex import escape
        >>> print(escape("50 % of a_b"))
        50 \\% of a\\_b
    """
    return "".join(SIGNS.get(sign, sign) for sign in text)


def tex_tables(analysis: Analysis) -> dict[str, str]:
    """Return LaTeX tables by name: those of the paper that apply, and comparisons."""
    cells, trim = cells_of_the_paper(analysis.arms), analysis.trim
    found = {}
    if any(
        _line(inside, _SIX)[-1] and _line(inside, _SIX)[0] for inside in cells.values()
    ):
        found["comparison"] = _comparison(cells, trim)
    if any(_line(inside, _FIVE)[0] for inside in cells.values()):
        found["alpha"] = _one_row(cells, _FIVE, _alpha_head(), trim)
    if any(_line(inside, _THREE)[1] for inside in cells.values()):
        found["randomized"] = _one_row(cells, _THREE, _randomized_head(), trim)
    found["differences"] = _differences(analysis)
    return found


Choice = tuple[str, float]
Cells = dict[tuple[str, str], list[Arm]]
_SIX: Final = tuple((name, paper.DEFAULT_ALPHA) for name in paper.OPTIMIZERS)
_FIVE: Final = tuple(("adadecay", value) for value in (-1.0, 1.0, 2.0, 4.0, 8.0))
_THREE: Final = tuple(
    (name, paper.DEFAULT_ALPHA) for name in ("sgd", "randomized", "adadecay")
)


def _line(arms: Sequence[Arm], choices: Sequence[Choice]) -> list[Arm | None]:
    return [standard(arms, name, alpha=alpha) for name, alpha in choices]


def _values(
    arms: Sequence[Arm | None], row: str, trim: float, *, bold: bool
) -> list[str]:
    there = [arm for arm in arms if arm is not None]
    found = [
        None if arm is None else arm.average(trim=trim) if row == "ave" else arm.best()
        for arm in arms
    ]
    texts = [MISSING if value is None else f"{value:.2f}" for value in found]
    known = [text for text in texts if text != MISSING]
    if not bold or len(known) < 2:
        return texts
    best = (max if there[0].larger_is_better else min)(known, key=float)
    return [rf"\textbf{{{text}}}" if text == best else text for text in texts]


def _comparison(cells: Cells, trim: float) -> str:
    names = list(paper.OPTIMIZERS.values())
    columns = "l | " + " | ".join([r"P{\pw}" * len(names)] * 2)
    parts = [HEAD, r"\def \pw {9.7mm}"]
    for dataset, networks in paper.NETWORKS.items():
        if not any((dataset, network) in cells for network in networks):
            continue
        parts.append(f"% {paper.DATASETS[dataset]}")
        parts.append(rf"\begin{{tabular}}{{{columns}}}")
        parts.append(r"\hline")
        for pair in (networks[:2], networks[2:]):
            lines = [_line(cells.get((dataset, n), ()), _SIX) for n in pair]
            parts.append(
                rf" & \multicolumn{{6}}{{c|}}{{{pair[0]}}}"
                rf" & \multicolumn{{6}}{{c}}{{{pair[1]}}}\\"
            )
            parts.append(rf" & {' & '.join(names + names)}\\")
            parts.append(r"\hline")
            parts += _two_rows(lines, trim, bold=True)
            parts.append(r"\hline" if pair == networks[2:] else "\\hline\n\\hline")
        parts.append(r"\end{tabular}" + "\n")
    return "\n".join(parts)


def _two_rows(
    lines: Sequence[Sequence[Arm | None]], trim: float, *, bold: bool
) -> list[str]:
    found = []
    for row in ("ave", "max"):
        values = [
            text for line in lines for text in _values(line, row, trim, bold=bold)
        ]
        found.append(rf"{row} & {' & '.join(values)}\\")
    return found


_THREE_CELLS: Final = (
    ("mnist", "NN-2"),
    ("fashion-mnist", "NN-2"),
    ("cifar-10", "ResNet-18"),
)


def _alpha_head() -> tuple[str, str]:
    shown = " & ".join(f"{value:g}" for _, value in _FIVE)
    return r"\def \pw {6.9 mm}", rf"$\alpha$ & {' & '.join([shown] * 3)}\\"


def _randomized_head() -> tuple[str, str]:
    shown = " & ".join(["const & rnd & ours"] * 3)
    return r"\def \pw {5.5mm}", rf" & {shown}\\"


def _one_row(
    cells: Cells, choices: Sequence[Choice], head: tuple[str, str], trim: float
) -> str:
    width, names = head
    count = len(choices)
    titles = [paper.DATASETS[dataset] for dataset, _ in _THREE_CELLS]
    spans = [
        rf"\multicolumn{{{count}}}{{{'c' if last else 'c|'}}}{{{title}}}"
        for title, last in zip(titles, (False, False, True), strict=True)
    ]
    columns = "l | " + " | ".join([r"P{\pw}" * count] * 3)
    lines = [_line(cells.get(cell, ()), choices) for cell in _THREE_CELLS]
    return "\n".join(
        [
            HEAD + width,
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            rf" & {' & '.join(spans)} \\",
            names,
            r"\hline",
            *_two_rows(lines, trim, bold=count == len(_THREE)),
            r"\hline",
            r"\end{tabular}",
            "",
        ]
    )


def _differences(analysis: Analysis) -> str:
    numbers = Numbers.fitting(analysis)
    rows = []
    for each in analysis.judged:
        c = each.comparison
        printed = "–" if each.published is None else f"{each.published:+.2f}"
        shown = (
            c.ours.where,
            f"{c.ours.optimizer} − {c.other.optimizer}",
            str(c.pairs),
            numbers.gap(c.difference),
            numbers.interval(c.interval),
            printed.replace("-", "−"),
            str(each.verdict or c.effect),
        )
        rows.append(" & ".join(escape(text) for text in shown) + r"\\")
    return "\n".join(
        [
            r"\begin{tabular}{l l r r r r l}",
            r"\hline",
            r"cell & comparison & pairs & difference & 95\,\% interval & paper & "
            r"verdict\\",
            r"\hline",
            *rows,
            r"\hline",
            r"\end{tabular}",
            "",
        ]
    )
