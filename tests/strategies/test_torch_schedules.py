"""torch's schedules, held against torch's own classes and at their findings."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from meshlang_strategies.dualpipev import DualPipeV
from meshlang_strategies.gpipe import GPipe
from meshlang_strategies.interleaved_1f1b import Interleaved1F1B
from meshlang_strategies.interleaved_zero_bubble import InterleavedZeroBubble
from meshlang_strategies.numbered import NumberedSchedule
from meshlang_strategies.one_f_one_b import OneFOneB
from meshlang_strategies.zbv import ZBV

from meshlang.compiler import Request, check, load, resolved_of
from meshlang.diagnostics import Diagnostic
from meshlang.plan.derive import start
from meshlang.registry import Plugins, Registry
from meshlang.render import render
from meshlang.source import Source
from meshlang.strategy import Context

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

SCHEDULES: dict[str, type[NumberedSchedule]] = {
    "gpipe": GPipe,
    "1f1b": OneFOneB,
    "interleaved_1f1b": Interleaved1F1B,
    "interleaved_zero_bubble": InterleavedZeroBubble,
    "zbv": ZBV,
    "dualpipev": DualPipeV,
}

ZERO_BUBBLE = ("interleaved_zero_bubble", "zbv", "dualpipev")


PLUGINS = Plugins(schedules=Registry("meshlang.schedules", extra=SCHEDULES))


def _request(pipeline: str, *, pp: int = 2, dp: int = 1, more: str = "") -> Request:
    """A spec with these lines in [pipeline]; `more` is laid behind it."""
    text = f"""\
meshlang = 1
model = "{CARD}#debug"
include = ["preset:fsdp", "preset:whole_weights"]
[mesh]
pp = {pp}
dp = {dp}
[pipeline]
{pipeline}
{more}"""
    return Request(source=Source(name="spec.toml", text=text), plugins=PLUGINS)


def _findings(pipeline: str, **options: Any) -> tuple[Diagnostic, ...]:
    return check(_request(pipeline, **options))


def _told(pipeline: str, **options: Any) -> str:
    return render(_findings(pipeline, **options))


def _context(name: str, pp: int) -> Context:
    """The plan of a spec with the schedule, and its table."""
    request = _request(f'schedule = "{name}"\nmicrobatches = 24', pp=pp)
    spec = load(request)
    assert spec.pipeline is not None
    return Context(plan=start(resolved_of(spec, request)), table=spec.pipeline.schedule)


def _torch_takes(schedule: type[NumberedSchedule], pp: int, chunks: int, microbatches: int) -> bool:
    """Whether torch's own class is built for these numbers."""
    import torch
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

    made: Any = get_schedule_class(str(schedule.ops))
    single = issubclass(made, PipelineScheduleSingle)
    if single and chunks != 1:
        return False  # it is given one stage
    stages = [
        SimpleNamespace(num_stages=pp * chunks, group_size=pp, group_rank=0, stage_index=i, submod=torch.nn.Identity())
        for i in range(chunks)
    ]
    try:
        made(stages[0] if single else stages, microbatches, lambda *_: None)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", SCHEDULES)
def test_torch_takes_the_same_numbers(name: str) -> None:
    """What the plugin refuses torch refuses, and nothing else, for many pp, chunks and microbatches."""
    for pp in (1, 2, 3, 4):
        context = _context(name, pp)
        for chunks, microbatches in product((1, 2, 3), range(1, 14)):
            schedule = SCHEDULES[name](microbatches=microbatches, chunks=chunks)
            ours = not list(schedule.check(context))
            assert ours == _torch_takes(SCHEDULES[name], pp, chunks, microbatches), (pp, chunks, microbatches)


def test_microbatches_must_be_said() -> None:
    """A schedule of torch has no default number of microbatches."""
    assert [each.code for each in _findings('schedule = "gpipe"')] == ["missing-key"]


def test_too_few_microbatches() -> None:
    """1F1B wants a microbatch for each stage, and the fix was tried."""
    assert _told('schedule = "1f1b"\nmicrobatches = 3', pp=4) == (
        "error[schedule-numbers]: `1f1b` needs as many microbatches as stages: 3 for 4\n"
        " --> spec.toml:9:16\n"
        "   |\n"
        " 9 | microbatches = 3\n"
        "   |                ^\n"
        "   |\n"
        "note: stages: `pp` = 4\n"
        "help: `microbatches` may be 4 here\n"
    )


def test_uneven_rounds() -> None:
    """Interleaved schedules run in rounds of equal length; the nearest numbers that do are offered."""
    told = _told('schedule = "interleaved_1f1b"\nmicrobatches = 11', pp=4)
    assert "11 microbatches do not divide into 2 rounds" in told
    assert "help: `microbatches` may be 10 or 12 here" in told


@pytest.mark.parametrize("name", ["zbv", "dualpipev"])
def test_a_v_has_two_stages_a_rank(name: str) -> None:
    """Three stages a rank are refused at the key that makes them, be it chunks or split."""
    told = _told(f'schedule = "{name}"\nmicrobatches = 8\nchunks = 3')
    assert "places 2 of the stages on each rank, and here are 3" in told
    assert "help: `chunks` may be 2 here" in told
    found = _findings(f'schedule = "{name}"\nmicrobatches = 8\nsplit = "embed | 1 | 1 | 1 | 3 | norm + head"')
    assert [each.label.span.text for each in found] == ['"embed | 1 | 1 | 1 | 3 | norm + head"']


def test_split_and_chunks_agree() -> None:
    """A split into parts that ranks cannot share, or that chunks contradict, shows both numbers."""
    lines = 'schedule = "interleaved_1f1b"\nmicrobatches = 4\n'
    assert "makes 3 stages, which do not divide over `pp` = 2" in _told(lines + 'split = "1 | 2 | 1"')
    told = _told(lines + 'chunks = 2\nsplit = "2 | 2"')
    assert "`split` makes 2 stages, and `chunks` = 2 on `pp` = 2 make 4" in told


def test_sequences_are_not_cut() -> None:
    """Subsequences are a word of other schedules: torch's refuse them."""
    found = _findings('schedule = "gpipe"\nmicrobatches = 4\nsubsequences = 4')
    assert [each.message for each in found] == ["`gpipe` runs whole sequences, not 4 parts of each"]


def test_microbatches_are_equal() -> None:
    """The sequences of one rank and pass divide into microbatches."""
    lines = 'schedule = "gpipe"\nmicrobatches = 6'
    told = _told(lines, dp=2, more="[sizes]\nbatch = 64\nseq = 8\naccumulation = 2\n")
    assert "16 sequences a rank do not divide into 6 microbatches" in told
    assert "note: 64 sequences a step, over 2 ranks, in 2 passes" in told
    assert "help: `microbatches` may be 4 or 8 here" in told


@pytest.mark.parametrize("name", SCHEDULES)
def test_zero_bubble_keeps_weights(name: str) -> None:
    """Freed weights lose gradients under the schedules that compute these late, and under no other."""
    more = '[store]\nover = ["dp"]\nafter_forward = "free"\n'
    found = _findings(f'schedule = "{name}"\nmicrobatches = 8', dp=2, more=more)
    assert [each.code for each in found] == (["schedule-store"] if name in ZERO_BUBBLE else [])
    assert not _findings(f'schedule = "{name}"\nmicrobatches = 8', dp=2, more=more.replace("free", "keep"))
