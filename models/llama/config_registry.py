"""Recipes of the small Llama: real text, no downloads, float32 throughout."""

from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import DebugConfig, TrainingConfig
from torchtitan.trainer import Trainer

from ..data import ByteTokenizer, LocalTextDataLoader, float32
from .model import FLAVORS, model_registry


def tiny() -> Trainer.Config:
    """0.66 million parameters, 60 steps of 16 sequences: its loss falls by half in a minute on a CPU."""
    training = float32(steps=60, seq_len=256, local_batch_size=4, global_batch_size=16)
    return _recipe("tiny", training, lr=4e-3)


def debug() -> Trainer.Config:
    """5.8 million parameters at the sizes of torchtitan's debug model, with grouped heads."""
    training = float32(steps=20, seq_len=512, local_batch_size=2, global_batch_size=8)
    return _recipe("debug", training, lr=2e-3)


def deep() -> Trainer.Config:
    """0.5 million parameters in 12 layers: a pipeline of many stages on few cores."""
    training = float32(steps=60, seq_len=256, local_batch_size=4, global_batch_size=16)
    return _recipe("deep", training, lr=4e-3)


def _recipe(flavor: str, training: TrainingConfig, *, lr: float) -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry(flavor),
        hf_assets_path=".",
        tokenizer=ByteTokenizer.Config(),
        dataloader=LocalTextDataLoader.Config(),
        loss=CrossEntropyLoss.Config(global_vocab_size=FLAVORS[flavor].vocab),
        optimizer=default_adamw(lr=lr),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=5, decay_ratio=0.5, min_lr_factor=0.1),
        training=training,
        metrics=MetricsProcessor.Config(log_freq=5),
        checkpoint=CheckpointManager.Config(interval=20, last_save_model_only=False, initial_load_model_only=False),
        activation_checkpoint=None,
        debug=DebugConfig(seed=0, enable_structured_logging=False),
    )
