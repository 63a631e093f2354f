"""Includes, presets, `--set` and `--on`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshlang.diagnostics import Bag, Diagnostic
from meshlang.language.files import presets
from meshlang.language.load import Document, load_document
from meshlang.language.toml import plain
from meshlang.source import Source


def write(folder: Path, **files: str) -> Source:
    """Write files, `__` for a slash; the one called `root` comes back as a Source."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Source.read(folder / "root.toml")


def loaded(source: Source | str, **given: object) -> Document:
    """The document of a source without findings."""
    bag = Bag()
    text = Source("root.toml", source) if isinstance(source, str) else source
    document = load_document(text, bag=bag, **given)  # pyright: ignore[reportArgumentType]
    assert document is not None, [(each.code, each.message) for each in bag]
    return document


def found(source: Source | str, **given: object) -> list[Diagnostic]:
    """The findings of a source."""
    bag = Bag()
    text = Source("root.toml", source) if isinstance(source, str) else source
    assert load_document(text, bag=bag, **given) is None  # pyright: ignore[reportArgumentType]
    return list(bag)


def test_nearer_file_wins(tmp_path: Path) -> None:
    """Tables merge deeply, arrays are replaced, and the including file wins."""
    source = write(
        tmp_path,
        root='include = ["base.toml"]\n[mesh]\ntp = 2\n[store]\nover = ["dp"]\n',
        base='include = ["far.toml"]\n[mesh]\ntp = 4\ndp = 2\n[store]\nover = ["dp", "cp"]\nafter_forward = "keep"\n',
        far="[mesh]\ndp = 9\ncp = 3\n",
    )
    document = loaded(source)
    assert plain(document.root) == {
        "mesh": {"tp": 2, "dp": 2, "cp": 3},
        "store": {"over": ["dp"], "after_forward": "keep"},
    }
    assert [Path(each.name).name for each in document.sources] == ["root.toml", "base.toml", "far.toml"]


def test_value_keeps_its_own_file(tmp_path: Path) -> None:
    """Each value stands in the file that it was written in; a table in the nearest that has its header."""
    source = write(tmp_path, root='include = ["sub/base.toml"]\n[mesh]\ntp = 2\n', sub__base="[mesh]\ndp = 4\n")
    mesh = loaded(source).root.value["mesh"]
    assert Path(mesh.value["dp"].span.source.name).name == "base.toml"
    assert (mesh.value["dp"].span.line, mesh.value["dp"].span.text) == (2, "4")
    assert mesh.span.source is source


def test_paths_are_relative_to_the_including_file(tmp_path: Path) -> None:
    """An included file names others from where it stands itself."""
    source = write(tmp_path, root='include = ["a/b.toml"]\n', a__b='include = ["../c.toml"]\n', c="[mesh]\ntp = 1\n")
    assert plain(loaded(source).root) == {"mesh": {"tp": 1}}


def test_two_files_of_one_depth_conflict(tmp_path: Path) -> None:
    """A key set in two files of the same depth is a finding that shows both places."""
    source = write(
        tmp_path, root='include = ["a.toml", "b.toml"]\n', a="[mesh]\ntp = 1\n", b="[mesh]\ntp = 1\ndp = 2\n"
    )
    (conflict,) = found(source)
    assert conflict.code == "include-conflict"
    assert "`mesh.tp`" in conflict.message
    places = [Path(label.span.source.name).name for label in (conflict.label, *conflict.labels)]
    assert places == ["b.toml", "a.toml"]


def test_file_included_on_two_ways_is_no_conflict(tmp_path: Path) -> None:
    """A file that two others include is read once and conflicts with nothing."""
    source = write(
        tmp_path,
        root='include = ["a.toml", "b.toml"]\n',
        a='include = ["c.toml"]\n',
        b='include = ["./c.toml"]\n',
        c="[mesh]\ntp = 1\n",
    )
    assert plain(loaded(source).root) == {"mesh": {"tp": 1}}


def test_circle_of_includes_is_a_finding(tmp_path: Path) -> None:
    """Files that include each other are one finding that shows the way around."""
    source = write(tmp_path, root='include = ["a.toml"]\n', a='include = ["b.toml"]\n', b='include = ["a.toml"]\n')
    (circle,) = found(source)
    assert circle.code == "include-cycle"
    assert Path(circle.label.span.source.name).name == "b.toml"
    assert [Path(label.span.source.name).name for label in circle.labels] == ["a.toml"]
    assert [each.code for each in found(write(tmp_path, root='include = ["root.toml"]\n'))] == ["include-cycle"]


def test_chain_of_includes_has_an_end(tmp_path: Path) -> None:
    """A chain of more than 32 files is a finding."""
    files = {f"f{i}": f'include = ["f{i + 1}.toml"]\n' for i in range(40)}
    (deep,) = found(write(tmp_path, root='include = ["f0.toml"]\n', **files))
    assert (deep.code, "32" in deep.message) == ("include-cycle", True)


def test_missing_file_is_a_finding(tmp_path: Path) -> None:
    """A file that is not there is a finding at its name, with a near one that is."""
    (missing,) = found(write(tmp_path, root='include = ["sub/bas.toml"]\n', sub__base=""))
    assert (missing.code, missing.label.span.text) == ("include-not-found", '"sub/bas.toml"')
    assert missing.help[0].edits[0].text == '"sub/base.toml"'


@pytest.mark.parametrize("name", ["\\u0000", "", ".", "/dev/null", "x" * 5000])
def test_odd_names_are_not_found(name: str) -> None:
    """What is no file, or no file's name, is not found."""
    assert [each.code for each in found(f'include = ["{name}"]')] == ["include-not-found"]


@pytest.mark.parametrize("text", ["include = 3", 'include = "base.toml"', "include = [1]", "[include]\na = 1"])
def test_include_takes_an_array_of_strings(text: str) -> None:
    """`include` of another type is a finding."""
    assert [each.code for each in found(text)] == ["wrong-type"]


def test_unknown_preset_has_a_near_name() -> None:
    """A preset that meshlang lacks is a finding with the nearest that it has."""
    (unknown,) = found('include = ["preset:fsdpp"]')
    assert unknown.code == "unknown-preset"
    assert unknown.help[0].edits[0].text == '"preset:fsdp"'
    assert "tensor_parallel" in unknown.notes[0]


def test_preset_values_are_known_as_such() -> None:
    """A value from a preset says so; one from a file does not."""
    root = loaded('include = ["preset:fsdp"]\n[place]\nseq = "cp"\n').root
    assert root.value["place"].value["batch"].preset
    assert not root.value["place"].value["seq"].preset
    assert root.value["store"].value["over"].span.source.name == "preset:fsdp"


def test_all_presets_but_conflicting_ones_join() -> None:
    """Tensor and sequence parallelism join with FSDP; whole weights contradict tensor parallelism."""
    assert set(presets()) == {"ddp", "fsdp", "sequence_parallel", "tensor_parallel", "whole_weights"}
    joined = loaded('include = ["preset:fsdp", "preset:tensor_parallel", "preset:sequence_parallel"]').root
    assert plain(joined)["place"] == {
        "batch": "dp",
        "heads": "tp",
        "kv_heads": "tp",
        "mlp": "tp",
        "vocab": "tp",
        "seq": "tp",
    }
    clash = found('include = ["preset:whole_weights", "preset:tensor_parallel"]')
    assert [each.code for each in clash] == ["include-conflict"] * 4


def test_included_file_of_another_version_is_a_finding(tmp_path: Path) -> None:
    """An included file may leave out its version, and may not have another one."""
    source = write(tmp_path, root='include = ["a.toml", "b.toml"]\nmeshlang = 1', a="meshlang = 1", b="meshlang = 2")
    (version,) = found(source)
    assert (version.code, Path(version.label.span.source.name).name) == ("unknown-version", "b.toml")


def test_findings_of_all_files_come_together(tmp_path: Path) -> None:
    """Syntax errors of several files, and missing ones, are reported at once."""
    source = write(tmp_path, root='include = ["a.toml", "b.toml", "c.toml"]\n', a="x", b="y = ")
    assert sorted(each.code for each in found(source, sets=["z"])) == ["include-not-found", *["syntax"] * 3]


def test_set_wins_over_all() -> None:
    """`--set` is laid over the file and the machine; its values stand in `--set`."""
    document = loaded(
        "[mesh]\ntp = 1\n[topology.on.big]\nmesh.tp = 2\n", sets=["mesh.tp=8", "mesh.dp = 'rest'"], on="big"
    )
    mesh = document.root.value["mesh"]
    assert plain(mesh) == {"tp": 8, "dp": "rest"}
    assert str(mesh.value["tp"].span) == "--set:1:9"
    assert mesh.span.text == "[mesh]"


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("a=8", 8),
        ("a=rest", "rest"),
        ("a=true", True),
        ("a=llama3/debugmodel", "llama3/debugmodel"),
        ("a=./my.card.toml#small", "./my.card.toml#small"),
        ("a=8x", "8x"),
        ("a='x y'", "x y"),
        ('a=["dp", "cp"]', ["dp", "cp"]),
        ("a={b=1}", {"b": 1}),
        (" a = layers.*", "layers.*"),
    ],
)
def test_set_takes_toml_or_a_bare_word(item: str, value: object) -> None:
    """A value is TOML; a word that is no TOML value is a string, in its own place."""
    root = loaded("", sets=[item]).root
    assert plain(root) == {"a": value}
    text = root.value["a"].span.text
    assert text in item
    assert text.strip("'") == value or not isinstance(value, str)


def test_set_takes_quoted_keys() -> None:
    """A key may be dotted and quoted, with `=` inside quotes."""
    root = loaded("", sets=['at."layers.*=".why=because', "at.'x y'.why=so"]).root
    assert plain(root) == {"at": {"layers.*=": {"why": "because"}, "x y": {"why": "so"}}}


@pytest.mark.parametrize("item", ["", "mesh.tp", "=1", "a=", "[mesh]", "a=1\nb=2", "a={b=c}", "\udcff=1", "a==1"])
def test_malformed_set_is_a_finding(item: str) -> None:
    """An item that is no `key=value` is one finding in `--set`."""
    (bad,) = found("", sets=[item])
    assert (bad.code, bad.label.span.source.name) == ("syntax", "--set")


def test_two_sets_of_one_key_conflict() -> None:
    """Two items that set the same key are a finding."""
    assert [each.code for each in found("", sets=["mesh.tp=1", "mesh.tp=2"])] == ["include-conflict"]


def test_unknown_machine_has_a_near_name() -> None:
    """A machine that the spec does not describe is a finding with the nearest that it does."""
    (unknown,) = found('[topology.on."h100x8"]\nmesh.tp = 8\n', on="h100x4")
    assert unknown.code == "unknown-machine"
    assert unknown.help[0].edits[0].text == "h100x8"
    assert unknown.labels[0].span.text == '"h100x8"'
    assert found("", on="any")[0].notes == ("machines of `[topology.on]`: none",)


def test_overlay_replaces_texts(tmp_path: Path) -> None:
    """A text given for a file's name is read in place of the file, the root's too."""
    source = write(tmp_path, root='include = ["a.toml"]\n', a="[mesh]\ntp = 1\n")
    inner = str(tmp_path / "a.toml")
    assert plain(loaded(source, overlay={inner: "[mesh]\ntp = 2\n"}).root) == {"mesh": {"tp": 2}}
    assert plain(loaded(source, overlay={source.name: "x = 1"}).root) == {"x": 1}


@given(st.text(max_size=30))
def test_any_set_loads_or_is_a_finding(item: str) -> None:
    """Whatever an item holds, it gives a tree or findings."""
    bag = Bag()
    assert (load_document(Source("s", ""), sets=[item], bag=bag) is None) == (len(bag) > 0)
