"""The small Llama: names, shapes, and that it knows no mesh."""

from types import SimpleNamespace

import pytest
import torch
from meshlang_models.llama import FLAVORS, Sizes, debug, deep, llama_config, model_registry, tiny
from torchtitan.config import ConfigManager
from torchtitan.protocols.module import Module
from torchtitan.trainer import Trainer


def expected_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Every parameter of the model by torchtitan's llama3 names."""
    kv = sizes.embed // sizes.heads * sizes.kv_heads
    layer = {
        "attention_norm": (sizes.embed,),
        "attention.qkv_linear.wq": (sizes.embed, sizes.embed),
        "attention.qkv_linear.wk": (kv, sizes.embed),
        "attention.qkv_linear.wv": (kv, sizes.embed),
        "attention.wo": (sizes.embed, sizes.embed),
        "ffn_norm": (sizes.embed,),
        "feed_forward.w1": (sizes.mlp, sizes.embed),
        "feed_forward.w2": (sizes.embed, sizes.mlp),
        "feed_forward.w3": (sizes.mlp, sizes.embed),
    }
    layers = {f"layers.{i}.{name}": shape for i in range(sizes.layers) for name, shape in layer.items()}
    table = (sizes.vocab, sizes.embed)
    whole = {"tok_embeddings": table, **layers, "norm": (sizes.embed,), "lm_head": table}
    return {f"{name}.weight": shape for name, shape in whole.items()}


@pytest.mark.parametrize("flavor", FLAVORS)
def test_parameters_have_these_names_and_shapes(flavor: str) -> None:
    """The model has the parameters of llama3 with separate q, k and v, and no others."""
    with torch.device("meta"):
        model = llama_config(FLAVORS[flavor]).build()
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == expected_shapes(FLAVORS[flavor])


@pytest.mark.parametrize("flavor", FLAVORS)
def test_modules_follow_the_protocol(flavor: str) -> None:
    """Every submodule is a torchtitan Module, rotary positions and inner attention included."""
    with torch.device("meta"):
        model = llama_config(FLAVORS[flavor]).build()
    model.verify_module_protocol()
    names = {name for name, _ in model.named_modules()}
    assert {"layers.0.attention.rope", "layers.0.attention.inner_attention"} <= names


@pytest.mark.parametrize("recipe", [tiny, debug, deep])
def test_model_sets_no_sharding(recipe: type) -> None:
    """No module has a sharding config, also after the run's config has been applied."""
    config: Trainer.Config = recipe()
    config.parallelism.tensor_parallel_degree = 2
    model = config.model_spec.model
    model.update_from_config(config=config)
    parts = list(model.traverse(Module.Config, recurse=True))
    assert len(parts) > 40
    assert all(part.sharding_config is None for _, part, _, _ in parts)


@pytest.mark.parametrize(("recipe", "ranks"), [(tiny, 1), (tiny, 2), (tiny, 4), (debug, 8)])
def test_heads_divide_over_tensor_ranks(recipe: type, ranks: int) -> None:
    """tiny runs on 1, 2 and 4 tensor-parallel ranks, debug also on 8."""
    config: Trainer.Config = recipe()
    config.parallelism.tensor_parallel_degree = ranks
    config.model_spec.model.update_from_config(config=config)
    sizes = FLAVORS[config.model_spec.flavor]
    assert not any(size % ranks for size in (sizes.vocab, sizes.mlp, sizes.heads, sizes.kv_heads))


def test_ranks_that_cut_a_head_are_refused() -> None:
    """Decoder's own checks run: 4 key-value heads do not divide over 8 ranks."""
    config = tiny()
    config.parallelism.tensor_parallel_degree = 8
    with pytest.raises(ValueError, match="n_kv_heads"):
        config.model_spec.model.update_from_config(config=config)


def test_more_ranks_need_a_plan() -> None:
    """The model's own parallelize function takes one rank, and says who takes more."""
    spec = model_registry("tiny")
    model = torch.nn.Identity()
    assert spec.parallelize_fn(model, parallel_dims=SimpleNamespace(world_size=1)) is model
    with pytest.raises(ValueError, match="2 ranks: start it with `meshlang launch`"):
        spec.parallelize_fn(model, parallel_dims=SimpleNamespace(world_size=2))


def test_unknown_flavor_names_the_known() -> None:
    """A flavor that is not there is an error that lists those that are."""
    with pytest.raises(ValueError, match='no flavor "large"; it has tiny, debug, deep'):
        model_registry("large")


@pytest.mark.parametrize("name", ["tiny", "debug", "deep"])
def test_recipe_is_found_by_torchtitan(name: str) -> None:
    """torchtitan's command line finds the recipe, and overrides its text and steps."""
    args = ["--module", "meshlang_models.llama", "--config", name]
    overrides = ["--training.steps", "3", "--dataloader.path", "docs", "--dataloader.glob", "*.md", "*.rst"]
    config = ConfigManager().parse_args([*args, *overrides])
    assert config.training.steps == 3
    assert (config.dataloader.path, config.dataloader.glob) == ("docs", ("*.md", "*.rst"))


@pytest.mark.parametrize("recipe", [tiny, debug, deep])
def test_recipe_is_float32_throughout(recipe: type) -> None:
    """Parameters, products and reductions are float32, so that results compare across meshes."""
    training = recipe().training
    assert {training.dtype, training.mixed_precision_param, training.mixed_precision_reduce} == {"float32"}
