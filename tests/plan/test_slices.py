"""Subsequences of a plan: their lengths, those that take equally long, and what each sends and leaves."""

from __future__ import annotations

import tomllib
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from meshlang.compiler import Request, compile
from meshlang.pipeline.simulate import simulate
from meshlang.plan.cost import activations
from meshlang.plan.data import from_json, to_json
from meshlang.plan.diff import diff
from meshlang.plan.ir import Plan
from meshlang.plan.slices import alike, attention_share, costs_of, lengths_of, shares, unequal
from meshlang.report.lock import lock_text
from meshlang.report.mesh import mesh_text
from meshlang.report.plan import plan_text
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

#: Multiply-adds a token of llama/tiny: four layers of 128 x 128 twice, 128 x 64 twice and 128 x 256 three
#: times, with two norms; the last norm and the head.
TOKEN = 4 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256 + 2 * 128) + 128 + 264 * 128
#: A pair of a query and a key: 8 heads of 16, and as many numbers of a value, in four layers.
PAIR = 4 * 2 * 8 * 16


def plan_of(lengths: str, *, count: int = 4, seq: int = 1024, tp: int = 1, schedule: str = "bsipipe") -> Plan:
    """The small Llama on two ranks of a pipeline, the sequence cut over tp between modules."""
    text = f"""\
meshlang = 1
include = ["preset:tensor_parallel", "preset:sequence_parallel"]
model = "{CARD}#tiny"
mesh = {{ pp = 2, tp = {tp} }}
sizes = {{ batch = 4, seq = {seq} }}
precision = {{ compute = "float32" }}
[pipeline]
schedule = "{schedule}"
microbatches = 4
subsequences = {count}
lengths = {lengths}
"""
    return compile(Request(source=Source(name="spec.toml", text=text)))


EQUAL, WRITTEN = plan_of('"equal"'), plan_of("[400, 256, 256, 112]")


def test_lengths_are_of_the_plan() -> None:
    """A plan says the tokens of each subsequence, however the spec does."""
    assert lengths_of(EQUAL) == (256,) * 4
    assert lengths_of(WRITTEN) == (400, 256, 256, 112)
    assert (unequal(EQUAL), unequal(WRITTEN)) == (False, True)
    assert sum(shares(WRITTEN)) == 1
    assert [(share * 1024, count) for share, count in alike(WRITTEN)] == [(400, 1), (256, 2), (112, 1)]


def test_attention_share_is_the_formula() -> None:
    """Half of the pairs of 1024 tokens against what weights multiply: tables that are looked up in do not count."""
    pairs = 1024 * 1024 / 2 * PAIR
    assert attention_share(EQUAL) == pytest.approx(pairs / (pairs + 1024 * TOKEN), rel=1e-12)


@pytest.mark.parametrize(("count", "seq", "tp"), [(2, 64, 1), (3, 1024, 2), (4, 1024, 1), (7, 8192, 4)])
def test_equal_flops_differ_by_a_unit_at_most(count: int, seq: int, tp: int) -> None:
    """Lengths are multiples of the ranks that share them, and no forward is a unit of tokens longer than its part."""
    found = lengths_of(plan_of('"equal-flops"', count=count, seq=seq, tp=tp))
    assert sum(found) == seq
    assert all(length % tp == 0 for length in found)
    assert list(found) == sorted(found, reverse=True)
    works = [(end * TOKEN + end * end / 2 * PAIR) for end in accumulate(found, initial=0)]
    unit = tp * (TOKEN + seq * PAIR)  # of the last tokens, the dearest
    for work in (b - a for a, b in pairwise(works)):
        assert abs(work - works[-1] / count) <= unit


def test_equal_flops_take_equally_long() -> None:
    """In the simulation, forwards of one stage take the same time, to what rounding leaves."""
    plan = plan_of('"equal-flops"', count=4, seq=8192, schedule="seq1f1b")
    assert plan.pipeline is not None
    assert plan.pipeline.program is not None
    found = simulate(plan.pipeline.program, costs_of(plan))
    ops = zip(plan.pipeline.program.order[0], found.starts[0], found.ends[0], strict=True)
    times = [end - start for op, start, end in ops if op.kind == "F"]
    assert max(times) <= 1.001 * min(times)
    assert max(lengths_of(plan)) > 1.5 * min(lengths_of(plan))


def test_each_length_has_its_calls() -> None:
    """Calls and bytes of a step add up to those of equal subsequences; each call is as large as its subsequence."""
    for cut in ("all_gather", "reduce_scatter", "send"):
        counts, sizes = [], []
        for plan in (plan_of('"equal"', tp=2), plan_of("[400, 256, 256, 112]", tp=2)):
            calls = [call for call in plan.collectives if call.kind == cut]
            counts.append(sum(call.count for call in calls))
            sizes.append(sum(call.count * (call.bytes or 0) for call in calls))
        assert counts[0] == counts[1] > 0
        assert sizes[0] == sizes[1]
    sends = [call for call in WRITTEN.collectives if call.where == "layers.0 output to stage 1"]
    wanted = [(tokens * 128 * 4, count) for tokens, count in ((400, 2), (256, 4), (112, 2))]
    assert [(call.bytes, call.count) for call in sends] == wanted


def test_activations_follow_the_lengths() -> None:
    """The peak is that of the order with each subsequence's own tokens: of one stage, in proportion."""
    halves, other = (plan_of(text, count=2, schedule="seq1f1b") for text in ("[512, 512]", "[768, 256]"))
    for plan, peak in ((halves, 512 + 512 + 512), (other, 768 + 256 + 768)):
        assert plan.pipeline is not None
        assert plan.pipeline.program is not None
        assert max(simulate(plan.pipeline.program, costs_of(plan)).peaks) == pytest.approx(peak / 1024)
    one, two = (activations(plan, 0) for plan in (halves, other))
    assert one is not None
    assert two is not None
    assert 1.1 < two / one < 1.2


def test_lengths_are_told() -> None:
    """Text, JSON and lock have them where they differ, and `diff` says how they changed."""
    assert "4 microbatches of 4 subsequences of 400, 256, 256, 112 tokens" in plan_text(WRITTEN)
    assert "4 microbatches of 4 subsequences, two" in plan_text(EQUAL)
    assert mesh_text(WRITTEN).endswith("each sequence goes through pp in 4 subsequences of 400, 256, 256, 112 tokens\n")
    assert "each sequence" not in mesh_text(EQUAL)
    assert lengths_of(from_json(to_json(WRITTEN))) == lengths_of(WRITTEN)
    assert tomllib.loads(lock_text(WRITTEN))["pipeline"]["lengths"] == [400, 256, 256, 112]
    assert "lengths" not in tomllib.loads(lock_text(EQUAL))["pipeline"]
    assert diff(EQUAL, WRITTEN).mesh == ("lengths (256, 256, 256, 256) -> (400, 256, 256, 112)",)
