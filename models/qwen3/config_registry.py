"""torchtitan's qwen3 debug model on local text."""

from torchtitan.models.qwen3.config_registry import qwen3_debugmodel
from torchtitan.trainer import Trainer

from ..data import local


def debugmodel() -> Trainer.Config:
    """torchtitan's recipe of its debug model, on local text and in float32 throughout."""
    return local(qwen3_debugmodel())
