"""When a plan asks for batches of its own, and how its strategies take part in them."""

import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask
from torchtitan.trainer import Trainer

from meshlang.compiler import Request, compile
from meshlang.lowering.errors import LoweringError
from meshlang.lowering.ops import install
from meshlang.plan.ir import Plan
from meshlang.runtime.batch import cut, needs_own_batch, prepare
from meshlang.runtime.device import prepare as prepare_device
from meshlang.runtime.masks import masked
from meshlang.runtime.parallel import compilable
from meshlang.runtime.titan import apply
from meshlang.runtime.trainer import PlanTrainer
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"


def plan_of(strategy: str, *, balance: str | None = None, cp: int = 2) -> Plan:
    """The small Llama with a strategy over cp."""
    text = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:whole_weights"]
mesh = {{ cp = {cp} }}
sizes = {{ batch = 4, seq = 256 }}
precision = {{ compute = "float32" }}
place = {{ seq = "cp" }}
[strategy.{strategy}]
axis = "cp"
"""
    text += f'balance = "{balance}"\n' if balance is not None else ""
    return compile(Request(source=Source(name="spec.toml", text=text)))


@pytest.fixture
def recipe() -> Trainer.Config:
    """The small Llama's recipe."""
    prepare_device("cpu")
    from meshlang_models.llama.config_registry import tiny

    return tiny()


@pytest.mark.parametrize(
    ("strategy", "seq", "own"),
    [
        ("all_gather_attention", 256, False),
        ("all_gather_attention", 512, False),
        ("all_gather_attention", 260, True),
        ("ulysses", 256, True),
        ("ring_attention", 256, True),
    ],
)
def test_own_batches_are_made_where_needed(strategy: str, seq: int, own: bool) -> None:
    """torchtitan's own batch does where keys are gathered and each rank has a multiple of 128 tokens."""
    assert needs_own_batch(plan_of(strategy), seq) is own


def test_one_rank_needs_no_own_batch() -> None:
    """An axis of one rank leaves torchtitan's Trainer as it is."""
    assert not needs_own_batch(plan_of("ring_attention", cp=1), 100)


@pytest.mark.parametrize(
    ("strategy", "balance", "word"),
    [
        ("all_gather_attention", "head_tail", "headtail"),
        ("all_gather_attention", "none", None),
        ("ring_attention", "head_tail", "headtail"),
        ("ulysses", None, None),
    ],
)
def test_balance_is_torchtitans_word(
    strategy: str, balance: str | None, word: str | None, recipe: Trainer.Config
) -> None:
    """A strategy's balance is the load balancer of the config; Ulysses has none."""
    config = apply(recipe, plan_of(strategy, balance=balance))
    assert config.parallelism.context_parallel_load_balancer == word
    assert config.parallelism.context_parallel_degree == 2


def test_plan_trainer_keeps_the_config(recipe: Trainer.Config) -> None:
    """Under a Trainer of our own every field stays, no flag is added, and the log has no plan in it."""
    plan = plan_of("ring_attention")
    config = apply(recipe, plan)
    assert isinstance(config, PlanTrainer.Config)
    assert config.plan == plan
    assert config.optimizer == recipe.optimizer
    assert config._owner is PlanTrainer
    assert "plan" not in config.to_dict()


def test_stock_trainer_stays_where_it_can(recipe: Trainer.Config) -> None:
    """Where torchtitan's batch does, so does its Trainer."""
    assert type(apply(recipe, plan_of("all_gather_attention"))) is Trainer.Config


class OtherTrainer(Trainer):
    """A Trainer that a recipe brings."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        """Its config."""


def test_a_recipes_own_trainer_is_refused(recipe: Trainer.Config) -> None:
    """Two Trainers cannot prepare one batch: the finding names the recipe's."""
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    with pytest.raises(LoweringError, match=r"OtherTrainer\.Config"):
        apply(OtherTrainer.Config(**values), plan_of("ring_attention"))


class OneAxis:
    """The mesh of an axis of two ranks, seen from the second."""

    def size(self) -> int:
        """Ranks."""
        return 2

    def get_local_rank(self) -> int:
        """Which of them."""
        return 1


def batch() -> dict[str, Any]:
    """Tokens, positions, labels and a causal mask of 8 tokens."""
    tokens = torch.arange(8)[None]
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, None, 8, 8, device="cpu")
    return {"input": tokens, "labels": tokens + 1, "positions": tokens, "attention_masks": mask, "name": "x"}


@pytest.mark.parametrize(
    ("strategy", "tokens", "rows"),
    [
        ("all_gather_attention", [2, 3, 4, 5], 4),
        ("ring_attention", [2, 3, 4, 5], 8),
        ("ulysses", [4, 5, 6, 7], 8),
    ],
)
def test_rows_are_cut_where_keys_are_gathered(strategy: str, tokens: list[int], rows: int) -> None:
    """Every tensor is cut alike; the mask stays whole where queries see it whole, or keys pass by."""
    mesh: Any = OneAxis()
    found = cut(plan_of(strategy), batch(), "cp", mesh)
    assert [found[name].tolist() for name in ("input", "positions")] == [[tokens], [tokens]]
    assert found["labels"].tolist() == [[token + 1 for token in tokens]]
    assert found["attention_masks"].shape[2:] == (rows, 8)
    assert found["name"] == "x"


def test_masks_by_name_are_cut_alike() -> None:
    """Several masks under names stay under their names."""
    mesh: Any = OneAxis()
    several = batch() | {"attention_masks": {"local": batch()["attention_masks"]}}
    found = cut(plan_of("all_gather_attention"), several, "cp", mesh)
    assert found["attention_masks"]["local"].shape[2:] == (4, 8)


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The torch part of somebody's strategy."""
    module = ModuleType("somebody_ops")
    monkeypatch.setitem(sys.modules, "somebody_ops", module)
    return module


def somebodys(plan: Plan) -> Plan:
    """The plan with that strategy in place of its own."""
    return replace(plan, strategies=tuple(replace(use, ops="somebody_ops") for use in plan.strategies))


def test_a_strategy_prepares_batches_of_its_axis(ops: ModuleType) -> None:
    """`prepare_batch` gets the whole batch and its axis' mesh, and the axis cuts nothing else."""
    plan, mesh = somebodys(plan_of("all_gather_attention")), object()
    ops.prepare_batch = lambda plan, use, batch, mesh: {**batch, "seen": (use.name, mesh)}  # pyright: ignore[reportAttributeAccessIssue]
    found = prepare(plan, batch(), lambda axis: mesh)  # pyright: ignore[reportArgumentType]
    assert found["seen"] == ("all_gather_attention", mesh)
    assert found["input"].shape == (1, 8)
    assert needs_own_batch(plan, 256)


def test_a_strategy_installs_its_modules(ops: ModuleType) -> None:
    """`install` gets the model and its axis' mesh; the modules whose forward it set are told."""
    plan, model = somebodys(plan_of("all_gather_attention")), nn.Sequential(nn.Linear(1, 1), nn.ReLU())

    def set_forward(plan: Plan, use: Any, model: Any, mesh: Any) -> None:
        model[1].forward = lambda x: (x, mesh)

    ops.install = set_forward  # pyright: ignore[reportAttributeAccessIssue]
    assert install(plan, model, lambda axis: None) == (model[1],)
    assert model(torch.zeros(1, 1))[1] is None


def test_ops_that_are_not_there_are_named() -> None:
    """A plan of another machine may name a module that this one lacks."""
    plan = plan_of("all_gather_attention")
    plan = replace(plan, strategies=tuple(replace(use, ops="no_such_ops") for use in plan.strategies))
    with pytest.raises(LoweringError, match="all_gather_attention names no_such_ops"):
        install(plan, nn.Linear(1, 1), lambda axis: None)


def test_a_ring_is_not_compiled() -> None:
    """torchtitan compiles a layer as one graph: a ring inside is refused, keys that are gathered are not."""
    compilable(plan_of("all_gather_attention"))
    with pytest.raises(LoweringError, match="ring_attention cannot be compiled"):
        compilable(plan_of("ring_attention"))


def test_a_ring_is_not_captured(recipe: Trainer.Config) -> None:
    """A ring turns CUDA graphs off, keys that are gathered leave them on."""
    captured = replace(recipe, training=replace(recipe.training, disable_cuda_graphs=False))
    assert apply(captured, plan_of("ring_attention")).training.disable_cuda_graphs
    assert not apply(captured, plan_of("all_gather_attention")).training.disable_cuda_graphs


def test_attention_without_masks_is_refused(recipe: Trainer.Config) -> None:
    """Attention that is causal by itself would take any rank's tokens for the first ones, without an error."""
    assert recipe.model_spec is not None
    with torch.device("meta"):
        model = recipe.model_spec.model.build()
    plan = plan_of("all_gather_attention")
    masked(plan, model)
    model.get_submodule("layers.2.attention").inner_attention = nn.Identity()
    with pytest.raises(LoweringError, match=r"layers\.2\.attention\.inner_attention: .* not Identity"):
        masked(plan, model)
    masked(plan_of("all_gather_attention", cp=1), model)
