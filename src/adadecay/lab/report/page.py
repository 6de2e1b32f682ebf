"""The page: an analysis → one self-contained HTML file.

In: :class:`Analysis`. Out: text. Everything is inside: styles, script, the Vega bundle
(from vl-convert), the charts' data. A content security policy forbids the browser any
request, and the template escapes what it prints.
"""

import functools
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final

import jinja2
import vl_convert

from adadecay.lab import paper
from adadecay.lab.report import tables, text
from adadecay.lab.report.caveats import caveats, counts
from adadecay.lab.report.charts import FORESTS, make_figures, styles_of
from adadecay.lab.report.style import DARK, Figure, Section
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.claims import CLAIM_RULES, ClaimResult
from adadecay.lab.stats.compare import Judged
from adadecay.lab.stats.verdicts import EFFECT_RULES, RULES, Verdict

__all__ = ["render"]

ICONS: Final = {
    "replicated": "✓",
    "same sign, larger": "↑",
    "same sign, smaller": "↓",
    "helps": "✓",
    "contradicted": "✕",
    "hurts": "✕",
    "not found": "○",
    "inconclusive": "?",
    "no evidence": "?",
    "not comparable": "≠",
    "not tested": "·",
    "chosen on the scores shown": "·",
}
MOST_CARDS: Final = 24


@dataclass(frozen=True)
class Card:
    """A verdict in words: what was claimed, what was found, by which rule."""

    title: str
    verdict: str
    text: str
    rule: str = ""
    ours: bool = False
    cells: tuple[tuple[str, str], ...] = ()


def render(analysis: Analysis, *, renew: float | None = None) -> str:
    """Return the page of an analysis.

    Args:
        analysis: of a study.
        renew: seconds after which an open page loads itself again; None for never.
    """
    figures = make_figures(analysis, page=True)
    values = _context(analysis, figures) | {"renew": renew}
    return _template().render(values)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("adadecay.lab", "report"),
    )
    environment.filters["icon"] = ICONS.__getitem__
    environment.filters["slug"] = lambda text: re.sub(r"\W+", "-", text)
    return environment.get_template("page.html.jinja")


def _context(analysis: Analysis, figures: list[Figure]) -> dict[str, Any]:
    data = analysis.data
    numbers = text.Numbers.fitting(analysis)
    cards = _claim_cards(analysis, numbers) or _effect_cards(analysis, numbers)
    return {
        "title": data.title or data.name,
        "name": data.name,
        "summary": data.summary,
        "headline": text.headline(analysis, numbers),
        "remarks": caveats(analysis),
        "facts": _facts(analysis),
        "cards": [card for card in cards if card.verdict != "not tested"],
        "untested": [card for card in cards if card.verdict == "not tested"],
        "more_cards": max(0, len(analysis.comparisons) - MOST_CARDS),
        "of_the_paper": data.paper,
        "rules": [(str(verdict), when) for verdict, when in RULES],
        "claim_rules": [(str(verdict), when) for verdict, when in CLAIM_RULES],
        "effect_rules": [(str(effect), when) for effect, when in EFFECT_RULES],
        "forests": [figure for figure in figures if figure.section is FORESTS],
        "comparisons": tables.for_page(tables.comparison_table(analysis, numbers)),
        "matrix": tables.matrix(analysis, numbers),
        "arms": tables.arm_table(analysis, numbers),
        "sections": _sections(analysis, figures),
        "standings": analysis.standings,
        "thetas": analysis.thetas,
        "problems": data.problems,
        "origins": data.facts,
        "seeds": _seeds(analysis),
        "paper": paper,
        "score_name": data.score_name,
        "larger_is_better": data.larger_is_better,
        "trim": analysis.trim,
        "baseline": analysis.baseline,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "styles": _read("page.css"),
        "script": _read("page.js"),
        "dark": DARK,
        "vega": _vega(),
        "charts": _embedded(figures),
    }


def _claim_cards(analysis: Analysis, numbers: text.Numbers) -> list[Card]:
    if not analysis.data.paper:
        return []
    if all(each.verdict is Verdict.NOT_TESTED for each in analysis.claims):
        return []
    return [_claim_card(each, numbers) for each in analysis.claims]


def _claim_card(result: ClaimResult, numbers: text.Numbers) -> Card:
    rule = f"Tested as: {result.claim.test}. “{result.verdict}” here means: "
    when = dict(CLAIM_RULES)[result.verdict]
    words = text.claim_words(result, numbers)
    return Card(
        result.claim.statement,
        str(result.verdict),
        words,
        f"{rule}{when}.",
        result.claim.ours,
        text.claim_cells(result, numbers),
    )


def _effect_cards(analysis: Analysis, numbers: text.Numbers) -> list[Card]:
    return [_effect_card(each, numbers) for each in analysis.judged[:MOST_CARDS]]


def _effect_card(judged: Judged, numbers: text.Numbers) -> Card:
    comparison = judged.comparison
    title = f"{text.versus(comparison)}, {comparison.ours.where}"
    if judged.chosen_on_scores:
        return Card(title, judged.words, text.chosen_words(comparison, numbers))
    when = dict(EFFECT_RULES)[comparison.effect]
    words = text.effect_words(comparison, numbers)
    rule = f"“{comparison.effect}” means: {when}, in the Holm-adjusted 95 % interval."
    return Card(title, str(comparison.effect), words, rule)


def _facts(analysis: Analysis) -> list[tuple[str, str]]:
    have = counts(analysis)
    sizes = sorted({int(arm.scores.size) for arm in analysis.arms})
    epochs = sorted({arm.epochs for arm in analysis.arms})
    return [
        (f"{have['done']:,} of {have['planned']:,}", "trials finished"),
        (_range(sizes), "trials a setting"),
        (str(len({arm.place for arm in analysis.arms})), "cells"),
        (str(len({arm.optimizer for arm in analysis.arms})), "optimizers"),
        (_range(epochs), "epochs"),
        (str(len(analysis.comparisons)), "comparisons"),
    ]


def _seeds(analysis: Analysis) -> list[tuple[int, int]]:
    if analysis.trials.is_empty():
        return []
    pairs = analysis.trials.select("number", "seed").drop_nulls().unique()
    return [(int(number), int(seed)) for number, seed in sorted(pairs.rows())]


def _range(values: list[int]) -> str:
    if not values:
        return text.DASH
    low, high = values[0], values[-1]
    return str(low) if low == high else f"{low} to {high}"


def _sections(analysis: Analysis, figures: list[Figure]) -> list[dict[str, Any]]:
    styles = styles_of(analysis)
    groups: dict[Section, list[Figure]] = {}
    for figure in figures:
        if figure.section is not FORESTS:
            groups.setdefault(figure.section, []).append(figure)
    found = []
    for section, members in groups.items():
        drawn = [each.table for each in members if "optimizer" in each.table.columns]
        names = dict.fromkeys(name for table in drawn for name in table["optimizer"])
        legend = [(name, styles[name]) for name in names]
        found.append({"section": section, "figures": members, "legend": legend})
    return found


def _embedded(figures: list[Figure]) -> str:
    """Return the charts as JSON that no text inside can break out of."""
    charts = {}
    for figure in figures:
        spec = figure.chart.to_dict(validate=False)
        spec.pop("$schema", None)  # an address, and nobody is to look there
        spec["description"] = figure.caption
        charts[figure.name] = spec
    text = json.dumps(
        charts, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


@functools.cache
def _read(name: str) -> str:
    return resources.files("adadecay.lab.report").joinpath(name).read_text("utf-8")


@functools.cache
def _vega() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script without a closing tag."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return str(bundle).replace("</script", "<\\/script")
