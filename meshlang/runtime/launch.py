"""`meshlang launch`: checks, then torchrun with torchtitan's own Trainer, one process a rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler import Request, load, plan_of, resolved_of
from ..diagnostics import Bag, Diagnostic, Label, SpecError, counted
from ..garbage import uncollected
from ..language.spec import Spec
from ..plan.data import to_data
from ..plan.flags import (
    checker_disagrees,
    flags_agree,
    override_flags,
    policy_disagrees,
    read_flags,
    written_flags,
)
from ..plan.ir import Plan
from ..plan.recipes import recipe_disagrees
from .interrupt import ASKING, AT_ONCE, ask_and_say, asks
from .quiet import unheard
from .recipe import JOB, Job
from .torchrun import Torchrun

if TYPE_CHECKING:
    from torchtitan.trainer import Trainer

    from .checkpoints import CheckpointError


#: Shows that something takes long: (what, steps, the first of them).
Watched = Callable[[str, int, str], AbstractContextManager[object]]


def launch(
    asked: Request,
    *,
    flags: Sequence[str] = (),
    device: str | None = None,
    torchrun: Torchrun | None = None,
    watched: Watched = lambda *_: nullcontext(),
) -> int:
    """Train as a spec says; the exit code of the run.

    Args:
        flags: torchtitan's own; they win over `[launch] set`.
        device: "cpu" or "cuda"; None takes cuda where there is one.
        torchrun: its flags for several nodes, for restarts and for an interrupt.
        watched: is entered while the checkpoint is read that the run goes on from.

    Raises:
        TorchrunError: its flags do not go together, or not with the plan.
        SpecError: the spec has findings, names no recipe, or a flag says otherwise than the spec.
    """
    spec = load(asked)
    plan = plan_of(spec, resolved_of(spec, asked), launch=True)
    recipe = _recipe(spec)
    torchrun = torchrun or Torchrun()
    words = torchrun.words(plan.ranks)
    every = _agreed(flags, plan, spec)
    config = _config(recipe, every)
    if isinstance(config, int):
        return config
    if found := list(_disagrees(config, plan, spec)):
        raise SpecError(found)
    if torchrun.on_interrupt == "checkpoint" and not _keeps(config):
        return _say("--on-interrupt checkpoint: this run saves none; --checkpoint.enable after `--` does")
    ours = _checkpoints(config, plan, spec, flags, watched) if torchrun.first else nullcontext()
    with ours, tempfile.TemporaryDirectory(prefix="meshlang-") as folder:
        path = Path(folder) / "job.json"
        Job(recipe=recipe, device=device, plan=to_data(plan), on_interrupt=torchrun.on_interrupt).write(path)
        return _run(plan, path, words, every)


def _agreed(flags: Sequence[str], plan: Plan, spec: Spec) -> tuple[str, ...]:
    """The spec's flags and then these; none says otherwise than the spec, also where a strategy computes itself.

    Raises:
        SpecError: one does. What a strategy computes is known with torch.
    """
    with uncollected():
        from ..lowering.ops import installing

    bag = Bag()
    flags_agree(flags, plan, spec, bag, installing=installing(plan))
    bag.check()
    return (*override_flags(spec.launch.overrides if spec.launch is not None else {}), *flags)


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


def _config(recipe: str, flags: Sequence[str]) -> Trainer.Config | int:
    """The recipe's config under the flags, or the exit code of a launch that ends before it starts ranks.

    The recipe is called and torchtitan reads the flags once here, so that what is wrong with them
    is told once, and not by every rank. torchtitan's own help ends a launch too.
    """
    with uncollected():
        from torchtitan.config import ConfigManager
        from torchtitan.trainer import Trainer

    from .recipe import RecipeError, recipe_function
    from .resume import kept_of

    try:
        with unheard():
            config = recipe_function(recipe)()
    except RecipeError as error:
        return _say(str(error))
    except Exception as error:
        return _say(f"the recipe `{recipe}` fails: {type(error).__name__}: {error}")
    if not isinstance(config, Trainer.Config):
        return _say(f"the recipe `{recipe}` gives {type(config).__name__}, and torchtitan's Trainer.Config is expected")
    module, _, function = recipe.partition(":")
    name, sys.argv[0] = sys.argv[0], "meshlang launch SPEC --"  # in torchtitan's help
    try:
        with unheard():
            read = ConfigManager().parse_args(["--module", module, "--config", function, *flags])
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2
    finally:
        sys.argv[0] = name
    assert isinstance(read, Trainer.Config)
    try:
        kept_of(read.dataloader)
    except Exception as error:
        return _say(f"the data of `{recipe}`: {type(error).__name__}: {error}")
    return read


def _disagrees(config: Trainer.Config, plan: Plan, spec: Spec) -> Iterator[Diagnostic]:
    """What the recipe says otherwise than the spec, once its flags are read."""
    from .titan import policy_of

    if found := policy_disagrees(policy_of(config), plan, spec):
        yield found
    if found := checker_disagrees(config.debug.spmd_typechecking, plan, spec):
        yield found
    built = config.model_spec
    block_size = getattr(config.dataloader, "block_size", None)
    yield from recipe_disagrees(
        plan,
        spec,
        model=None if built is None else (built.name, built.flavor),
        block_size=block_size if isinstance(block_size, int) else None,
    )


@contextmanager
def _checkpoints(
    config: Trainer.Config, plan: Plan, spec: Spec, flags: Sequence[str], watched: Watched
) -> Iterator[None]:
    """The folder of checkpoints is this launch's; the one that the run would go on from is whole and fits the plan.

    Raises:
        SpecError: one of these does not hold; rank 0 would find the same of a checkpoint, once all ranks have started.
    """
    from torchtitan.components.checkpointer.dcp import CheckpointManager
    from torchtitan.tools import filesystem

    from .checkpoints import CheckpointError
    from .holding import held
    from .resume import resumed, wish

    asked = config.checkpoint
    folder = str(filesystem.join(config.dump_folder, asked.folder))
    if not asked.enable or type(asked) is not CheckpointManager.Config or filesystem.is_remote(folder):
        yield
        return
    with ExitStack() as stack:
        try:
            if not asked.load_only:
                stack.enter_context(held(folder))
            with watched("launch", 1, "the last checkpoint"):
                resumed(wish(asked, folder, _kept(config, plan)), plan)
        except CheckpointError as error:
            raise _finding(error, spec, flags) from error
        yield


def _kept(config: Trainer.Config, plan: Plan) -> Mapping[str, Any]:
    """What the run's data is made by; the length of its sequences too, which a loader may save."""
    from .resume import kept_of

    return {"seq_len": plan.sizes.seq or config.training.seq_len, **kept_of(config.dataloader)}


def _finding(error: CheckpointError, spec: Spec, flags: Sequence[str]) -> SpecError:
    """The same at the flag that chose the folder or the checkpoint, or at the recipe."""
    given = {flag.name: flag.span for flag in (*written_flags(spec), *read_flags(flags))}
    assert spec.launch is not None
    assert spec.launch.recipe is not None
    keys = (error.key, "checkpoint.folder", "dump_folder", "checkpoint.enable")
    span = next((given[key] for key in keys if key in given), spec.launch.recipe.span)
    return SpecError([Diagnostic(code=error.code, message=error.message, label=Label(span=span), notes=error.notes)])


def _keeps(config: Trainer.Config) -> bool:
    """Whether a run saves checkpoints, by the manager that a plan takes the place of."""
    from torchtitan.components.checkpointer.dcp import CheckpointManager

    asked = config.checkpoint
    return asked.enable and not asked.load_only and type(asked) is CheckpointManager.Config


def _say(message: str) -> int:
    print(f"meshlang: {message}", file=sys.stderr)
    return 2


def _last_pipeline_rank(plan: Plan) -> int:
    """The first rank at the end of the pipeline's axis."""
    axes = plan.axes_of("pipeline")
    return plan.mesh.rank({axis: plan.mesh.size(axis) - 1 if axis in axes else 0 for axis in plan.mesh.names})


def _run(plan: Plan, job: Path, words: Sequence[str], flags: Sequence[str]) -> int:
    """torchrun on this machine; its exit code, or 128 + n after signal n."""
    command = [
        sys.executable,
        "-u",  # ranks' lines come as they are written, into a file or a pipe too
        "-m",
        "meshlang.runtime.agent",
        *words,
        f"--log-dir={job.parent / 'logs'}",
        "--log-line-prefix-template=[rank${rank}]:",
        "--local-ranks-filter=0",
        "--role=rank",
        "--tee=3",
        "-m",
        "meshlang.runtime.worker",
        *flags,
    ]
    axes = " x ".join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes)
    print(f"meshlang: {plan.model} on {counted(plan.ranks, 'rank')}, {axes}", flush=True)
    environment = {**os.environ, JOB: str(job)}
    environment.setdefault("OMP_NUM_THREADS", "1")
    # else torch 2.14 gives a second attempt the store of the first, with addresses of ranks that have gone
    environment.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    if plan.stages:
        # torchtitan warns unless the last stage's rank is logged too; here every rank has its loss
        environment.setdefault("LOG_RANK", str(_last_pipeline_rank(plan)))
    return _wait(command, environment, job.parent if asks(words) else None)


def _wait(command: Sequence[str], environment: dict[str, str], asked: Path | None) -> int:
    """The exit code of a command in a session of its own; a signal for this process ends it too.

    Args:
        asked: the folder of a run that a first signal only asks to end.
    """
    heard: list[int] = []
    process: list[subprocess.Popen[bytes]] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)
        if asked is not None and number in ASKING and len(heard) == 1:
            ask_and_say(asked, number)
            return
        for each in process:
            each.send_signal(number if asked is None else AT_ONCE)

    every = _ENDING if asked is None else {*_ENDING, *ASKING}
    listened = [number for number in every if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)]
    before = {number: signal.signal(number, hear) for number in listened}  # nohup stays nohup
    try:
        process.append(subprocess.Popen(command, env=environment, start_new_session=True))
        if heard and asked is None:
            process[0].send_signal(heard[0])
        code = process[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    ended = heard and (asked is None or code < 0)
    return 128 + heard[0] if ended else code


#: Signals after which torchrun ends its ranks, and then itself.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
