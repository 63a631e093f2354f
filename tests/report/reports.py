"""Specs whose reports are looked at: of each kind of section one, the largest example, and a hostile one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hostile import hostile_spec

from meshlang.compiler import Request, compile, load
from meshlang.diagnostics import Bag
from meshlang.language.load import load_document
from meshlang.plan.ir import Plan
from meshlang.report.page.contents import Contents, contents
from meshlang.report.page.page import page

ROOT = Path(__file__).parents[2]

BLOCKS = """meshlang = 1
model = "block_diffusion/tiny"

[mesh]
dp = 2
block = 4

[sizes]
batch = 4
seq = 256

[strategy.csbp]
axis = "block"
block_size = 16

[place]
batch = "dp"
heads = "whole"
kv_heads = "whole"
mlp = "whole"
vocab = "whole"

[store]
over = ["dp", "block"]
"""

EXAMPLES = {
    "tiny": "llama_tiny_cpu",
    "largest": "llama3_405b_16384",
    "bsipipe": "bsipipe_llama3_8b",
    "pipeline": "llama_tiny_pipeline",
    "diffusion": "block_diffusion_cpu",
}
SPECS = (*EXAMPLES, "blocks", "hostile")


@dataclass(frozen=True, kw_only=True)
class Made:
    """A report, and what it was made of."""

    plan: Plan
    contents: Contents
    text: str
    file: Path


def spec_of(name: str, folder: Path) -> Path:
    """The file of a spec."""
    if name in EXAMPLES:
        return ROOT / "examples" / f"{EXAMPLES[name]}.toml"
    if name == "hostile":
        return hostile_spec(folder)
    path = folder / "blocks.toml"
    path.write_text(BLOCKS)
    return path


def made(name: str, folder: Path) -> Made:
    """The report of a spec, as the command makes it."""
    asked = Request.of(spec_of(name, folder))
    plan = compile(asked)
    document = load_document(asked.source, bag=Bag())
    assert document is not None
    found = contents(plan, load(asked), document.sources, (), asked.cards)
    file = folder / f"{name}.html"
    text = page(found)
    file.write_text(text, encoding="utf-8")
    return Made(plan=plan, contents=found, text=text, file=file)
