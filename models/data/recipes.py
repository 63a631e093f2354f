"""What recipes share, and a recipe of torchtitan's made to run anywhere."""

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.config import TrainingConfig
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.trainer import Trainer

from .text import LocalTextDataLoader
from .tokenizer import ByteTokenizer


def local(config: Trainer.Config) -> Trainer.Config:
    """torchtitan's recipe of the same model, with what it reads and its memory use made local; changed in place.

    Text is read as bytes from the standard library, precision is float32 throughout, the
    loss is not chunked, and nothing is recomputed or validated. Sequences are shorter.
    """
    if config.model_spec is None:
        raise ValueError("the recipe has no model spec")
    config.hf_assets_path = "."
    config.tokenizer = ByteTokenizer.Config()
    config.dataloader = LocalTextDataLoader.Config()
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    config.activation_checkpoint = None
    config.checkpoint.initial_load_model_only = False
    config.validator.enable = False
    config.training.seq_len = 512
    config.training.local_batch_size = 4
    config.training.mixed_precision_param = "float32"
    config.training.disable_cuda_graphs = True
    config.debug.seed = 0
    config.debug.enable_structured_logging = False
    config.__post_init__()
    return config


def float32(*, steps: int, seq_len: int, local_batch_size: int, global_batch_size: int) -> TrainingConfig:
    """How long and on how much to train, in float32 throughout and without CUDA graphs."""
    return TrainingConfig(
        steps=steps,
        seq_len=seq_len,
        local_batch_size=local_batch_size,
        global_batch_size=global_batch_size,
        dtype="float32",
        mixed_precision_param="float32",
        mixed_precision_reduce="float32",
        disable_cuda_graphs=True,
    )
