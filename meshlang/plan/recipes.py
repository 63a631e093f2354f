"""What a recipe builds and a plan is of, held against each other before any rank starts."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics import Diagnostic, Label
from ..language.spec import Spec
from ..source import Span
from .ir import Plan


def recipe_disagrees(
    plan: Plan, spec: Spec, *, model: tuple[str, str] | None, block_size: int | None
) -> Iterator[Diagnostic]:
    """A finding for each thing that the recipe says otherwise than the spec.

    Args:
        model: name and flavor of what the recipe builds; a model of another name has a card of its own.
        block_size: tokens that the recipe's data denoises together, None for data without blocks.
    """
    where = spec.launch.recipe.span if spec.launch is not None and spec.launch.recipe is not None else spec.model.span
    name, _, flavor = plan.model.partition("/")
    if model is not None and model[0] == name and model[1] != flavor:
        yield Diagnostic(
            code="recipe-disagrees",
            message=f"the recipe builds `{'/'.join(model)}`, and the plan is of `{plan.model}`",
            label=Label(span=where),
            labels=(Label(span=spec.model.span, text="the plan's model is set here"),),
            notes=("sizes and data of a flavor go with its recipe: name the recipe's model, or another recipe",),
        )
    planned = plan.block.block_size if plan.block is not None else None
    if planned is not None and block_size is not None and planned != block_size:
        yield Diagnostic(
            code="recipe-disagrees",
            message=f"the recipe's data has blocks of {block_size} tokens, and the plan's have {planned}",
            label=Label(span=where),
            labels=(Label(span=_block_size(spec), text="the plan's blocks are set here"),),
            notes=(f"--dataloader.block-size {planned} makes the data's the plan's",),
        )


def _block_size(spec: Spec) -> Span:
    written = (table.fields["block_size"].span for table in spec.strategies if "block_size" in table.fields)
    return next(written, spec.model.span)
