"""torchtitan's llama3 debug model on local text."""

from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.trainer import Trainer

from ..data import local


def debugmodel() -> Trainer.Config:
    """torchtitan's recipe of its debug model, on local text and in float32 throughout."""
    return local(llama3_debugmodel())
