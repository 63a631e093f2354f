"""Models named on a command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

from meshlang.runtime.cards import TargetError, build_module

FACTORIES = """
import torch
from torch import nn

made = nn.Linear(2, 3)
number = 7

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

def net():
    return Net()

def sized(flavor):
    return nn.Linear({"small": 2, "large": 4}[flavor], 1)

def two(a, b):
    return None

def text():
    return "no model"

def nothing():
    return None

def failing():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with factories of all kinds."""
    (tmp_path / "factories_of_models.py").write_text(FACTORIES)
    (tmp_path / "broken_factories.py").write_text("import a_module_that_is_nowhere\n")
    (tmp_path / "wrong_factories.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("factories_of_models", None)
    return "factories_of_models"


@pytest.mark.parametrize("name", ["net", "Net", "made"])
def test_module_class_and_function_are_built(factories: str, name: str) -> None:
    """A function, a class or a module is a model."""
    assert isinstance(build_module(f"{factories}:{name}"), nn.Module)


def test_model_is_on_the_meta_device(factories: str) -> None:
    """What a factory makes has no memory."""
    assert {p.device.type for p in build_module(f"{factories}:net").parameters()} == {"meta"}


def test_flavor_is_the_one_argument(factories: str) -> None:
    """A factory with one argument is given the flavor."""
    assert build_module(f"{factories}:sized", "large").get_parameter("weight").shape == (1, 4)


@pytest.mark.parametrize(
    ("target", "flavor"),
    [
        ("torchtitan.models.llama3.config_registry:llama3_debugmodel", None),
        ("torchtitan.models.llama3:llama3_debugmodel", None),
        ("torchtitan.models.llama3:model_registry", "debugmodel"),
        ("meshlang_models.llama:tiny", None),
        ("meshlang_models.llama:model_registry", "tiny"),
        ("meshlang_models.llama3:debugmodel", None),
    ],
)
def test_recipes_and_specs_give_their_model(target: str, flavor: str | None) -> None:
    """Of a torchtitan recipe or model spec the model is built."""
    module = build_module(target, flavor)
    assert type(module).__name__ in ("Llama3Model", "Llama")
    assert {p.device.type for p in module.parameters()} == {"meta"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("factories_of_models", "`factories_of_models` is not of the form package.module:factory"),
        (":net", "`:net` is not of the form package.module:factory"),
        ("factories_of_models:", "`factories_of_models:` is not of the form package.module:factory"),
        ("no_such_factories:net", "there is no module `no_such_factories`"),
        ("torch.no_such:net", "there is no module `torch.no_such`"),
        ("broken_factories:net", "`broken_factories` cannot be imported: No module named 'a_module_that_is_nowhere'"),
        ("wrong_factories:net", "`wrong_factories` cannot be imported: ZeroDivisionError: division by zero"),
        ("..:net", "`..` is no name of a module"),
        ("factories_of_models:failling", "`factories_of_models` has no `failling`; the nearest is `failing`"),
        ("factories_of_models:net.inner", "`factories_of_models` has no `net.inner`"),
        ("factories_of_models:number", "`factories_of_models:number` is a int, not a function that gives a model"),
        (
            "factories_of_models:two",
            "`factories_of_models:two` needs arguments: a, b; a function without any is called",
        ),
        (
            "factories_of_models:sized",
            "`factories_of_models:sized` needs arguments: flavor; a function without any is called",
        ),
        (
            "factories_of_models:text",
            "`factories_of_models:text` gave a str, which is no nn.Module, model config or recipe",
        ),
        (
            "factories_of_models:nothing",
            "`factories_of_models:nothing` gave a NoneType, which is no nn.Module, model config or recipe",
        ),
        ("factories_of_models:failing", "`factories_of_models:failing` failed: RuntimeError: no weights here"),
    ],
)
def test_name_that_names_no_model(factories: str, target: str, message: str) -> None:
    """What is wrong with a name is said in one sentence."""
    with pytest.raises(TargetError) as error:
        build_module(target)
    assert str(error.value) == message
