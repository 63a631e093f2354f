"""Text from local files, and a tokenizer that needs no file."""

from .text import LocalTextDataLoader
from .tokenizer import ByteTokenizer

__all__ = ["ByteTokenizer", "LocalTextDataLoader"]
