"""What is done with a text of any bytes: it is compiled as a command would, and what is said of it can be shown.

Each target takes bytes and raises when a promise is broken. Texts that once broke one lie in `tests/corpus`, beside a
few that reached lines which no other did.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]
CORPUS = TESTS / "corpus"
sys.path.insert(0, str(TESTS / "damaged"))

from bases import EXAMPLES, LIGHT, PLUGINS  # noqa: E402
from cards import CARD_BASES  # noqa: E402
from findings import found_in, hold  # noqa: E402
from measured import held  # noqa: E402

from meshlang.card.find import Cards  # noqa: E402
from meshlang.compiler import Request, check  # noqa: E402
from meshlang.diagnostics import Bag  # noqa: E402
from meshlang.format import formatted, meaning  # noqa: E402
from meshlang.language.toml import scan  # noqa: E402
from meshlang.source import Source  # noqa: E402

#: Specs without findings, as texts.
SPEC_TEXTS = [base.text for base in LIGHT]
#: One text in so many, by its length, has its fixes tried.
TRIED = 8

ORDERED = """
meshlang = 1
model = "llama/tiny"
include = ["preset:ddp"]
[mesh]
pp = 2
[sizes]
batch = 8
seq = 128
[place]
heads = "whole"
kv_heads = "whole"
mlp = "whole"
vocab = "whole"
[pipeline]
schedule = "csv"
microbatches = 2
file = "order.csv"
"""
GOOD_ORDER = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def spec(data: bytes) -> None:
    """A spec beside the examples: findings with fixes that were tried, or a plan; `fmt` keeps what it means."""
    source = Source.decode(str(EXAMPLES / "spec.toml"), data)
    request = Request(source=source, cards=Cards(), plugins=PLUGINS, inside=str(EXAMPLES))
    found = check(request) if len(data) % TRIED == 0 else found_in(request)
    hold(found) if found else None
    if scan(source, Bag()) is not None:
        after = Source(source.name, formatted(source.text))
        assert meaning(after) == meaning(source)


def card(data: bytes) -> None:
    """A card under the spec of an example of its model; which of them, its length says."""
    able = [base for base in CARD_BASES if re.search(rb'model\s*=\s*"%s"' % base.model.encode(), data)] or CARD_BASES
    with tempfile.TemporaryDirectory() as folder:
        found = found_in(able[len(data) % len(able)].request(Path(folder), data))
        hold(found) if found else None


def order(data: bytes) -> None:
    """An order of a pipeline's actions, as `schedule = "csv"` reads it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "order.csv").write_bytes(data)
        request = Request(source=Source(str(Path(folder) / "spec.toml"), ORDERED), plugins=PLUGINS, inside=folder)
        found = check(request)
        hold(found) if found else None


TARGETS: Mapping[str, Callable[[bytes], None]] = {"spec": spec, "card": card, "order": order}


def hold_target(target: str, data: bytes) -> None:
    """A text under a target, within what a finding may cost."""
    with held(f"texts for {target}", data):
        TARGETS[target](data)
