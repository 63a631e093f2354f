"""torchtitan's Trainer with the batch that a plan asks for. Used only where a plan asks for another."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import spmd_types as spmd
import torch
import tyro
from torchtitan.distributed.parallel_dims import MeshAxisName
from torchtitan.distributed.spmd_types import annotate_input_spmd_types, set_current_spmd_mesh
from torchtitan.models.common.attention import FlexAttention, VarlenAttention
from torchtitan.models.common.decoder import Decoder
from torchtitan.trainer import Trainer

from ..lowering.errors import LoweringError
from ..plan.ir import Plan
from .batch import Batch, makes_masks, meshes, needs_own_batch, prepare
from .pipeline import runs_program, shown_loss

Prepared = tuple[torch.Tensor, torch.Tensor, dict[str, Any]]


class PlanTrainer(Trainer):
    """A Trainer whose batches are prepared as a plan and its strategies say."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        """The fields of Trainer.Config, and the plan; no flag speaks of it."""

        plan: Annotated[Plan | None, tyro.conf.Suppress] = None

        def to_dict(self) -> dict[str, Any]:
            """What is logged and saved: the plan is a document of its own."""
            found = super(PlanTrainer.Config, self).to_dict()
            return {key: value for key, value in found.items() if key != "plan"}

    def post_dataloading_process(self, input_dict: dict[str, torch.Tensor], labels: torch.Tensor) -> Prepared:
        """(tokens, labels, further arguments of the model) of this rank."""
        assert isinstance(self.config, PlanTrainer.Config)
        assert self.config.plan is not None
        batch: Batch = {**input_dict, "labels": labels}
        made = makes_masks(self.config.plan)
        masks = None if made else masks_of(self.model_parts[0], input_dict.get("positions"))
        if masks is not None:
            batch["attention_masks"] = masks
        prepared = ready(self.config.plan, batch, self.parallel_dims)
        self.ntokens_seen += prepared[1].numel()
        return prepared

    def pp_forward_backward_step(self, **batch: Any) -> torch.Tensor:
        """The loss of one pass through the pipeline, on each of its ranks: rank 0's log shows it."""
        assert isinstance(self.config, PlanTrainer.Config)
        assert self.config.plan is not None
        loss = super().pp_forward_backward_step(**batch)
        if runs_program(self.config.plan):
            return loss
        return shown_loss(self.config.plan, loss, self.parallel_dims.get_mesh("pp").get_group())


def masks_of(model: Any, positions: torch.Tensor | None) -> Any:
    """The masks of whole sequences, for a model that takes some."""
    if positions is None or not isinstance(model, Decoder):
        return None
    inner = getattr(model.config.first_attention, "inner_attention", None)
    if not isinstance(inner, (FlexAttention.Config, VarlenAttention.Config)):
        return None
    return model.get_attention_masks(positions=positions)


def ready(plan: Plan, batch: Batch, parallel_dims: Any) -> Prepared:
    """A rank's batch, in the order that the model takes it, with torchtitan's types on it."""
    mine = prepare(plan, batch, meshes(plan, parallel_dims))
    inputs, labels = mine.pop("input"), mine.pop("labels")
    for name, value in mine.items():
        if isinstance(value, torch.Tensor) and name != "positions":  # torchtitan knows no other
            _typed(parallel_dims, value)
    return annotate_input_spmd_types(parallel_dims, inputs, labels, mine)


def _typed(parallel_dims: Any, tokens: torch.Tensor) -> None:
    """The type of tokens, (sequences, tokens), on those of another stream: they are cut as the first's."""
    with set_current_spmd_mesh(parallel_dims.spmd_dense_mesh()):
        spmd.assert_type(tokens, {MeshAxisName.DP: spmd.S(0), MeshAxisName.CP: spmd.S(1), MeshAxisName.TP: spmd.R})


def with_trainer(config: Trainer.Config, plan: Plan) -> Trainer.Config:
    """The config, under a Trainer that prepares batches where the plan asks for it.

    Raises:
        LoweringError: the recipe has a Trainer of its own.
    """
    if not plan.stages and not needs_own_batch(plan, config.training.seq_len):
        return config
    if type(config) is not Trainer.Config:
        name = f"{type(config).__module__}.{type(config).__qualname__}"
        raise LoweringError([f"the plan prepares its own batches, and so does the recipe's {name}"])
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return PlanTrainer.Config(**values, plan=plan)
