"""Functions that ranks run: a ring by itself, and a batch as torchtitan and as a plan prepare it."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
import torch.distributed as dist
from context_cases import packed
from meshlang_strategies.ring_attention_ops import RingAttend
from meshlang_strategies.ring_ops import Ring
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode
from torchtitan.trainer import Trainer

from meshlang.plan.ir import Plan
from meshlang.runtime.attention import dense_mask
from meshlang.runtime.trainer import PlanTrainer
from meshlang.testing import titan
from meshlang.testing.parity import Batch, share

BATCH, HEADS, KV_HEADS, HEAD_DIM = 2, 8, 2, 64


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensors made inside that are alive: the most at once, and the largest of them."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self.largest = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and count what it made."""
        made = func(*args, **(kwargs or {}))
        self._alive = {key: (ref, size) for key, (ref, size) in self._alive.items() if not ref.expired()}
        for tensor in _tensors(made):
            storage = tensor.untyped_storage()
            self._alive.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
            self.largest = max(self.largest, storage.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return made


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


class CausalMask:
    """A mask as a ring reads it; holds nothing of a sequence's length."""

    shape = (1, 1)

    @staticmethod
    def mask_mod(b: Any, h: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Whether position q sees position k."""
        return q >= k


def rank_ring_memory(tokens: int) -> tuple[int, int]:
    """(peak of live bytes, bytes of the largest tensor) of a forward and backward with so many tokens a rank."""
    attend = RingAttend(ring=_ring(), balance="head_tail", arguments=("q", "k", "v"), ports=("q", "k", "v"))
    q, k, v = (torch.randn(BATCH, tokens, heads, HEAD_DIM, requires_grad=True) for heads in (HEADS, KV_HEADS, KV_HEADS))
    with LiveBytes() as live:
        attend(q, k, v, attention_masks=CausalMask()).sum().backward()
    return live.peak, live.largest


def _ring() -> Ring:
    assert dist.group.WORLD is not None
    return Ring.of(dist.group.WORLD)


def rank_ring_adjoint(tokens: int, balance: str) -> float:
    """The error of the ring's gradients against finite differences of a random direction, in float64."""
    torch.manual_seed(dist.get_rank())
    attend = RingAttend(ring=_ring(), balance=balance, arguments=("q", "k", "v"), ports=("q", "k", "v"))
    inputs = [
        torch.randn(BATCH, tokens, heads, 4, dtype=torch.float64, requires_grad=True)
        for heads in (4, KV_HEADS, KV_HEADS)
    ]
    weights = torch.randn(BATCH, tokens, 4, 4, dtype=torch.float64)
    steps = [torch.randn_like(x) for x in inputs]

    def value(scale: float) -> torch.Tensor:
        moved = [x + scale * step for x, step in zip(inputs, steps, strict=True)]
        return (attend(*moved, attention_masks=CausalMask()) * weights).sum()

    value(0.0).backward()
    slope = torch.stack([(x.grad * step).sum() for x, step in zip(inputs, steps, strict=True)]).sum()
    with torch.no_grad():
        rise = (value(1e-5) - value(-1e-5)) / 2e-5
    both = torch.stack([slope, rise])
    dist.all_reduce(both)
    return float((both[0] - both[1]).abs() / both[1].abs())


def rank_blind_queries() -> bool:
    """Queries that see no key give zeros, and no gradient that is not a number."""

    class Blind(CausalMask):
        @staticmethod
        def mask_mod(b: Any, h: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return (q >= k) & (q % 2 == 1)

    attend = RingAttend(ring=_ring(), balance="none", arguments=("q", "k", "v"), ports=("q", "k", "v"))
    q, k, v = (torch.randn(1, 6, 2, 4, requires_grad=True) for _ in range(3))
    out = attend(q, k, v, attention_masks=Blind())
    out.sum().backward()
    grads = [x.grad for x in (q, k, v)]
    return bool((out[:, ::2] == 0).all()) and all(g is not None and bool(g.isfinite().all()) for g in grads)


def rank_refusals() -> list[str]:
    """What a ring says to a mask that is none, and to a score_mod."""
    attend = RingAttend(ring=_ring(), balance="none", arguments=("q", "k", "v"), ports=("q", "k", "v"))
    x = torch.randn(1, 2, 1, 4)
    mask = create_block_mask(CausalMask.mask_mod, 1, None, 4, 4, device="cpu")
    heads = create_block_mask(CausalMask.mask_mod, 1, 2, 4, 4, device="cpu")
    asked: list[dict[str, Any]] = [
        {},
        {"attention_masks": heads},
        {"attention_masks": mask, "score_mod": lambda score, *_: score},
    ]
    said = []
    for options in asked:
        try:
            attend(x, x, x, **options)
        except NotImplementedError as error:
            said.append(str(error))
    return said


def rank_batches_agree(recipe: str, plan: Plan) -> bool:
    """torchtitan's Trainer and ours give a rank the same tokens, labels, positions and mask, and count them alike."""
    config = titan.laid_out(titan.config_of(recipe, plan), plan)
    assert type(config) is Trainer.Config
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    parallel_dims = titan.parallel_dims_of(config, plan)
    model = titan.build(config, plan, parallel_dims)
    mine = share(packed(plan, titan.vocabulary(config)), plan, dist.get_rank())
    theirs = _trained_on(Trainer, config, model, parallel_dims, mine)
    ours = _trained_on(PlanTrainer, PlanTrainer.Config(**values, plan=plan), model, parallel_dims, mine)
    return all(torch.equal(a, b) for a, b in zip(theirs, ours, strict=True))


def _trained_on(kind: type[Trainer], config: Any, model: Any, parallel_dims: Any, batch: Batch) -> list[torch.Tensor]:
    """All that a Trainer would train on, of a Trainer that has no more than it needs for that."""
    trainer: Any = object.__new__(kind)
    values = {"config": config, "model_config": config.model_spec.model, "parallel_dims": parallel_dims}
    vars(trainer).update(values, model_parts=[model], device=torch.device("cpu"), ntokens_seen=0)
    inputs = {"input": batch.tokens, "positions": batch.positions}
    tokens, labels, extra = trainer.post_dataloading_process(inputs, batch.labels)
    assert set(extra) == {"positions", "attention_masks"}
    mask = dense_mask(extra["attention_masks"])
    return [tokens, labels, extra["positions"], mask, torch.tensor(trainer.ntokens_seen)]


def rank_typechecked_forward(recipe: str, plan: Plan) -> tuple[int, ...]:
    """The shape of the logits of a forward in which spmd_types checks the type of every value."""
    from torchtitan.distributed.utils import get_spmd_context

    config = titan.laid_out(titan.config_of(recipe, plan), plan)
    parallel_dims = titan.parallel_dims_of(config, plan)
    model = titan.build(config, plan, parallel_dims)
    mine = share(packed(plan, titan.vocabulary(config)), plan, dist.get_rank())
    inputs, _, extra = titan.model_inputs(config, model, mine, parallel_dims)
    with get_spmd_context(parallel_dims=parallel_dims, spmd_typechecking=True)():
        return tuple(model(inputs, **extra).shape)
