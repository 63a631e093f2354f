"""Attention of one subsequence to all tokens before it, over a pipeline of subsequences.

Each subsequence of a sequence has an autograd graph of its own. What links them is a store of keys
and values: the forward of a subsequence writes its own and looks at all until there; its backward
adds to the gradients of all until there, and takes its own. So forwards run in the order of
subsequences, backwards against it, as TeraPipe (arXiv 2102.07988, section 3.2) and Seq1F1B (arXiv
2406.03488, section 3.2) have it.

Shapes: B sequences, T tokens of one subsequence, S tokens of all until its end, K key heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention.flex_attention import create_block_mask

from ..plan.ir import Plan


@dataclass(frozen=True, slots=True)
class Piece:
    """One subsequence: tokens `start` to `stop` of the `whole` of a sequence, the `index`-th of `count`."""

    sequence: int
    index: int
    count: int
    start: int
    stop: int
    whole: int


@dataclass
class Now:
    """Which subsequence is computed on at the moment; what runs the stages says it before each operation.

    Activation checkpointing runs a forward again inside a backward, which is then of the same piece.
    """

    piece: Piece | None = None
    rows: WeakKeyDictionary[Any, dict[Piece, Any]] = field(default_factory=WeakKeyDictionary)

    def get(self) -> Piece:
        """The piece; attention is only ever called while there is one."""
        assert self.piece is not None, "attention of a pipeline of subsequences was called outside of a stage"
        return self.piece

    def rows_of(self, mask: Any) -> Any:
        """The mask of the piece's queries; made once for all layers that share the mask."""
        piece, memo = self.get(), self.rows.setdefault(mask, {})
        if piece not in memo:
            memo[piece] = part_of_mask(mask, piece)
        return memo[piece]


@dataclass(kw_only=True)
class Kept:
    """Keys and values of one sequence in one layer, and the gradients that later subsequences gave them.

    Written pieces stay as they are until all of the sequence is done: writing one again, as activation
    checkpointing does, changes nothing.
    """

    kv: tuple[torch.Tensor, torch.Tensor]
    grads: tuple[torch.Tensor, torch.Tensor] | None = None
    written: set[int] = field(default_factory=set)
    back: int | None = None
    done: set[int] = field(default_factory=set)

    def put(self, piece: Piece, own: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Keys and values until the end of the piece, with its own among them: leaves that ask for gradients."""
        if piece.index not in self.written:
            before = len(self.written)
            assert piece.index == before, f"subsequence {piece.index} came forward after {before} others"
            for place, new in zip(self.kv, own, strict=True):
                place.data[:, piece.start : piece.stop] = new.detach()
            self.written.add(piece.index)
        # `data` has a version count of its own: later pieces are written behind what this one looks at
        return tuple(place.data[:, : piece.stop] for place in self.kv)

    def take(self, piece: Piece, more: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Add this piece's terms of the gradients until its end, and give those of its own tokens, all summed."""
        following = piece.count - 1 if self.back is None else self.back - 1
        assert piece.index == following, f"subsequence {piece.index} came back when {following} was to come"
        self.back = piece.index
        if self.grads is None:
            wide = torch.promote_types(self.kv[0].dtype, torch.float32)
            k, v = (torch.zeros(each.shape, dtype=wide, device=each.device) for each in self.kv)
            self.grads = (k, v)
        own = []
        for total, term in zip(self.grads, more, strict=True):
            total[:, : piece.stop] += term
            own.append(total[:, piece.start : piece.stop].to(self.kv[0].dtype))
        return own


@dataclass
class Store:
    """What one attention module keeps: an entry for each sequence that is under way."""

    kept: dict[int, Kept] = field(default_factory=dict)

    def of(self, piece: Piece, own: tuple[torch.Tensor, torch.Tensor]) -> Kept:
        """The entry of a sequence, with room for all its tokens; made when its first piece comes."""
        if piece.sequence not in self.kept:
            k, v = (each.new_zeros((each.shape[0], piece.whole, *each.shape[2:])) for each in own)
            self.kept[piece.sequence] = Kept(kv=(k.detach(), v.detach()))
        return self.kept[piece.sequence]

    def done(self, piece: Piece) -> None:
        """All that the piece's layer had to compute is computed; after the last piece the entry goes."""
        kept = self.kept.get(piece.sequence)
        if kept is None:
            return
        kept.done.add(piece.index)
        if len(kept.done) == piece.count:
            del self.kept[piece.sequence]


@dataclass(kw_only=True)
class Carrying:
    """In place of the forward of an attention module: the same arguments, of one subsequence.

    What computes is the module's own forward, with more keys than queries and the rows of the mask
    that are this subsequence's. The mask is the whole sequence's, so documents that are packed into
    it stay apart.

    Args:
        forward: the module's own. arguments: the names of its arguments.
        ports: those of queries, keys and values, each (B, T, heads, head dim).
    """

    forward: Callable[..., torch.Tensor]
    arguments: tuple[str, ...]
    ports: tuple[str, str, str]
    now: Now
    store: Store = field(default_factory=Store)

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Attention of this subsequence's queries to all keys until its end."""
        piece = self.now.get()
        given = dict(zip(self.arguments, args, strict=False)) | kwargs
        q, k, v = (given.pop(port) for port in self.ports)
        mask = given.pop("attention_masks", None)
        if not hasattr(mask, "mask_mod"):
            raise NotImplementedError(f"a pipeline of subsequences needs a block mask, and gets {type(mask).__name__}")
        rows = self.now.rows_of(mask)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return self.forward(**dict(zip(self.ports, (q, k, v), strict=True)), attention_masks=rows, **given)

        kept = self.store.of(piece, (k, v))
        return _Carry.apply(q, k, v, kept, piece, attend, torch.is_grad_enabled())


def part_of_mask(mask: Any, piece: Piece) -> Any:
    """A block mask of the piece's queries and all keys until its end, told in positions of the whole sequence."""
    inner = mask.mask_mod

    def part(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return inner(b, h, q + piece.start, k)

    batch, heads = mask.shape[:2]
    size = mask.BLOCK_SIZE
    device = mask.kv_num_blocks.device
    return create_block_mask(part, batch, heads, piece.stop - piece.start, piece.stop, device=device, BLOCK_SIZE=size)


class _Carry(torch.autograd.Function):
    """q, k and v of one subsequence -> its output; keys and values before it come from the store.

    What attention saves is kept here, also inside a checkpointed module, which keeps the queries and keys anyway:
    its backward is a backward of its own, and torch would run the module's forward again for each of them.
    """

    @staticmethod
    def forward(ctx, q, k, v, kept, piece, attend, keep):
        keys, values = kept.put(piece, (k, v))
        if not keep:
            return attend(q, keys, values)
        leaves = tuple(each.detach().requires_grad_() for each in (q, keys, values))
        with torch.enable_grad(), saved_tensors_hooks(torch.Tensor.detach, _itself):
            out = attend(*leaves)
        ctx.kept, ctx.piece, ctx.leaves, ctx.out = kept, piece, leaves, out
        return out.detach()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        dq, dk, dv = torch.autograd.grad(ctx.out, ctx.leaves, grad)
        ctx.leaves = ctx.out = None
        return dq, *ctx.kept.take(ctx.piece, (dk, dv)), None, None, None, None


def _itself(saved: torch.Tensor) -> torch.Tensor:
    return saved


def install(plan: Plan, model: nn.Module, now: Now) -> tuple[Carrying, ...]:
    """Each module of a stage that looks over whole sequences gets a store: what was installed."""
    return tuple(carry(model.get_submodule(name), ports, now) for name, ports in looking(plan).items())


def carry(module: nn.Module, ports: tuple[str, str, str], now: Now) -> Carrying:
    """The module looks at the keys and values of earlier subsequences too."""
    arguments = tuple(signature(type(module).forward).parameters)[1:]
    carrying = Carrying(forward=module.forward, arguments=arguments, ports=ports, now=now)
    module.forward = carrying
    return carrying


def looking(plan: Plan) -> dict[str, tuple[str, str, str]]:
    """Modules that look over whole sequences -> their arguments of queries, keys and values."""
    found = {}
    for module in dict.fromkeys(edge.module for edge in plan.edges if "seq" in edge.whole):
        inputs = [edge for edge in plan.edges if edge.module == module and edge.port != "output"]
        words = [edge.port.removeprefix("input.") for edge in inputs if ("seq",) in edge.names]
        whole = [edge.port.removeprefix("input.") for edge in inputs if "seq" in edge.whole]
        queries = [word for word in words if word not in whole]
        assert len(queries) == 1, (module, words)
        assert len(whole) == 2, (module, whole)
        found[module] = (queries[0], whole[0], whole[1])
    return found
