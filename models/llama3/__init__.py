"""torchtitan's own llama3, with a recipe that needs no files."""

from .config_registry import debugmodel

__all__ = ["debugmodel"]
