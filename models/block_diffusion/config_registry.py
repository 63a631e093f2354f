"""Recipes of the block-diffusion decoder: real text, no downloads, float32 throughout."""

from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import DebugConfig, TrainingConfig
from torchtitan.trainer import Trainer

from ..data import ByteTokenizer, float32
from ..data.tokenizer import MASK
from .data import CorruptedTextDataLoader
from .loss import WeightedCrossEntropyLoss
from .model import FLAVORS, model_registry


def tiny() -> Trainer.Config:
    """0.66 million parameters, 200 steps of 16 sequences of 256 tokens in blocks of 16, as BD3-LM trains."""
    training = float32(steps=200, seq_len=256, local_batch_size=4, global_batch_size=16)
    return _recipe("tiny", training, CorruptedTextDataLoader.Config(block_size=16), lr=4e-3)


def tiny_complementary() -> Trainer.Config:
    """`tiny` as Fast-dLLM v2 trains: two complementary views of each sample, each beside a clean copy."""
    return _complementary("tiny_complementary", share_clean=False)


def tiny_shared() -> Trainer.Config:
    """`tiny_complementary` with both views beside one clean copy: the same loss, a quarter less rows."""
    return _complementary("tiny_shared", share_clean=True)


def debug() -> Trainer.Config:
    """5.8 million parameters at the sizes of torchtitan's debug model, with grouped heads."""
    training = float32(steps=20, seq_len=512, local_batch_size=2, global_batch_size=8)
    return _recipe("debug", training, CorruptedTextDataLoader.Config(block_size=32), lr=2e-3)


def _complementary(flavor: str, *, share_clean: bool) -> Trainer.Config:
    config = tiny()
    config.model_spec = model_registry(flavor)
    config.dataloader = CorruptedTextDataLoader.Config(
        block_size=16, objective="complementary", share_clean=share_clean
    )
    config.loss = WeightedCrossEntropyLoss.Config(global_vocab_size=FLAVORS[flavor].vocab)
    return config


def _recipe(
    flavor: str, training: TrainingConfig, data: CorruptedTextDataLoader.Config, *, lr: float
) -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry(flavor),
        hf_assets_path=".",
        tokenizer=ByteTokenizer.Config(),
        dataloader=data,
        loss=WeightedCrossEntropyLoss.Config(global_vocab_size=FLAVORS[flavor].vocab, excluded=MASK),
        optimizer=default_adamw(lr=lr),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=5, decay_ratio=0.5, min_lr_factor=0.1),
        training=training,
        metrics=MetricsProcessor.Config(log_freq=5),
        checkpoint=CheckpointManager.Config(interval=50, last_save_model_only=False, initial_load_model_only=False),
        activation_checkpoint=None,
        debug=DebugConfig(seed=0, enable_structured_logging=False),
    )
