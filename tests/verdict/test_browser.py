"""The page in a real Chromium: drawn, quiet, sortable, readable in every layout."""

import itertools
import re

import pytest
from simulated_study import (
    Setting,
    alpha_settings,
    comparison_settings,
    decay_settings,
    dropout_settings,
    simulate,
    simulate_rates,
    two_arms,
)

from adadecay.lab.report import write
from adadecay.lab.stats.data import StudyData

EVIL = "<script>window.evil=1</script>\"'&</script><img src=x onerror=window.evil=1>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two pages: one of the paper with every kind of figure, one with evil names."""
    folder = tmp_path_factory.mktemp("pages")
    settings = [
        *comparison_settings()[:24],
        *alpha_settings()[:5],
        *decay_settings()[:10],
        *dropout_settings()[:8],
    ]
    results = simulate(settings, trials=4)
    paper = StudyData(
        results,
        rates=simulate_rates(results),
        paper=True,
        name="paper/some",
        title="Some of the paper",
        problems=(
            {
                "cell": "mnist/nn-2",
                "optimizer": "sgd",
                "number": 3,
                "status": "failed",
                "epochs_done": 4,
                "reason": "out of memory",
            },
        ),
        facts={"torch": ("2.13.0",)},
    )
    evil = [
        Setting(dataset=EVIL, network=EVIL, optimizer=name, name=name, schedule=EVIL)
        for name in (EVIL, "adadecay")
    ]
    results = simulate(evil, trials=3, epochs=5)
    harmless = StudyData(
        results,
        rates=simulate_rates(results, layers=(EVIL, "b")),
        name=EVIL,
        title=EVIL,
        summary=EVIL,
        score_name=EVIL,
        baseline=EVIL,
        facts={EVIL: (EVIL,)},
        problems=(
            dict.fromkeys(("cell", "optimizer", "status", "reason"), EVIL)
            | {"number": 0, "epochs_done": 1},
        ),
    )
    return {
        "paper": write(paper, folder / "paper.html"),
        "evil": write(harmless, folder / "evil.html"),
    }


class Visit:
    """A page that is open, and all that it said or asked for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", timeout=120_000)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()


@pytest.fixture(scope="module")
def paper(chromium, pages):
    with Visit(chromium, pages["paper"]) as visit:
        yield visit


def test_nothing_is_said_and_nothing_asked_for(paper, pages):
    outside = [url for url in paper.asked if not url.startswith(("data:", "blob:"))]
    assert outside == [pages["paper"].as_uri()]
    assert paper.said == []


def test_every_chart_is_drawn(paper):
    found = paper.page.evaluate(
        """() => [...document.querySelectorAll("figure[data-chart]")].map((f) => ({
            name: f.dataset.chart, drawn: f.dataset.drawn,
            marks: f.querySelectorAll("svg path, svg line").length,
            width: f.querySelector("svg")?.getBoundingClientRect().width ?? 0 }))"""
    )
    kinds = {re.sub(r"-\d+$", "", each["name"]) for each in found}
    assert kinds == {
        "differences",
        "curves",
        "weight-decay",
        "alpha",
        "effective-decay",
        "dropout",
        "theta",
    }
    for each in found:
        assert each["drawn"] == "yes", each
        assert each["marks"] > 3, each
        assert each["width"] > 200, each


def column(page, table: str, place: int) -> list[str]:
    return page.eval_on_selector_all(
        f"#{table} tbody tr:not([hidden])",
        f"rows => rows.map(row => row.cells[{place}].dataset.value)",
    )


def test_tables_sort_both_ways_by_keyboard(paper):
    page = paper.page
    header = page.locator("#comparisons thead button", has_text="Difference")
    before = [float(value) for value in column(page, "comparisons", 3)]
    assert before != sorted(before)
    header.focus()
    page.keyboard.press("Enter")
    assert [float(v) for v in column(page, "comparisons", 3)] == sorted(before)
    cell = header.locator("xpath=..")
    assert cell.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    after = [float(value) for value in column(page, "comparisons", 3)]
    assert after == sorted(before, reverse=True)
    printed = page.locator("#arms thead th:nth-child(6) button")
    assert printed.inner_text() == "Paper"
    for downwards in (False, True):
        printed.click()
        known = [value for value in column(page, "arms", 5) if value]
        missing = len(column(page, "arms", 5)) - len(known)
        assert missing, "some settings are not in the paper"
        assert column(page, "arms", 5)[len(known) :] == [""] * missing  # always last
        assert known == sorted(known, key=float, reverse=downwards)
    page.locator("#arms thead button", has_text="Optimizer").click()
    names = column(page, "arms", 1)
    assert names == sorted(names)


def test_a_filter_leaves_what_matches(paper):
    page = paper.page
    page.fill("input[data-filter=arms]", "lenet adadecay")
    assert set(column(page, "arms", 1)) == {"adadecay"}
    assert "rows" in page.inner_text("#arms-count")
    page.fill("input[data-filter=arms]", "")


def test_a_series_can_be_hidden_and_shown(paper):
    page = paper.page
    lines = "#curves figure:first-of-type svg .mark-line path"
    many = page.locator(lines).count()
    button = page.locator("#curves .legend button", has_text="rmsprop")
    button.click()
    page.wait_for_function(
        f"document.querySelectorAll('{lines}').length === {many - 1}"
    )
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    page.wait_for_function(f"document.querySelectorAll('{lines}').length === {many}")


def test_the_last_epochs_can_be_looked_at_alone(paper):
    page = paper.page
    axis = "#curves figure:first-of-type svg .role-axis-label text"
    first = page.locator(axis).all_inner_texts()
    page.locator("#curves .range button", has_text="last fifth").click()
    page.wait_for_function(
        f"[...document.querySelectorAll('{axis}')].some(t => t.textContent === '90')"
    )
    assert page.locator(axis).all_inner_texts() != first
    page.locator("#curves .range button", has_text="all epochs").click()


def test_hovering_shows_values(paper):
    page = paper.page
    svg = page.locator("#curves figure svg.marks").first
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3)
    page.mouse.move(box["x"] + box["width"] * 0.52, box["y"] + box["height"] * 0.3)
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "epoch" in page.inner_text("#vg-tooltip-element")
    page.mouse.move(0, 0)


def test_numbers_of_a_chart_can_be_read(paper):
    details = paper.page.locator("#curves figure details.numbers").first
    details.locator("summary").click()
    details.locator("tbody tr").first.wait_for()
    assert details.locator("tbody tr").count() >= 100
    heads = details.locator("th").all_inner_texts()
    assert {"optimizer", "epoch", "mean", "low", "high", "trials"} <= set(heads)


def test_screen_readers_find_their_way(paper):
    page = paper.page
    assert page.locator("main").count() == page.locator("h1").count() == 1
    assert page.locator("nav[aria-label]").count() == 1
    levels = page.eval_on_selector_all(
        "h1, h2, h3", "all => all.map(h => Number(h.tagName[1]))"
    )
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    drawn = page.locator("figure [role=graphics-document][aria-label]")
    assert drawn.count() == page.locator("figure[data-chart]").count()
    unnamed = page.eval_on_selector_all(
        "button, input",
        """all => all.filter(e => !(e.textContent.trim() || e.ariaLabel ||
            e.labels?.length)).length""",
    )
    assert unnamed == 0
    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))


def luminance(colour: str) -> float:
    parts = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


COLOURS = """() => {
    const of = (selector, name) =>
        getComputedStyle(document.querySelector(selector))[name];
    return {
        text: [of("body", "color"), of("body", "backgroundColor")],
        muted: [of(".summary, .note", "color"), of("body", "backgroundColor")],
        badge: [of(".badge", "color"), of(".badge", "backgroundColor")],
        remark: [of(".remark", "color"), of(".remark", "backgroundColor")],
        card: [of(".card .rule", "color"), of(".card", "backgroundColor")],
        axis: [of("figure svg .role-axis-label text", "fill"),
               of(".chart", "backgroundColor")],
        ink: [of('figure svg [stroke="#222222"]', "stroke"),
              of(".chart", "backgroundColor")],
    };
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_both_be_read(chromium, pages, scheme, tmp_path):
    with Visit(chromium, pages["paper"], color_scheme=scheme) as visit:
        colours = visit.page.evaluate(COLOURS)
        for name, pair in colours.items():
            assert contrast(*pair) >= 4.5, (name, pair)
        dark = luminance(colours["text"][1]) < 0.1
        assert dark == (scheme == "dark")
        visit.page.screenshot(path=tmp_path / f"{scheme}.png")
        visit.page.locator("#theme").click()  # auto → light
        visit.page.locator("#theme").click()  # light → dark
        assert luminance(visit.page.evaluate(COLOURS)["text"][1]) < 0.1
        visit.page.emulate_media(media="print")
        printed = visit.page.evaluate(COLOURS)
        assert luminance(printed["text"][1]) > 0.9
        assert luminance(printed["axis"][0]) < 0.3
        assert not visit.page.locator("nav").is_visible()


def test_a_phone_shows_all_of_it(chromium, pages, tmp_path):
    size = {"width": 390, "height": 844}
    with Visit(chromium, pages["paper"], viewport=size) as visit:
        wide, seen = visit.page.evaluate(
            "(e => [e.scrollWidth, e.clientWidth])(document.documentElement)"
        )
        assert wide == seen == 390
        widths = visit.page.eval_on_selector_all(
            "figure svg.marks", "all => all.map(e => e.getBoundingClientRect().right)"
        )
        assert max(widths) <= 390
        visit.page.screenshot(path=tmp_path / "narrow.png")


@pytest.mark.parametrize(
    "results",
    [
        two_arms(trials=1),
        two_arms(trials=3, status=lambda *_: "diverged"),
        two_arms(trials=3, status=lambda s, n: "failed" if s else "done"),
        two_arms(trials=2, epochs=1),
        simulate(decay_settings()[:4], trials=1),
        two_arms(trials=1).clear(),
    ],
    ids=["one", "diverged", "half-failed", "one-epoch", "one-each", "empty"],
)
def test_studies_that_lack_something_are_drawn_without_a_word(
    chromium, results, tmp_path
):
    with Visit(chromium, write(results, tmp_path / "page.html")) as visit:
        assert visit.said == []
        figures = visit.page.locator("figure[data-chart]").count()
        assert visit.page.locator("figure[data-drawn=yes]").count() == figures


def test_names_with_markup_are_harmless(chromium, pages):
    with Visit(chromium, pages["evil"]) as visit:
        assert visit.page.evaluate("window.evil") is None
        assert visit.page.locator("h1").inner_text() == EVIL
        assert visit.page.locator("img").count() == 0
        assert visit.said == []
        assert visit.page.locator("figure[data-drawn=yes]").count() == 3
        visit.page.locator("details.numbers summary").first.click()
        svg = visit.page.locator("#curves figure svg.marks").first
        svg.scroll_into_view_if_needed()
        box = svg.bounding_box()
        for share in (0.4, 0.45):
            visit.page.mouse.move(
                box["x"] + box["width"] * share, box["y"] + box["height"] * 0.4
            )
        visit.page.wait_for_selector("#vg-tooltip-element.visible")
        assert visit.page.evaluate("window.evil") is None
        assert visit.page.locator("img").count() == 0
        visit.page.locator(".legend button").first.click()
        assert visit.said == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_verdict_is_third_and_never_off_the_edge(paper, width):
    page = paper.page
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 800})
    try:
        heading = page.locator("#comparisons thead th").nth(2)
        assert heading.inner_text().startswith("Verdict")
        badges = page.locator("#comparisons tbody .badge")
        ends = [badges.nth(i).bounding_box() for i in range(badges.count())]
        assert ends
        assert max(box["x"] + box["width"] for box in ends) <= width
        assert max(box["height"] for box in ends) <= 60  # no letter has its own line
        names = page.locator("#comparisons tbody tr :nth-child(2)")
        assert max(names.nth(i).bounding_box()["width"] for i in range(3)) >= 90
        p_value = page.locator("#comparisons thead th", has_text="p, Holm")
        assert not p_value.is_visible()
        page.locator(".unfold").first.check()
        assert p_value.is_visible()
        page.locator(".unfold").first.uncheck()
    finally:
        page.set_viewport_size(before)
