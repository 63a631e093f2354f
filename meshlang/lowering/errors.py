"""What goes wrong when a plan meets a real model."""

from __future__ import annotations

from collections.abc import Sequence


class LoweringError(ValueError):
    """The plan and the model, or the plan and torch, do not fit; every misfit is listed."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"the plan does not fit:{lines}")
