"""`meshlang launch`: checks, then torchrun with torchtitan's own Trainer, one process a rank."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..compiler import Request, load, plan_of, resolved_of
from ..diagnostics import Bag, Diagnostic, Label
from ..language.spec import Spec
from ..plan.data import to_data
from ..plan.flags import flags_agree, override_flags
from ..plan.ir import Plan
from .recipe import JOB, Job


def launch(asked: Request, *, flags: Sequence[str] = (), device: str | None = None) -> int:
    """Train as a spec says; the exit code of the run.

    Args:
        flags: torchtitan's own; they win over `[launch] set`.
        device: "cpu" or "cuda"; None takes cuda where there is one.

    Raises:
        SpecError: the spec has findings, names no recipe, or a flag says otherwise than the spec.
    """
    spec = load(asked)
    plan = plan_of(spec, resolved_of(spec, asked), launch=True)
    recipe = _recipe(spec)
    bag = Bag()
    flags_agree(flags, plan, spec, bag)
    bag.check()
    every = (*override_flags(spec.launch.overrides if spec.launch is not None else {}), *flags)
    if flags and (code := _try_flags(recipe, every)):
        return code
    with tempfile.TemporaryDirectory(prefix="meshlang-") as folder:
        path = Path(folder) / "job.json"
        Job(recipe=recipe, device=device, plan=to_data(plan)).write(path)
        return _run(plan, path, every)


def _recipe(spec: Spec) -> str:
    if spec.launch is not None and spec.launch.recipe is not None:
        return spec.launch.recipe.value
    bag = Bag()
    bag.add(
        Diagnostic(
            code="no-recipe",
            message="nothing says what to train: [launch] names no recipe",
            label=Label(span=spec.launch.span if spec.launch is not None else spec.model.span),
            notes=("a recipe is a function that returns torchtitan's config", 'recipe = "meshlang_models.llama:tiny"'),
        )
    )
    bag.check()
    raise AssertionError


def _try_flags(recipe: str, flags: Sequence[str]) -> int:
    """torchtitan reads the flags once here, so that a wrong one is told once, and not by every rank."""
    from torchtitan.config import ConfigManager

    from .recipe import RecipeError, recipe_function

    try:
        recipe_function(recipe)
    except RecipeError as error:
        print(f"meshlang: {error}", file=sys.stderr)
        return 2
    module, _, function = recipe.partition(":")
    try:
        ConfigManager().parse_args(["--module", module, "--config", function, *flags])
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2
    return 0


def _last_pipeline_rank(plan: Plan) -> int:
    """The first rank at the end of the pipeline's axis."""
    axes = plan.axes_of("pipeline")
    return plan.mesh.rank({axis: plan.mesh.size(axis) - 1 if axis in axes else 0 for axis in plan.mesh.names})


def _run(plan: Plan, job: Path, flags: Sequence[str]) -> int:
    """torchrun on this machine; its exit code, or 130 after Ctrl-C."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={plan.ranks}",
        "--local-ranks-filter=0",
        "--role=rank",
        "--tee=3",
        "-m",
        "meshlang.runtime.worker",
        *flags,
    ]
    axes = " x ".join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes)
    print(f"meshlang: {plan.model} on {plan.ranks} ranks, {axes}", flush=True)
    environment = {**os.environ, JOB: str(job)}
    environment.setdefault("OMP_NUM_THREADS", "1")
    if plan.stages:
        # torchtitan warns unless the last stage's rank is logged too; here every rank has its loss
        environment.setdefault("LOG_RANK", str(_last_pipeline_rank(plan)))
    process = subprocess.Popen(command, env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # Ctrl-C reaches torchrun too, which ends its ranks: wait for it.
            continue
