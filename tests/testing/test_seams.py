"""The private names of torch that testing leans on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import meshlang.testing
from meshlang.testing import seams
from meshlang.testing.seams import SEAMS, SeamMovedError, seam

FOLDER = Path(meshlang.testing.__file__).parent

#: The recorder of collectives, that of memory and the pool of ranks ask torch's dispatcher and backends directly.
APART = {"collectives.py", "memory.py", "ranks.py"}


@pytest.mark.parametrize("name", sorted(SEAMS))
def test_torch_still_has_the_name(name: str) -> None:
    """Torch keeps each private name where `seams.SEAMS` says; if not, that table is to be mended."""
    try:
        assert seam(name) is not None
    except SeamMovedError as error:
        pytest.fail(f"TORCH MOVED A PRIVATE NAME: {error}")


def test_local_tensors_hold_parts() -> None:
    """A LocalTensor holds its ranks' tensors by rank."""
    with meshlang.testing.local_ranks(2) as local:
        made = local.tensor(lambda rank: torch.tensor(float(rank)))
        assert {rank: part.item() for rank, part in seams.parts(made).items()} == {0: 0.0, 1: 1.0}


def test_strided_shards_have_a_split_factor() -> None:
    """A strided shard carries the parts that were cut before it, a plain one none."""
    from torch.distributed.tensor import Shard

    assert seams.split_factor(seam("StridedShard")(0, split_factor=4)) == 4
    assert seams.split_factor(Shard(0)) == 1


def test_a_moved_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that torch lacks is an error with torch's version and the file to mend."""
    monkeypatch.setitem(SEAMS, "FakeStore", "torch.testing:_no_such_name")
    with pytest.raises(SeamMovedError, match=rf"torch {torch.__version__.partition('+')[0]}.*mend .*seams\.py"):
        seam("FakeStore")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_private_names_are_in_one_file(path: Path) -> None:
    """No other file of testing imports a private name of torch."""
    if path.name in APART:
        return
    found = [
        f"{node.lineno}: {node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.partition(".")[0] == "torch"
        for alias in node.names
        if any(part.startswith("_") for part in (*node.module.split("."), alias.name))
    ]
    assert found == []
