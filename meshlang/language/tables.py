"""Every table and key of the language. The one place that says which keys there are."""

from __future__ import annotations

from .shape import (
    Anything,
    Axes,
    AxisSize,
    Bytes,
    Choice,
    Flags,
    Function,
    Glob,
    Key,
    Kind,
    ListOf,
    Names,
    Real,
    Rows,
    Schedule,
    Strategies,
    Table,
    Text,
    Version,
    Whole,
)
from .spec import DTYPE_BYTES

_COUNT = Whole(least=1)
_DTYPE = Choice(tuple(DTYPE_BYTES))

SIZES = Table(
    keys={
        "batch": Key(shape=_COUNT, says="sequences a step, over all ranks"),
        "seq": Key(shape=_COUNT, says="tokens a sequence"),
        "accumulation": Key(shape=_COUNT, says="forward and backward passes a step"),
    }
)

PRECISION = Table(
    keys={
        "state": Key(shape=_DTYPE, says="parameters, gradients and optimizer state at rest"),
        "compute": Key(shape=_DTYPE, says="weights and activations in forward and backward"),
        "reduce": Key(shape=_DTYPE, says="gradients while they are summed over the data axes"),
    }
)

TOPOLOGY = Table(
    keys={
        "order": Key(shape=Names(), says="axes, outermost first"),
        "ranks_per_node": Key(shape=_COUNT, says="ranks that share one node"),
        "inside_node": Key(shape=Names(), says="axes whose ranks share a node"),
        "on": Key(shape=Table(free=Anything()), says="machine name -> tables that `--on` lays over the spec"),
    }
)

MESH = Table(free=AxisSize(), least="axis")

PLACE = Table(free=Axes())

WITHIN = Table(free=Table(free=Axes(), least="dimension"), globs=True)

AT = Table(
    free=Table(
        keys={"why": Key(shape=Text(), says="the reason of the exception", required=True)},
        free=Axes(),
        least="dimension",
    ),
    globs=True,
)

STORE = Table(
    keys={
        "over": Key(shape=Names(), says="axes that also cut parameters at rest", required=True),
        "after_forward": Key(
            shape=Choice(("free", "keep")),
            says="what becomes of gathered weights between forward and backward",
        ),
        "except": Key(shape=ListOf(Glob()), says="patterns of what is not cut at rest"),
    }
)

RECOMPUTE = Table(
    keys={
        "modules": Key(
            shape=ListOf(Glob()),
            says="patterns of modules whose forward runs again in the backward",
            required=True,
        ),
    }
)

PIPELINE = Table(
    keys={
        "schedule": Key(shape=Text(), says="name of a schedule plugin", required=True),
        "microbatches": Key(shape=_COUNT, says="slices of the batch"),
        "subsequences": Key(shape=_COUNT, says="slices of a sequence"),
        "chunks": Key(shape=_COUNT, says="stages per rank and direction"),
        "split": Key(shape=Text(), says='layers of each stage, as in "embed + 1 | 2 | 2 | 1 + norm + head"'),
    }
)

EXPECT = Table(
    keys={
        "memory_per_rank": Key(shape=Bytes(), says="the most bytes that a rank holds at once"),
        "state_sharded": Key(
            shape=Real(low=0, high=1, above=True), says="the least share of state that is cut over some axis"
        ),
    },
    least="promise",
)

CHECK = Table(
    keys={
        "name": Key(shape=Text(), says="what is tested", required=True),
        "tensor": Key(shape=Glob(), says="pattern of the tensors", required=True),
        "expect": Key(shape=Table(free=Kind(), least="axis"), says='axis -> "R", "S(i)" or "stored"', required=True),
    }
)

LAUNCH = Table(
    keys={
        "recipe": Key(shape=Function(), says="torchtitan's config function, as module:function"),
        "ranks": Key(shape=_COUNT, says="ranks to start"),
        "set": Key(shape=Flags(), says="torchtitan's flags"),
    }
)

ROOT = Table(
    keys={
        "meshlang": Key(shape=Version(), says="version of the language", required=True),
        "model": Key(
            shape=Text(), says="model card and flavor, as card/flavor or ./file.card.toml#flavor", required=True
        ),
        "include": Key(shape=ListOf(Text()), says="files, or preset:NAME, that this file lies over"),
        "mesh": Key(shape=MESH, says='mesh axis -> size; one may be "rest"', required=True),
        "sizes": Key(shape=SIZES, says="the run's own dimensions"),
        "precision": Key(shape=PRECISION, says="element types that bytes are counted in"),
        "topology": Key(shape=TOPOLOGY, says="where ranks sit"),
        "place": Key(shape=PLACE, says='tensor dimension -> axis, axes from outer to inner, or "whole"'),
        "within": Key(shape=WITHIN, says="pattern -> what is placed otherwise inside these modules"),
        "store": Key(shape=STORE, says="what is also cut at rest"),
        "recompute": Key(shape=RECOMPUTE, says="whose forward runs again in the backward"),
        "uneven": Key(shape=Table(free=Choice(("pad",))), says='dimension -> "pad": may be cut into unequal parts'),
        "pipeline": Key(shape=Schedule(PIPELINE), says="how layers run over pp"),
        "strategy": Key(shape=Strategies(), says="strategy plugin -> its fields"),
        "at": Key(shape=AT, says="pattern -> exceptions, and why"),
        "expect": Key(shape=EXPECT, says="promises that are held against the plan"),
        "check": Key(shape=Rows(CHECK), says="tests of single tensors"),
        "launch": Key(shape=LAUNCH, says="how torchtitan is started"),
    }
)
