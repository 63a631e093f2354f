"""A Hugging Face config -> its model on the meta device, with transformers' own plans; nothing is downloaded.

Code that lies beside a config (`auto_map`) is never run: only classes of transformers are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

#: Keys of a config in which a plan may be written: of the whole model, and of the model without its head.
PLANS = ("tp_plan", "base_model_tp_plan")


class ConfigError(Exception):
    """A config of which no model can be built; the message says why."""


def built(config: Mapping[str, Any]) -> nn.Module:
    """The model of a config, without weights.

    Raises:
        ConfigError: transformers is not installed, does not know the model, or refuses the config.
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ConfigError(f"the model is built by transformers, and there is no module `{error.name}`") from error
    known = transformers.CONFIG_MAPPING
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        raise ConfigError(f"transformers {transformers.__version__} knows no model_type `{kind}`")
    settings = {key: value for key, value in config.items() if key not in (*PLANS, "auto_map", "quantization_config")}
    try:
        read = known[kind].from_dict(settings)
        with torch.device("meta"):
            return _class(transformers, read, config)._from_config(read, attn_implementation="eager")
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"transformers cannot build it: {type(error).__name__}: {error}") from error


def _class(transformers: Any, read: Any, config: Mapping[str, Any]) -> Any:
    """The class that the config names, else the one that generates text."""
    named = config.get("architectures") or []
    if named:
        found = getattr(transformers, str(named[0]), None)
        if found is None:
            raise ConfigError(f"transformers {transformers.__version__} has no class `{named[0]}`")
        return found
    found = transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(type(read), None)
    if found is None:
        raise ConfigError("the config has no `architectures`, and transformers has no model of it that generates text")
    return found


def rules_of(module: Any, config: Mapping[str, Any]) -> dict[str, str]:
    """Pattern -> style: the plan that the config writes, else that of the class."""
    if isinstance(config.get("tp_plan"), dict):
        return dict(config["tp_plan"])
    if isinstance(config.get("base_model_tp_plan"), dict):
        prefix = module.base_model_prefix
        head = dict(type(module)._tp_plan or {})
        return head | {f"{prefix}.{key}": style for key, style in config["base_model_tp_plan"].items()}
    return dict(module.tp_plan or {})


def remarks(module: Any) -> tuple[str, ...]:
    """What transformers has for the model beside its tp_plan, and is not read."""
    found = [name for name in ("pp_plan", "ep_plan") if getattr(module, name, None)]
    why = {
        "pp_plan": "Its pp_plan is not read: a [pipeline] is split in the words of the card's [split].",
        "ep_plan": "Its ep_plan is not read: experts are not planned.",
    }
    return tuple(why[name] for name in found)
