"""Hugging Face transformers' models, built from configs without weights, at the sizes of their cards' flavors."""

from __future__ import annotations

import os

from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")

#: DTensor has no backward of scaled_dot_product_attention on a CPU; what `eager` computes it can follow.
COMMON = {"attn_implementation": "eager", "use_cache": False}


def qwen3(flavor: str) -> nn.Module:
    """transformers' Qwen3 at the sizes of a flavor of its card."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {
        "tiny": {
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
        },
        "8B": {
            "vocab_size": 151936,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
    }
    return Qwen3ForCausalLM(Qwen3Config(**sizes[flavor], tie_word_embeddings=False, **COMMON))


def gpt2(flavor: str) -> nn.Module:
    """transformers' GPT-2 at the sizes of a flavor of its card; nothing is dropped at random."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {
        "tiny": {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        "small": {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
    }
    ends = {"bos_token_id": None, "eos_token_id": None}
    kept = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**sizes[flavor], **ends, **kept, **COMMON))


MODELS = {"qwen3_hf": qwen3, "gpt2_hf": gpt2}
