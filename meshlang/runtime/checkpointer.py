"""torchtitan's checkpoints, resumed under any plan; and only if they are whole and fit.

Saving and loading are torchtitan's. Before it loads, rank 0 looks for the last whole checkpoint and
holds it against the plan, so that nothing is lost and nothing half-written is read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import torch.distributed as dist
import tyro
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.stateful import Stateful
from torchtitan.components.checkpointer.base import TRAIN_STATE, BaseCheckpointManager
from torchtitan.components.checkpointer.dcp import CheckpointManager
from torchtitan.tools import filesystem

from ..plan.ir import Plan
from . import progress
from .checkpoints import CheckpointError, latest
from .interrupt import stopped
from .parallel import degrees
from .resume import resumed, wish
from .stopping import Stopping


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
        self.ends_for = 0
        self.trainer = options["states"].get(TRAIN_STATE)
        super().__init__(config, **options)
        if self.enable:
            self.wish = wish(config, str(self.folder))
            self.counted = Counted(trainer=self.trainer, shares=shares(self.plan))
            self.stopping = Stopping.of_launch()
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
            path = f"{self.folder}/step-{chosen}" if chosen != -1 else self.wish.initial
            with told_once("checkpoint-damaged", f"{path} cannot be read", lambda: (AWAY,)):
                loaded = super().load(chosen)
        self.counted_on(loaded)
        return loaded

    def counted_on(self, loaded: bool) -> None:
        """From now on tokens are saved for all ranks; the launch hears where the run begins."""
        if self.enable:
            self.counted.known = True
        progress.done(getattr(self.trainer, "step", 0) if loaded else 0)

    def save(self, curr_step: int, last_step: bool = False) -> bool:
        """Save as torchtitan does, and tell the launch that this step is over.

        Where all ranks agree that the run shall end here, the step is saved whole, and is the trainer's last.
        """
        if self.enable and self.stopping is not None and not last_step:
            self.ends_for = self.stopping.agreed()
        where = self.folder if self.enable else ""
        with told_once("checkpoint-folder", f"step {curr_step} cannot be saved in {where}", lambda: left(where)):
            saved = super().save(curr_step, last_step)
        progress.done(curr_step)
        if self.ends_for:
            self._stop(curr_step)
        return saved

    def _should_save(self, curr_step: int, last_step: bool = False) -> bool:
        return bool(self.ends_for) or super()._should_save(curr_step, last_step)

    def _stop(self, step: int) -> None:
        """The trainer ends as it does after its last step."""
        self.maybe_wait_for_staging()
        self.maybe_wait_for_saving()
        assert self.trainer is not None
        self.trainer.should_continue_training = lambda: False
        if (here := progress.folder()) is not None:
            stopped(here, self.ends_for, step)

    def _agreed(self, step: int) -> tuple[int, bool]:
        """What rank 0 finds, or its refusal, on every rank."""
        answer: list[Any] = [None]
        if not dist.is_initialized() or dist.get_rank() == 0:
            try:
                answer = [self._choose(step)]
            except CheckpointError as error:
                answer = [error.args_of()]
        if dist.is_initialized():
            dist.broadcast_object_list(answer)
        if isinstance(answer[0], dict):
            raise CheckpointError(**answer[0])
        return answer[0]

    def _choose(self, step: int) -> tuple[int, bool]:
        """(step to load, or -1; whether it knows the tokens of all ranks)."""
        found = resumed(replace(self.wish, step=step), self.plan)
        return found.step, f"{TRAIN_STATE}.{TOTAL}" in found.names


def left(folder: str) -> Sequence[str]:
    """After a save that failed: the room that is left in a folder, and what there is to go on from."""
    if filesystem.is_remote(folder):
        return ()
    found, _ = latest(folder)
    room = f"{shutil.disk_usage(folder).free:,} bytes are free there"
    return (room, *(() if found is None else (f"last whole checkpoint: {found.path}",)))


#: After a checkpoint that cannot be read.
AWAY = "once it is moved away, a run goes on from the whole one before it, where there is one"


@contextmanager
def told_once(code: str, message: str, notes: Callable[[], Sequence[str]]) -> Iterator[None]:
    """What torch raises where ranks cannot read or write a checkpoint, on every rank, as one finding with one reason.

    Args:
        notes: what helps then.

    Raises:
        CheckpointError: for torch's, which is no `Exception`.
    """
    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = min(error.failures.items(), key=lambda failure: failure[0])
        reason = f"rank {rank}: {type(cause).__name__}: {cause}".partition("\n")[0]
        raise CheckpointError(code, f"{message}; {reason}", notes()) from error


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


def checked(config: BaseCheckpointManager.Config, plan: Plan) -> BaseCheckpointManager.Config:
    """The config of torchtitan's manager, held against the plan; a recipe's own manager stays as it is."""
    if type(config) is not CheckpointManager.Config:
        return config
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return PlanCheckpoints.Config(**values, plan=plan)
