"""A plan's Program in torchtitan's words: what it is told, which shapes are sent, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.trainer import Trainer

from meshlang.compiler import Request, compile
from meshlang.lowering.errors import LoweringError
from meshlang.plan.ir import Plan
from meshlang.runtime.device import prepare as prepare_device
from meshlang.runtime.sequence_pipeline import Between, Pipelining, program_of
from meshlang.runtime.titan import apply
from meshlang.runtime.torch_sequences import SlicedSchedule, TorchSequences, ends
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"


def plan_of(*presets: str, mesh: str = "pp = 2", schedule: str = "bsipipe", more: str = "") -> Plan:
    """The small Llama, each sequence in two subsequences."""
    include = ", ".join(f'"preset:{preset}"' for preset in presets)
    text = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = [{include}]
mesh = {{ {mesh} }}
sizes = {{ batch = 8, seq = 256 }}
precision = {{ compute = "float32" }}
[pipeline]
schedule = "{schedule}"
microbatches = 4
subsequences = 2
{more}
"""
    return compile(Request(source=Source(name="spec.toml", text=text)))


@pytest.fixture
def recipe() -> Trainer.Config:
    """The small Llama's recipe."""
    prepare_device("cpu")
    from meshlang_models.llama.config_registry import tiny

    return tiny()


def test_programs_run_on_our_own_executor(recipe: Trainer.Config) -> None:
    """torchtitan is given a pipelining function of ours, and a microbatch is a sequence of the Program."""
    plan = plan_of("whole_weights")
    config = apply(recipe, plan)
    assert config.model_spec is not None
    assert config.model_spec.pipelining_fn == Pipelining(plan=plan)
    assert config.parallelism.pipeline_parallel_microbatch_size == 2


def test_what_is_sent_has_its_part_of_the_tokens() -> None:
    """A stage gets one subsequence of a microbatch; an axis that cuts the sequence between modules cuts that."""
    whole = plan_of("whole_weights")
    assert Between(plan=whole, stage=1, batch=2)("F", 128) == (2, 128, 128)
    cut = plan_of("tensor_parallel", "sequence_parallel", mesh="pp = 2, tp = 2")
    assert Between(plan=cut, stage=1, batch=2)("F", 128) == (2, 64, 128)
    assert Between(plan=cut, stage=0, batch=2)("B", 100) == (2, 50, 128)


def test_a_chunked_loss_is_refused(recipe: Trainer.Config) -> None:
    """A loss that runs the head itself has no place behind single subsequences."""
    with pytest.raises(LoweringError, match="computes the loss of each subsequence at once"):
        apply(replace(recipe, loss=ChunkedLossWrapper.Config()), plan_of("whole_weights"))


def test_compiling_attention_that_keeps_keys_is_refused(recipe: Trainer.Config) -> None:
    """A store of keys cannot be in a compiled graph; whole sequences have none."""
    config = replace(recipe, compile=replace(recipe.compile, enable=True, components=["model"]))
    with pytest.raises(LoweringError, match="which cannot be compiled"):
        apply(config, plan_of("whole_weights", schedule="seq1f1b"))


def test_an_order_that_cannot_go_on_is_refused() -> None:
    """Before anything runs, the laws of Programs are asked: here a rank's operations are the wrong way round."""
    plan = plan_of("whole_weights", schedule="seq1f1b")
    assert plan.pipeline is not None
    program = program_of(plan)
    wrong = replace(program, order=(program.order[0], tuple(reversed(program.order[1]))))
    with pytest.raises(LoweringError, match="`seq1f1b`: "):
        program_of(replace(plan, pipeline=replace(plan.pipeline, program=wrong)))


def test_seqv_can_be_given_to_torch(recipe: Trainer.Config) -> None:
    """With `runtime = "torch"` its stages are torch's, which cannot validate where stages turn back on a rank."""
    plan = plan_of("whole_weights", schedule="seqv", more='runtime = "torch"')
    config = apply(recipe, plan)
    assert config.model_spec is not None
    assert config.model_spec.pipelining_fn == TorchSequences(plan=plan)
    with pytest.raises(LoweringError, match="cannot validate under `seqv`"):
        apply(replace(recipe, validator=replace(recipe.validator, enable=True)), plan)


def test_subsequences_are_torchs_microbatches() -> None:
    """Each sequence's tokens, positions and labels are cut; a mask stays whole, and is there for each part."""
    given: dict[str, Any] = {}
    inner = SimpleNamespace(step=lambda **words: given.update(words))
    x, mask = torch.arange(8).reshape(1, 8), object()
    words = {"kwarg_mbs": [{"positions": x, "mask": mask}] * 2, "target_mbs": [x, x], "losses": []}
    SlicedSchedule(inner=inner, cuts=ends((4, 4))).step(arg_mbs=[(x,), (x + 8,)], **words)
    assert [args[0].tolist() for args in given["arg_mbs"]] == [[[a, a + 1, a + 2, a + 3]] for a in (0, 4, 8, 12)]
    assert [each["positions"].tolist() for each in given["kwarg_mbs"]] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]] * 2
    assert all(each["mask"] is mask for each in given["kwarg_mbs"])
    assert [each.tolist() for each in given["target_mbs"]] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]] * 2
    assert given["losses"] is words["losses"]
