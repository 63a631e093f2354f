"""torchtitan's qwen3 on local text."""

from meshlang_models.data import ByteTokenizer, LocalTextDataLoader
from meshlang_models.qwen3 import debugmodel
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.models.qwen3 import model_registry


def test_model_is_torchtitans_own() -> None:
    """The model's config is qwen3's debug model, unchanged: tied, with heads wider than the model."""
    spec = debugmodel().model_spec
    assert spec is not None
    assert spec.model.to_dict().keys() == model_registry("debugmodel").model.to_dict().keys()
    assert (len(spec.model.layers), spec.model.dim, spec.model.vocab_size) == (8, 256, 2048)
    assert spec.model.enable_weight_tying
    attention = spec.model.layers[0].attention
    assert attention.n_heads * attention.head_dim == 8 * spec.model.dim


def test_recipe_needs_no_file() -> None:
    """Text, tokenizer and loss are local, and nothing is validated or recomputed."""
    config = debugmodel()
    assert isinstance(config.tokenizer, ByteTokenizer.Config)
    assert isinstance(config.dataloader, LocalTextDataLoader.Config)
    assert isinstance(config.loss, CrossEntropyLoss.Config)
    assert config.loss.global_vocab_size == 2048
    assert config.activation_checkpoint is None
    assert not config.validator.enable
