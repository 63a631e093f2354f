"""Files that no one means well with: name -> what writes it, and the code that it gets (None: whatever it is)."""

from __future__ import annotations

from collections.abc import Mapping

GOOD = """meshlang = 1
model = "llama/tiny"
include = ["preset:tensor_parallel", "preset:ddp"]
[mesh]
dp = 2
tp = 2
[sizes]
batch = 8
seq = 128
"""
PIPELINE = """meshlang = 1
model = "llama/tiny"
[mesh]
pp = 2
[place]
batch = "whole"
heads = "whole"
kv_heads = "whole"
mlp = "whole"
vocab = "whole"
[sizes]
batch = 8
seq = 128
[pipeline]
schedule = "1f1b"
microbatches = 4
"""
CARD = """card = 1
model = "m"
whole = ["batch", "seq", "embed"]
[flavor.a]
layers = 2
embed = 4
[param]
"layers.*.w" = "embed embed2"
"""


def place(text: str) -> bytes:
    """The good spec with more after it."""
    return (GOOD + text).encode()


def good(old: str, new: str) -> bytes:
    """The good spec with one edit."""
    assert old in GOOD
    return GOOD.replace(old, new).encode()


def piped(*edits: tuple[str, str]) -> bytes:
    """The pipeline's spec with edits."""
    text = PIPELINE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text.encode()


def exception(pattern: str) -> bytes:
    """The good spec with an exception for a pattern."""
    return place(f'[at."{pattern}"]\nheads = "whole"\nwhy = "x"\n')


LARGEST = str(2**63 - 1)
BILLION = "1000000000"
CSV = '"csv"\nfile = '

#: Specs -> the code of a finding that they have.
SPECS: Mapping[str, tuple[bytes, str]] = {
    "a billion numbers": (exception("layers.[0-999999999]"), "bad-pattern"),
    "a billion in three ranges": (exception("layers.[0-999].[0-999].[0-999].x"), "no-match"),
    "a trillion alternatives": (exception("{a,b}" * 40), "bad-pattern"),
    "deep braces": (exception("{a," * 90 + "b" + "}" * 90), "bad-pattern"),
    "stars over stars": (exception("**.a." * 8 + "b"), "no-match"),
    "many stars": (exception("*a" * 30 + "b"), "bad-pattern"),
    "the largest dp": (good("dp = 2", f"dp = {LARGEST}"), "uneven-shard"),
    "the largest tp": (good("tp = 2", f"tp = {LARGEST}"), "uneven-shard"),
    "the largest batch": (good("batch = 8", f"batch = {LARGEST}"), "uneven-shard"),
    "accumulation": (good("batch = 8", f"batch = 8\naccumulation = {BILLION}"), "uneven-shard"),
    "a billion microbatches": (piped(("batch = 8", f"batch = {BILLION}"), ("s = 4", f"s = {BILLION}")), "bad-value"),
    "a billion stages": (piped(("pp = 2", f"pp = {BILLION}")), "schedule-numbers"),
    "a billion chunks": (piped(("1f1b", "interleaved_1f1b"), ("s = 4", f"s = 4\nchunks = {BILLION}")), "bad-value"),
    "a long split": (piped(("s = 4", 's = 4\nsplit = "' + "1 | " * 100_000 + '1"')), "schedule-numbers"),
    "a split of long numbers": (piped(("s = 4", 's = 4\nsplit = "' + "9" * 5000 + ' | 1"')), "bad-split"),
    "UTF-16": (GOOD.encode("utf-16"), "not-utf8"),
    "UTF-16 without a mark": (GOOD.encode("utf-16-be"), "syntax"),
    "UTF-32": (GOOD.encode("utf-32"), "not-utf8"),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD.encode(), "syntax"),
    "Latin-1": (b"# \xe9\n" + GOOD.encode(), "not-utf8"),
    "a surrogate": (GOOD.encode() + b"# \xed\xa0\x80", "not-utf8"),
    "NUL in a string": (good("llama", "lla\0ma"), "syntax"),
    "an include of itself": (good('"preset:ddp"', '"s.toml"'), "include-cycle"),
    "an include with NUL": (good('"preset:ddp"', '"a\\u0000b"'), "include-not-found"),
    "an include with a long name": (good('"preset:ddp"', '"' + "a/" * 5000 + 'b"'), "include-not-found"),
    "an include of 100 MB": (good('"preset:ddp"', '"large.bin"'), "too-large"),
    "an include of a device": (good('"preset:ddp"', '"/dev/zero"'), "include-not-found"),
    "an include of a folder": (good('"preset:ddp"', '"."'), "include-not-found"),
    "a card of 100 MB": (good("llama/tiny", "large.bin#a"), "too-large"),
    "a card that is a device": (good("llama/tiny", "/dev/zero#a"), "unknown-model"),
    "a card with NUL": (good("llama/tiny", "a\\u0000#a"), "unknown-model"),
    "a card of a trillion layers": (good("llama/tiny", "trillion.toml#a"), "card-pattern"),
    "an order of 100 MB": (piped(('"1f1b"', f'{CSV}"large.bin"')), "too-large"),
    "an order that is a device": (piped(('"1f1b"', f'{CSV}"/dev/zero"')), "order-file"),
    "an include that is a pipe": (good('"preset:ddp"', '"pipe"'), "include-not-found"),
    "a card that is a pipe": (good("llama/tiny", "pipe#a"), "unknown-model"),
    "an order that is a pipe": (piped(('"1f1b"', f'{CSV}"pipe"')), "order-file"),
    "an include of a link to itself": (good('"preset:ddp"', '"circle.toml"'), "include-not-found"),
    "CR alone": (GOOD.replace("\n", "\r").encode(), "syntax"),
    "a form feed": (good("dp = 2", "\fdp = 2"), "syntax"),
    "a blank of no width": (good("dp = 2", "dp\u200b = 2"), "syntax"),
    "a name of 100,000 letters": (good("dp = 2", "d" * 100_000 + " = 2"), "unknown-axis"),
    "a quoted name of 100,000 words": (good("dp = 2", '"' + "d p " * 100_000 + '" = 2'), "unknown-axis"),
    "a model of 100,000 letters": (good("llama/tiny", "m" * 100_000), "unknown-model"),
    "a dimension of 100,000 letters": (place("[place]\n" + "h" * 100_000 + ' = "tp"\n'), "unknown-dimension"),
    "a pattern of 100,000 letters": (exception("l" * 100_000), "no-match"),
    "an order of commas": (piped(('"1f1b"', f'{CSV}"commas.csv"')), "too-large"),
    "an order of digits": (piped(('"1f1b"', f'{CSV}"digits.csv"')), "order-file"),
}

#: Files that lie beside the specs.
FILES: Mapping[str, bytes] = {
    "commas.csv": b"," * 900_000,
    "digits.csv": b"9" * 5000 + b"F0,0F" + b"9" * 900_000,
    "trillion.toml": CARD.replace("layers = 2", "layers = 1000000000000").encode(),
}

OWN_CARD = b'meshlang = 1\nmodel = "own.toml#a"\n[mesh]\ndp = 1\n'
#: A spec that is fine, and what is asked of it.
TRILLION = GOOD.replace("dp = 2", "dp = 1000000000000").replace("batch = 8", "batch = 1000000000000").encode()
WIDE = [
    ["check", "s.toml"],
    ["plan", "s.toml", "--json"],
    ["plan", "s.toml", "--rank", "1999999999999"],
    ["plan", "s.toml", "--lock", "wide.lock"],
    ["mesh", "s.toml"],
    ["explain", "s.toml", "layers.0.attention.wo.weight"],
    ["report", "s.toml", "-o", "r.html"],
    ["diff", "s.toml", "s.toml"],
    ["diff", "s.toml", "other.toml"],
]
#: Specs that name a file outside of their folder.
OUTSIDE: Mapping[str, bytes] = {
    "up": good('"preset:ddp"', '"../outside.toml"'),
    "down and up": good('"preset:ddp"', '"a/../../outside.toml"'),
    "in, through the folder's own name": good('"preset:ddp"', '"../specs/../outside.toml"'),
    "absolute": good('"preset:ddp"', '"/etc/hostname"'),
    "two slashes": good('"preset:ddp"', '"//etc/hostname"'),
    "a link": good('"preset:ddp"', '"link.toml"'),
    "a folder that is a link": good('"preset:ddp"', '"linked/outside.toml"'),
    "another case": good('"preset:ddp"', '"../SPECS/base.toml"'),
    "a card up": good("llama/tiny", "../outside.toml#a"),
    "a card by a link": good("llama/tiny", "link.toml#a"),
    "a card by an absolute path": good("llama/tiny", "/etc/hostname#a"),
    "an order up": piped(('"1f1b"', f'{CSV}"../outside.toml"')),
    "an order by a link": piped(('"1f1b"', f'{CSV}"link.toml"')),
}
#: Texts that TOML allows.
FINE: Mapping[str, bytes] = {
    "CRLF": GOOD.replace("\n", "\r\n").encode(),
    "CRLF here and there": GOOD.replace("\n", "\r\n", 3).encode(),
    "no line end": GOOD.rstrip().encode(),
    "tabs": GOOD.replace(" = ", "\t=\t").encode(),
    "a comment in every script": GOOD.encode() + "# \u05d0 \u0e01 \u3042 \U0001f642 \u202e\n".encode(),
}
#: Paths that are no file.
NO_FILES: Mapping[str, str] = {
    "a pipe that nobody writes to": "pipe",
    "a folder": ".",
    "nothing": "nothing.toml",
    "a file as a folder": "commas.csv/s.toml",
    "a link to itself": "circle.toml",
    "a long name": "a" * 5000,
    "a long path": "a/" * 5000 + "s.toml",
}
#: Golden files, and where another path is named, that path.
LOCKS: Mapping[str, tuple[bytes, str]] = {
    "NUL": (b"\0" * 2**20, ""),
    "no UTF-8": (b"lock = 1\n\xff\xfe" * 2**10, ""),
    "many lines": (b"lock = 1\n" * 2**18, ""),
    "many other lines": (b"lock = 1\n" + b"".join(b"%d\n" % i for i in range(2**18)), ""),
    "one line": (b"lock = 1" + b"x" * 2**21, ""),
    "100 MB": (b"", "large.bin"),
    "a device": (b"", "/dev/zero"),
    "a pipe that nobody writes to": (b"", "pipe"),
    "a folder": (b"", "."),
}
