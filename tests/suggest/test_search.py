"""The search: estimates stay near what plans cost, and the best is not behind that of every candidate planned."""

from __future__ import annotations

import pytest

from meshlang.compiler import Request, compile, find_model, load
from meshlang.diagnostics import Bag
from meshlang.mesh import Mesh, MeshAxis
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.suggest.candidate import Candidate, Cut
from meshlang.suggest.cost import COPIES, cost
from meshlang.suggest.estimate import Estimator
from meshlang.suggest.machine import Group, Machine
from meshlang.suggest.probe import probed
from meshlang.suggest.search import Asked, estimates, probes, proposal, search
from meshlang.suggest.shape import Shape
from meshlang.suggest.space import Run, candidates, cuts
from meshlang.suggest.work import Work, works

GIB = 2**30


def asked(model: str, *, ranks: int, batch: int, seq: int, memory: int) -> Asked:
    """A search for so many ranks, of a machine with slow links, where the order of candidates is not trivial."""
    request = Request(source=Source(name="t", text=f'meshlang = 1\nmodel = "{model}"\n[mesh]\ndp = 1\n'))
    read = find_model(load(request), request, Bag())
    assert read is not None
    machine = Machine(ranks_per_node=2, tflops=1.0, link=2.0, link_between=0.5, memory_speed=50.0)
    run = Run(ranks=ranks, ranks_per_node=2, batch=batch, seq=seq)
    return Asked(model=model, shape=Shape(read), run=run, machine=machine, memory=memory, request=request)


def test_nothing_planned_is_faster_than_the_best() -> None:
    """Every candidate of a small space is planned: none that fits is more than 5 % faster than the first proposal."""
    small = asked("llama/tiny", ranks=4, batch=8, seq=128, memory=GIB)
    every = estimates(small, probes(small, lambda: None)[0], lambda: None)
    plans = [proposal(small, each.candidate) for each in every]
    fits = [each.cost.seconds for each in plans if each.cost.memory.total <= small.room]
    assert len({round(seconds, 9) for seconds in fits}) > 20
    assert search(small, 3).best[0].cost.seconds <= 1.05 * min(fits)


@pytest.mark.parametrize(
    "cut",
    [Cut(), Cut(tp=2, sequence=True), Cut(tp=2, cp=2, exchange="ring_attention")],
    ids=["data", "tensor", "context"],
)
@pytest.mark.parametrize("recompute", [False, True])
def test_an_estimate_is_what_the_plan_costs(cut: Cut, recompute: bool) -> None:
    """Without stages, seconds and bytes counted up from two layers are those of the whole plan, within 1 %."""
    small = asked("llama3/8B", ranks=8, batch=16, seq=8192, memory=80 * GIB)
    chosen = Candidate(cut=cut, dp=8 // cut.tp // cut.cp, store="free", passes=2, recompute=recompute)
    probe = probed(cut, small.shape, small.run, small.request, small.machine, small.model)
    found = Estimator(small.shape, small.run, small.machine).of(chosen, probe)
    cost = proposal(small, chosen).cost
    assert found.seconds == pytest.approx(cost.seconds, rel=0.01)
    assert found.memory == pytest.approx(cost.memory.total, rel=0.01)


def test_sizes_that_do_not_divide_are_left_out() -> None:
    """No candidate cuts a name into parts that are not equal, and no axis over weights leaves a node."""
    run = Run(ranks=48, ranks_per_node=8, batch=48, seq=8192)
    shape = asked("llama3/8B", ranks=48, batch=48, seq=8192, memory=GIB).shape
    found = [each for cut in cuts(shape, run) for each in candidates(shape, run, cut)]
    assert {each.ranks for each in found} == {48}
    assert {each.cut.tp for each in found} == {1, 2, 4, 8}
    assert all(48 % (each.data * each.passes) == 0 for each in found)


def test_tied_weights_are_not_parted() -> None:
    """A model that ties weights of its first and last module gets no stages."""
    small = asked("llama3/1B", ranks=8, batch=64, seq=8192, memory=80 * GIB)
    every = [each for cut in cuts(small.shape, small.run) for each in candidates(small.shape, small.run, cut)]
    assert {each.pp for each in every} == {1}


def test_work_is_that_of_the_weights() -> None:
    """A forward of llama3/8B has 2 operations a token and weight that is multiplied with, and causal attention."""
    text = 'meshlang = 1\nmodel = "llama3/8B"\ninclude = ["preset:whole_tensors"]\n[mesh]\ndp = 1\n'
    text = text.replace('include = ["preset:whole_tensors"]\n', "")
    text += (
        '[sizes]\nbatch = 1\nseq = 8192\n[place]\nheads = "whole"\nkv_heads = "whole"\nmlp = "whole"\nvocab = "whole"\n'
    )
    plan = compile(Request(source=Source(name="t", text=text + 'batch = "dp"\n')))
    found = sum(works(plan).values(), Work())
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    assert found.products == 2 * 8192 * (32 * layer + 4096 * 128256)
    assert found.attention == 32 * 2 * 8192**2 * 4096


def test_links_are_those_of_the_group() -> None:
    """One rank a node has one link; whole nodes have all of theirs; inside a node there is the faster one."""
    machine = Machine(ranks_per_node=8, link=400.0, link_between=50.0)
    mesh = Mesh(axes=(MeshAxis(name="dp", size=4), MeshAxis(name="tp", size=8)))
    inside, apart, both = (machine.group(mesh, axes) for axes in (["tp"], ["dp"], ["dp", "tp"]))
    assert (inside, apart, both) == (Group(ranks=8, here=8), Group(ranks=4, here=1), Group(ranks=32, here=8))
    assert machine.per_byte("all_gather", inside) == pytest.approx(7 / 8 / 400e9)
    assert machine.per_byte("all_reduce", apart) == pytest.approx(2 * 3 / 4 / 50e9)
    assert machine.per_byte("reduce_scatter", both) == pytest.approx(max(31 / 32 / 400e9, 3 / 4 / 8 / 50e9))
    assert machine.per_byte("all_to_all", both) == pytest.approx(max(7 / 32 / 400e9, 24 / 32 / 50e9))
    assert machine.delay("all_reduce", inside) == pytest.approx(6 * machine.latency * 1e-6)


def in_stages(schedule: str, more: str = "") -> Plan:
    """llama3/8B in four stages, one node."""
    text = 'meshlang = 1\nmodel = "llama3/8B"\ninclude = ["preset:tensor_parallel"]\n[mesh]\npp = 4\ntp = 2\n'
    text += f'[sizes]\nbatch = 8\nseq = 4096\n[pipeline]\nschedule = "{schedule}"\nmicrobatches = 8\n{more}'
    return compile(Request(source=Source(name="t", text=text)))


def test_copies_of_a_stage_share_its_passes() -> None:
    """With two replicas a stage makes the calls of one, half of them on each rank; weights of copies wait once."""
    one, two = in_stages("1f1b"), in_stages("bsipipe", "chunks = 1\n")
    machine, idle = Machine(ranks_per_node=8), Machine(ranks_per_node=8, link=1e12)
    assert cost(two, machine).parts["boundary"] == pytest.approx(cost(one, machine).parts["boundary"])
    copied = sum(call.bytes or 0 for call in two.collectives if call.where.endswith(COPIES))
    waits = cost(two, machine).parts["bubble"] - cost(two, idle).parts["bubble"]
    assert 0.9 * copied / 4 / 2 <= waits * machine.link * 1e9 <= 1.1 * copied / 4
