"""The page in headless Chromium: it loads in silence, tells what is pointed at, zooms, and runs nobody's script."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from reports import SPECS, Made

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; without one, or without playwright to drive it, there is nothing to look at."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is on the PATH")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Opened:
    """A page that was opened: what it said on its console, and what it asked for."""

    def __init__(self, browser: Any, report: Made, **options: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(report.file.as_uri())
        self.url = self.page.url

    def one(self, query: str) -> Any:
        """What is at a selector."""
        return self.page.locator(query).first

    def tip(self) -> str:
        """What the page tells of what is pointed at; empty where it tells nothing."""
        return self.one("#tip").inner_text() if self.one("#tip").is_visible() else ""

    def frames(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def marked(self, word: str) -> list[int]:
        """Ranks of the mesh whose cells have a class."""
        return self.page.eval_on_selector_all(f".mesh .rank.{word}", "nodes => nodes.map(n => +n.dataset.r)")


@pytest.fixture
def opened(browser: Any, reports: dict[str, Made], request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The report that a test names."""
    found = Opened(browser, reports[request.param])
    yield found
    found.page.close()


on = pytest.mark.parametrize


@on("opened", SPECS, indirect=True)
def test_loads_in_silence(opened: Opened) -> None:
    """No report says a word on the console or asks for anything but itself."""
    opened.page.wait_for_function("performance.timing.loadEventEnd > 0")
    assert opened.said == []
    assert opened.asked == [opened.url]


@on("scheme", ["light", "dark"])
def test_theme_follows_the_reader(browser: Any, reports: dict[str, Made], scheme: str) -> None:
    """The page is light or dark as the reader's system is, the button and `t` turn it, and print is light."""
    opened = Opened(browser, reports["tiny"], color_scheme=scheme)
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(18, 22, 29)"
    first, other = (light, dark) if scheme == "light" else (dark, light)
    assert opened.page.evaluate(paper) == first
    opened.one("#theme").click()
    assert opened.page.evaluate(paper) == other
    opened.page.keyboard.press("t")
    assert opened.page.evaluate(paper) == first
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate(paper) == light
    assert not opened.one("nav").is_visible()
    opened.page.close()


@on("opened", ["tiny"], indirect=True)
def test_hover_marks_groups(opened: Opened) -> None:
    """A rank that is pointed at is marked with its group of each axis, and told; rank 0's come back after."""
    opened.one('.rank[data-r="3"]').hover()
    assert (opened.marked("here"), opened.marked("on0"), opened.marked("on1")) == ([3], [1], [2])
    assert opened.tip() == "rank 3\ndp 1: 1 3\ntp 1: 2 3"
    opened.one("h1").hover()
    assert (opened.marked("here"), opened.marked("on0"), opened.marked("on1")) == ([0], [2], [1])
    assert opened.tip() == ""


@on("opened", ["tiny"], indirect=True)
def test_axis_shows_all_its_groups(opened: Opened) -> None:
    """An axis that is pointed at paints each of its groups; one that is pressed stays."""
    button = opened.one('button[data-axis="1"]')
    button.hover()
    assert (opened.marked("p0"), opened.marked("p1")) == ([0, 1], [2, 3])
    assert opened.one("#groups").inner_text() == "tp: 2 groups of 2 ranks; one colour, one group"
    opened.one("h1").hover()
    assert opened.marked("p0") == []
    button.click()
    opened.one("h1").hover()
    assert (opened.marked("p0"), opened.marked("p1")) == ([0, 1], [2, 3])
    assert button.get_attribute("aria-pressed") == "true"


@on("opened", ["largest"], indirect=True)
def test_a_rank_that_is_not_drawn(opened: Opened) -> None:
    """Any rank of 16,384 can be asked for; its groups are told, and those drawn are marked."""
    opened.page.keyboard.press("r")
    opened.one("#rank").fill("5000")
    assert "rank 5000, node 625" in opened.one("#groups").inner_text()
    assert opened.marked("here") == []
    opened.one("#rank").fill("99999999")
    assert opened.one("#rank").input_value() == "16383"
    assert opened.marked("here") == [16383]


@on("opened", ["tiny"], indirect=True)
def test_chosen_rank_is_marked_in_layouts(opened: Opened) -> None:
    """The parts of a rank that is chosen are marked in every layout: one of each tensor that is cut."""
    opened.one('.rank[data-r="1"]').click()
    mine = ".shard.mine"
    told = opened.page.eval_on_selector_all(mine, "nodes => nodes.map(n => n.dataset.tip)")
    assert len(told) == opened.page.locator(".gallery figure").count()
    assert all(" 1" in each.partition(";")[0].partition(" on ")[2] for each in told)


@on("opened", ["pipeline"], indirect=True)
def test_layouts_know_stages(opened: Opened) -> None:
    """A rank of the last stage has no part of the embedding."""
    last = opened.page.evaluate("+document.querySelector('#rank').max")
    opened.one("#rank").fill(str(last))
    first = opened.one("figure:has(code:text-is('tok_embeddings.weight'))")
    assert first.locator(".shard.mine").count() == 0
    assert opened.one("figure:has(code:text-is('lm_head.weight'))").locator(".shard.mine").count() == 1


@on("opened", ["tiny"], indirect=True)
def test_mesh_by_keyboard(opened: Opened) -> None:
    """Arrows go from rank to rank, and choose it."""
    opened.one('.rank[data-r="0"]').focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowDown")
    assert opened.marked("here") == [3]
    assert opened.one("#rank").input_value() == "3"


def _at(opened: Opened, rank: int, time: float) -> tuple[float, float]:
    """Where on the screen a time of a rank is, with all in sight."""
    opened.one(".timeline").scroll_into_view_if_needed()
    opened.frames()
    return tuple(
        opened.page.evaluate(
            """([rank, time]) => {
                const t = JSON.parse(document.getElementById("data").textContent).timeline;
                const svg = document.querySelector(".timeline svg"), box = svg.getBoundingClientRect();
                const size = box.width / svg.viewBox.baseVal.width;
                const left = t.left + time / t.makespan * t.wide, top = t.top + (rank + .5) * t.row;
                return [box.x + left * size, box.y + top * size];
            }""",
            [rank, time],
        )
    )


@on("opened", ["bsipipe"], indirect=True)
def test_timeline_tells_operations(opened: Opened) -> None:
    """What is pointed at is told with its kind, stage, sequence and subsequence; idle time tells nothing."""
    opened.page.mouse.move(*_at(opened, 0, 0.6))
    assert opened.tip().split("\n") == [
        "forward",
        "pp 0, stage 0",
        "sequence 0, subsequence 2",
        "0.5 to 0.75",
        "held then: 0.8067",
    ]
    assert opened.one(".curve.top").get_attribute("data-rank") == "0"
    opened.page.mouse.move(*_at(opened, 7, 0.2))
    assert opened.tip() == ""


@on("opened", ["bsipipe"], indirect=True)
def test_timeline_zooms(opened: Opened) -> None:
    """Buttons, wheel and keys zoom; names come where there is room; dragging moves; all of it comes back."""
    picture, names = opened.one(".timeline svg"), opened.page.locator(".timeline .labels text")

    def zoom() -> float:
        opened.frames()
        return float(picture.get_attribute("data-zoom"))

    assert zoom() == 1
    before = names.count()
    for _ in range(3):
        opened.one('button[data-zoom="in"]').click()
    assert zoom() == 8
    assert names.count() > before
    first = names.first.text_content()
    x, y = _at(opened, 0, 25)
    opened.page.mouse.move(x, y)
    opened.page.mouse.down()
    opened.page.mouse.move(x - 300, y, steps=4)
    opened.page.mouse.up()
    assert zoom() == 8
    assert names.first.text_content() != first
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -240)
    opened.page.keyboard.up("Control")
    opened.page.wait_for_function("+document.querySelector('.timeline svg').dataset.zoom > 20")
    opened.one(".timeline").focus()
    opened.page.keyboard.press("-")
    assert zoom() < 20
    opened.page.keyboard.press("0")
    assert zoom() == 1
    assert opened.said == []


@on("opened", ["bsipipe"], indirect=True)
def test_timeline_by_keyboard(opened: Opened) -> None:
    """Arrows go from operation to operation and from rank to rank, with what each is."""
    opened.one(".timeline").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        opened.page.keyboard.press(key)
    assert "sequence 0, subsequence 2" in opened.tip()
    opened.page.keyboard.press("ArrowDown")
    assert opened.tip().split("\n")[1].startswith("pp 1, stage ")


@on("opened", ["tiny"], indirect=True)
def test_links_open_the_line(opened: Opened) -> None:
    """Who decided leads to the line, in a file that is opened for it."""
    opened.one("#decided a:has-text('card:llama')").click()
    line = opened.page.evaluate("location.hash.slice(1)")
    assert opened.page.evaluate("id => document.getElementById(id).closest('details').open", line)
    assert opened.one(f"#{line}").is_visible()
    assert "model = " in opened.one(f"#{line}").inner_text()


@on("opened", ["tiny"], indirect=True)
def test_numbers_go_to_sections(opened: Opened) -> None:
    """A digit goes to a section, and `?` says which keys there are."""
    opened.page.keyboard.press("4")
    assert opened.page.evaluate("document.activeElement.id") == "model"
    opened.page.keyboard.press("?")
    assert opened.one("#help").is_visible()


@on("opened", ["blocks"], indirect=True)
def test_heat_map_tells_pairs(opened: Opened) -> None:
    """A field of the map tells whose queries and keys it counts."""
    opened.page.locator("#blocks [data-tip^='queries of rank 1, keys of rank 1']").hover()
    assert opened.tip() == "queries of rank 1, keys of rank 1: 5,120 pairs"


@on("opened", ["hostile"], indirect=True)
def test_hostile_spec_runs_nothing(opened: Opened) -> None:
    """With names that try to be scripts nothing runs, also when each is pointed at."""
    for node in opened.page.locator("main [data-tip]").all():
        node.dispatch_event("pointermove")
    opened.one(".rank").hover()
    assert "<img src=x" in opened.tip()
    assert opened.page.evaluate("window.hacked === undefined")
    assert opened.page.evaluate("document.images.length + document.scripts.length") == 2
    assert opened.said == []


def test_pages_need_no_script(browser: Any, reports: dict[str, Made]) -> None:
    """Without scripts the pictures and the lines are there."""
    opened = Opened(browser, reports["bsipipe"], java_script_enabled=False)
    assert opened.one(".timeline svg").is_visible()
    assert opened.one(".source li").is_visible()
    opened.page.close()
