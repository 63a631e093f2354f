"""The block-diffusion model on one rank under `csbp`: loss and every gradient are those of its own dense mask."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from meshlang.card.find import Cards
from meshlang.compiler import Request, compile
from meshlang.lowering.errors import LoweringError
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.testing import parity, titan

CARD = Path(__file__).parents[2] / "models" / "block_diffusion" / "card.toml"
RECIPE = "meshlang_models.block_diffusion.config_registry:"


def plan_of(flavor: str, options: str = "", size: int = 16) -> Plan:
    """The plan of a spec with one rank."""
    text = f"""
        meshlang = 1
        model = "block_diffusion/{flavor}"
        include = ["preset:whole_weights"]
        [mesh]
        block = 1
        [sizes]
        batch = 2
        seq = 96
        [precision]
        state = "float64"
        compute = "float64"
        reduce = "float64"
        [strategy.csbp]
        axis = "block"
        block_size = {size}
        {options}
    """
    cards = Cards(extra={"block_diffusion": CARD})
    return compile(Request(source=Source(name="spec.toml", text=text), cards=cards))


def step(flavor: str, plan: Plan, *, strategy: bool) -> tuple[torch.Tensor, parity.Gradients]:
    """Loss and gradients, with the strategy's attention and rows or the model's own."""
    with parity.precision(plan):
        config = titan.config_of(f"{RECIPE}{flavor}", plan)
        model: Any = titan.build(config, plan)
        whole = titan.own_batch(config, plan)
        batch = {"input": whole.tokens, "positions": whole.positions, "labels": whole.labels, **whole.more}
        if strategy:
            from meshlang_strategies import csbp_ops

            csbp_ops.install(plan, plan.strategies[0], model, None)
            batch = csbp_ops.prepare_batch(plan, plan.strategies[0], batch, None)
        else:
            batch["attention_masks"] = model.get_attention_masks(batch["positions"])
        labels, tokens = batch.pop("labels"), batch.pop("input")
        logits = model(tokens, **batch)
        loss, _ = config.loss.build()(logits, labels, torch.tensor(float(titan.counted(whole)), dtype=torch.float64))
        loss.backward()
    return loss.detach(), parity.gradients_of(model)


@cache
def reference(flavor: str) -> tuple[torch.Tensor, parity.Gradients]:
    """What the model itself finds."""
    return step(flavor, plan_of(flavor), strategy=False)


@pytest.mark.parametrize(
    ("flavor", "options"),
    [
        ("tiny", ""),
        ("tiny", 'kernel = "reference"'),
        ("tiny", "prune_last = true"),
        ("tiny_complementary", ""),
        ("tiny_complementary", "share_clean = true"),
        ("tiny_complementary", "share_clean = true\nprune_last = true"),
        ("tiny_shared", ""),
        ("tiny_shared", "share_clean = false"),
    ],
)
def test_one_rank_is_the_model_itself(flavor: str, options: str) -> None:
    """In float64, to 1e-12, however views are laid out and whatever is left out."""
    loss, gradients = step(flavor, plan_of(flavor, options), strategy=True)
    want, theirs = reference(flavor)
    assert parity.relative_error(loss, want) <= 1e-12
    assert max(parity.errors(gradients, theirs).values()) <= 1e-12


def test_blocks_of_another_size_are_refused() -> None:
    """The model's data has blocks of 16 tokens, and a plan of 8 would compute something else."""
    with pytest.raises(LoweringError, match="8 tokens in the plan, and 16 in the model"):
        step("tiny", plan_of("tiny", size=8), strategy=True)
