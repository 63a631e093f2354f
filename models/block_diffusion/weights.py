"""The weights of a saved run, and the flavor that they are of.

Only files are read: no process group, no mesh. torch keeps its checkpoint format under
torch.distributed, which is why this file, and no other of the models, imports from there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from .model import FLAVORS, block_diffusion_config

#: Parts of a checkpoint that are no weights.
_OTHERS = ("optimizer.", "lr_scheduler.", "dataloader.", "train_state.")

#: What `CorruptedTextDataLoader` leaves for whoever decodes.
_FACTS = ("block_size", "objective")


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What is read of a checkpoint: its weights by name, and what its run knew of blocks, where it says so."""

    weights: Mapping[str, torch.Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


def find(path: str | Path) -> Path:
    """The checkpoint at a path: the path itself, or the last whole `step-N` in it.

    Raises:
        ValueError: there is none.
    """
    root = Path(path)
    if (root / ".metadata").is_file():
        return root
    steps = {int(found[1]): each for each in root.glob("step-*") if (found := re.fullmatch(r"step-(\d+)", each.name))}
    whole = [step for step, each in steps.items() if (each / ".metadata").is_file()]
    if not whole:
        raise ValueError(f"there is no whole checkpoint at {root}")
    return steps[max(whole)]


def read(path: str | Path) -> Saved:
    """The weights of a checkpoint of torchtitan's, whole, however many ranks wrote it."""
    reader = FileSystemReader(find(path))
    entries = reader.read_metadata().state_dict_metadata
    state: dict[str, Any] = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype)
        for key, entry in entries.items()
        if isinstance(entry, TensorStorageMetadata) and not key.startswith(_OTHERS)
    }
    weights = tuple(state)
    facts = {f"dataloader.{name}": name for name in _FACTS if f"dataloader.{name}" in entries}
    state |= dict.fromkeys(facts)
    with _alone():
        load(state, storage_reader=reader, no_dist=True)
    return Saved(
        weights={name: state[name] for name in weights}, facts={name: state[key] for key, name in facts.items()}
    )


def write(weights: Mapping[str, torch.Tensor], path: str | Path) -> None:
    """A checkpoint that holds these weights and nothing else."""
    with _alone():
        save(dict(weights), checkpoint_id=str(path), no_dist=True)


@contextmanager
def _alone() -> Iterator[None]:
    """torch warns of what `no_dist` asks for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def shapes(flavor: str) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter of a flavor."""
    with torch.device("meta"):
        model = block_diffusion_config(FLAVORS[flavor]).build()
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def flavor_of(weights: Mapping[str, torch.Tensor]) -> str:
    """The first flavor that has these parameters.

    Raises:
        ValueError: none has; with the first difference to the nearest.
    """
    here = {name: tuple(weight.shape) for name, weight in weights.items()}
    apart: dict[str, list[str]] = {}
    for flavor in FLAVORS:
        there = shapes(flavor)
        apart[flavor] = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
        if not apart[flavor]:
            return flavor
    nearest = min(apart, key=lambda flavor: len(apart[flavor]))
    name = apart[nearest][0]
    raise ValueError(
        f"these weights are of no flavor; the nearest, {nearest}, differs in {len(apart[nearest])} names: "
        f"{name} is {here.get(name, 'missing')} here and {shapes(nearest).get(name, 'missing')} there"
    )
