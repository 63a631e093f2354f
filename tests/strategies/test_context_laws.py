"""Strategies over a cut sequence, as rewrites of a plan: layouts, collectives, bytes, and what stands against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshlang.compiler import Request, check, compile
from meshlang.plan.ir import Collective, Plan
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

STRATEGIES = ("all_gather_attention", "ring_attention", "ulysses")

#: Sizes of the tiny flavor, of the run, and of an element.
LAYERS, HEADS, KV_HEADS, HEAD_DIM, BATCH, SEQ, WIDTH = 4, 8, 4, 16, 4, 256, 2

INNER = "layers.0.attention.inner_attention"

over_all = pytest.mark.parametrize("strategy", STRATEGIES)


def request(strategy: str, *, mesh: str, seq: int = SEQ, sequence: bool = False, **options: str) -> Request:
    """A spec of the small Llama with one strategy over `cp`."""
    weights = '"tp"' if "tp" in mesh else '"whole"'
    text = f"""\
meshlang = 1
model = "{CARD}#tiny"
mesh = {{ {mesh} }}
sizes = {{ batch = {BATCH}, seq = {seq} }}

[place]
heads = {weights}
kv_heads = {weights}
mlp = {weights}
vocab = {weights}
seq = {'["cp", "tp"]' if sequence else '"cp"'}

[strategy.{strategy}]
axis = "cp"
"""
    text += "".join(f'{key} = "{value}"\n' for key, value in options.items())
    if sequence:
        text += '\n[within."{tok_embeddings,lm_head,layers.*.attention,layers.*.feed_forward}"]\nseq = "cp"\n'
    return Request(source=Source(name="spec.toml", text=text))


def plan(strategy: str, **options: Any) -> Plan:
    """The plan of `request`."""
    return compile(request(strategy, **options))


def over_cp(made: Plan) -> dict[tuple[str, str, str], tuple[int | None, int]]:
    """(kind, what, pass) -> (bytes, calls) of the collectives of attention over `cp`."""
    calls = [call for call in made.collectives if call.axis == "cp" and "inner_attention" in call.where]
    return {(call.kind, _what(call), call.pass_): (call.bytes, call.count) for call in calls}


def _what(call: Collective) -> str:
    return call.where.partition(" ")[2]


def numbers(tokens: int, heads: int) -> int:
    """Bytes of this many tokens and heads of the whole batch."""
    return BATCH * tokens * heads * HEAD_DIM * WIDTH


@pytest.mark.parametrize("cp", [2, 4])
def test_gather_moves_keys_and_values_once(cp: int) -> None:
    """Keys and values are gathered in the forward, their gradients summed into parts in the backward; no other call."""
    whole = (numbers(SEQ, KV_HEADS), LAYERS)
    assert over_cp(plan("all_gather_attention", mesh=f"cp = {cp}")) == {
        ("all_gather", "input.k_BLNH", "forward"): whole,
        ("all_gather", "input.v_BLNH", "forward"): whole,
        ("reduce_scatter", "input.k_BLNH", "backward"): whole,
        ("reduce_scatter", "input.v_BLNH", "backward"): whole,
    }


@pytest.mark.parametrize("cp", [2, 4])
def test_ulysses_moves_a_part_each_way(cp: int) -> None:
    """Queries, keys, values and output change place once in either pass, each 1/cp of the whole."""
    queries, keys = (numbers(SEQ, HEADS) // cp, LAYERS), (numbers(SEQ, KV_HEADS) // cp, LAYERS)
    ports = {"input.q_BLNH": queries, "input.k_BLNH": keys, "input.v_BLNH": keys, "output": queries}
    assert over_cp(plan("ulysses", mesh=f"cp = {cp}")) == {
        ("all_to_all", port, pass_): size for port, size in ports.items() for pass_ in ("forward", "backward")
    }


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_ring_sends_all_but_its_own_part(cp: int) -> None:
    """P - 1 messages of one rank's keys and values in either pass, and P - 1 of their gradients in float32."""
    message, hops = 2 * numbers(SEQ // cp, KV_HEADS), LAYERS * (cp - 1)
    assert over_cp(plan("ring_attention", mesh=f"cp = {cp}")) == {
        ("send", "keys and values", "forward"): (message, hops),
        ("send", "keys and values", "backward"): (message, hops),
        ("send", "gradients of keys and values", "backward"): (message * 4 // WIDTH, hops),
    }


def test_ring_moves_the_bytes_of_a_gather() -> None:
    """(P - 1) / P of all keys and values come in, in the forward, as when they are gathered."""
    ring, gather = (over_cp(plan(name, mesh="cp = 4")) for name in ("ring_attention", "all_gather_attention"))
    size, count = ring["send", "keys and values", "forward"]
    whole, calls = gather["all_gather", "input.k_BLNH", "forward"]
    assert size is not None
    assert whole is not None
    assert size * count == 2 * whole * calls * 3 // 4


def test_ring_leaves_every_value_in_place() -> None:
    """No edge moves over the axis of a ring."""
    made = plan("ring_attention", mesh="cp = 2, tp = 2")
    assert all(edge.src.placement("cp") == edge.dst.placement("cp") for edge in made.edges)


def test_gathered_gradients_are_sums() -> None:
    """Gathered keys are whole over cp and their gradient a sum: R, where queries stay S(1)."""
    made = plan("all_gather_attention", mesh="cp = 2, tp = 2")
    keys, queries = (made.by_port[INNER, port] for port in ("input.k_BLNH", "input.q_BLNH"))
    assert (keys.src.kind("cp"), keys.dst.kind("cp")) == ("S(1)", "R")
    assert (queries.src.kind("cp"), queries.dst.kind("cp")) == ("S(1)", "S(1)")


def test_ulysses_cuts_inside_the_tensor_axis() -> None:
    """Heads are cut by tp outside and by cp inside, so a rank's heads lie in its own part over tp."""
    made = plan("ulysses", mesh="cp = 2, tp = 2", sequence=True)
    for port in ("input.q_BLNH", "input.k_BLNH", "input.v_BLNH"):
        assert made.by_port[INNER, port].src.dims == ((), ("cp",), ("tp",), ())
        assert made.by_port[INNER, port].dst.dims == ((), (), ("tp", "cp"), ())
    assert made.by_port[INNER, "output"].src.dims == ((), (), ("tp", "cp"), ())


@over_all
def test_strategies_keep_weights_and_state(strategy: str) -> None:
    """A strategy over the sequence changes no tensor and no byte at rest."""
    made, other = plan(strategy, mesh="cp = 2"), plan("all_gather_attention", mesh="cp = 2")
    assert (made.tensors, made.state_bytes) == (other.tensors, other.state_bytes)


@over_all
def test_one_rank_communicates_nothing(strategy: str) -> None:
    """An axis of one rank is a no-op."""
    assert plan(strategy, mesh="cp = 1").collectives == ()


@over_all
def test_lengths_are_not_needed(strategy: str) -> None:
    """Without `[sizes]` the same calls are planned, of unknown size."""
    made = request(strategy, mesh="cp = 2")
    silent = Source(
        name="spec.toml", text=made.source.text.replace(f"sizes = {{ batch = {BATCH}, seq = {SEQ} }}\n", "")
    )
    found = over_cp(compile(Request(source=silent)))
    assert found.keys() == over_cp(compile(made)).keys()
    assert {size for size, _ in found.values()} == {None}


def findings(strategy: str, **options: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    """(code, message, notes) of the findings of `request`."""
    return [(found.code, found.message, found.notes) for found in check(request(strategy, **options))]


@pytest.mark.parametrize("strategy", ["all_gather_attention", "ring_attention"])
def test_heads_and_tails_are_equal(strategy: str) -> None:
    """2 cp parts must be equal with head and tail, cp parts without."""
    notes = ("`cp` = 2 ranks take a head and a tail each", "`seq` may be 128 or 132")
    assert findings(strategy, mesh="cp = 2", seq=130) == [
        ("strategy-numbers", "`seq` = 130 does not divide into 4 equal parts", notes)
    ]
    assert findings(strategy, mesh="cp = 2", seq=130, balance="none") == []
    assert findings(strategy, mesh="cp = 2", seq=132) == []


@pytest.mark.parametrize(("tp", "seq", "fits"), [(2, 132, True), (4, 136, True), (4, 132, False)])
def test_heads_and_tails_are_cut_again(tp: int, seq: int, fits: bool) -> None:
    """With a sequence cut over tp too, cp * lcm(2, tp) parts must be equal."""
    found = findings("ring_attention", mesh=f"cp = 2, tp = {tp}", seq=seq, sequence=True)
    assert (found == []) is fits


def test_balance_is_offered_where_it_fits() -> None:
    """Where heads and tails are unequal and `balance` is written, "none" is a fix that was tried."""
    (found,) = check(request("ring_attention", mesh="cp = 2", seq=130, balance="head_tail"))
    assert [help_.text for help_ in found.help] == ['`balance` may be "none" here']


def test_heads_divide_over_all_that_cut_them() -> None:
    """Ulysses needs a head of each kind on every rank of cp x tp."""
    found = findings("ulysses", mesh="cp = 4, tp = 2")
    note = ("`cp` may be 2 at most, or a part of it",)
    assert found == [("strategy-numbers", "`kv_heads` = 4 does not divide over `tp` = 2 x `cp` = 4", note)]


def test_both_kinds_of_heads_are_told() -> None:
    """Query heads and key heads are two findings, each told once for all layers."""
    assert [message for _, message, _ in findings("ulysses", mesh="cp = 16")] == [
        "`heads` = 8 does not divide over `cp` = 16",
        "`kv_heads` = 4 does not divide over `cp` = 16",
    ]


@over_all
def test_sequence_must_be_cut_where_it_is_looked_over(strategy: str) -> None:
    """An axis that is gathered before attention leaves a strategy nothing to do."""
    made = request(strategy, mesh="cp = 2")
    text = made.source.text + '\n[within."layers.*.attention"]\nseq = "whole"\n'
    (found,) = check(Request(source=Source(name="spec.toml", text=text)))
    assert (found.code, found.label.span.text) == ("strategy-axis", '"cp"')


def all_whole(strategy: str, folder: Path) -> Request:
    """A spec for a card in which attention looks over the whole sequence in every input."""
    card = folder / "card.toml"
    text = CARD.read_text().replace('whole = ["head_dim", "k_BLNH.seq", "v_BLNH.seq"]', 'whole = ["head_dim", "seq"]')
    card.write_text(text)
    made = request(strategy, mesh="cp = 2")
    return Request(source=Source(name="spec.toml", text=made.source.text.replace(str(CARD), str(card))))


def test_gathered_modules_keep_queries(tmp_path: Path) -> None:
    """Where no input of a module may stay cut, nothing is gathered: each rank would give the whole output."""
    (found,) = check(all_whole("all_gather_attention", tmp_path))
    assert (found.code, found.message) == (
        "strategy-axis",
        "`layers.0.attention.inner_attention` looks over the whole sequence in every input, "
        "and none of them may stay cut",
    )


def test_modules_of_a_ring_take_three_inputs(tmp_path: Path) -> None:
    """A ring says which module it cannot run, and what that takes."""
    (found,) = check(all_whole("ring_attention", tmp_path))
    assert found.code == "strategy-axis"
    assert found.message.startswith("`ring_attention` runs on queries, keys and values")
    assert found.notes[1].startswith("it has input.q_BLNH (batch seq heads head_dim)")
