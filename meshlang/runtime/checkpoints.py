"""The checkpoints of a folder: which are whole, and whether one fits a plan.

torchtitan writes `step-N/`, torch's distributed checkpoint: one file a rank, and `.metadata`, which
is written last and says where each tensor lies. Nothing here writes or deletes anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..fold import told
from ..plan.ir import Plan
from .metadata import METADATA, StrangerError, read_metadata

#: Written by a last save in Hugging Face's format, which says nothing of parts.
SAFETENSORS = "model.safetensors.index.json"

#: What torchtitan saves beside the model.
OTHERS = ("optimizer", "lr_scheduler", "dataloader", "train_state")


class CheckpointError(Exception):
    """A checkpoint that cannot be resumed from, with every reason.

    Attributes:
        code: of the finding that it is; `message` and `notes` say the rest.
        key: torchtitan's flag that chose the checkpoint, without its dashes.
    """

    def __init__(self, code: str, message: str, notes: Sequence[str] = (), *, key: str = "checkpoint.folder") -> None:
        super().__init__("\n  ".join((f"error[{code}]: {message}", *notes)))
        self.code = code
        self.message = message
        self.notes = tuple(notes)
        self.key = key

    def args_of(self) -> dict[str, Any]:
        """What it was made of: `CheckpointError(**error.args_of())` is equal to it on another rank."""
        return {"code": self.code, "message": self.message, "notes": self.notes, "key": self.key}


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One `step-N` folder; `problem` says why it is not whole, "" when it is."""

    step: int
    path: Path
    problem: str = ""

    @property
    def begun(self) -> bool:
        """Saving it was never finished, so that it holds nothing that a later save could lose."""
        return not (self.path / METADATA).exists()


def steps(folder: str | Path) -> Iterator[tuple[int, Path]]:
    """(step, path) of each folder `step-N`, the latest first."""
    found = Path(folder).glob("step-*")
    numbers = ((re.fullmatch(r"step-(\d+)", path.name), path) for path in found if path.is_dir())
    return iter(sorted(((int(match[1]), path) for match, path in numbers if match), reverse=True))


def latest(folder: str | Path) -> tuple[Saved | None, tuple[Saved, ...]]:
    """(the last whole checkpoint, later ones that are not whole)."""
    skipped = []
    for step, path in steps(folder):
        saved = Saved(step=step, path=path, problem=problem_of(path))
        if not saved.problem:
            return saved, tuple(skipped)
        skipped.append(saved)
    return None, tuple(skipped)


def problem_of(path: Path) -> str:
    """Why a checkpoint is not whole, or ""."""
    if not (path / METADATA).is_file():
        return "" if (path / SAFETENSORS).is_file() else "saving it was not finished: it has no .metadata"
    try:
        metadata = read_metadata(path)
    except StrangerError as error:
        return f"its .metadata would call `{error}`, which no checkpoint needs; it is not read"
    except Exception as error:  # whatever a damaged pickle raises
        return f"its .metadata cannot be read ({type(error).__name__})"
    sizes: dict[str, int] = {}
    for part in (metadata.storage_data or {}).values():
        sizes[part.relative_path] = max(sizes.get(part.relative_path, 0), part.offset + part.length)
    for name, size in sorted(sizes.items()):
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size < size:
            return f"{name} has {file.stat().st_size:,} of {size:,} bytes"
    return ""


def misfits(plan: Plan, saved: Mapping[str, Any], *, others: Sequence[str], data_ranks: int) -> list[str]:
    """Each reason why a run under the plan cannot go on from what is saved.

    Args:
        saved: the names in a checkpoint; a tensor's value has its `size`.
        others: what is to be loaded beside the model, of `OTHERS`.
        data_ranks: ranks that read different data.
    """
    shapes = {name: tuple(value.size) for name, value in saved.items() if hasattr(value, "size")}
    have = {name: shape for name, shape in shapes.items() if name.partition(".")[0] not in OTHERS}
    want = {name: tensor.shape for tensor in plan.tensors for name in (tensor.fqn, *tensor.tied)}
    needed = [tensor.fqn for tensor in plan.tensors if tensor.kind == "parameter"]
    found = [
        *_told("the checkpoint lacks", [name for name in needed if name not in have], needed),
        *_told("the model has no", [name for name in have if name not in want], [*have]),
        *_shapes({name: (have[name], want[name]) for name in want if name in have and have[name] != want[name]}),
    ]
    there = {name.partition(".")[0] for name in saved}
    if lacking := [other for other in others if other not in there]:
        found.append(
            f"it has no {', '.join(lacking)}: the last save of a run holds only the model, unless "
            "--checkpoint.no-last-save-model-only is set; --checkpoint.initial-load-path starts a new run from it, "
            "in another --checkpoint.folder"
        )
    positions = {name for name in saved if name.startswith("dataloader.dp_rank_")}
    if "dataloader" in others and positions and len(positions) != data_ranks:
        found.append(
            f"the loader saved a position for each of {len(positions)} data ranks, and this run has {data_ranks}; "
            "--checkpoint.exclude-from-loading dataloader starts the data anew"
        )
    return found


def changed(kept: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """Each thing that the data is made by, and that a run may not change that goes on.

    Args:
        kept: name -> what it is now. saved: "dataloader.NAME" -> what it was; what was not saved is not held.
    """
    pairs = ((name, saved[f"dataloader.{name}"], now) for name, now in kept.items() if f"dataloader.{name}" in saved)
    return [
        f"the data was made with {name} = {before}, and is made with {now} here: its samples would be others; "
        "--checkpoint.exclude-from-loading dataloader starts the data anew"
        for name, before, now in pairs
        if before != now
    ]


def _told(what: str, names: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    """A reason about tensors, those of equal layers as one."""
    if names:
        yield f"{what} {told(names, known)}"


def _shapes(differ: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> Iterator[str]:
    """Shapes that differ, tensors of the same two shapes together."""
    groups: dict[tuple[Sequence[int], Sequence[int]], list[str]] = {}
    for name, pair in differ.items():
        groups.setdefault(pair, []).append(name)
    for (saved, here), names in groups.items():
        sizes = f"{' x '.join(map(str, saved))} in the checkpoint and {' x '.join(map(str, here))} here"
        yield f"shapes differ: {told(names, [*differ])} is {sizes}"
