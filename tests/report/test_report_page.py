"""The page of `meshlang report` as markup: whole, self-contained, and nobody's name is more than text."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hostile import AXIS, MODULE
from reports import BLOCKS, SPECS, Made

from meshlang.cli import main
from meshlang.fold import template
from meshlang.plan.cost import memory
from meshlang.report.pictures.markup import safe, tag
from meshlang.report.pictures.memory import bars

VOID = {"meta", "input", "br", "hr"}


class Page(HTMLParser):
    """Every element of a page, with a finding for each end that has no beginning."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that is over at once."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        """Text, by the element that it stands in."""
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(params=SPECS)
def report(request: pytest.FixtureRequest, reports: dict[str, Made]) -> Made:
    """Each of the reports."""
    return reports[request.param]


def test_elements_end_where_they_should(report: Made) -> None:
    """Every element is closed, and in order; ids are there once; each link leads to one."""
    found = Page(report.text)
    assert found.wrong == []
    assert found.open == []
    ids = Counter(each["id"] for _, each in found.tags if "id" in each)
    assert [name for name, count in ids.items() if count > 1] == []
    links = {each["href"] for tag, each in found.tags if tag == "a"}
    assert links
    assert {link.removeprefix("#") for link in links if link} <= set(ids)


def test_nothing_comes_from_elsewhere(report: Made) -> None:
    """No element names an address, and the page's own policy allows none."""
    found = Page(report.text)
    for name, attributes in found.tags:
        assert not {"src", "srcset", "action", "data", "xlink:href"} & set(attributes), (name, attributes)
        assert all(key != "href" or str(value).startswith("#") for key, value in attributes.items())
    assert not re.search(r"url\((?!#)|@import", "".join(found.texts["style"]))
    (policy,) = [str(each["content"]) for tag, each in found.tags if "http-equiv" in each]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_only_ours_runs(report: Made) -> None:
    """There are one script and one block of data, no attribute that runs, and no element that a spec made."""
    found = Page(report.text)
    assert [each.get("type") for tag, each in found.tags if tag == "script"] == ["application/json", None]
    assert [key for _, each in found.tags for key in each if key.startswith("on") or key == "style"] == []
    assert {tag for tag, _ in found.tags} & {"img", "iframe", "object", "embed", "base", "form"} == set()


def test_hostile_names_are_text(reports: dict[str, Made]) -> None:
    """An axis, a module, a comment and a file that are markup stand in the page as they are written."""
    found = Page(reports["hostile"].text)
    texts = [text for each in found.texts.values() for text in each]
    assert any(AXIS in text for text in texts)
    assert f"{MODULE}.weight" in found.texts["code"]
    assert any(text.startswith("# </code></script>") for text in found.texts["code"])
    (data,) = [text for text in found.texts["script"] if text.startswith("{")]
    assert json.loads(data)["axes"] == [[AXIS, 2]]


def test_hostile_pictures_are_whole(reports: dict[str, Made]) -> None:
    """Each picture of a hostile spec is XML, with none but elements of SVG that draw."""
    for picture in reports["hostile"].contents.pictures():
        tags = {each.tag.rpartition("}")[2] for each in ET.fromstring(picture.file()).iter()}
        assert tags <= {"svg", "title", "style", "rect", "g", "text", "tspan", "path", "circle", "line"}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('"><script>', "&quot;&gt;&lt;script&gt;"),
        ("a\x00b\x1b", "a\ufffdb\ufffd"),
        ("'&amp;", "&#x27;&amp;amp;"),
        ("\ud800", "\ufffd"),
    ],
)
def test_text_is_escaped_once(text: str, written: str) -> None:
    """Text is escaped when it is put in, as child and as attribute, and markup is not escaped again."""
    assert safe(text) == written
    assert tag("a", text, title=text) == f'<a title="{written}">{written}</a>'
    assert safe(safe(text)) == written


def test_every_picture_is_a_file(report: Made) -> None:
    """Pictures alone have names of their own, are XML, carry their colours, and fit their view."""
    pictures = list(report.contents.pictures())
    assert len({picture.name for picture in pictures}) == len(pictures)
    for picture in pictures:
        root = ET.fromstring(picture.file())
        assert re.fullmatch(r"[a-z0-9-]+", picture.name)
        assert "var(" not in picture.file()
        for each in root.iter("{http://www.w3.org/2000/svg}rect"):
            assert float(each.get("x", "0")) >= 0
            assert float(each.get("x", "0")) + float(each.get("width", "0")) <= picture.width + 0.01
            assert float(each.get("y", "0")) + float(each.get("height", "0")) <= picture.height + 0.01


def test_every_tensor_is_drawn_once(report: Made) -> None:
    """The kinds of tensors hold every tensor once, and each has a figure with its name."""
    groups = report.contents.groups
    assert sorted(tensor.fqn for group in groups for tensor in group.tensors) == sorted(
        tensor.fqn for tensor in report.plan.tensors
    )
    names = Page(report.text).texts["code"]
    assert all(group.text in names for group in groups)
    assert len(report.contents.tensors) == len(groups)


def test_every_line_that_decides_is_marked(report: Made) -> None:
    """Each dim's origin leads to its line in the page, which says how many dims it decides."""
    found = Page(report.text)
    links = [text for text in found.texts["a"] if " at " in text or re.search(r":\d+$", text)]
    dims = {(dim.origin.file, dim.origin.line) for tensor in report.plan.tensors for dim in tensor.dims}
    assert all(any(link.endswith(f"{file}:{line}") for link in links) for file, line in dims)
    marked = [each for tag, each in found.tags if tag == "li" and each.get("class") == "decides"]
    assert len(marked) == len(dims | {(line.origin.file, line.origin.line) for line in report.contents.lines})


def test_memory_is_the_plan_s(report: Made) -> None:
    """The longest bar is what the plan says of the fullest rank, and its state is that of the plan."""
    fullest = max(bars(report.plan), key=lambda bar: bar.total)
    assert fullest.total == memory(report.plan).total
    assert report.plan.state_bytes is not None
    assert max(sum(bar.sizes[:3]) for bar in bars(report.plan)) == report.plan.state_bytes.total


def test_largest_example_stays_small(reports: dict[str, Made]) -> None:
    """405 billion parameters on 16,384 ranks are a page under 5 MB, and far from a cell a rank."""
    report = reports["largest"]
    assert report.plan.ranks == 16_384
    assert len(report.text.encode()) < 5_000_000
    cells = re.findall(r'data-r="(\d+)"', report.text)
    assert len(cells) <= 24 * 16
    assert {"0", "8", "1024", "16383"} <= set(cells)


def test_sections_are_those_of_the_plan(reports: dict[str, Made]) -> None:
    """A pipeline and blocks have a section where there are any, and none where not."""
    has = {name: set(re.findall(r'<section id="(\w+)"', report.text)) for name, report in reports.items()}
    every = {"summary", "mesh", "tensors", "model", "memory", "decided"}
    assert all(every <= found for found in has.values())
    assert {name for name, found in has.items() if "pipeline" in found} == {"bsipipe", "pipeline"}
    assert {name for name, found in has.items() if "blocks" in found} == {"blocks", "diffusion"}


def run(*args: object) -> Result:
    """A command line, in this process."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_command_writes_page_and_pictures(tmp_path: Path) -> None:
    """`report` writes the page, the same each time, and with `--svg` each picture alone."""
    spec = tmp_path / "spec.toml"
    spec.write_text(BLOCKS)
    first = run("report", spec, "-o", tmp_path / "a.html", "--svg", tmp_path / "svg")
    assert first.exit_code == 0, first.output
    assert f"wrote {tmp_path / 'a.html'}\n" in first.output
    names = {path.name for path in (tmp_path / "svg").iterdir()}
    assert {"mesh.svg", "tensor-01.svg", "model.svg", "memory.svg", "blocks.svg"} <= names
    assert run("report", spec, "-o", tmp_path / "b.html").exit_code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_laid_over_keys_are_shown(tmp_path: Path) -> None:
    """A key of `--set` that decides a dim is a line of the page like any other."""
    spec, out = tmp_path / "spec.toml", tmp_path / "a.html"
    spec.write_text(BLOCKS.replace('vocab = "whole"\n', ""))
    assert run("report", spec, "-o", out, "--set", "place.vocab=whole").exit_code == 0
    assert "[place] at --set:1" in Page(out.read_text()).texts["a"]
    assert "place.vocab=whole" in Page(out.read_text()).texts["code"]


def test_findings_write_no_page(tmp_path: Path) -> None:
    """A spec with findings gives these and no page; a folder that is a file is wrong usage."""
    spec, out = tmp_path / "spec.toml", tmp_path / "a.html"
    spec.write_text(BLOCKS.replace("block_size = 16", "block_size = 17"))
    assert run("report", spec, "-o", out).exit_code == 1
    assert not out.exists()
    spec.write_text(BLOCKS)
    result = run("report", spec, "-o", spec / "a.html")
    assert result.exit_code == 2
    assert "cannot write" in result.output


def test_names_in_listings_are_folded(reports: dict[str, Made]) -> None:
    """A line tells equal layers once."""
    titles = [str(each["title"]) for _, each in Page(reports["largest"].text).tags if each.get("class") == "count"]
    assert titles
    told = [name.partition(": ")[0] for title in titles for name in title.split("\n")]
    assert all(name == template(name) for name in told)
