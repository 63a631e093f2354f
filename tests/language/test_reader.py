"""Tables -> Spec, and what the reader refuses."""

from __future__ import annotations

from typing import Any

import pytest
from reading import FULL, PLUGINS, SMALL, Interleaved, Ring, attempt, codes, edited, finding, spec_of

from meshlang.language.pattern import Pattern
from meshlang.registry import PluginError, Registry


def values(written: Any) -> list[Any]:
    """The values of some written words."""
    return [each.value for each in written]


def test_whole_spec_is_read() -> None:
    """Every table of the language is read into its part of the Spec."""
    spec = spec_of(FULL)
    assert spec.model.value == "llama3/debugmodel"
    assert [(axis.name, axis.size) for axis in spec.mesh] == [("pp", 2), ("dp", None), ("cp", 2), ("tp", 2)]
    assert spec.mesh_span.text == "[mesh]"
    assert spec.sizes is not None
    assert values([spec.sizes.batch, spec.sizes.seq, spec.sizes.accumulation]) == [64, 8192, 2]
    assert values([spec.precision.state, spec.precision.compute]) == ["float32", "bfloat16"]
    assert spec.topology.order is not None
    assert values(spec.topology.order) == ["pp", "dp", "cp", "tp"]
    assert values(spec.topology.inside_node) == ["tp"]
    assert values(spec.uneven) == ["vocab"]
    assert spec.expect.memory_per_rank is not None
    assert spec.expect.memory_per_rank.value == 2 * 2**30
    assert spec.launch is not None
    assert {flag: each.value for flag, each in spec.launch.overrides.items()} == {
        "training.steps": 10,
        "optimizer.lr": 1e-3,
        "optimizer.betas": (0.9, 0.95),
    }


def test_rules_have_levels_and_places() -> None:
    """Each line of `[place]`, `[within]` and `[at]` is a rule with its level, pattern and places."""
    rules = spec_of(FULL).rules
    assert [(rule.level, rule.name, values(rule.axes)) for rule in rules] == [
        ("place", "batch", ["dp"]),
        ("place", "seq", ["cp", "tp"]),
        ("place", "heads", ["tp"]),
        ("within", "seq", ["cp"]),
        ("at", "heads", []),
    ]
    assert [(rule.key.text, rule.span.text) for rule in rules[1:2]] == [("seq", '["cp", "tp"]')]
    assert [axis.span.text for axis in rules[1].axes] == ['"cp"', '"tp"']
    assert rules[4].pattern == Pattern.parse("layers.0.attention")
    assert rules[4].pattern_span is not None
    assert rules[4].pattern_span.text == '"layers.0.attention"'
    assert rules[4].why is not None
    assert not any(rule.preset for rule in rules)


def test_store_and_checks_keep_patterns_and_places() -> None:
    """Patterns of `[store]` and `[[check]]` come with the places of their text."""
    spec = spec_of(FULL)
    assert spec.store is not None
    assert values(spec.store.over) == ["dp", "cp"]
    assert spec.store.exceptions == (Pattern.parse("layers.0.**"),)
    assert [span.text for span in spec.store.exception_spans] == ['"layers.0.**"']
    (check,) = spec.checks
    assert check.tensor_span is not None
    assert check.tensor_span.text == '"layers.[1-5].attention.wo.weight"'
    assert {axis: each.value for axis, each in check.expect.items()} == {"tp": "S(1)", "dp": "stored", "cp": "R"}


def test_plugins_are_built_from_their_fields() -> None:
    """`[strategy.NAME]` and `[pipeline]` give instances of the classes behind the names."""
    spec = spec_of(FULL)
    (ring,) = spec.strategies
    assert ring.plugin == Ring(axis="cp", steps=3, ratio=0.5, groups=("a", "b"))
    assert ring.fields["axis"].span.text == '"cp"'
    assert spec.pipeline is not None
    assert spec.pipeline.schedule.plugin == Interleaved(chunks=2, warm=True)
    assert spec.pipeline.schedule.name.span.text == '"interleaved"'
    assert values([spec.pipeline.microbatches, spec.pipeline.split])[0] == 8
    assert set(spec.pipeline.schedule.fields) == {"chunks", "warm"}


def test_preset_rules_say_so() -> None:
    """A rule that a preset brings is marked, one of the file is not."""
    rules = spec_of('include = ["preset:sequence_parallel"]\n' + SMALL + '[place]\nbatch = "dp"\n').rules
    assert {(rule.level, rule.name): rule.preset for rule in rules} == {
        ("place", "seq"): True,
        ("place", "batch"): False,
        ("within", "seq"): True,
    }


def test_order_of_strategies_means_nothing() -> None:
    """Strategies come by name, whatever order they are written in."""
    text = SMALL + '[strategy.ring]\naxis = "dp"\n[strategy.again]\naxis = "dp"\n'
    assert [each.name.value for each in spec_of(text).strategies] == ["again", "ring"]


def test_equal_text_is_an_equal_spec() -> None:
    """Reading is a function of the text."""
    assert spec_of(FULL) == spec_of(FULL)


def test_machine_is_laid_over_the_spec() -> None:
    """`--on` changes what the machine's table says and nothing else."""
    assert [axis.size for axis in spec_of(FULL, on="h100x8").mesh] == [2, None, 2, 8]


def test_machines_are_read_even_when_not_chosen() -> None:
    """A mistake in a machine's table is found whichever machine is chosen; each finding is told once."""
    text = SMALL + "[topology.on.big]\nmesh.dp = 0\nsizess.batch = 1\nmeshlang = 1\n"
    assert codes(text) == ["bad-value", "unknown-table", "unknown-key"]
    assert codes(SMALL + '[topology.on.big]\ntopology.on.small.mesh.dp = 1\ninclude = ["a"]\n') == ["unknown-key"] * 2
    assert codes(SMALL.replace("dp = 2", "dp = 0") + "[topology.on.big]\nsizes.batch = 1\n") == ["bad-value"]
    assert codes(SMALL + "[topology]\non.big = 3\n") == ["wrong-type"]


def test_second_rest_of_a_machine_is_found() -> None:
    """A machine that makes a second axis "rest" is a finding."""
    text = SMALL.replace("2", '"rest"') + '[topology.on.big]\nmesh.tp = "rest"\n'
    assert codes(text) == ["two-rests"]


def test_unknown_key_offers_the_near_one() -> None:
    """A misspelled key is a finding at the key, with an edit after which the spec reads."""
    text = SMALL + "[sizes]\nbacth = 4\n"
    unknown = finding(text)
    assert (unknown.code, unknown.label.span.text) == ("unknown-key", "bacth")
    assert spec_of(edited(text, unknown.help[0].edits[0])).sizes is not None


def test_unknown_table_offers_the_near_one() -> None:
    """A misspelled table is a finding at its name, with an edit after which the spec reads."""
    text = SMALL + '[strategyy.ring]\naxis = "dp"\n'
    unknown = finding(text)
    assert (unknown.code, unknown.label.span.text) == ("unknown-table", "strategyy")
    assert spec_of(edited(text, unknown.help[0].edits[0])).strategies


def test_misspelled_required_key_is_told_once() -> None:
    """A required key that is misspelled is an unknown key, and not missing as well."""
    assert codes(SMALL.replace("model", "modle")) == ["unknown-key"]
    assert codes(FULL.replace("why =", "whyy =")) == ["unknown-key"]
    assert codes(FULL.replace("schedule =", "shedule =")) == ["unknown-key"]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('model = "m"\nmesh.dp = 1\n', "meshlang"),
        ("meshlang = 1\nmesh.dp = 1\n", "model"),
        ('meshlang = 1\nmodel = "m"\n', "mesh"),
        (SMALL + '[at."a.b"]\nheads = "whole"\n', "why"),
        (SMALL + '[store]\nafter_forward = "keep"\n', "over"),
        (SMALL + "[pipeline]\nmicrobatches = 8\n", "schedule"),
        (SMALL + '[pipeline]\nschedule = "interleaved"\n', "chunks"),
        (SMALL + "[strategy.ring]\nsteps = 1\n", "axis"),
        (SMALL + '[[check]]\nname = "n"\nexpect = {dp = "R"}\n', "tensor"),
    ],
)
def test_missing_key_is_a_finding(text: str, missing: str) -> None:
    """A required key that is not there is one finding that names it."""
    found = finding(text)
    assert found.code == "missing-key"
    assert f"lacks `{missing}`" in found.message


def test_empty_tables_that_must_say_something() -> None:
    """`[mesh]`, a block of `[within]` or `[at]`, and an `expect` set at least one thing."""
    assert codes('meshlang = 1\nmodel = "m"\n[mesh]\n') == ["missing-key"]
    assert codes(SMALL + '[within."a"]\n') == ["missing-key"]
    assert codes(SMALL + '[at."a"]\nwhy = "so"\n') == ["missing-key"]
    assert codes(SMALL + '[[check]]\nname = "n"\ntensor = "a"\nexpect = {}\n') == ["missing-key"]


def test_other_version_is_the_only_finding() -> None:
    """A spec of another version is one finding, whatever else it holds."""
    assert codes("meshlang = 2\nfuture = 1\n") == ["unknown-version"]
    assert codes("meshlang = true\n" + SMALL.partition("\n")[2]) == ["wrong-type"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('dp = "rest"', 'dp = "rest"\ntp2 = "rest"', "two-rests"),
        ('dp = "rest"', "dp = 0", "bad-value"),
        ('dp = "rest"', 'dp = "rset"', "bad-value"),
        ('dp = "rest"', 'dp = "2"', "wrong-type"),
        ('dp = "rest"', "dp = true", "wrong-type"),
        ("batch = 64", "batch = 64.0", "wrong-type"),
        ("batch = 64", "batch = -1", "bad-value"),
        ('["cp", "tp"]', '["cp", "cp"]', "axis-repeated"),
        ('["cp", "tp"]', "[]", "bad-value"),
        ('["cp", "tp"]', '["whole"]', "bad-value"),
        ('["cp", "tp"]', '["cp", 1]', "wrong-type"),
        ('["cp", "tp"]', '""', "bad-value"),
        ('over = ["dp", "cp"]', 'over = ["dp", "dp"]', "axis-repeated"),
        ('over = ["dp", "cp"]', "over = []", "bad-value"),
        ('over = ["dp", "cp"]', 'over = "dp"', "wrong-type"),
        ('"free"', '"fre"', "bad-value"),
        ('"layers.0.**"', '"layers..0"', "bad-pattern"),
        ('[at."layers.0.attention"]', '[at."layers.[3-1]"]', "bad-pattern"),
        ('[at."layers.0.attention"]', "[at.layers.0.attention]", "bad-pattern"),
        ('"float32"\ncompute', '"float31"\ncompute', "bad-value"),
        ('"pad"', '"cut"', "bad-value"),
        ('"pad"', "true", "wrong-type"),
        ('"2 GiB"', '"2 gib"', "bad-value"),
        ('"2 GiB"', '"lots"', "bad-value"),
        ('"2 GiB"', '"0 B"', "bad-value"),
        ('"2 GiB"', "2147483648", "wrong-type"),
        ("state_sharded = 0.95", "state_sharded = 1.5", "bad-value"),
        ("state_sharded = 0.95", "state_sharded = nan", "bad-value"),
        ('"S(1)"', '"S1"', "bad-value"),
        ('"S(1)"', '"P"', "bad-value"),
        ("[[check]]", "[check]", "wrong-type"),
        ('schedule = "interleaved"', 'schedule = "interleavd"', "unknown-schedule"),
        ('schedule = "interleaved"', "schedule = 1", "wrong-type"),
        ("[strategy.ring]", "[strategy.rng]", "unknown-strategy"),
        ("[strategy.ring]", "[strategy.plain]\n[strategy.ring]", "plugin-broken"),
        ("[strategy.ring]", "[strategy.odd]\n[strategy.ring]", "plugin-broken"),
        ("steps = 3", "steps = 3.0", "wrong-type"),
        ("steps = 3", "steps = 0", "bad-value"),
        ("steps = 3", "steps = -1", "plugin-broken"),
        ("steps = 3", "quiet = 1", "wrong-type"),
        ("steps = 3", "depth = true", "wrong-type"),
        ("steps = 3", "depth = 3", "bad-value"),
        ("steps = 3", 'size = "aut"', "wrong-type"),
        ("steps = 3", "step = 3", "unknown-key"),
        ('"head_tail"', '"head-tail"', "bad-value"),
        ("warm = true", 'warm = "yes"', "wrong-type"),
        ("warm = true", "warmm = true", "unknown-key"),
        ("microbatches = 8", "microbatch = 8", "unknown-key"),
        ("lr = 1e-3", "lr = 1979-05-27", "bad-value"),
        ("lr = 1e-3", '"a.b" = 1, a.b = 2', "bad-value"),
        ("lr = 1e-3", '"--a.b" = 1', "bad-value"),
        ("lr = 1e-3", '"a b" = 1', "bad-value"),
        (':llama3_debugmodel"', '"', "bad-value"),
        (':llama3_debugmodel"', ':debug model"', "bad-value"),
        ('model = "llama3/debugmodel"', 'model = ""', "bad-value"),
    ],
)
def test_each_mistake_is_one_finding(old: str, new: str, code: str) -> None:
    """One mistake in a good spec is one finding."""
    assert FULL.count(old) == 1
    found = finding(FULL.replace(old, new))
    assert found.code == code
    assert "nvalid" not in found.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('over = ["dp", "cp"]', 'over = "dp"'),
        ('dp = "rest"', 'dp = "rset"'),
        ('dp = "rest"', 'dp = "2"'),
        ("batch = 64", "batch = 64.0"),
        ('"free"', '"fre"'),
        ('"2 GiB"', '"2 gib"'),
        ('"2 GiB"', "2147483648"),
        ("[[check]]", "[check]"),
        ('[at."layers.0.attention"]', "[at.layers.0.attention]"),
        ('schedule = "interleaved"', 'schedule = "interleavd"'),
        ("[strategy.ring]", "[strategy.rng]"),
        ("steps = 3", "step = 3"),
        ('"head_tail"', '"head-tail"'),
        ("microbatches = 8", "microbatch = 8"),
        ("warm = true", 'warm = "true"'),
        ("meshlang = 1", "meshlang = 3"),
        ("meshlang = 1\n", ""),
        ("why =", "whyy ="),
        ('"S(1)"', '"S1"'),
        ('["cp", "tp"]', "[]"),
        ('"bfloat16"', "bfloat16"),
        ("lr = 1e-3", '"--a.b" = 1'),
        ("lr = 1e-3", '" a.b" = 1'),
    ],
)
def test_each_help_mends_the_spec(old: str, new: str) -> None:
    """The edit that a finding offers gives a spec without findings."""
    text = FULL.replace(old, new, 1)
    (offer,) = finding(text).help
    assert attempt(edited(text, offer.edits[0]))[1] == []


@pytest.mark.parametrize("value", ["3", "true", '"x"', "[1]", "1979-05-27"])
@pytest.mark.parametrize("table", [line.strip("[]").split(".")[0] for line in FULL.splitlines() if line[:1] == "["])
def test_table_of_another_type_is_a_finding(table: str, value: str) -> None:
    """A table's name with a value of another type is a finding, and no other table suffers."""
    found = finding(
        'meshlang = 1\nmodel = "m"\n' + (f"{table} = {value}\n" + ("" if table == "mesh" else "mesh.dp = 1\n"))
    )
    assert found.code == "wrong-type"


def test_conflicts_show_both_places() -> None:
    """Two rests, and an axis named twice, show the first place too."""
    for text in (FULL.replace("pp = 2", 'pp = "rest"'), FULL.replace('["cp", "tp"]', '["cp", "cp"]')):
        assert finding(text).labels[0].text == "first here"


def test_place_of_a_pattern_error_is_inside_the_key() -> None:
    """A pattern that does not parse is shown at its letters, in a key or a value."""
    found = finding(FULL.replace('[at."layers.0.attention"]', '[at."layers.[3-1]"]'))
    assert found.label.span.text == "3-1"


def test_unknown_plugins_list_the_installed() -> None:
    """A plugin that is not installed is a finding that lists those that are."""
    strategies, schedules = (", ".join(group.names()) for group in (PLUGINS.strategies, PLUGINS.schedules))
    assert finding(FULL.replace("[strategy.ring]", "[strategy.star]")).notes == (f"installed: {strategies}",)
    assert finding(FULL.replace('"interleaved"', '"zero"')).notes == (f"installed: {schedules}",)


def test_broken_plugin_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that does not load, or cannot be a table, is a finding with the reason."""
    found = finding(FULL.replace("[strategy.ring]", "[strategy.odd]\n[strategy.ring]"))
    assert "the field `table`" in found.message

    def load(registry: Registry, name: str) -> type:
        raise PluginError(f"`{name}` does not load: no reason")

    monkeypatch.setattr(Registry, "load", load)
    broken = attempt(FULL)[1]
    assert [(each.code, each.label.span.text) for each in broken] == [
        ("plugin-broken", '"interleaved"'),
        ("plugin-broken", "ring"),
    ]


def test_all_findings_come_together() -> None:
    """Mistakes in many tables are reported at once, in the order of their places."""
    text = FULL.replace("batch = 64", "batch = 0").replace('"free"', '"fre"').replace("lr = 1e-3", "lr = 1979-05-27")
    assert codes(text, sets=["mesh.tp=x"]) == ["bad-value"] * 4


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1B", 1), ("2 KB", 2000), ("2 KiB", 2048), ("1.5 GiB", 3 * 2**29), ("80 GB", 80 * 10**9), (" 1 TiB ", 2**40)],
)
def test_memory_is_bytes(text: str, amount: int) -> None:
    """Memory is a number and a unit, decimal or binary."""
    spec = spec_of(SMALL + f'[expect]\nmemory_per_rank = "{text}"\n')
    assert spec.expect.memory_per_rank is not None
    assert spec.expect.memory_per_rank.value == amount
