"""What plan and model say of each other: every name has its match, or is named in an error."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from meshlang.lowering.dtensor import sayable
from meshlang.lowering.errors import LoweringError
from meshlang.lowering.fit import arguments, by_place, fit, takes
from meshlang.plan.ir import Plan, Precision


def problems(plan: Plan, model: nn.Module) -> tuple[str, ...]:
    """What does not fit."""
    with pytest.raises(LoweringError) as caught:
        fit(plan, model)
    return caught.value.problems


def test_plan_fits_its_model(plan: Plan, model: nn.Module) -> None:
    """The model that a card describes fits every plan of the card."""
    fit(plan, model)


def test_planned_tensor_must_be_there(plan: Plan, model: nn.Module) -> None:
    """A tensor that only the plan knows is named, with the nearest that the model has."""
    head = model.get_submodule("lm_head")
    del head.weight
    head.register_parameter("weigth", nn.Parameter(torch.empty(264, 128, device="meta")))
    found = problems(plan, model)
    assert "tensor lm_head.weight of the plan is not in the model; did you mean lm_head.weigth?" in found
    assert "tensor lm_head.weigth of the model is not in the plan; did you mean lm_head.weight?" in found


def test_shapes_must_be_the_same(plan: Plan, model: nn.Module) -> None:
    """A parameter of another shape is named, with both shapes."""
    model.get_submodule("norm").register_parameter("weight", nn.Parameter(torch.empty(64, device="meta")))
    assert problems(plan, model) == ("tensor norm.weight has shape (64,), in the plan (128,)",)


def test_argument_must_be_taken(plan: Plan, model: nn.Module) -> None:
    """A boundary value that the module's forward does not take is named; torchtitan would ignore it."""
    edges = tuple(
        replace(edge, port="input.y") if edge.module == "norm" and edge.port == "input.x" else edge
        for edge in plan.edges
    )
    (problem,) = problems(replace(plan, edges=edges), model)
    assert problem.startswith("norm takes no argument y: tokens, input, x")


class Options(nn.Module):
    """Takes any option, and calls itself by another name."""

    def forward(this, x: object, /, scale: object, *rest: object, mask: object = None, **options: object) -> None:  # noqa: N805
        """Nothing."""


def test_arguments_are_those_behind_the_module() -> None:
    """Whatever a forward calls its module, that is no argument of it; catch-alls are none either."""
    assert arguments(Options()) == ("x", "scale", "mask")
    assert by_place(Options()) == ("x", "scale")
    assert arguments(nn.Linear(1, 1)) == ("input",)


def test_open_forward_takes_any_name(plan: Plan, model: nn.Module) -> None:
    """A forward with `**options` takes a planned argument that it does not name."""
    assert takes(Options(), "hidden_states")
    assert not takes(nn.Linear(1, 1), "hidden_states")


def test_module_of_an_edge_must_be_there(plan: Plan, model: nn.Module) -> None:
    """A boundary of a module that the model lacks is named."""
    edge = replace(plan.edges[-1], module="lm_heads")
    found = problems(replace(plan, edges=(*plan.edges, edge)), model)
    assert found == ("module lm_heads of the plan is not in the model",)


def test_every_parameter_is_in_a_unit(plan: Plan, model: nn.Module) -> None:
    """A parameter that no unit gathers is named."""
    last = plan.units[-1]
    units = (*plan.units[:-1], replace(last, tensors=last.tensors[1:]))
    assert problems(replace(plan, units=units), model) == (f"parameter {last.tensors[0]} is in no unit",)


def test_everything_is_told_at_once(plan: Plan, model: nn.Module) -> None:
    """All misfits come in one error."""
    del model.get_submodule("norm").weight
    del model.get_submodule("lm_head").weight
    assert len(problems(plan, model)) == 2


def test_dtensor_has_no_word_for_uneven_parts(plan: Plan) -> None:
    """A cut that leaves unequal parts is refused, with the tensor's name."""
    head = plan.by_fqn["lm_head.weight"]
    uneven = replace(head, dims=(replace(head.dims[0], size=263, units=263), head.dims[1]))
    tensors = tuple(uneven if tensor is head else tensor for tensor in plan.tensors)
    with pytest.raises(LoweringError, match=r"tensor lm_head.weight: a cut is not even"):
        sayable(replace(plan, tensors=tensors))


def test_mixed_precision_needs_data_axes(plan: Plan) -> None:
    """Without FSDP nothing casts weights, so two element types are refused."""
    mixed = Precision(state="float32", compute="bfloat16")
    alone = replace(plan, precision=mixed, roles=tuple((axis, "tensor") for axis, _ in plan.roles))
    with pytest.raises(LoweringError, match="computing in bfloat16 needs FSDP"):
        sayable(alone)
