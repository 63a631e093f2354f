"""What torchtitan is told to run: the recipe that a spec names, with the plan in it.

`meshlang launch` writes a job, a small JSON file, and starts torchtitan's own entry point with
`--module meshlang.runtime.recipe --config planned`. So torchtitan reads its flags, builds its
Trainer and trains exactly as it always does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..plan.data import from_data

#: Where a worker finds its job.
JOB = "MESHLANG_JOB"


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a worker needs: `recipe` is "package.module:function", `plan` its JSON document."""

    recipe: str
    device: str | None
    plan: dict[str, Any]
    on_interrupt: str = "end"

    def write(self, path: Path) -> None:
        """Put it where `read` finds it."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str | Path) -> Job:
        """The job in a file."""
        return cls(**json.loads(Path(path).read_text()))


class RecipeError(Exception):
    """A recipe that cannot be used, with the reason."""


def no_module(name: str) -> str:
    """That there is no such module; and how it is found, where it lies in this folder, which commands do not search."""
    here = Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file()
    return f"there is no module `{name}`" + ("; it lies in this folder: set PYTHONPATH=." if here else "")


def recipe_function(name: str) -> Callable[[], Any]:
    """The function that "package.module:function" names.

    Raises:
        RecipeError: there is no such module or function. An error inside the module is not hidden.
    """
    module, colon, function = name.partition(":")
    if not colon:
        raise RecipeError(f"`{name}` is no recipe: package.module:function is expected")
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise RecipeError(no_module(error.name)) from error
        raise
    found = getattr(loaded, function, None) or _registered(module, function)
    if not callable(found):
        raise RecipeError(f"`{module}` has no function `{function}`")
    return found


def _registered(module: str, function: str) -> Any:
    """torchtitan keeps its recipes in a `config_registry` beside the model."""
    try:
        return getattr(import_module(f"{module}.config_registry"), function, None)
    except ModuleNotFoundError:
        return None


def planned() -> Any:
    """The recipe's config with the plan in it, fit for this machine's device."""
    job = Job.read(os.environ[JOB])
    from .device import config_for_cpu, prepare

    device = prepare(job.device)
    from .init import same_on_any_mesh
    from .titan import apply

    config = apply(recipe_function(job.recipe)(), from_data(job.plan))
    return same_on_any_mesh(config_for_cpu(config)) if device == "cpu" else config
