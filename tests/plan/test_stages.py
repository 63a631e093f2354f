"""Stages: the split as written or by cost, what each rank holds and issues, by formula."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshlang.card.read import read_card
from meshlang.compiler import Request, check, compile
from meshlang.diagnostics import Bag
from meshlang.pipeline import orders
from meshlang.plan.balance import balanced, costs
from meshlang.plan.data import from_json, to_data, to_json
from meshlang.plan.gathers import gathers
from meshlang.plan.ir import Plan, numel
from meshlang.plan.split import split_text
from meshlang.plan.stages import coordinate, part, stages_at
from meshlang.report.plan import plan_text
from meshlang.source import Source

MODELS = Path(__file__).parents[2] / "models"


def _request(
    pipeline: str, *, model: str = "llama/tiny", mesh: str = "pp = 2\ndp = 2\ntp = 2", more: str = ""
) -> Request:
    card, _, flavor = model.partition("/")
    text = f"""\
meshlang = 1
model = "{MODELS}/{card}/card.toml#{flavor}"
[mesh]
{mesh}
[sizes]
batch = 16
seq = 64
accumulation = 2
[precision]
state = "float32"
compute = "float32"
reduce = "float32"
[place]
batch = "dp"
heads = "tp"
kv_heads = "tp"
mlp = "tp"
vocab = "tp"
[store]
over = ["dp"]
{more}
[pipeline]
{pipeline}
"""
    return Request(source=Source(name="spec.toml", text=text))


def _plan(schedule: str = "1f1b", microbatches: int = 2, lines: str = "", **options: Any) -> Plan:
    return compile(_request(f'schedule = "{schedule}"\nmicrobatches = {microbatches}\n{lines}', **options))


def _model(name: str) -> Any:
    card, _, flavor = name.partition("/")
    bag = Bag()
    model = read_card(Source.read(MODELS / card / "card.toml"), flavor, bag)
    bag.check()
    assert model is not None
    return model


def test_split_says_the_modules() -> None:
    """Words stand for modules and numbers for the next layers."""
    plan = _plan("interleaved_1f1b", lines='split = "embed + 1 | 2 | 1 | norm + head"')
    assert [stage.modules for stage in plan.stages] == [
        ("tok_embeddings", "layers.0"),
        ("layers.1", "layers.2"),
        ("layers.3",),
        ("norm", "lm_head"),
    ]
    assert [stage.coordinate for stage in plan.stages] == [0, 1, 0, 1]


def test_v_turns_back() -> None:
    """A V puts the first and the last stage on the first rank."""
    assert [coordinate(index, 3, "v") for index in range(6)] == [0, 1, 2, 2, 1, 0]
    assert [stage.coordinate for stage in _plan("zbv").stages] == [0, 1, 1, 0]


def test_without_a_split_stages_cost_alike() -> None:
    """No split and "balance" give the same stages, and a split that says them gives the same plan but for its text."""
    plan = _plan(lines='split = "balance"')
    assert plan.stages == _plan().stages == _plan(lines='split = "embed + 2 | 2 + norm + head"').stages


def test_cost_is_multiply_adds() -> None:
    """A matrix costs its size, a looked-up table nothing."""
    model = _model("llama/tiny")
    layer = 128 * 128 + 2 * 64 * 128 + 128 * 128 + 3 * 128 * 256 + 2 * 128
    names = ["tok_embeddings", "layers.0", "norm", "lm_head"]
    assert costs(model, names) == [0, layer, 128, 264 * 128]


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("name", ["llama/tiny", "llama/debug", "llama3/8B"])
def test_balance_is_best(name: str, count: int) -> None:
    """No split in the same number of stages has a cheaper dearest stage."""
    model = _model(name)
    names = [module for word in model.split for module in word.modules]
    cost = dict(zip(names, costs(model, names), strict=True))
    parts = balanced(model, count)
    assert [module for each in parts for module in each] == names
    assert all(parts)
    assert max(sum(cost[m] for m in each) for each in parts) == _least(list(cost.values()), count)


def _least(cost: list[int], count: int) -> int:
    """The dearest part of the best split, found by another way: the least limit that greedy parts keep."""
    limits = sorted({sum(cost[a:b]) for a in range(len(cost)) for b in range(a + 1, len(cost) + 1)})
    return next(limit for limit in limits if _greedy(cost, limit) <= count)


def _greedy(cost: list[int], limit: int) -> int:
    parts, left = 1, limit
    for each in cost:
        if each > limit:
            return len(cost) + 1
        parts, left = (parts, left - each) if each <= left else (parts + 1, limit - each)
    return parts


def test_more_stages_than_modules() -> None:
    """Seven modules make seven stages and not eight."""
    model = _model("llama/tiny")
    assert split_text(model, balanced(model, 7)) == "embed | 1 | 1 | 1 | 1 | norm | head"
    assert balanced(model, 8) == ()


def test_units_end_where_stages_do() -> None:
    """A unit that a split parts is gathered apart."""
    plan = _plan(lines='split = "embed + 4 + norm | head"')
    assert [unit.modules for unit in plan.units if "layers" not in unit.modules[0]] == [
        ("tok_embeddings",),
        ("norm",),
        ("lm_head",),
    ]


def test_rank_holds_its_stages() -> None:
    """Rank 0 holds what is in its stages; for the rest its document has no shape."""
    plan = _plan()
    data = to_data(plan, rank=0)
    held = {item["fqn"] for item in data["tensors"] if item["local_shape"] is not None}
    assert held == {tensor.fqn for tensor in plan.tensors if plan.stage_of[tensor.fqn].index == 0}
    assert {item["placements"]["pp"] for item in data["tensors"]} == {"stage 0", "stage 1"}
    assert [stage.index for stage in stages_at(plan, 4)] == [1]


def test_state_is_of_the_fullest_rank() -> None:
    """State bytes are the most of any place in the pipeline, counted tensor by tensor."""
    plan = _plan(lines='split = "embed + 1 | 3 + norm + head"')
    assert plan.state_bytes is not None
    each = [
        sum(
            4 * numel(tensor.local_shape(plan.mesh, plan.mesh.coordinate(rank)))
            for tensor in plan.tensors
            if tensor.kind == "parameter" and plan.holds(tensor, plan.mesh.coordinate(rank))
        )
        for rank in range(plan.ranks)
    ]
    assert each[0] < each[4]
    assert plan.state_bytes.parameters == max(each)


def test_plans_with_stages_read_back() -> None:
    """from_json(to_json(plan)) == plan, stages, orders and all."""
    for schedule in ("1f1b", "zbv", "interleaved_zero_bubble"):
        plan = _plan(schedule, 4)
        assert from_json(to_json(plan)) == plan


def _calls(plan: Plan, kind: str, axis: str) -> dict[tuple[str, int | None], tuple[int, int | None]]:
    """(pass, stage) -> (calls, bytes of one) of one kind over one axis; all of them alike in bytes."""
    found: dict[tuple[str, int | None], tuple[int, int | None]] = {}
    for call in plan.collectives:
        if (call.kind, call.axis) == (kind, axis):
            count, size = found.get((call.pass_, call.stage), (0, call.bytes))
            assert size == call.bytes
            found[call.pass_, call.stage] = (count + call.count, size)
    return found


def test_sends_by_formula() -> None:
    """A microbatch's hidden state goes on from every stage but the last, its gradient back from all but the first."""
    plan = _plan("interleaved_1f1b", 2)
    batch = 16 // 2 // 2 // 2
    sends = _calls(plan, "send", "pp")
    size = batch * 64 * 128 * 4
    assert sends == {
        **{("forward", stage): (2 * 2, size) for stage in (0, 1, 2)},
        **{("backward", stage): (2 * 2, size) for stage in (1, 2, 3)},
    }


def test_nothing_is_sent_at_the_tip_of_a_v() -> None:
    """Two neighbouring stages of one rank hand over without a message."""
    sends = _calls(_plan("zbv"), "send", "pp")
    assert sorted(sends) == [("backward", 1), ("backward", 3), ("forward", 0), ("forward", 2)]


def test_a_cut_sequence_is_sent_in_parts() -> None:
    """Where tp cuts the sequence between layers, each of its ranks sends its own part."""
    more = '[within."{tok_embeddings,lm_head,layers.*.{attention,feed_forward}}"]\nseq = "whole"'
    request = _request('schedule = "1f1b"\nmicrobatches = 2', more=more)
    text = request.source.text.replace('vocab = "tp"', 'vocab = "tp"\nseq = "tp"')
    plan = compile(replace(request, source=Source(name="spec.toml", text=text)))
    whole = {size for _, size in _calls(_plan(), "send", "pp").values()}
    assert {2 * size for _, size in _calls(plan, "send", "pp").values() if size} == whole


def test_boundaries_and_loss_a_microbatch() -> None:
    """What a boundary or the loss calls is called for each microbatch, on its share of the sequences."""
    plan = _plan("1f1b", 4)
    whole = compile(_request("", mesh="dp = 2\ntp = 2").__class__(source=_without_pipeline()))
    ours = [call for call in plan.collectives if call.where == "loss"]
    theirs = [call for call in whole.collectives if call.where == "loss"]
    assert [call.stage for call in ours] == [1]
    assert ours[0].count == 4 * theirs[0].count
    assert theirs[0].bytes is not None
    assert ours[0].bytes == theirs[0].bytes // 4


def _without_pipeline() -> Source:
    text = _request("", mesh="dp = 2\ntp = 2").source.text
    return Source(name="spec.toml", text=text.replace("[pipeline]\n", ""))


def test_weights_come_and_go_once_a_pass() -> None:
    """Weights that are kept are gathered once for all microbatches, and their gradients are summed once."""
    plan = _plan("1f1b", 4)
    units = len(plan.units)
    assert sum(call.count for call in plan.collectives if call.kind == "all_gather" and call.axis == "dp") == 2 * units
    assert sum(call.count for call in plan.collectives if call.kind == "reduce_scatter") == 2 * units


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 4), (4, 9), (3, 5)])
def test_freed_weights_come_again(ranks: int, microbatches: int) -> None:
    """Under 1F1B freed weights come for each forward ahead, then once for each pair of a forward and a backward."""
    for stage, row in enumerate(orders.one_f_one_b(ranks, microbatches)):
        ahead = ranks - stage
        found = gathers(row, free=True, ahead=False)
        assert found == {stage: (ahead, microbatches - ahead + 1)}
    for stage, row in enumerate(orders.gpipe(ranks, microbatches)):
        assert gathers(row, free=True, ahead=False) == {stage: (microbatches, 1)}


def test_three_stages_are_there_at_once() -> None:
    """Up to three stages a rank, weights come once; a fourth makes some of them go and come."""
    for chunks in (1, 2, 3):
        for row in orders.interleaved(2, chunks, 4):
            assert set(gathers(row, free=False, ahead=True).values()) == {(1, 0)}
    assert any(
        forward > 1
        for row in orders.interleaved(2, 4, 4)
        for forward, _ in gathers(row, free=False, ahead=True).values()
    )


def test_one_stage_as_a_plan() -> None:
    """The parts of a plan that its stages are have each tensor, edge and unit once."""
    plan = _plan("interleaved_1f1b")
    parts = [part(plan, stage) for stage in plan.stages]
    for name in ("tensors", "edges", "units"):
        assert sorted(map(repr, (each for p in parts for each in getattr(p, name)))) == sorted(
            map(repr, getattr(plan, name))
        )
    assert [p.loss is not None for p in parts] == [False, False, False, True]


def test_an_axis_of_one_rank_is_no_pipeline() -> None:
    """pp = 1 checks the split, and then the plan is the one without a pipeline's stages."""
    plan = _plan(mesh="pp = 1\ndp = 2\ntp = 2", lines='split = "embed + 4 + norm + head"')
    assert plan.stages == ()
    assert {call.stage for call in plan.collectives} == {None}
    found = check(
        _request('schedule = "1f1b"\nmicrobatches = 2\nsplit = "embed + 4 + head"', mesh="pp = 1\ndp = 2\ntp = 2")
    )
    assert [each.code for each in found] == ["split-misses"]


SPLITS = {
    "embed + 2 | | 2 + norm + head | head": ("bad-split", ""),
    "embed + 2 | 2 + + norm + head": ("bad-split", ""),
    "embed + 0 | 4 + norm + head": ("bad-split", "0"),
    "embed + 2 | 2 + norm + haed": ("bad-split", "haed"),
    "embed + 2 | 2.5 + norm + head": ("bad-split", "2.5"),
    "embed + 2 | 2 + head": ("split-misses", "head"),
    "2 | 2 + norm + head": ("split-misses", "head"),
    "embed + 2 | 3 + norm + head": ("split-twice", "3"),
    "embed + 2 | embed + 2 + norm + head": ("split-twice", "embed"),
    "embed + 2 | 2 + head + norm": ("split-order", "norm"),
}


@pytest.mark.parametrize("split", SPLITS)
def test_splits_that_cannot_be(split: str) -> None:
    """Each wrong split is found at the word that makes it wrong."""
    code, text = SPLITS[split]
    schedule = "interleaved_1f1b" if split.count("|") == 3 else "1f1b"
    found = check(_request(f'schedule = "{schedule}"\nmicrobatches = 2\nsplit = "{split}"'))
    assert {each.code for each in found} == {code}
    assert text in ("", found[0].label.span.text)


def test_a_split_with_escapes_is_pointed_at_whole() -> None:
    """Where the text of the string is not its value, the whole string is the place."""
    found = check(_request('schedule = "1f1b"\nmicrobatches = 2\nsplit = "embed + 2 \\u007c 2 + norm + haed"'))
    assert [(each.code, each.label.span.text[:6]) for each in found] == [("bad-split", '"embed')]


def test_text_shows_stages_and_order() -> None:
    """The text lists stages, each rank's order of actions, and calls of alike stages once."""
    text = plan_text(_plan("interleaved_1f1b", 2), rank=0)
    assert "pipeline interleaved_1f1b, 4 stages, 2 microbatches" in text
    assert "0   0F0 0F1 2F0 2F1" in text
    assert "0-2    layers.* output to the next stage" in text
    assert "rank 0 over pp: 12 calls" in text


def test_tied_weights_are_refused() -> None:
    """One tensor with names in two stages is a finding with both names."""
    found = check(_request('schedule = "1f1b"\nmicrobatches = 2', model="llama3/1B"))
    assert [each.code for each in found] == ["tied-stages"]
    assert "`tok_embeddings.weight` in stage 0 and `lm_head.weight` in stage 1" in found[0].message
