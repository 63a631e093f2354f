"""A small Llama and its recipes."""

from .config_registry import debug, deep, tiny
from .model import FLAVORS, Llama, Sizes, llama_config, model_registry

__all__ = ["FLAVORS", "Llama", "Sizes", "debug", "deep", "llama_config", "model_registry", "tiny"]
