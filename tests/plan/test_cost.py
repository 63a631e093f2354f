"""What a rank holds at once: units, and values of forwards counted from the card and the order of actions."""

from __future__ import annotations

import json

import pytest

from meshlang.compiler import Request, compile
from meshlang.plan.cost import activations, memory
from meshlang.plan.data import to_data
from meshlang.plan.ir import Plan
from meshlang.source import Source

#: Bytes of one value of (batch, seq, embed) of llama/tiny: one sequence of 64 tokens in float32.
HIDDEN = 64 * 128 * 4

#: What one layer leaves: its input, two norms' results in two steps, queries, keys, values, attention's
#: output, the value between its halves, four values of `mlp` = 2 embed; and three small ones.
LAYER = 1 + 2 + 1 + 0.5 + 0.5 + 1 + 1 + 2 + 4 * 2
SMALL = 2 * 64 * 4 + 64 * 8 * 4 + 64 * 8 * 8


def plan_of(*lines: str, pp: int = 1, dp: int = 1) -> Plan:
    """One sequence of 64 tokens for each microbatch of each rank."""
    passes = 4 if pp > 1 else 1
    text = f"""
meshlang = 1
include = ["preset:whole_weights"]
model = "llama/tiny"
[mesh]
pp = {pp}
dp = {dp}
[sizes]
batch = {passes * dp}
seq = 64
[precision]
compute = "float32"
[place]
batch = "dp"
"""
    return compile(Request(source=Source(name="spec.toml", text="\n".join((text, *lines)))))


def test_one_rank_holds_what_its_layers_leave() -> None:
    """Four layers, the head's two norm results and its input, logits, and their logarithms."""
    head = 1 + 1 + 1 + 2 * 264 / 128
    assert activations(plan_of(), 0) == int((4 * LAYER + head) * HIDDEN) + 4 * SMALL + 64 * 4


def test_recomputed_layers_leave_their_inputs() -> None:
    """At most one layer is there as a whole, with its result and the last operand of that; of others the inputs."""
    plan = plan_of('[recompute]\nmodules = ["layers.*"]')
    assert activations(plan, 0) == int((3 + LAYER + 2) * HIDDEN) + SMALL


@pytest.mark.parametrize(("schedule", "there"), [("gpipe", 4), ("1f1b", 4)])
def test_first_stage_holds_a_microbatch_for_each_stage(schedule: str, there: int) -> None:
    """Of four stages, one layer each, the first holds `there` microbatches, and buffers of four gradients."""
    split = 'split = "embed + 1 | 1 | 1 | 1 + norm + head"'
    plan = plan_of(f'[pipeline]\nschedule = "{schedule}"\nmicrobatches = 4\n{split}', pp=4)
    layer, buffers = int((LAYER + 1) * HIDDEN) + SMALL, 4 * HIDDEN
    assert activations(plan, 0) == there * layer + buffers + HIDDEN


def test_last_stage_of_1f1b_holds_one_microbatch() -> None:
    """The later a stage, the fewer microbatches are there: of the last one less than a third of gpipe's."""
    split = 'microbatches = 4\nsplit = "embed + 1 | 1 | 1 | 1 + norm + head"'
    last = [activations(plan_of(f'[pipeline]\nschedule = "{name}"\n{split}', pp=4), 3) for name in ("1f1b", "gpipe")]
    assert last[0] is not None
    assert last[1] is not None
    assert last[0] < last[1] / 3


def test_units_are_there_two_at_a_time() -> None:
    """Freed units are gathered one ahead: two layers; what is kept comes on top, and a unit's gradients."""
    found = memory(plan_of('[store]\nover = ["dp"]', dp=2))
    layer = 128 + 128 * 128 + 2 * 64 * 128 + 128 * 128 + 128 + 3 * 256 * 128
    head = 128 + 264 * 128
    assert found.gathered == 4 * (2 * layer + head)
    assert found.unsummed == 4 * layer
    assert found.state == 4 * 4 * (4 * layer + head + 264 * 128) // 2


def test_sizes_that_are_not_known_give_no_estimate() -> None:
    """Without `seq` there is no figure, and no zero in its place."""
    text = 'meshlang = 1\nmodel = "llama/tiny"\ninclude = ["preset:tensor_parallel"]\n[mesh]\ntp = 2\n'
    assert memory(compile(Request(source=Source(name="spec.toml", text=text)))).activations is None


def test_json_has_memory_and_communication() -> None:
    """The document says what the fullest rank holds, and for each axis a rank's messages and bytes of a step."""
    data = json.loads(json.dumps(to_data(plan_of('[store]\nover = ["dp"]', dp=2))))
    assert data["memory"]["total"] == sum(
        data["memory"][key] for key in ("state", "gathered", "unsummed", "activations")
    )
    calls = [call for call in data["collectives"] if call["axis"] == "dp"]
    wanted = {"messages": sum(c["count"] for c in calls), "bytes": sum(c["count"] * c["bytes"] for c in calls)}
    assert data["communication"] == {"dp": wanted}
