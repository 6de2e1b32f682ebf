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
from adadecay.lab.report.caveats import caveats
from adadecay.lab.report.charts import FORESTS, make_figures
from adadecay.lab.report.style import DARK, VERDICTS, Figure, Section, Theme
from adadecay.lab.scoring import plural
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Comparison
from adadecay.lab.stats.verdicts import CLAIM_RULES, EFFECT_RULES, RULES

MOST_CARDS: Final = 24


@dataclass(frozen=True)
class Card:
    """A verdict in words: what was claimed, what was found, by which rule."""

    title: str
    verdict: str
    text: str
    rule: str = ""
    ours: bool = False
    comparisons: tuple[Comparison, ...] = ()


def render(analysis: Analysis, *, renew: float | None = None) -> str:
    """Return the page of an analysis; an open one reloads itself after ``renew`` s."""
    return _template().render(_context(analysis), renew=renew)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("adadecay.lab", "report"),
    )
    environment.filters["icon"] = lambda verdict: VERDICTS[verdict][0]
    environment.filters["slug"] = lambda text: re.sub(r"\W+", "-", text)
    environment.filters["signed"] = text.signed
    return environment.get_template("page.html.jinja")


def _context(analysis: Analysis) -> dict[str, Any]:
    data = analysis.data
    numbers = text.Numbers.fitting(analysis)
    figures = make_figures(analysis, page=True)
    cards = _claim_cards(analysis, numbers) or _effect_cards(analysis, numbers)
    return {
        "analysis": analysis,
        "data": data,
        "numbers": numbers,
        "headline": text.headline(analysis),
        "remarks": caveats(analysis),
        "facts": _facts(analysis),
        "cards": [card for card in cards if card.verdict != "not tested"],
        "untested": [card for card in cards if card.verdict == "not tested"],
        "more_cards": max(0, len(analysis.comparisons) - MOST_CARDS),
        "rules": RULES,
        "claim_rules": CLAIM_RULES,
        "effect_rules": EFFECT_RULES,
        "forests": [figure for figure in figures if figure.section is FORESTS],
        "comparisons": _without(tables.comparison_table(analysis), "Ours", "Other"),
        "matrix": tables.matrix(analysis),
        "arms": tables.arm_table(analysis),
        "sections": _sections(analysis, figures),
        "seeds": sorted(
            analysis.trials.select("number", "seed").drop_nulls().unique().rows()
        ),
        "paper": paper,
        "plural": plural,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "styles": _read("page.css"),
        "script": _read("page.js"),
        "dark": DARK,
        "vega": _vega(),
        "charts": _embedded(figures),
    }


def _without(table: tables.Table, *titles: str) -> tables.Table:
    return table.pick(*(c.title for c in table.columns if c.title not in titles))


def _claim_cards(analysis: Analysis, numbers: text.Numbers) -> list[Card]:
    if not analysis.data.paper or not any(each.tested for each in analysis.claims):
        return []
    return [
        Card(
            each.claim.statement,
            each.verdict,
            text.claim_words(each, numbers),
            f"Tested as: {each.claim.test}. “{each.verdict}” here means: "
            f"{dict(CLAIM_RULES)[each.verdict]}.",
            each.claim.ours,
            each.comparisons,
        )
        for each in analysis.claims
    ]


def _effect_cards(analysis: Analysis, numbers: text.Numbers) -> list[Card]:
    cards = []
    for c in analysis.comparisons[:MOST_CARDS]:
        title = f"{c.ours.label} against {c.other.label}, {c.ours.where}"
        words, rule = text.chosen_words(c, numbers), ""
        if not c.chosen_on_scores:
            words, when = text.effect_words(c, numbers), dict(EFFECT_RULES)[c.effect]
            rule = f"“{c.effect}” means: {when}, in the Holm-adjusted 95 % interval."
        verdict = c.words if c.chosen_on_scores else c.effect
        cards.append(Card(title, verdict, words, rule))
    return cards


def _facts(analysis: Analysis) -> list[tuple[str, str]]:
    have, arms = analysis.counts, analysis.arms
    found = [
        ("trial a setting", {int(arm.scores.size) for arm in arms}),
        ("cell", {len({arm.cell for arm in arms})}),
        ("optimizer", {len(analysis.labels)}),
        ("epoch", {arm.epochs for arm in arms}),
        ("comparison", {len(analysis.comparisons)}),
    ]
    whole = plural(have["planned"], "trial")
    facts = [(f"{have['done']:,} of {whole}", "finished")]
    for noun, values in found:
        several = re.sub(r"^\w+", r"\g<0>s", noun)
        ends = sorted({min(values), max(values)}) if values else [text.DASH]
        label = noun if values == {1} else several
        facts.append((" to ".join(map(str, ends)), label))
    return facts


def _sections(analysis: Analysis, figures: list[Figure]) -> list[dict[str, Any]]:
    styles = Theme.of(analysis).looks
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
