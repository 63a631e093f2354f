"""torchtitan's checkpoints, resumed under any plan; and only if they are whole and fit.

Saving and loading are torchtitan's. Before it loads, rank 0 looks for the last whole checkpoint and
holds it against the plan, so that nothing is lost and nothing half-written is read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import torch.distributed as dist
import tyro
from torch.distributed.checkpoint.stateful import Stateful
from torchtitan.components.checkpointer.base import TRAIN_STATE, BaseCheckpointManager
from torchtitan.components.checkpointer.dcp import CheckpointManager
from torchtitan.tools import filesystem

from ..plan.ir import Plan
from . import progress
from .checkpoints import METADATA, OTHERS, CheckpointError, Saved, latest, misfits, problem_of, read_metadata, steps
from .parallel import degrees

logger = logging.getLogger(__name__)


class PlanCheckpoints(CheckpointManager):
    """torchtitan's checkpoint manager, which a plan's run resumes by; it also tells the launch each step."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        """The fields of torchtitan's, and the plan; no flag speaks of it."""

        plan: Annotated[Plan | None, tyro.conf.Suppress] = None

        def to_dict(self) -> dict[str, Any]:
            """What is logged and saved: the plan is a document of its own."""
            found = super(PlanCheckpoints.Config, self).to_dict()
            return {key: value for key, value in found.items() if key != "plan"}

    def __init__(self, config: Config, **options: Any) -> None:
        assert config.plan is not None
        self.plan = config.plan
        self.trainer = options["states"].get(TRAIN_STATE)
        super().__init__(config, **options)
        if self.enable:
            self.counted = Counted(trainer=self.trainer, shares=shares(self.plan))
            self.states[TRAIN_STATE] = self.counted

    def load(self, step: int = -1) -> bool:
        """Resume from the last whole checkpoint, or from the one of `step`.

        Raises:
            CheckpointError: it does not fit the plan, or none is whole, or later ones would be overwritten.
        """
        loaded = False
        if self.enable and filesystem.is_remote(self.folder):
            self.counted.known = False
            loaded = super().load(step)
        elif self.enable:
            progress.keeps(self.folder)
            chosen, self.counted.known = self._agreed(step)
            loaded = super().load(chosen)
        self.counted_on(loaded)
        return loaded

    def counted_on(self, loaded: bool) -> None:
        """From now on tokens are saved for all ranks; the launch hears where the run begins."""
        if self.enable:
            self.counted.known = True
        progress.done(getattr(self.trainer, "step", 0) if loaded else 0)

    def save(self, curr_step: int, last_step: bool = False) -> bool:
        """Save as torchtitan does, and tell the launch that this step is over."""
        saved = super().save(curr_step, last_step)
        progress.done(curr_step)
        return saved

    def _agreed(self, step: int) -> tuple[int, bool]:
        """What rank 0 finds, or its refusal, on every rank."""
        answer: list[Any] = [None]
        if not dist.is_initialized() or dist.get_rank() == 0:
            try:
                answer = [self._choose(step)]
            except CheckpointError as error:
                answer = [str(error)]
        if dist.is_initialized():
            dist.broadcast_object_list(answer)
        if isinstance(answer[0], str):
            raise CheckpointError(answer[0])
        return answer[0]

    def _choose(self, step: int) -> tuple[int, bool]:
        """(step to load, or -1; whether it knows the tokens of all ranks)."""
        found = whole(self.folder, step)
        if found is None:
            if self.initial_load_path and (Path(self.initial_load_path) / METADATA).is_file():
                self._fits(Path(self.initial_load_path), model_only=self.initial_load_model_only)
            return -1, False
        if not (found.path / METADATA).exists():
            return found.step, False
        if not self.load_only:
            free_after(self.folder, found)
        return found.step, self._fits(found.path, model_only=found.step == 0)

    def _fits(self, path: Path, *, model_only: bool) -> bool:
        """Whether the checkpoint, which fits, knows the tokens of all ranks."""
        if problem := problem_of(path):
            raise CheckpointError(f"{path} is not whole: {problem}")
        saved = read_metadata(path).state_dict_metadata
        sizes = degrees(self.plan)
        data_ranks = sizes["dp_replicate"] * sizes["dp_shard"]
        others = () if model_only else [name for name in OTHERS if name not in self.exclude_from_loading]
        found = misfits(self.plan, saved, others=others, data_ranks=data_ranks)
        if found:
            reasons = "".join(f"\n  {reason}" for reason in found)
            raise CheckpointError(f"{path} does not fit `{self.plan.model}` under this spec:{reasons}")
        return f"{TRAIN_STATE}.{TOTAL}" in saved


#: Tokens of all ranks together, beside torchtitan's count of one rank.
TOTAL = "ntokens_total"


@dataclass(kw_only=True)
class Counted(Stateful):
    """A trainer's state whose count of tokens holds for any number of ranks.

    Args:
        shares: ranks that count different tokens.
        known: whether the count of all ranks is in the checkpoint that is read or written.
    """

    trainer: Any
    shares: int
    known: bool = True

    def state_dict(self) -> dict[str, Any]:
        """torchtitan's own, and the tokens of all ranks."""
        state = self.trainer.state_dict()
        return {**state, TOTAL: state["ntokens_seen"] * self.shares} if self.known else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """torchtitan's own, with this rank's share of the tokens."""
        state = dict(state_dict)
        total = state.pop(TOTAL, None)
        if total is not None:
            state["ntokens_seen"] = total // self.shares
        self.trainer.load_state_dict(state)


def shares(plan: Plan) -> int:
    """Ranks that count different tokens: those of the data axes, and of the sequence's."""
    sizes = degrees(plan)
    return sizes["dp_replicate"] * sizes["dp_shard"] * sizes["cp"]


def whole(folder: str, step: int = -1) -> Saved | None:
    """The checkpoint to resume from; None begins anew.

    Raises:
        CheckpointError: the one asked for is not whole, or those that are there are all damaged.
    """
    if step != -1:
        path = Path(folder) / f"step-{step}"
        if not path.is_dir():
            there = ", ".join(f"step-{each}" for each, _ in steps(folder)) or "none"
            raise CheckpointError(f"there is no {path}; checkpoints there: {there}")
        if problem := problem_of(path):
            raise CheckpointError(f"{path} is asked for, and it is not whole: {problem}")
        return Saved(step=step, path=path)
    found, skipped = latest(folder)
    for each in skipped:
        logger.warning("%s is skipped: %s", each.path, each.problem)
    damaged = [each for each in skipped if not each.begun]
    if damaged and found is None:
        raise CheckpointError(f"no checkpoint in {folder} is whole:{_listed(damaged)}")
    return found


def free_after(folder: str, found: Saved) -> None:
    """Nothing that was saved later would be overwritten.

    Raises:
        CheckpointError: later checkpoints are there.
    """
    later = [Saved(step=step, path=path, problem="it was saved later") for step, path in steps(folder)]
    later = [each for each in later if each.step > found.step and not each.begun]
    later = [Saved(step=each.step, path=each.path, problem=problem_of(each.path) or each.problem) for each in later]
    if later:
        raise CheckpointError(
            f"training on from {found.path} would overwrite:{_listed(later)}\n"
            "  move them away, or save elsewhere: --checkpoint.folder NEW --checkpoint.initial-load-path PATH"
        )


def _listed(saved: Sequence[Saved]) -> str:
    return "".join(f"\n  {each.path}: {each.problem}" for each in saved)


def checked(config: BaseCheckpointManager.Config, plan: Plan) -> BaseCheckpointManager.Config:
    """The config of torchtitan's manager, held against the plan; a recipe's own manager stays as it is."""
    if type(config) is not CheckpointManager.Config:
        return config
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return PlanCheckpoints.Config(**values, plan=plan)
