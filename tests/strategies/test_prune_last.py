"""Without clean queries in the last layer: what a plan says of its rows, pairs, bytes and activations."""

from pathlib import Path

import pytest

from meshlang.card.find import Cards
from meshlang.compiler import Request, compile
from meshlang.plan.blocks import from_data, to_data
from meshlang.plan.cost import memory
from meshlang.plan.ir import Plan
from meshlang.report.blocks import blocks_text
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "block_diffusion" / "card.toml"


def plan_of(*, pruned: bool, flavor: str = "tiny", more: str = "") -> Plan:
    """A plan over block 2."""
    text = f"""
        meshlang = 1
        model = "block_diffusion/{flavor}"
        include = ["preset:whole_weights"]
        [mesh]
        block = 2
        [sizes]
        batch = 4
        seq = 128
        [precision]
        compute = "float32"
        [strategy.csbp]
        axis = "block"
        block_size = 16
        prune_last = {str(pruned).lower()}
        {more}
    """
    cards = Cards(extra={"block_diffusion": CARD})
    return compile(Request(source=Source(name="spec.toml", text=text), cards=cards))


def test_other_layers_are_as_before() -> None:
    """Values of the last layer behind its queries are shorter, and those of the norm behind it; no others."""
    whole, pruned = plan_of(pruned=False), plan_of(pruned=True)
    pairs = zip(whole.edges, pruned.edges, strict=True)
    shorter = [(a.module, a.port) for a, b in pairs if a.shape != b.shape]
    assert {module.partition(".attention")[0].partition(".f")[0] for module, _ in shorter} == {"layers.3", "norm"}
    assert ("layers.3", "input.x") not in shorter
    assert ("layers.3.attention.inner_attention", "input.k_BLNH") not in shorter
    assert ("layers.3.attention.inner_attention", "input.q_BLNH") in shorter
    assert ("layers.3", "output") in shorter


@pytest.mark.parametrize(
    ("flavor", "more", "share"), [("tiny", "", 2), ("tiny_complementary", "share_clean = true", 3)]
)
def test_rows_and_pairs_of_the_last_layer(flavor: str, more: str, share: int) -> None:
    """Of one clean stream and as many views as there are, the views stay; the document says so, and the table."""
    blocks = plan_of(pruned=True, flavor=flavor, more=more).block
    assert blocks is not None
    assert blocks.last_rows == tuple(rows * (share - 1) // share for rows in blocks.rows)
    assert blocks.last_pairs == tuple(pairs * (share - 1) // share for pairs in blocks.pairs)
    assert to_data(blocks)["last_layer"] == {"rows": [*blocks.last_rows], "pairs": [*blocks.last_pairs]}
    assert from_data(to_data(blocks)) == blocks
    assert f"in the last layer, without clean queries: {max(blocks.last_rows)} rows" in "\n".join(blocks_text(blocks))


def test_fewer_rows_leave_less() -> None:
    """Activations are less; and a plan that leaves nothing out says nothing of a last layer."""
    whole, pruned = plan_of(pruned=False), plan_of(pruned=True)
    less, more = (memory(plan).activations for plan in (pruned, whole))
    assert less is not None
    assert more is not None
    assert less < more
    assert whole.block is not None
    assert "last_layer" not in to_data(whole.block)
