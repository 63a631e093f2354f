"""torchtitan's flags beside a spec: every spelling of one that the spec decides is held against it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from meshlang.compiler import Request, compile, load
from meshlang.diagnostics import Bag
from meshlang.plan.flags import flags_agree

EXAMPLES = Path(__file__).parents[2] / "examples"

CPU, CONTEXT, PIPELINE = "llama_tiny_cpu", "llama_tiny_context_parallel", "llama_tiny_pipeline"
RECOMPUTE = "llama_tiny_recompute"


@cache
def told(example: str, flags: str) -> str:
    """The findings on a command line beside an example's spec, one a line."""
    request, bag = Request.of(EXAMPLES / f"{example}.toml"), Bag()
    flags_agree(flags.split(), compile(request), load(request), bag)
    return "\n".join(each.message for each in bag)


@pytest.mark.parametrize(
    ("example", "flags", "wanted"),
    [
        (CPU, "--parallelism.tensor_parallel_degree 4", "2"),
        (CPU, "--parallelism.tensor-parallel-degree=4", "2"),
        (CPU, "--parallelism.expert_parallel_degree 2", "1"),
        (CPU, "--parallelism.fsdp_reshard_after_forward never", "default"),
        (CPU, "--parallelism.enable-sequence-parallel", "False"),
        (CPU, "activation-checkpoint:full", "none"),
        (RECOMPUTE, "--training.steps 3 activation_checkpoint:selective", "full"),
        (CPU, "--loss.global_vocab_size 100", "264"),
        (CPU, "--loss.loss-fn.global-vocab-size 100", "264"),
        (CPU, "--module meshlang_models.llama", "meshlang_models.llama:tiny"),
        (CPU, "--config=tiny", "meshlang_models.llama:tiny"),
        (CONTEXT, "--parallelism.context_parallel_load_balancer None", "headtail"),
        (PIPELINE, "--parallelism.pipeline_parallel_schedule GPipe", "1F1B"),
        (PIPELINE, "--parallelism.pipeline_parallel_schedule_csv order.csv", "None"),
        (PIPELINE, "--parallelism.pipeline_parallel_layers_per_stage 1", "None"),
        (PIPELINE, "--parallelism.module_fqns_per_model_part norm", "that of its stages"),
        (PIPELINE, "--parallelism.pipeline_parallel_microbatch_size 1", "2"),
    ],
)
def test_contradicting_flag_is_told(example: str, flags: str, wanted: str) -> None:
    """A flag that would make the run another one than the plan's is a finding with the spec's value."""
    assert told(example, flags).endswith(f"is asked for, and the spec makes it {wanted}")


@pytest.mark.parametrize(
    "flags",
    [
        "--training.steps 3 activation-checkpoint:none",
        "--parallelism.tensor_parallel_degree 2",
        "--parallelism.no-enable-sequence-parallel",
        "--parallelism.fsdp_reshard_after_forward=default",
        "--parallelism.pipeline_parallel_layers_per_stage 1",
        "--compile.enable --training.seq_len 256",
    ],
)
def test_agreeing_flag_is_silent(flags: str) -> None:
    """A flag that says what the spec says, or what no spec decides, is no finding."""
    assert not told(CPU, flags)


def test_check_of_types_is_refused_for_cut_streams() -> None:
    """torchtitan's checker is refused where an axis cuts the streams of block diffusion, and nowhere else."""
    flag = "--debug.spmd_typechecking"
    request, bag = Request.of(EXAMPLES / "block_diffusion_cpu.toml"), Bag()
    spec, plan = load(request), compile(request)
    flags_agree([flag], plan, spec, bag)
    (found,) = bag
    assert found.code == "types-unchecked"
    assert found.labels[0].span == spec.strategies[0].name.span
    flags_agree(["--debug.no-spmd-typechecking"], plan, spec, bag := Bag())
    assert not len(bag)
    assert not told(CPU, flag)


@pytest.mark.parametrize("flag", ["--training.no-disable-cuda-graphs", "--training.disable_cuda_graphs=False"])
def test_graphs_of_a_strategy_are_refused(flag: str) -> None:
    """A flag that captures graphs of what a strategy computes itself is shown beside the strategy's table."""
    request, bag = Request.of(EXAMPLES / f"{CONTEXT}.toml"), Bag()
    spec, plan = load(request), compile(request)
    flags_agree([flag], plan, spec, bag, installing=("ring_attention",))
    (found,) = bag
    assert found.message == "`training.disable_cuda_graphs` = False is asked for, and the spec makes it True"
    assert found.labels[0].span == spec.strategies[0].name.span
    flags_agree([flag], plan, spec, bag := Bag())
    assert not len(bag)
