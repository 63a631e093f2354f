"""A plan laid over a torchtitan config."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.trainer import Trainer

from meshlang.compiler import Request, compile
from meshlang.lowering.errors import LoweringError
from meshlang.plan.ir import Plan
from meshlang.runtime.device import prepare
from meshlang.runtime.parallel import PlanParallelize
from meshlang.runtime.titan import apply
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

SPEC = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:tensor_parallel", "preset:sequence_parallel"]
[mesh]
copies = 2
dp = 3
tp = 4
[topology]
order = ["copies", "dp", "tp"]
[sizes]
batch = 24
seq = 128
accumulation = 2
[precision]
compute = "float32"
[place]
batch = ["copies", "dp"]
[store]
over = ["dp"]
"""


@pytest.fixture(scope="module")
def make_plan() -> Callable[..., Plan]:
    """SPEC, with replacements -> its plan."""

    def make(*changes: tuple[str, str]) -> Plan:
        text = SPEC
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        return compile(Request(source=Source(name="spec.toml", text=text)))

    return make


@pytest.fixture
def recipe() -> Trainer.Config:
    """The small Llama's recipe."""
    prepare("cpu")
    from meshlang_models.llama import tiny

    return tiny()


def test_degrees_are_the_mesh(make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """Stored data axes shard, the others replicate, tensor axes are tp; sequence parallelism is seen."""
    found = apply(recipe, make_plan()).parallelism
    assert (found.data_parallel_replicate_degree, found.data_parallel_shard_degree) == (2, 3)
    assert (found.tensor_parallel_degree, found.context_parallel_degree) == (4, 1)
    assert (found.enable_sequence_parallel, found.spmd_backend) == (True, "spmd_types")


def test_sizes_are_the_plan_s(make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """The batch is shared out over data ranks and accumulation steps."""
    found = apply(recipe, make_plan()).training
    assert (found.global_batch_size, found.local_batch_size, found.seq_len) == (24, 2, 128)


def test_sizes_without_a_table_are_the_recipe_s(make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """A spec without sizes leaves those of the recipe."""
    plan = make_plan(("[sizes]\nbatch = 24\nseq = 128\naccumulation = 2\n", ""))
    found, before = apply(recipe, plan).training, recipe.training
    assert (found.global_batch_size, found.local_batch_size, found.seq_len) == (
        before.global_batch_size,
        before.local_batch_size,
        before.seq_len,
    )


def test_element_types_are_the_plan_s(make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """State, compute and reduce types go to their places."""
    plan = make_plan(('compute = "float32"', 'state = "bfloat16"\ncompute = "bfloat16"'))
    found = apply(recipe, plan).training
    assert (found.dtype, found.mixed_precision_param, found.mixed_precision_reduce) == (
        "bfloat16",
        "bfloat16",
        "float32",
    )


def test_model_is_parallelized_by_the_plan(make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """The model spec has the plan's function, and the recipe keeps its own."""
    plan = make_plan()
    found = apply(recipe, plan)
    assert found.model_spec is not None
    assert found.model_spec.parallelize_fn == PlanParallelize(plan=plan)
    assert recipe.model_spec is not None
    assert recipe.model_spec.parallelize_fn != found.model_spec.parallelize_fn
    assert recipe.parallelism.tensor_parallel_degree == 1


@pytest.mark.parametrize(
    ("words", "policy"),
    [("", "default"), ('\nafter_forward = "free"', "always"), ('\nafter_forward = "keep"', "never")],
)
def test_when_units_are_freed(words: str, policy: str, make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """torchtitan's policy word follows the units of the plan."""
    plan = make_plan(('over = ["dp"]', f'over = ["dp"]{words}'))
    assert apply(recipe, plan).parallelism.fsdp_reshard_after_forward == policy


def test_batch_must_divide(make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """A batch that does not share out evenly is refused, with the numbers."""
    plan = make_plan()
    with pytest.raises(LoweringError, match="a batch of 24 does not divide into 30 equal shares"):
        apply(recipe, replace(plan, sizes=replace(plan.sizes, accumulation=5)))


def test_recipe_without_a_model_is_refused(make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """There is nothing to parallelize."""
    recipe.model_spec = None
    with pytest.raises(LoweringError, match="no model spec"):
        apply(recipe, make_plan())


@pytest.mark.parametrize("inside", [False, True])
def test_loss_knows_the_whole_vocabulary(inside: bool, make_plan: Callable[..., Plan], recipe: Trainer.Config) -> None:
    """The vocabulary's size reaches the loss, also inside a chunked one; a size that is there stays."""
    plain = CrossEntropyLoss.Config()
    recipe.loss = ChunkedLossWrapper.Config(loss_fn=plain) if inside else plain
    found = apply(recipe, make_plan()).loss
    assert getattr(found, "loss_fn", found).global_vocab_size == 264  # pyright: ignore[reportAttributeAccessIssue]
    recipe.loss = CrossEntropyLoss.Config(global_vocab_size=300)
    assert apply(recipe, make_plan()).loss == recipe.loss
