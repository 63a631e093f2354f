"""A plan's pipeline in torchtitan's words, and what is refused with its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.trainer import Trainer

from meshlang.compiler import Request, compile
from meshlang.lowering.errors import LoweringError
from meshlang.plan.ir import Plan
from meshlang.runtime.device import prepare as prepare_device
from meshlang.runtime.pipeline import PlanPipelining, contiguous_ends, order_file, part_of, pipelined
from meshlang.runtime.titan import apply
from meshlang.runtime.trainer import PlanTrainer
from meshlang.source import Source

ROOT = Path(__file__).parents[2]
CARD = ROOT / "models" / "llama" / "card.toml"


def plan_of(schedule: str, *, microbatches: int = 4, more: str = "", sizes: bool = True) -> Plan:
    """The small Llama in a pipeline of two ranks."""
    text = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:whole_weights"]
mesh = {{ pp = 2 }}
{"sizes = { batch = 8, seq = 256 }" if sizes else ""}
precision = {{ compute = "float32" }}
[pipeline]
schedule = "{schedule}"
microbatches = {microbatches}
{more}
"""
    return compile(Request(source=Source(name="spec.toml", text=text)))


@pytest.fixture
def recipe() -> Trainer.Config:
    """The small Llama's recipe."""
    prepare_device("cpu")
    from meshlang_models.llama.config_registry import tiny

    return tiny()


def test_config_says_schedule_stages_and_microbatches(recipe: Trainer.Config) -> None:
    """torchtitan is told the schedule's name, the sequences of a microbatch, and each stage's modules."""
    plan = plan_of("interleaved_1f1b")
    config = apply(recipe, plan)
    assert config.parallelism.pipeline_parallel_degree == 2
    assert config.parallelism.pipeline_parallel_schedule == "Interleaved1F1B"
    assert config.parallelism.pipeline_parallel_microbatch_size == 2
    assert config.parallelism.module_fqns_per_model_part == [list(stage.modules) for stage in plan.stages]
    assert config.model_spec is not None
    assert config.model_spec.pipelining_fn == PlanPipelining(plan=plan)
    assert isinstance(config, PlanTrainer.Config)


def test_without_stages_nothing_changes(recipe: Trainer.Config) -> None:
    """A plan without a pipeline leaves the config as it is."""
    plan = replace(plan_of("1f1b"), stages=())
    assert pipelined(recipe, plan) is recipe


def test_sizes_may_be_the_recipes(recipe: Trainer.Config) -> None:
    """Without [sizes] the recipe's own batch is divided, or refused when it does not divide."""
    assert apply(recipe, plan_of("1f1b", sizes=False)).parallelism.pipeline_parallel_microbatch_size == 1
    with pytest.raises(LoweringError, match="4 sequences of a rank do not divide into 3 microbatches"):
        apply(recipe, plan_of("1f1b", microbatches=3, sizes=False))


@pytest.mark.parametrize("schedule", ["interleaved_zero_bubble", "zbv", "dualpipev"])
def test_late_gradients_refuse_a_chunked_loss(schedule: str, recipe: Trainer.Config) -> None:
    """A loss that frees the head's weights in the forward is refused where their gradients come late."""
    config = replace(recipe, loss=ChunkedLossWrapper.Config())
    with pytest.raises(LoweringError, match="frees the head's before"):
        apply(config, plan_of(schedule))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved_1f1b"])
def test_whole_backwards_take_any_loss(schedule: str, recipe: Trainer.Config) -> None:
    """Schedules whose backwards are whole take a chunked loss."""
    apply(replace(recipe, loss=ChunkedLossWrapper.Config()), plan_of(schedule))


def test_a_v_refuses_validation(recipe: Trainer.Config) -> None:
    """torch cannot run forwards alone where two neighbouring stages lie on one rank."""
    config = replace(recipe, validator=replace(recipe.validator, enable=True))
    with pytest.raises(LoweringError, match="torch cannot validate under `zbv`"):
        pipelined(config, plan_of("zbv"))
    assert pipelined(config, plan_of("interleaved_1f1b")) is not config


@pytest.mark.parametrize(("file", "name"), [("v.csv", "ZBVZeroBubble"), ("line.csv", "Interleaved1F1B")])
def test_orders_from_files_are_written_for_torch(file: str, name: str, recipe: Trainer.Config) -> None:
    """An order travels in the plan; torchtitan is given a name whose stages lie in the same places."""
    plan = plan_of("csv", microbatches=2, more=f'file = "{ROOT}/tests/gloo/{file}"')
    config = apply(recipe, plan)
    assert config.parallelism.pipeline_parallel_schedule == name
    assert plan.pipeline is not None
    with order_file(plan) as path:
        rows = Path(path).read_text().splitlines()
    assert [tuple(row.split(",")) for row in rows] == list(plan.pipeline.order)
    assert not Path(path).exists()


def test_torchs_own_orders_are_not_written() -> None:
    """A schedule that torch makes itself needs no file."""
    with order_file(plan_of("zbv")) as path:
        assert path == ""


def test_parts_of_the_model_are_stages(recipe: Trainer.Config) -> None:
    """A part of the model has the plan of the stage whose modules it holds; another part has none."""
    plan = plan_of("1f1b")
    assert recipe.model_spec is not None
    with torch.device("meta"):
        model = recipe.model_spec.model.build()
    assert part_of(replace(plan, stages=()), model).stages == ()
    model.tok_embeddings = None
    model.layers = nn.ModuleDict({name: layer for name, layer in model.layers.items() if name in "23"})
    assert {tensor.fqn.split(".")[0] for tensor in part_of(plan, model).tensors} == {"layers", "norm", "lm_head"}
    model.norm = None
    with pytest.raises(LoweringError, match="no stage of the plan has the modules"):
        part_of(plan, model)


def test_what_is_sent_is_contiguous() -> None:
    """What a stage gives and the gradient of what it takes lie contiguous; the numbers stay."""

    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.transpose(0, 1)

    plan = plan_of("interleaved_1f1b")
    module = Turned()
    middle = replace(plan, edges=(), loss=None)
    contiguous_ends(plan, middle, module)
    value = torch.randn(2, 3, requires_grad=True)
    output = module(value)
    assert output.is_contiguous()
    assert not output._is_view()
    (gradient,) = torch.autograd.grad(output, value, torch.arange(6.0).view(3, 2))
    assert gradient.is_contiguous()
    assert torch.equal(gradient, torch.arange(6.0).view(3, 2).T)
