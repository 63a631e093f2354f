"""A small Llama: grouped-query attention, rotary positions, RMS norms and a SwiGLU.

It is built of torchtitan's parts under the module names of torchtitan's llama3, and sets no
sharding config: it knows no mesh.

Shapes: B batch, L tokens, D hidden.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.common import ComplexRoPE, Decoder, Embedding, Linear, RMSNorm, TransformerBlock
from torchtitan.models.common.attention import AttentionMasksType, FlexAttention, GQAttention, QKVLinear
from torchtitan.models.common.feed_forward import FeedForward
from torchtitan.models.utils import get_dense_model_nparams_and_flops
from torchtitan.protocols.model_spec import ModelSpec

Init = dict[str, Callable[[torch.Tensor], Any]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of one flavor; a head holds embed // heads numbers."""

    layers: int
    embed: int
    heads: int
    kv_heads: int
    mlp: int
    vocab: int
    max_seq: int = 131072
    rope_theta: float = 10000.0


FLAVORS = {
    "tiny": Sizes(layers=4, embed=128, heads=8, kv_heads=4, mlp=256, vocab=264),
    "debug": Sizes(layers=6, embed=256, heads=16, kv_heads=8, mlp=768, vocab=2048),
    "deep": Sizes(layers=12, embed=64, heads=4, kv_heads=2, mlp=128, vocab=264),
}


class LlamaBlock(TransformerBlock):
    """One layer: attention, then a feed-forward, each behind a norm and added to its input."""

    @dataclass(kw_only=True, slots=True)
    class Config(TransformerBlock.Config):
        """The fields of TransformerBlock.Config; `feed_forward` is required."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.feed_forward is None:
            raise ValueError("a Llama block needs a feed_forward")
        self.attention_norm = config.attention_norm.build()
        self.attention = config.attention.build()
        self.ffn_norm = config.ffn_norm.build()
        self.feed_forward = config.feed_forward.build()

    def forward(
        self,
        x: torch.Tensor,
        attention_masks: AttentionMasksType | None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The layer's output, (B, L, D) as its input."""
        x = x + self.attention(self.attention_norm(x), attention_masks, positions)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(Decoder):
    """A decoder of Llama blocks.

    `update_from_config` is Decoder's: it checks heads and sequence length against the run's
    config, and leaves every sharding config alone.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(Decoder.Config):
        """The fields of Decoder.Config."""

        def get_nparams_and_flops(self, model: nn.Module, seq_len: int) -> tuple[int, int]:
            """The model's parameters, and its floating-point operations a token."""
            attention = self.layers[0].attention
            return get_dense_model_nparams_and_flops(
                model,
                n_layers=len(self.layers),
                n_heads=attention.n_heads,
                head_dims=2 * attention.head_dim,
                seq_len=seq_len,
                enable_weight_tying=self.enable_weight_tying,
            )


def llama_config(sizes: Sizes) -> Llama.Config:
    """The model's config at these sizes."""
    return Llama.Config(
        dim=sizes.embed,
        vocab_size=sizes.vocab,
        tok_embeddings=Embedding.Config(num_embeddings=sizes.vocab, embedding_dim=sizes.embed, param_init=_normal(1.0)),
        layers=[_block(sizes, layer) for layer in range(sizes.layers)],
        norm=_norm(sizes),
        lm_head=_linear(sizes.embed, sizes.vocab, std=sizes.embed**-0.5),
    )


def parallelize_one_rank(model: nn.Module, *, parallel_dims: Any, **options: Any) -> nn.Module:
    """The model as it is, for a run of one rank.

    Raises:
        ValueError: the run has more ranks. This model knows no mesh: a plan must place it.
    """
    if parallel_dims.world_size != 1:
        raise ValueError(
            f"this model knows no mesh, and the run has {parallel_dims.world_size} ranks: "
            "start it with `meshlang launch`, whose plan places it, or with one rank"
        )
    return model


def model_registry(flavor: str) -> ModelSpec:
    """The named flavor as a torchtitan model spec, without any sharding."""
    if flavor not in FLAVORS:
        raise ValueError(f'Llama has no flavor "{flavor}"; it has {", ".join(FLAVORS)}')
    return ModelSpec(
        name="llama",
        flavor=flavor,
        model=llama_config(FLAVORS[flavor]),
        parallelize_fn=parallelize_one_rank,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=None,
        state_dict_adapter=None,
    )


def _block(sizes: Sizes, layer: int) -> LlamaBlock.Config:
    """One layer's config; what writes to the residual stream starts smaller in later layers."""
    out_std = 0.02 / (2 * (layer + 1)) ** 0.5
    return LlamaBlock.Config(
        attention_norm=_norm(sizes),
        attention=_attention(sizes, out_std),
        ffn_norm=_norm(sizes),
        feed_forward=FeedForward.Config(
            w1=_linear(sizes.embed, sizes.mlp),
            w2=_linear(sizes.mlp, sizes.embed, std=out_std),
            w3=_linear(sizes.embed, sizes.mlp),
        ),
    )


def _attention(sizes: Sizes, out_std: float) -> GQAttention.Config:
    head_dim = sizes.embed // sizes.heads
    return GQAttention.Config(
        n_heads=sizes.heads,
        n_kv_heads=sizes.kv_heads,
        head_dim=head_dim,
        dim=sizes.embed,
        qkv_linear=QKVLinear.Config(
            head_dim=head_dim,
            wq=_linear(sizes.embed, sizes.heads * head_dim),
            wkv=_linear(sizes.embed, sizes.kv_heads * head_dim),
        ),
        wo=_linear(sizes.heads * head_dim, sizes.embed, std=out_std),
        inner_attention=FlexAttention.Config(),
        rope=ComplexRoPE.Config(dim=head_dim, max_seq_len=sizes.max_seq, theta=sizes.rope_theta),
    )


def _linear(features_in: int, features_out: int, *, std: float = 0.02) -> Linear.Config:
    init: Init = {"weight": partial(nn.init.trunc_normal_, std=std, a=-3 * std, b=3 * std)}
    return Linear.Config(in_features=features_in, out_features=features_out, param_init=init)


def _norm(sizes: Sizes) -> RMSNorm.Config:
    return RMSNorm.Config(normalized_shape=sizes.embed, param_init={"weight": nn.init.ones_})


def _normal(std: float) -> Init:
    return {"weight": partial(nn.init.normal_, std=std)}
