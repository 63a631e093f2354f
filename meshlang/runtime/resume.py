"""Which checkpoint a run goes on from, or why it cannot: asked by the launch, and by rank 0 again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..plan.ir import Plan
from ..plan.launchable import parts
from .checkpoints import OTHERS, CheckpointError, Saved, changed, latest, misfits, problem_of, steps
from .metadata import METADATA, read_metadata, values

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What torchtitan's flags ask for.

    Attributes:
        step: of the checkpoint to load; -1 for the last.
        initial: the path that a run without checkpoints of its own begins from, "" for none.
        exclude: what is not loaded beside the model.
        load_only: the run saves nothing.
        kept: what the run's data is made by and its checkpoints hold, by name; see `kept_of`.
    """

    folder: str
    step: int = -1
    initial: str = ""
    initial_model_only: bool = True
    exclude: tuple[str, ...] = ()
    load_only: bool = False
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The step that is loaded, -1 for none of the run's own; the names that it holds."""

    step: int = -1
    names: Collection[str] = ()


def kept_of(dataloader: Any) -> Mapping[str, Any]:
    """What a data loader's config says that no run may change that goes on: its `kept`, where it has one.

    A loader saves each of them under its name; so a sample is the same before and after.
    """
    kept: Callable[[], Mapping[str, Any]] | None = getattr(dataloader, "kept", None)
    return kept() if kept is not None else {}


def wish(config: Any, folder: str, kept: Mapping[str, Any] | None = None) -> Wish:
    """The wish of a config of torchtitan's checkpoint manager, whose checkpoints are in `folder`."""
    return Wish(
        folder=folder,
        step=config.load_step,
        initial=config.initial_load_path or "",
        initial_model_only=config.initial_load_model_only,
        exclude=tuple(config.exclude_from_loading),
        load_only=config.load_only,
        kept=kept or {},
    )


def resumed(wish: Wish, plan: Plan) -> Resumed:
    """The checkpoint that a run under the plan goes on from.

    Raises:
        CheckpointError: it does not fit the plan, or is not whole, or later ones would be overwritten.
    """
    found = whole(wish.folder, wish.step)
    if found is None:
        if wish.initial and (Path(wish.initial) / METADATA).is_file():
            key = "checkpoint.initial_load_path"
            _names(Path(wish.initial), plan, wish, model_only=wish.initial_model_only, key=key)
        return Resumed()
    if not (found.path / METADATA).exists():
        return Resumed(step=found.step)
    if not wish.load_only:
        free_after(wish.folder, found)
    key = "checkpoint.folder" if wish.step == -1 else "checkpoint.load_step"
    return Resumed(step=found.step, names=_names(found.path, plan, wish, model_only=found.step == 0, key=key))


def _names(path: Path, plan: Plan, wish: Wish, *, model_only: bool, key: str) -> Collection[str]:
    """The names in a checkpoint that fits."""
    if problem := problem_of(path):
        raise CheckpointError("checkpoint-damaged", f"{path} is not whole: {problem}", key=key)
    account = read_metadata(path)
    saved = account.state_dict_metadata
    data = parts(plan)
    data_ranks = plan.mesh.product((*data["dp_replicate"], *data["dp_shard"]))
    others = () if model_only else [name for name in OTHERS if name not in wish.exclude]
    found = misfits(plan, saved, others=others, data_ranks=data_ranks)
    if "dataloader" in others:
        found += changed(wish.kept, values(path, account, [f"dataloader.{name}" for name in wish.kept]))
    if found:
        message = f"{path} does not fit `{plan.model}` under this spec"
        raise CheckpointError("checkpoint-misfit", message, found, key=key)
    return saved.keys()


def whole(folder: str, step: int = -1) -> Saved | None:
    """The checkpoint to resume from; None begins anew.

    Raises:
        CheckpointError: the one asked for is not whole, or those that are there are all damaged.
    """
    if step != -1:
        return _of_step(folder, step)
    found, skipped = latest(folder)
    for each in skipped:
        logger.warning("%s is skipped: %s", each.path, each.problem)
    damaged = [each for each in skipped if not each.begun]
    if damaged and found is None:
        raise CheckpointError("checkpoint-damaged", f"no checkpoint in {folder} is whole", _listed(damaged))
    return found


def _of_step(folder: str, step: int) -> Saved:
    path, key = Path(folder) / f"step-{step}", "checkpoint.load_step"
    if not path.is_dir():
        there = ", ".join(f"step-{each}" for each, _ in steps(folder)) or "none"
        raise CheckpointError("checkpoint-missing", f"there is no {path}", (f"checkpoints there: {there}",), key=key)
    if problem := problem_of(path):
        message = f"{path} is asked for, and it is not whole: {problem}"
        raise CheckpointError("checkpoint-damaged", message, key=key)
    return Saved(step=step, path=path)


def free_after(folder: str, found: Saved) -> None:
    """Nothing that was saved later would be overwritten.

    Raises:
        CheckpointError: later checkpoints are there.
    """
    later = [Saved(step=step, path=path, problem="it was saved later") for step, path in steps(folder)]
    later = [each for each in later if each.step > found.step and not each.begun]
    later = [Saved(step=each.step, path=each.path, problem=problem_of(each.path) or each.problem) for each in later]
    if later:
        away = "move them away, or save elsewhere: --checkpoint.folder NEW --checkpoint.initial-load-path PATH"
        message = f"training on from {found.path} would overwrite what was saved later"
        raise CheckpointError("checkpoint-later", message, (*_listed(later), away), key="checkpoint.load_step")


def _listed(saved: Sequence[Saved]) -> list[str]:
    return [f"{each.path}: {each.problem}" for each in saved]
