"""torchtitan's flags, as `launch` hands them on: those that a spec decides may not say otherwise."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..diagnostics import Bag, Diagnostic, Label
from ..language.spec import Spec, Written
from ..source import Source, Span
from .ir import Plan
from .launchable import cuts_sequence, parts, schedule_name


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One `--section.key value` as given; a bare flag is `True`, and `False` behind `no-`."""

    name: str
    value: str
    span: Span


def override_flags(overrides: Mapping[str, Written[Any]]) -> tuple[str, ...]:
    """`[launch] set` as torchtitan's flags: `{"training.steps": 10}` -> `--training.steps 10`."""
    found: list[str] = []
    for key, written in overrides.items():
        value = written.value
        if isinstance(value, bool):
            head, dot, last = key.rpartition(".")
            found.append(f"--{key}" if value else f"--{head}{dot}no-{last}")
            continue
        words = value if isinstance(value, (list, tuple)) else (value,)
        found += [f"--{key}", *map(str, words)]
    return tuple(found)


#: How torchtitan's command line chooses a kind of activation checkpointing.
_POLICY = re.compile(r"activation[-_]checkpoint:(\S+)")


def read_flags(flags: Sequence[str]) -> tuple[Flag, ...]:
    """The flags of a command line, with the place of each in it."""
    source = Source(name="flags", text=shlex.join(flags))
    found, place = [], 0
    for index, word in enumerate(flags):
        text = shlex.quote(word)
        span = source.span(place, place + len(text))
        place += len(text) + 1
        if chosen := _POLICY.fullmatch(word):
            found.append(Flag(name="activation_checkpoint", value=chosen.group(1), span=span))
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        following = flags[index + 1] if index + 1 < len(flags) else "--"
        given = value if equals else "True" if following.startswith("--") else following
        section, dot, last = name.replace("-", "_").rpartition(".")
        name, given = (last[3:], "False") if last.startswith("no_") else (last, given)
        found.append(Flag(name=f"{section}{dot}{name}", value=given, span=span))
    return tuple(found)


def decided(plan: Plan, spec: Spec) -> dict[str, tuple[str, Span]]:
    """torchtitan's keys that the spec decides -> (value, where the spec says it)."""
    mesh = spec.mesh_span
    sizes = {name: plan.mesh.product(axes) for name, axes in parts(plan).items()}
    found = {key: (str(sizes[axis]), mesh) for key, axis in _DEGREES.items()}
    found |= {key: (value, mesh) for key, value in _run_as_planned(plan).items()}
    found["parallelism.fsdp_reshard_after_forward"] = (reshard(plan), spec.store.span if spec.store else mesh)
    found["activation_checkpoint"] = (policy(plan), spec.recompute.key if spec.recompute else spec.model.span)
    found |= {key: (str(written.value), written.span) for key, written in _run(spec)}
    found |= _recipe(spec) | _stages(plan, spec) | _vocabulary(plan, spec)
    if plan.sizes.batch is not None and spec.sizes is not None and spec.sizes.batch is not None:
        local = plan.sizes.batch // (sizes["dp_replicate"] * sizes["dp_shard"] * plan.sizes.accumulation)
        found["training.local_batch_size"] = (str(local), spec.sizes.batch.span)
        found |= _microbatch(plan, spec, local)
    return found


def _run_as_planned(plan: Plan) -> dict[str, str]:
    """Keys that would make the run another one than the plan's, or that it would not follow."""
    found = {
        "parallelism.spmd_backend": "spmd_types",
        "parallelism.expert_parallel_degree": "1",
        "parallelism.enable_sequence_parallel": str(cuts_sequence(plan)),
    }
    if parts(plan)["cp"]:
        balances = any(("balance", "head_tail") in use.options for use in plan.strategies)
        found["parallelism.context_parallel_load_balancer"] = "headtail" if balances else "None"
    return found


def reshard(plan: Plan) -> Literal["default", "always", "never"]:
    """torchtitan's word for when units are freed; the plan's units themselves say more."""
    after = {unit.after_forward for unit in plan.units}
    if after == {"free"}:
        return "always"
    return "never" if after == {"keep"} else "default"


def policy(plan: Plan) -> str:
    """torchtitan's word for how activations are recomputed."""
    return "full" if plan.recompute else "none"


def policy_disagrees(asked: str, plan: Plan, spec: Spec) -> Diagnostic | None:
    """A finding where the recipe asks for recomputation that the spec does not speak of; one that is silent may be."""
    if asked in ("none", policy(plan)):
        return None
    span = spec.launch.recipe.span if spec.launch is not None and spec.launch.recipe is not None else spec.model.span
    value, where = decided(plan, spec)["activation_checkpoint"]
    return Diagnostic(
        code="flag-disagrees",
        message=f"the recipe recomputes activations, `activation_checkpoint` = {asked}, and the spec makes it {value}",
        label=Label(span=span),
        labels=(Label(span=where, text=f"activation_checkpoint = {value} follows from here"),),
        notes=(
            "`[recompute]` names the modules whose forward runs again: the plan then lists what they send again",
            f"or choose the spec's: `activation_checkpoint:{value}` behind all other flags",
        ),
    )


def _vocabulary(plan: Plan, spec: Spec) -> dict[str, tuple[str, Span]]:
    """The loss is told the whole vocabulary's size, also the loss inside another."""
    if plan.loss is None:
        return {}
    size = str(plan.loss.shape[plan.loss.vocab])
    return dict.fromkeys(("loss.global_vocab_size", "loss.loss_fn.global_vocab_size"), (size, spec.model.span))


def _recipe(spec: Spec) -> dict[str, tuple[str, Span]]:
    """torchtitan's two words for a recipe: any value would take the place of the plan's."""
    recipe = spec.launch.recipe if spec.launch is not None else None
    return {} if recipe is None else dict.fromkeys(("module", "config"), (recipe.value, recipe.span))


def _stages(plan: Plan, spec: Spec) -> dict[str, tuple[str, Span]]:
    """What says which modules each stage has, and in which order it runs them."""
    if spec.pipeline is None or plan.pipeline is None or not plan.stages:
        return {}
    name, span = spec.pipeline.schedule.name, spec.pipeline.span
    return {
        "parallelism.pipeline_parallel_schedule": (str(schedule_name(plan)), name.span),
        "parallelism.pipeline_parallel_schedule_csv": ("None", name.span),
        "parallelism.pipeline_parallel_layers_per_stage": ("None", span),
        "parallelism.module_fqns_per_model_part": ("that of its stages", span),
    }


def _microbatch(plan: Plan, spec: Spec, local: int) -> dict[str, tuple[str, Span]]:
    """The sequences of a microbatch."""
    written = spec.pipeline.microbatches if spec.pipeline is not None else None
    if written is None or not plan.stages:
        return {}
    return {"parallelism.pipeline_parallel_microbatch_size": (str(local // written.value), written.span)}


_DEGREES = {
    "parallelism.data_parallel_replicate_degree": "dp_replicate",
    "parallelism.data_parallel_shard_degree": "dp_shard",
    "parallelism.context_parallel_degree": "cp",
    "parallelism.tensor_parallel_degree": "tp",
    "parallelism.pipeline_parallel_degree": "pp",
}


def _run(spec: Spec) -> Iterator[tuple[str, Written[Any]]]:
    pairs = {
        "training.dtype": spec.precision.state,
        "training.mixed_precision_param": spec.precision.compute,
        "training.mixed_precision_reduce": spec.precision.reduce,
    }
    if spec.sizes is not None:
        pairs |= {"training.global_batch_size": spec.sizes.batch, "training.seq_len": spec.sizes.seq}
    return ((key, written) for key, written in pairs.items() if written is not None)


def flags_agree(flags: Sequence[str], plan: Plan, spec: Spec, bag: Bag, *, installing: Collection[str] = ()) -> None:
    """A flag that says otherwise than the spec is a finding that shows both.

    Args:
        installing: strategies that put their own computation into the model, known once torch is loaded.
    """
    known = decided(plan, spec) | _uncaptured(spec, installing) | _streams(plan, spec)
    given = [*read_flags(flags), *written_flags(spec)]
    for flag in given:
        if flag.name not in known or flag.value == known[flag.name][0]:
            continue
        if flag.name == BACKEND and flag.value in _OTHER_BACKENDS:
            bag.add(_refused(flag))
            continue
        if flag.name == CHECKER:
            bag.add(_unchecked(flag.span, known[CHECKER][1], plan, "drop the flag"))
            continue
        value, span = known[flag.name]
        bag.add(
            Diagnostic(
                code="flag-disagrees",
                message=f"`{flag.name}` = {flag.value} is asked for, and the spec makes it {value}",
                label=Label(span=flag.span),
                labels=(Label(span=span, text=f"{flag.name} = {value} follows from here"),),
                notes=("change the spec, or drop the flag",),
            )
        )


def _uncaptured(spec: Spec, installing: Collection[str]) -> dict[str, tuple[str, Span]]:
    """No CUDA graph is captured of what a strategy computes itself."""
    first = next((table.name.span for table in spec.strategies if table.name.value in installing), None)
    return {} if first is None else {"training.disable_cuda_graphs": ("True", first)}


CHECKER = "debug.spmd_typechecking"


def _streams(plan: Plan, spec: Spec) -> dict[str, tuple[str, Span]]:
    """Two streams that an axis cuts are no values that torchtitan's checker of types follows."""
    if plan.block is None or plan.block.size == 1:
        return {}
    axis = plan.block.axis
    used = next(use.name for use in plan.strategies if use.axis == axis)
    return {CHECKER: ("False", next(table.name.span for table in spec.strategies if table.name.value == used))}


def checker_disagrees(asked: bool, plan: Plan, spec: Spec) -> Diagnostic | None:
    """A finding where the recipe itself, its flags read, asks for the check of types, and an axis cuts two streams."""
    streams = _streams(plan, spec)
    if not asked or not streams:
        return None
    span = spec.launch.recipe.span if spec.launch is not None and spec.launch.recipe is not None else spec.model.span
    mending = "`--debug.no-spmd_typechecking` turns the recipe's off"
    return _unchecked(span, streams[CHECKER][1], plan, mending)


def _unchecked(asked: Span, strategy: Span, plan: Plan, mending: str) -> Diagnostic:
    assert plan.block is not None
    return Diagnostic(
        code="types-unchecked",
        message=f"torchtitan's check of types is asked for, and `{plan.block.axis}` cuts two streams in one tensor",
        label=Label(span=asked),
        labels=(Label(span=strategy, text=f"they are cut over {plan.block.size} ranks here"),),
        notes=(
            "spmd_types has no rule for `cat` along a dim that an axis cuts: of parts it is not a part of the whole",
            f"{mending}: tests hold loss, gradients and collectives of these plans to those of one rank",
        ),
    )


BACKEND = "parallelism.spmd_backend"

#: torchtitan's other backends -> why a plan does not run on them.
_OTHER_BACKENDS = {
    "full_dtensor": (
        "`full_dtensor` stands still where a sequence axis and a tensor axis meet, and where pipeline and "
        "sequence axes do it trains on with wrong gradients and no error",
        "torchtitan has dropped it since",
    ),
    "partial_dtensor": (
        "under `partial_dtensor` collectives are put in where DTensor finds that placements differ: "
        "they could not be held against the plan's",
    ),
}


def _refused(flag: Flag) -> Diagnostic:
    return Diagnostic(
        code="backend-refused",
        message=f"torchtitan's backend `{flag.value}` is asked for, and plans run on `spmd_types` only",
        label=Label(span=flag.span),
        notes=_OTHER_BACKENDS[flag.value],
    )


def written_flags(spec: Spec) -> Iterator[Flag]:
    """The keys of `[launch] set`, at their values."""
    for key, written in (spec.launch.overrides if spec.launch is not None else {}).items():
        yield Flag(name=key.replace("-", "_"), value=str(written.value), span=written.span)
