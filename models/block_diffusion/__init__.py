"""A block-diffusion language model and its recipes."""

from .config_registry import debug, tiny, tiny_complementary, tiny_shared
from .model import FLAVORS, BlockDiffusion, block_diffusion_config, model_registry

__all__ = [
    "FLAVORS",
    "BlockDiffusion",
    "block_diffusion_config",
    "debug",
    "model_registry",
    "tiny",
    "tiny_complementary",
    "tiny_shared",
]
