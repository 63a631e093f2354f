"""What one rank finds, kept in files."""

from pathlib import Path

from meshlang.plan.ir import Plan
from meshlang.testing.ranks import RankPool


class References:
    """Files with the loss and gradients of one rank, each made once."""

    def __init__(self, ranks: RankPool, folder: Path) -> None:
        self._ranks = ranks
        self._folder = folder
        self._made: dict[tuple[object, ...], str] = {}

    def path(self, target: str, plan: Plan, *args: str) -> str:
        """The file that `target(*args, plan, path)` writes for plans of this model, size and precision."""
        key = (target, args, plan.model, plan.sizes, plan.precision)
        if key not in self._made:
            path = str(self._folder / f"{len(self._made)}.pt")
            self._ranks.run(target, *args, plan, path, ranks=1)
            self._made[key] = path
        return self._made[key]
