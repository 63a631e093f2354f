"""Hugging Face transformers' models under plans of their cards: a step on many ranks is that of one rank."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from references import References
from rows import BOUNDS, rows

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.testing.parity import differences, planned
from meshlang.testing.ranks import RankError, RankPool

HERE = Path(__file__).parent
CARDS = HERE.parents[1] / "examples" / "cards"

#: What tp cuts. GPT-2's heads lie inside the thirds of one weight.
PLACED = {"qwen3_hf": ("heads", "kv_heads", "mlp", "vocab"), "gpt2_hf": ("mlp", "vocab")}
#: Modules between which tp cuts the sequence. GPT-2's positions are cut too: each rank looks up its own.
GATHERED = {
    "qwen3_hf": "{model.embed_tokens,lm_head,model.layers.*.{self_attn,mlp}}",
    "gpt2_hf": "{transformer.wte,lm_head,transformer.h.*.{attn,mlp}}",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mesh; parameters are stored in parts over dp. sequence: whether tp also cuts it between modules."""

    dp: int = 1
    tp: int = 1
    sequence: bool = False


CASES = {
    "fsdp 2": Case(dp=2),
    "tp 2": Case(tp=2),
    "fsdp 2, tp 2": Case(dp=2, tp=2),
}
SEQUENCE = {
    "tp 2, sequence": Case(tp=2, sequence=True),
    "fsdp 2, tp 2, sequence": Case(dp=2, tp=2, sequence=True),
}
TRANSFORMERS = {f"{card}/tiny, {name}": (card, case) for card in PLACED for name, case in {**CASES, **SEQUENCE}.items()}
SAMPLE = {
    *(f"{card}/tiny, {name}, float64" for card in PLACED for name in ("tp 2", "fsdp 2, tp 2")),
    *(f"{card}/tiny, fsdp 2, tp 2, float32" for card in PLACED),
    *(f"{card}/tiny, fsdp 2, tp 2, sequence, float64" for card in PLACED),
}


def plan_of(card: str, case: Case, dtype: str) -> Plan:
    """The plan of a case for the tiny flavor of a card, given by its name or its path."""
    path = CARDS / f"{card}.card.toml" if card in PLACED else Path(card)
    names = PLACED.get(card, PLACED["gpt2_hf"])
    lines = [f'meshlang = 1\nmodel = "{path}#tiny"', "[mesh]", f"dp = {case.dp}", f"tp = {case.tp}"]
    lines += ["[sizes]", "batch = 4", "seq = 16"]
    lines += ["[precision]", *(f'{word} = "{dtype}"' for word in ("state", "compute", "reduce"))]
    lines += ["[place]", 'batch = "dp"', *(f'{name} = "tp"' for name in names)]
    lines += [] if "heads" in names else ['heads = "whole"']
    if case.sequence:
        lines += ['seq = "tp"', f'[within."{GATHERED.get(card, GATHERED["gpt2_hf"])}"]', 'seq = "whole"']
    if case.dp > 1:
        lines += ["[store]", 'over = ["dp"]']
    return compile(Request(source=Source(name=str(HERE / "spec.toml"), text="\n".join(lines) + "\n")))


@pytest.mark.parametrize(("card", "case", "dtype"), rows(TRANSFORMERS, SAMPLE))
def test_transformers_step_is_that_of_one_rank(
    card: str, case: Case, dtype: str, ranks: RankPool, references: References
) -> None:
    """The unchanged model has one rank's loss and gradients, biases too, and issues the plan's collectives only."""
    plan = plan_of(card, case, dtype)
    path = references.path("hf_models:rank_reference", plan)
    for report in ranks.run("hf_models:rank_step", plan, path, ranks=plan.ranks):
        assert report.misplaced == ()
        assert differences(plan, report.counts) == []
        assert sum(planned(plan).values()) > 4
        assert report.worst <= BOUNDS[dtype]


def test_bias_that_is_not_added_is_refused(ranks: RankPool, references: References, tmp_path: Path) -> None:
    """A card that takes a bias for a factor of a sum plans a sum of its gradients; the real gradient is whole."""
    card = tmp_path / "card.toml"
    card.write_text((CARDS / "gpt2_hf.card.toml").read_text().replace(', added = ["bias"]', ""))
    plan = plan_of(str(card), CASES["tp 2"], "float64")
    assert "tp" in plan.by_fqn["transformer.h.0.mlp.c_proj.bias"].grad
    path = references.path("hf_models:rank_reference", plan)
    message = r"the gradient of transformer.h.1.mlp.c_proj.bias comes as \(Replicate\(\),\), in the plan as \(Partial"
    with pytest.raises(RankError, match=message):
        ranks.run("hf_models:rank_step", plan, path, ranks=2)


def test_first_guess_of_positions_is_refused(ranks: RankPool, references: References, tmp_path: Path) -> None:
    """GPT-2's positions are one row, which no first card sees: the shape that comes and that of the card are told."""
    card = tmp_path / "card.toml"
    card.write_text((CARDS / "gpt2_hf.card.toml").read_text().replace("one seq", "seq").replace(', "one"]', "]"))
    plan = plan_of(str(card), CASES["tp 2"], "float64")
    path = references.path("hf_models:rank_reference", plan)
    with pytest.raises(RankError, match=r"transformer.wpe input.input has the shape \(1, 16\), in the plan \(seq\)"):
        ranks.run("hf_models:rank_step", plan, path, ranks=2)


def test_positions_without_their_maker_are_refused(ranks: RankPool, references: References, tmp_path: Path) -> None:
    """Under a card that does not say that the model makes its positions, they are no rank's part of the sequence."""
    card = tmp_path / "card.toml"
    card.write_text((CARDS / "gpt2_hf.card.toml").read_text().replace(', made = ["input"]', ""))
    plan = plan_of(str(card), SEQUENCE["tp 2, sequence"], "float64")
    path = references.path("hf_models:rank_reference", plan)
    with pytest.raises(RankError, match=r"transformer.wpe input.input is made by the model, .*Shard\(dim=1\).*`made`"):
        ranks.run("hf_models:rank_step", plan, path, ranks=2)


def test_loss_inside_the_model_is_refused(ranks: RankPool) -> None:
    """With labels a model gives its own tokens' mean before its logits: no share of the batch's, so it is told."""
    plan = plan_of("gpt2_hf", CASES["fsdp 2"], "float64")
    with pytest.raises(RankError, match=r"the model output has the shape \(\), in the plan \(batch, seq, vocab 64\)"):
        ranks.run("hf_models:rank_labelled", plan, ranks=2)
