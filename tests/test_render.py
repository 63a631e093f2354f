"""Findings as text, as one line, as JSON and as annotations."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from meshlang.diagnostics import Diagnostic, Edit, Help, Label
from meshlang.render import listed, render
from meshlang.source import Source, Span

TEXT = 'meshlang = 1\nmodel = "m"\n\n[mesh]\ntp = 8\n\n[place]\nbatch = "dp"\nseq = "cp"\nvocab = "tp"\nmlp = "tp"\n'
SPEC = Source("spec.toml", TEXT + 'kv_heads = "tp"\n')


def at(source: Source, text: str) -> Span:
    """The place of a text in a source."""
    start = source.text.index(text)
    return source.span(start, start + len(text))


def uneven() -> Diagnostic:
    """The finding that the language's reference shows."""
    start = SPEC.text.rindex('"tp"')
    return Diagnostic(
        code="uneven-shard",
        message="`kv_heads` = 4 does not divide over `tp` = 8",
        label=Label(span=SPEC.span(start, start + 4), text="4 heads over 8 ranks"),
        labels=(Label(span=at(SPEC, "tp = 8"), text="axis size set here"),),
        notes=("on layers.*.attention.wkv.weight (6 tensors), shape (512, 256)",),
        help=(
            Help(
                text="tp may be {} here",
                edits=tuple(Edit(span=at(SPEC, "8"), text=size) for size in "124"),
                values=("1", "2", "4"),
            ),
        ),
    )


def one(source: Source, span: Span, *labels: Label, **more: str) -> Diagnostic:
    """A finding at a place."""
    return Diagnostic(code="a-code", message="what is wrong", label=Label(span=span, **more), labels=labels)


def test_text_is_as_in_the_reference() -> None:
    """The full form has the header, the place, numbered lines with marks, notes and helps."""
    assert render([uneven()]) == (
        "error[uneven-shard]: `kv_heads` = 4 does not divide over `tp` = 8\n"
        " --> spec.toml:12:12\n"
        "   |\n"
        " 5 | tp = 8\n"
        "   | ------ axis size set here\n"
        "...\n"
        '12 | kv_heads = "tp"\n'
        "   |            ^^^^ 4 heads over 8 ranks\n"
        "   |\n"
        "note: on layers.*.attention.wkv.weight (6 tensors), shape (512, 256)\n"
        "help: tp may be 1, 2 or 4 here\n"
    )


def test_findings_are_apart_by_an_empty_line() -> None:
    """Between two findings stands one empty line; none give an empty text."""
    assert render([uneven(), uneven()]).count("\n\n") == 1
    assert render([]) == ""


def test_other_file_has_its_own_block() -> None:
    """A label in another file stands in a block of its own, with its place."""
    base = Source("base.toml", "[mesh]\ntp = 4\n")
    found = one(SPEC, at(SPEC, "tp = 8"), Label(span=at(base, "tp = 4"), text="and here"))
    assert render([found]).endswith(" ::: base.toml:2:1\n   |\n 2 | tp = 4\n   | ------ and here\n   |\n")


def test_two_labels_on_one_line_have_two_rows() -> None:
    """Each label of a line has a row of marks, from left to right."""
    source = Source("s", 'seq = ["tp", "tp"]')
    found = one(source, source.span(13, 17), Label(span=source.span(7, 11), text="first"), text="again")
    assert "   |        ---- first\n   |              ^^^^ again\n" in render([found])


def test_line_between_near_lines_is_shown() -> None:
    """One line between two marked ones is shown instead of dots."""
    found = one(SPEC, at(SPEC, 'vocab = "tp"'), Label(span=at(SPEC, 'batch = "dp"')))
    assert ' 9 | seq = "cp"\n' in render([found])
    assert "..." not in render([found])


def test_long_line_is_clipped_around_the_mark() -> None:
    """Of a very long line the part around the first mark is shown, marks under their letters."""
    source = Source("s", "x" * 5000 + "HERE" + "y" * 5000)
    rows = render([one(source, at(source, "HERE"), text="this")]).splitlines()
    line, marks = rows[3], rows[4]
    assert len(line) < 130
    assert line.count("...") == 2
    assert line[marks.index("^") : marks.rindex("^") + 1] == "HERE"


def test_tabs_and_wide_letters_keep_marks_in_place() -> None:
    """A tab is four columns, a wide letter two, a combining mark none."""
    source = Source("s", "\t\u5bbde\u0301 = X")
    rows = render([one(source, at(source, "X"))]).splitlines()
    assert rows[4] == "   | " + " " * 4 + " " * 2 + " " + " " * 3 + "^"


def test_no_control_character_reaches_the_terminal() -> None:
    """Escapes, bidirectional marks and lone surrogates are shown as escapes, in lines and messages."""
    source = Source("na\x1bme", "a = '\x1b[2J\u202e\udcff\x00\u2028'\r\n")
    found = Diagnostic(code="c", message="a\nb\x07", label=Label(span=source.span(0, 1), text="\x1b"), notes=("\x1b",))
    for text in (render([found]), render([found], "short")):
        text.encode()
        assert not re.search("[\x00-\x09\x0b-\x1f\u2028\u202e]", text)
    assert "\\x1b[2J\\u202e\\udcff\\x00\\u2028" in render([found])


def test_place_over_lines_is_marked_on_its_first() -> None:
    """A place of several lines is marked to the end of its first line."""
    source = Source("s", "a = [\n1,\n]\n")
    assert "1 | a = [\n   |     ^ here\n" in render([one(source, source.span(4, 10), text="here")])


def test_empty_place_has_one_mark() -> None:
    """The end of a text, and an empty text, are marked by one caret."""
    source = Source("s", "")
    assert render([one(source, source.span(0, 0))]).splitlines()[4] == "   | ^"


def test_short_is_one_line() -> None:
    """The short form has file, line, column, code and message."""
    assert render([uneven()], "short") == (
        "spec.toml:12:12: error[uneven-shard]: `kv_heads` = 4 does not divide over `tp` = 8\n"
    )


def test_json_has_every_place() -> None:
    """JSON has lines and columns of the finding, its labels and its edits."""
    (found,) = json.loads(render([uneven()], "json"))
    place = {"file": "spec.toml", "line": 12, "column": 12, "end_line": 12, "end_column": 16}
    assert {key: found[key] for key in place} == place
    assert [label["text"] for label in found["labels"]] == ["4 heads over 8 ranks", "axis size set here"]
    assert found["help"][0]["text"] == "tp may be 1, 2 or 4 here"
    assert [edit["text"] for edit in found["help"][0]["edits"]] == ["1", "2", "4"]
    assert set(found) == {*place, "code", "message", "labels", "notes", "help"}


def test_color_changes_no_letter() -> None:
    """Colour adds escape sequences and nothing else."""
    painted = render([uneven()], color=True)
    assert painted != render([uneven()])
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == render([uneven()])


def test_values_are_listed_in_words() -> None:
    """One value stands alone, the last of several after `or`."""
    assert [listed(("1",)), listed(("1", "2")), listed(("1", "2", "4"))] == ["1", "1 or 2", "1, 2 or 4"]


@given(st.text(max_size=300), st.data())
@settings(deadline=None)
def test_any_place_of_any_text_renders(text: str, data: st.DataObject) -> None:
    """Whatever a source holds, a place in it renders in each form, line by line."""
    source = Source("s", text)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    found = one(source, source.span(start, end), text="here")
    rows = render([found]).splitlines()
    assert sum("^" in row and "here" in row for row in rows) >= 1
    assert all(re.match(r"error|note| -->| ?[0-9 ]+ \||\.\.\.", row) for row in rows)
    json.loads(render([found], "json"))


def annotation(line: str) -> tuple[dict[str, str], str]:
    """(properties, message) of a workflow command, read as GitHub's runner reads it (ActionCommand.TryParseV2)."""
    head, mark, message = line.removeprefix("::").partition("::")
    command, _, pairs = head.partition(" ")
    assert (command, mark) == ("error", "::")
    properties = dict(pair.split("=", 1) for pair in pairs.split(",") if pair)
    escapes = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
    for escape, char in escapes.items():
        properties = {key: value.replace(escape, char) for key, value in properties.items()}
        message = message if char in ":," else message.replace(escape, char)
    return properties, message


def test_annotation_is_one_workflow_command() -> None:
    """The github form is one line, with file, lines, columns and title; every place, note and help is in it."""
    assert render([uneven()], "github") == (
        "::error file=spec.toml,line=12,endLine=12,col=12,endColumn=16,title=meshlang%3A uneven-shard::"
        "`kv_heads` = 4 does not divide over `tp` = 8%0A"
        "spec.toml:12:12: 4 heads over 8 ranks%0Aspec.toml:5:1: axis size set here%0A"
        "note: on layers.*.attention.wkv.weight (6 tensors), shape (512, 256)%0Ahelp: tp may be 1, 2 or 4 here\n"
    )


def test_annotation_over_lines_has_no_columns() -> None:
    """A place of several lines has no columns, which GitHub takes of one line only."""
    source = Source("s.toml", "a = [\n1,\n]\n")
    properties, _ = annotation(render([one(source, source.span(4, 10))], "github").rstrip("\n"))
    assert properties == {"file": "s.toml", "line": "1", "endLine": "3", "title": "meshlang: a-code"}


def test_annotation_of_no_file_says_its_place() -> None:
    """An item of `--set` is no file: the annotation has no place, and its message has."""
    source = Source("--set", "mesh.tp=0")
    properties, message = annotation(render([one(source, source.span(8, 9))], "github").rstrip("\n"))
    assert (properties, message) == ({"title": "meshlang: a-code"}, "--set:1:9: what is wrong")


@given(st.text(alphabet=st.sampled_from("%250ADd3C2:,\r\n=a;\u2028\x00"), min_size=1, max_size=40))
@settings(deadline=None)
def test_annotation_reads_back(text: str) -> None:
    """annotation(render(finding)) has the name and the message that were written, whatever is in them."""
    source = Source(f"f{text}", "a")
    found = Diagnostic(code="c", message=text, label=Label(span=source.span(0, 1)))
    line = render([found], "github")
    assert line.count("\n") == 1
    assert line[:-1].isprintable()
    properties, message = annotation(line[:-1])
    shown = {"\x00": "\\x00", "\u2028": "\\u2028"}
    for char, escape in shown.items():
        text = text.replace(char, escape)
    assert (properties["file"], message) == (f"f{text}", text)
