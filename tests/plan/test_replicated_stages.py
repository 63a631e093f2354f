"""Plans of pipelines with two replicas, and of sliced sequences: what is held, sent and summed."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshlang.compiler import Request, check, compile
from meshlang.plan.calls import calls_at
from meshlang.plan.data import from_json, to_json
from meshlang.plan.ir import Plan, numel
from meshlang.plan.stages import held, splits_backward, stages_at
from meshlang.report.lock import lock_text
from meshlang.report.plan import plan_text
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

HEAD = f"""meshlang = 1
include = ["preset:tensor_parallel"]
model = "{CARD}#tiny"

[mesh]
pp = 2
tp = 2

[sizes]
batch = 8
seq = 256

[pipeline]
"""

BSIPIPE = HEAD + 'schedule = "bsipipe"\nmicrobatches = 4\nsubsequences = 2\nchunks = 2\n'
SINGLE = HEAD + 'schedule = "seqv"\nmicrobatches = 4\nsubsequences = 2\nchunks = 2\n'


def _request(text: str) -> Request:
    return Request(source=Source(name="spec.toml", text=text))


@pytest.fixture(scope="module")
def plan() -> Plan:
    """BSIPipe on two ranks of a pipeline, two stages of each replica a rank."""
    return compile(_request(BSIPIPE))


def test_every_stage_lies_on_two_ranks(plan: Plan) -> None:
    """With two ranks, each holds all stages: those of one replica, and the other's mirror image."""
    assert [stage.coordinates for stage in plan.stages] == [(0, 1), (1, 0), (1, 0), (0, 1)]
    for rank in range(4):
        assert len(stages_at(plan, rank)) == 4
        assert {tensor.fqn for tensor in held(plan, plan.mesh.coordinate(rank))} == {t.fqn for t in plan.tensors}


def test_state_counts_both_copies(plan: Plan) -> None:
    """A rank keeps the parts of both replicas' stages, here of the whole model, and moments of the first replica's."""
    coordinate = plan.mesh.coordinate(0)
    sizes = {t.fqn: numel(t.local_shape(plan.mesh, coordinate)) for t in plan.tensors if t.kind == "parameter"}
    assert plan.state_bytes is not None
    assert plan.state_bytes.parameters == 4 * sum(sizes.values())
    first = [sum(size for fqn, size in sizes.items() if plan.stage_of[fqn].coordinate == place) for place in (0, 1)]
    assert plan.state_bytes.optimizer == 8 * max(first)


def test_gradients_meet_at_the_first_replica(plan: Plan) -> None:
    """Each stage's gradients go to the first replica's rank in one message, in fp32, and its weights come back."""
    there = [call for call in plan.collectives if call.where.endswith("gradients to the first replica")]
    back = [call for call in plan.collectives if call.where.endswith("weights to the second replica")]
    assert {(call.kind, call.axis, call.count) for call in (*there, *back)} == {("send", "pp", 1)}
    assert [(call.stage, call.replica) for call in (*there, *back)] == [(k, r) for r in (1, 0) for k in range(4)]
    for rank in range(4):
        mine = [call for call in calls_at(plan, rank) if "replica" in call.where]
        assert len(mine) == 4, "a rank sends gradients of its two mirrored stages, and weights of its own two"
    assert plan.state_bytes is not None
    assert sum(call.bytes or 0 for call in there) == plan.state_bytes.gradients
    assert sum(call.bytes or 0 for call in back) == plan.state_bytes.parameters


def test_sends_are_of_one_slice(plan: Plan) -> None:
    """A message has a subsequence's hidden states; each replica sends half of them; none inside a rank."""
    sends = [call for call in plan.collectives if call.kind == "send" and "replica" not in call.where]
    tokens, hidden, bfloat16 = 8 // 4 * 256 // 2, 128, 2
    assert {call.bytes for call in sends} == {tokens * hidden * bfloat16}
    assert {call.count for call in sends} == {4 * 2 // 2}
    assert [(call.stage, call.pass_) for call in sends] == [
        (0, "forward"),
        (1, "backward"),
        (2, "forward"),
        (3, "backward"),
    ]


def test_uneven_directions_are_counted_apart() -> None:
    """With 5 of 8 microbatches one way a copy of a stage calls for 5, its mirror image for 3; together for all."""
    head = HEAD.replace("#tiny", "#deep").replace("pp = 2", "pp = 6").replace("tp = 2", "tp = 1")
    text = head + 'schedule = "bsipipe"\nmicrobatches = 8\nsubsequences = 2\n'
    uneven, even = compile(_request(text + 'directions = "uneven"\n')), compile(_request(text))
    assert uneven.shared == ((0, 5), (1, 3))
    assert even.shared == ((None, 4),)
    counts = {
        (call.stage, call.pass_, call.replica): (call.count, call.bytes)
        for call in uneven.collectives
        if call.kind == "send" and "replica" not in call.where
    }
    sizes = {(call.stage, call.pass_): call.bytes for call in even.collectives if "replica" not in call.where}
    for (stage, pass_, replica), found in counts.items():
        assert found == ((10, 6)[replica or 0], sizes[stage, pass_])
    assert len(counts) == 2 * len(sizes)
    total = sum(call.count for rank in range(6) for call in calls_at(uneven, rank) if "replica" not in call.where)
    assert total == sum(call.count for rank in range(6) for call in calls_at(even, rank) if "replica" not in call.where)
    assert "of replica 1" in plan_text(uneven)
    assert "of replica 1 = " in lock_text(uneven).replace('"', "")
    assert from_json(to_json(uneven)) == uneven


def test_tensor_parallel_calls_are_counted_for_each_slice(plan: Plan) -> None:
    """Each replica's stage calls once for each of its microbatches' subsequences; one replica, for all."""
    single = compile(_request(SINGLE))
    calls, all_calls = (
        {(c.where, c.kind, c.pass_, c.stage): (c.count, c.bytes) for c in each.collectives if c.axis == "tp"}
        for each in (plan, single)
    )
    assert calls.keys() == all_calls.keys()
    per_slice = [key for key in calls if "gradient" not in key[0]]
    assert per_slice
    for key in per_slice:
        assert all_calls[key] == (2 * calls[key][0], calls[key][1])


def test_whole_sequences_cost_the_same_bytes(plan: Plan) -> None:
    """Slicing sequences changes how often, not how much."""
    text = SINGLE.replace('"seqv"', '"zbv"').replace("subsequences = 2\n", "")
    whole, sliced = compile(_request(text)), compile(_request(SINGLE))
    totals = [
        sum(
            (call.bytes or 0) * call.count
            for call in each.collectives
            if "gradient" not in call.where or call.kind == "send"
        )
        for each in (whole, sliced)
    ]
    assert totals[0] == totals[1]


def test_reports_tell_both_ranks(plan: Plan) -> None:
    """The plan's text and its golden file say where each copy lies."""
    assert "4 microbatches of 2 subsequences, two replicas" in plan_text(plan)
    assert "  0  0, 1  tok_embeddings" in plan_text(plan)
    assert "F0.0@0 F1.0@1^" in plan_text(plan)
    assert "coordinates 0 and 1" in lock_text(plan)


def test_one_rank_is_no_pipeline() -> None:
    """Over an axis of one rank two replicas are checked, and then there is one of everything."""
    alone = compile(_request(BSIPIPE.replace("pp = 2", "pp = 1").replace("chunks = 2", "chunks = 1")))
    assert alone.stages == ()
    assert alone.replicas == 1
    assert alone.pipeline is not None
    assert alone.pipeline.program is None


def test_mapping_follows_the_topology() -> None:
    """Folded where two ranks of the pipeline share a node, in a row where none does or the spec says so."""
    text = BSIPIPE.replace("pp = 2", "pp = 4").replace("chunks = 2", "chunks = 1")
    node = "\n[topology]\nranks_per_node = 4\n"
    places = {
        name: [stage.coordinates for stage in compile(_request(text + keys)).stages]
        for name, keys in {
            "none": "",
            "folded": node,
            "said": f'mapping = "contiguous"\n{node}',
            "bitpipe": f'mapping = "bitpipe"\n{node}',
        }.items()
    }
    assert places["none"] == places["said"] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert places["folded"] == [(0, 1), (2, 3), (3, 2), (1, 0)]
    assert places["bitpipe"] == [(0, 1), (3, 2), (2, 3), (1, 0)]


def test_late_weights_are_in_the_plan() -> None:
    """With `weights = "late"` backwards are in two, and weights that are freed early are a finding."""
    late = compile(_request(BSIPIPE + 'weights = "late"\n'))
    assert splits_backward(late)
    assert not splits_backward(compile(_request(BSIPIPE)))
    freed = (
        BSIPIPE.replace("tp = 2", "tp = 1\ndp = 2")
        + 'weights = "late"\n[store]\nover = ["dp"]\nafter_forward = "free"\n'
    )
    found = check(_request(freed + '[place]\nbatch = "dp"\n'))
    assert [each.code for each in found] == ["schedule-store"]
