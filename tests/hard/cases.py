"""Files that no one means well with: name -> what writes it, and the code that it gets (None: whatever it is)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
MiB = 2**20


def lines(line: str, size: int) -> bytes:
    """Numbered lines up to a size."""
    found, count = [], 0
    while count < size:
        found.append(line.format(i=len(found)))
        count += len(found[-1])
    return "".join(found).encode()


def place(text: str) -> bytes:
    """The good spec with more after it."""
    return (GOOD + text).encode()


def at_once(size: int) -> Mapping[str, Callable[[], bytes]]:
    """Texts of a size, each of one kind."""
    return {
        "keys": lambda: lines("k{i} = 1\n", size),
        "tables": lambda: lines("[t{i}]\n", size),
        "rows": lambda: b"[[a]]\n" * (size // 6),
        "comment": lambda: b"#" + b"x" * size,
        "comments": lambda: GOOD.encode() + b"# x\n" * (size // 4),
        "empty lines": lambda: GOOD.encode() + b"\n" * size,
        "string": lambda: b'a = "' + b"x" * size + b'"\n',
        "unclosed": lambda: b'a = """' + b"x\n" * (size // 2),
        "numbers": lambda: b"a = [" + b"1," * (size // 2) + b"]\n",
        "brackets": lambda: b"a = " + b"[" * size,
        "braces": lambda: b"a = " + b"{a=" * (size // 3),
        "dots": lambda: b"a" + b".a" * (size // 2) + b" = 1\n",
        "header dots": lambda: b"[a" + b".a" * (size // 2) + b"]\n",
        "nul": lambda: b"\0" * size,
        "digits": lambda: b"a = " + b"1" * size,
        "escapes": lambda: b'a = "' + b"\\u0041" * (size // 6) + b'"\n',
        "unknown keys": lambda: place(lines("k{i} = 1\n", size).decode()),
        "unknown dims": lambda: place("[place]\n" + lines('headz{i} = "tp"\n', size).decode()),
        "unknown axes": lambda: place("[within.'*']\n" + lines('d{i} = "tq"\n', size).decode()),
        "patterns": lambda: place(lines("[at.'layers.{i}.x']\nheads='whole'\nwhy='x'\n", size).decode()),
        "checks": lambda: place(lines("[[check]]\nname='a{i}'\ntensor='**'\nexpect={{tp='R'}}\n", size).decode()),
        "includes": lambda: (
            b"include = [" + b'"a.toml",' * (size // 9) + b"]\n" + GOOD.replace("include", "x").encode()
        ),
        "axes": lambda: b"meshlang = 1\nmodel='llama/tiny'\n[mesh]\n" + lines("a{i} = 2\n", size),
        "strategies": lambda: place(lines("[strategy.s{i}]\naxis='tp'\n", size).decode()),
        "flags": lambda: place(
            "[launch]\nrecipe='a:b'\nranks=4\n[launch.set]\n" + lines("a.b{i} = 1\n", size).decode()
        ),
        "machines": lambda: place(lines("[topology.on.m{i}.mesh]\ntp=1\n", size).decode()),
    }


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
    "an order of commas": (piped(('"1f1b"', f'{CSV}"commas.csv"')), "too-large"),
    "an order of digits": (piped(('"1f1b"', f'{CSV}"digits.csv"')), "order-file"),
}

#: Files that lie beside the specs.
FILES: Mapping[str, bytes] = {
    "commas.csv": b"," * 900_000,
    "digits.csv": b"9" * 5000 + b"F0,0F" + b"9" * 900_000,
    "trillion.toml": CARD.replace("layers = 2", "layers = 1000000000000").encode(),
}
