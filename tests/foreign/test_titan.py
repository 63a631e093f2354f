"""torchtitan's flags as specs: the plan of the spec has the degrees of the flags, and agrees with every one."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from click.testing import CliRunner, Result
from torchtitan.config import ParallelismConfig
from torchtitan.distributed.pipeline_parallel import (
    _generate_llm_fqn_per_model_part as deal,  # pyright: ignore[reportPrivateUsage]
)
from torchtitan.trainer import Trainer

from meshlang.cli import main
from meshlang.compiler import Request, check, compile, load
from meshlang.diagnostics import Bag
from meshlang.foreign.titan_flags import DEFAULTS, SWITCHES, VALUES
from meshlang.format import formatted
from meshlang.plan.flags import decided, flags_agree, read_flags
from meshlang.plan.launchable import parts
from meshlang.source import Source

P = "--parallelism."

CASES = {
    "fsdp": f"{P}data_parallel_shard_degree 8 --training.local_batch_size 1",
    "all that is left": "--training.global_batch_size 8",
    "ddp": f"{P}data_parallel_replicate_degree 8 {P}data_parallel_shard_degree 1",
    "hsdp": f"{P}data_parallel_replicate_degree 2 {P}data_parallel_shard_degree 4 --training.local_batch_size 2",
    "hsdp, rest": f"{P}data_parallel_replicate_degree 2 --training.global_batch_size 16",
    "tp and sp": f"{P}data_parallel_shard_degree 4 {P}tensor_parallel_degree 2 --training.seq_len 256",
    "tp": f"{P}data_parallel_shard_degree=4 {P}tensor_parallel_degree=2 {P}no-enable-sequence-parallel",
    "tp alone": f"{P}data-parallel-shard-degree 1 {P}tensor-parallel-degree 2",
    "cp": f"{P}data_parallel_shard_degree 4 {P}context_parallel_degree 2 --training.seq_len 256",
    "cp, not balanced": f"{P}data_parallel_shard_degree 4 {P}context_parallel_degree 2 "
    f"{P}context_parallel_load_balancer None --training.seq_len 256",
    "cp and sp": f"{P}data_parallel_shard_degree 2 {P}context_parallel_degree 2 {P}tensor_parallel_degree 2 "
    "--training.seq_len 256 --training.local_batch_size 2 --training.global_batch_size 8",
    "pp": f"{P}data_parallel_shard_degree 4 {P}pipeline_parallel_degree 2 --training.local_batch_size 4",
    "pp, many stages": f"{P}data_parallel_shard_degree 2 {P}pipeline_parallel_degree 2 --training.local_batch_size 8 "
    f"{P}pipeline_parallel_schedule interleaved1f1b {P}pipeline_parallel_microbatch_size 2",
    "pp and all": f"{P}data_parallel_shard_degree 1 {P}pipeline_parallel_degree 2 {P}tensor_parallel_degree 2 "
    f"{P}pipeline_parallel_schedule GPipe --training.local_batch_size 4 {P}context_parallel_degree 2 "
    "--training.seq_len 256",
    "kept": f"{P}data_parallel_shard_degree 8 {P}fsdp_reshard_after_forward never",
    "freed": f"{P}data_parallel_shard_degree 8 {P}fsdp_reshard_after_forward always",
    "precision": f"{P}data_parallel_shard_degree 8 --training.mixed_precision_param float32 --training.dtype float32",
    "one rank": f"{P}data_parallel_shard_degree 1",
}


def bring(flags: str, *words: str) -> Result:
    """`meshlang import --titan` for a small model."""
    line = ["import", "--titan", "--model", "llama/debug", *words, *shlex.split(flags)]
    return CliRunner().invoke(main, line, prog_name="meshlang", catch_exceptions=False)


def printed(flags: str) -> Source:
    """The spec that is printed, for 8 ranks where the flags leave it open."""
    result = bring(flags) if "shard" in flags else bring(flags, "--ranks", "8")
    assert result.exit_code == 0, result.output
    return Source(name="spec.toml", text=result.output)


@pytest.mark.parametrize("flags", CASES.values(), ids=CASES)
def test_plan_says_what_the_flags_say(flags: str) -> None:
    """Each flag is what the plan of the printed spec decides, degrees at their defaults too."""
    words = shlex.split(flags.replace("interleaved1f1b", "Interleaved1F1B"))
    given = {flag.name: flag.value for flag in read_flags(words)}
    open_ended = "parallelism.data_parallel_shard_degree" not in given
    request = Request(source=printed(flags), ranks=8 if open_ended else None, launch=True)
    assert check(request) == ()
    plan, spec, bag = compile(request), load(request), Bag()
    flags_agree(words, plan, spec, bag)
    assert list(bag) == []
    known = decided(plan, spec)
    for key in DEFAULTS:
        if key.endswith("_degree") and not (open_ended and "shard" in key):
            assert known[key][0] == given.get(key, DEFAULTS[key]), key


@pytest.mark.parametrize("flags", CASES.values(), ids=CASES)
def test_printed_specs_are_formatted(flags: str) -> None:
    """What is printed is as `meshlang fmt` writes it."""
    text = printed(flags).text
    assert formatted(text) == text


def test_defaults_are_those_of_torchtitan() -> None:
    """Every flag of torchtitan's ParallelismConfig is known here, at its default."""
    config = ParallelismConfig()
    assert {f"parallelism.{each.name}": str(getattr(config, each.name)) for each in fields(config)} == dict(DEFAULTS)


def test_flags_are_those_of_torchtitan() -> None:
    """In the sections that every recipe shares, switches and flags with a value are torchtitan's, all of them."""
    config = Trainer.Config()
    for section in sorted({name.partition(".")[0] for name in SWITCHES | VALUES if "." in name}):
        part = getattr(config, section)
        kinds = {f"{section}.{each.name}": get_type_hints(type(part))[each.name] for each in fields(part)}
        kinds.pop("profiler.trace_post_processor", None)  # a function, by a recipe only
        assert {name for name, kind in kinds.items() if kind is bool} == {
            n for n in SWITCHES if n.startswith(f"{section}.")
        }
        assert {name for name, kind in kinds.items() if kind is not bool} == {
            n for n in VALUES if n.startswith(f"{section}.")
        }


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--training.stpes 10", "`training.steps` is near"),
        ("--trainnig.steps 10", "`training.steps` is near"),
        ("--optimzer.lr 1", "`optimizer.lr` is near"),
        ("--xyz.abc 1", "torchtitan 0.3.0 has no flag `xyz.abc`"),
        ("--confg a", "`config` is near"),
        (f"{P}tensor_paralel_degree 2", "`parallelism.tensor_parallel_degree` is near"),
        (f"{P}tensor_parallel_degree", "`parallelism.tensor_parallel_degree` takes a value, and has none"),
        ("--training.steps --compile.enable", "`training.steps` takes a value, and has none"),
        ("--training.no-steps", "`training.steps` takes a value, and has none"),
    ],
)
def test_flags_that_torchtitan_would_refuse_are_told(flags: str, told: str) -> None:
    """A flag that torchtitan lacks, or one without its value, is a finding at its place, with a near name."""
    result = bring(flags, "--ranks", "8")
    assert result.exit_code == 1
    assert "error[not-expressible]" in result.output
    assert told in result.output


@pytest.mark.parametrize(("stages", "first", "last"), [(2, 1, 1), (4, 1, 1), (3, 2, 1), (4, 1, 2)])
def test_layers_are_dealt_as_torchtitan_deals_them(stages: int, first: int, last: int) -> None:
    """The stages of the printed split hold the modules that torchtitan's own function gives them."""
    flags = f"{P}data_parallel_shard_degree 1 {P}pipeline_parallel_degree {stages} --training.local_batch_size 8 "
    flags += f"{P}pipeline_parallel_first_stage_less_layers {first} {P}pipeline_parallel_last_stage_less_layers {last}"
    plan = compile(Request(source=Source(name="spec.toml", text=bring(flags).output)))
    assert [list(stage.modules) for stage in plan.stages] == deal(stages, 6, first, last)


def test_other_flags_go_to_the_launch() -> None:
    """Flags beside parallelism are `[launch] set`, at the type that they spell, and the recipe is named."""
    flags = "--module llama3 --config llama3_debugmodel --training.steps 10 --optimizer.lr 3e-4 --compile.enable "
    flags += "--loss.b nan"
    launch = load(Request(source=Source(name="s", text=bring(flags).output))).launch
    assert launch is not None
    assert launch.recipe is not None
    assert launch.recipe.value == "torchtitan.models.llama3:llama3_debugmodel"
    values = {key: written.value for key, written in launch.overrides.items()}
    assert values == {"training.steps": 10, "optimizer.lr": 3e-4, "compile.enable": True, "loss.b": "nan"}


@pytest.mark.parametrize(
    "flags",
    [
        f"{P}expert_parallel_degree 2",
        f"{P}enable_fsdp_symm_mem",
        f"{P}spmd_backend full_dtensor",
        f"{P}context_parallel_load_balancer ptrr",
        f"{P}pipeline_parallel_schedule_csv a.csv",
        f"{P}module_fqns_per_model_part [[1]]",
        f"{P}fsdp_reshard_after_forward sometimes",
        f"{P}tensor_parallel_degree 0",
        f"{P}tensor_parallel_degree x",
        f"{P}data_parallel_shard_degree -2",
        f"{P}not_yet 1",
        "activation_checkpoint:selective",
        f"{P}data_parallel_shard_degree 2 {P}pipeline_parallel_degree 2 {P}pipeline_parallel_schedule Other "
        "--training.local_batch_size 4",
        f"{P}data_parallel_shard_degree 1 {P}pipeline_parallel_degree 2 {P}pipeline_parallel_layers_per_stage 2 "
        "--training.local_batch_size 4",
        f"{P}data_parallel_shard_degree 1 {P}pipeline_parallel_degree 2",
        "--training.local_batch_size 2",
    ],
)
def test_what_no_spec_says_is_named(flags: str) -> None:
    """A flag that no spec can express is refused by its name, and nothing else is printed."""
    result = bring(flags, "--format", "json")
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert [each["code"] for each in found] == ["not-expressible"]
    names = [flag.name for flag in read_flags(shlex.split(flags))]
    assert any(name.rpartition(".")[2] in found[0]["message"] for name in names)


@pytest.mark.parametrize("flags", ["--loss.b 1 2", "word"])
def test_no_word_is_passed_over(flags: str) -> None:
    """A second value of one flag, or a word without a flag, is refused."""
    result = bring(flags)
    assert result.exit_code == 1
    assert "is a flag's second value, or stands alone" in result.output


def test_a_degree_that_the_model_refuses_is_told() -> None:
    """Where the spec itself has findings, they are printed: 3 ranks do not divide the heads."""
    result = bring(f"{P}data_parallel_shard_degree 1 {P}tensor_parallel_degree 3 {P}no-enable-sequence-parallel")
    assert result.exit_code == 1
    assert "error[uneven-shard]" in result.output


@pytest.mark.parametrize("words", [["import"], ["import", "--titan"], ["import", "--titan", "--model"]])
def test_what_to_read_is_said(words: list[str]) -> None:
    """Without what to read, or for which model, it is wrong usage."""
    assert CliRunner().invoke(main, words).exit_code == 2


def test_an_unknown_model_is_a_finding() -> None:
    """A card that is not installed is the finding that a spec with it would have."""
    line = ["import", "--titan", "--model", "lama/tiny"]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 1
    assert "error[unknown-model]" in result.output


def test_example_of_the_page() -> None:
    """The spec of the page on `not-expressible` is what the other flags come to."""
    page = (Path(__file__).parents[2] / "meshlang" / "explain" / "not-expressible.md").read_text()
    line = ["import", "--titan", "--model", "llama/tiny", f"{P}tensor_parallel_degree", "2"]
    assert CliRunner().invoke(main, line).output in page


def test_parts_are_the_flags_axes() -> None:
    """HSDP's axes are torchtitan's two data axes."""
    plan = compile(Request(source=Source(name="s", text=bring(CASES["hsdp"]).output)))
    assert {name: axes for name, axes in parts(plan).items() if axes} == {
        "dp_replicate": ("copies",),
        "dp_shard": ("dp",),
    }
