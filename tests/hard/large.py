"""Much of one kind: name -> what writes a text of a size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cases import CARD, GOOD, place


def lines(line: str, size: int) -> bytes:
    """Numbered lines up to a size."""
    found, count = [], 0
    while count < size:
        found.append(line.format(i=len(found)))
        count += len(found[-1])
    return "".join(found).encode()


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


def cards_at_once(size: int) -> Mapping[str, Callable[[], bytes]]:
    """Cards of a size, each with much of one kind."""
    return {
        "flavors": lambda: CARD.encode() + lines("[flavor.f{i}]\nembed = 4\n", size),
        "parameters": lambda: CARD.encode() + lines("'layers.*.w{i}' = 'embed embed'\n", size),
        "patterns": lambda: CARD.encode() + lines("'{{a,b}}.{{c,d}}.[0-9].w{i}' = 'embed'\n", size),
        "boundaries": lambda: CARD.encode() + b"[activation]\n" + lines("'layers.*.m{i}' = 'batch seq embed'\n", size),
        "dims": lambda: CARD.replace("embed embed2", "embed " * (size // 6)).encode(),
        "factors": lambda: CARD.replace("embed embed2", "(" + "embed " * (size // 6) + ")").encode(),
        "brackets": lambda: CARD.replace("embed embed2", "(" * size).encode(),
        "whole": lambda: CARD.replace('"embed"]', '"embed"' + ', "embed"' * (size // 9) + "]").encode(),
        "same": lambda: CARD.encode() + b"[same]\n" + lines("a{i} = 'embed'\n", size),
        "layers": lambda: CARD.replace("layers = 2", "layers = 99999").encode(),
        "layers of many": lambda: (
            CARD.replace("layers = 2", "layers = 19999").encode() + lines("'layers.*.v{i}' = 'embed'\n", size // 10)
        ),
        "bytes": lambda: b"\xff" * size,
    }
