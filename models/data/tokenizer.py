"""A tokenizer of bytes: no vocabulary file, every text, one id a byte.

0 to 255     the bytes of the text in UTF-8
256          begin of document
257          end of document
258          padding
259          mask, for models that denoise
260 to 263   free, so that the vocabulary divides by 8
"""

from dataclasses import dataclass

from torchtitan.components.tokenizer import BaseTokenizer

BYTES = 256
BOS = 256
EOS = 257
PAD = 258
MASK = 259
VOCAB = 264


class ByteTokenizer(BaseTokenizer):
    """Text as its UTF-8 bytes; decode(encode(text)) == text, lone surrogates included."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """No fields: the id layout is fixed."""

    def __init__(self, config: Config | None = None, *, tokenizer_path: str = "") -> None:
        super().__init__()
        self.bos_id = BOS
        self.eos_id = EOS
        self.pad_id = PAD
        self.mask_id = MASK

    def encode(self, text: str, *, add_bos: bool = False, add_eos: bool = False) -> list[int]:
        """The ids of a text, between begin and end of document where asked."""
        ids = list(text.encode("utf-8", errors="surrogatepass"))
        return [BOS] * add_bos + ids + [EOS] * add_eos

    def decode(self, ids: list[int]) -> str:
        """The text of the byte ids; the others say nothing, bytes that are no UTF-8 give U+FFFD."""
        raw = bytes(i for i in ids if 0 <= i < BYTES)
        try:
            return raw.decode("utf-8", errors="surrogatepass")
        except UnicodeDecodeError:
            return raw.decode("utf-8", errors="replace")

    def get_vocab_size(self) -> int:
        """The number of ids, free ones included."""
        return VOCAB
