"""Text from local files, a tokenizer that needs no file, and torchtitan's recipes made to use them."""

from .recipes import float32, local
from .text import LocalTextDataLoader
from .tokenizer import ByteTokenizer

__all__ = ["ByteTokenizer", "LocalTextDataLoader", "float32", "local"]
