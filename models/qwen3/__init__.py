"""torchtitan's own qwen3, with a recipe that needs no files."""

from .config_registry import debugmodel

__all__ = ["debugmodel"]
