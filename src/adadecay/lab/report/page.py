"""The page: an analysis → one self-contained HTML file.

In: :class:`Analysis`. Out: text. Everything is inside: styles, script, the Vega bundle
(from vl-convert), the charts' data. A content security policy forbids the browser any
request, and the template escapes what it prints.
"""

import functools
import json
import re
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
from adadecay.lab.stats import verdicts
from adadecay.lab.stats.analysis import Analysis

MOST_CARDS: Final = 24
NOT_SETTINGS: Final = ("dataset", "network", "trainer", "loss", "metric")


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
    claims = analysis.claims if data.paper else []
    tested = [each for each in claims if each.tested]
    shown = [each.oriented for each in analysis.comparisons if each.pairs]
    return {
        "analysis": analysis,
        "data": data,
        "numbers": numbers,
        "headline": text.headline(analysis),
        "remarks": caveats(analysis),
        "facts": _facts(analysis),
        "claims": tested,
        "untested": [each for each in claims if tested and not each.tested],
        "effects": [] if tested else shown[:MOST_CARDS],
        "text": text,
        "verdicts": verdicts,
        "differences": FORESTS,
        "forests": [figure for figure in figures if figure.section is FORESTS],
        "comparisons": tables.comparison_table(analysis),
        "matrix": tables.matrix(analysis),
        "arms": tables.arm_table(analysis),
        "sections": _sections(analysis, figures),
        "settings": _settings(analysis),
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


def _facts(analysis: Analysis) -> list[tuple[str, str]]:
    have, arms = analysis.counts, analysis.arms
    found = [
        ("trial per setting", {int(arm.scores.size) for arm in arms}),
        ("cell", {len({arm.cell for arm in arms})}),
        ("optimizer", {len({arm.method for arm in arms})}),
        ("setting", {len(arms)}),
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


def _settings(analysis: Analysis) -> list[str]:
    """Return what each optimizer was run with, once where all of its cells agree."""
    found: dict[str, dict[str, list[str]]] = {}
    for arm in analysis.arms:
        not_used = ("batch_size",) if arm.get("trainer") else ()
        values = {
            path.removeprefix("optimizer.").replace(".", " "): value
            for path, value in arm.values
            if path.partition(".")[0] not in NOT_SETTINGS
            and path not in ("optimizer", *not_used)
            and value not in (None, False, 0.0)
        }
        told = ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in values.items()
        )
        found.setdefault(arm.label, {}).setdefault(told, []).append(arm.where)
    return [
        f"{label} on {', '.join(where)}: {told}"
        if len(every) > 1
        else f"{label}: {told}"
        for label, every in found.items()
        for told, where in every.items()
        if told
    ]


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
        spec["description"] = f"{figure.title}. {figure.section.lead}"
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
