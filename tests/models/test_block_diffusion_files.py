"""Checkpoints of block diffusion: trained, read, converted from a Llama's, and decoded from."""

from pathlib import Path

import pytest
import torch
from meshlang_models.block_diffusion import FLAVORS, block_diffusion_config
from meshlang_models.block_diffusion.convert import main as convert
from meshlang_models.block_diffusion.generate import main as generate
from meshlang_models.block_diffusion.weights import find, flavor_of, read, write
from meshlang_models.llama import FLAVORS as LLAMAS
from meshlang_models.llama import llama_config

from meshlang.testing.exact import seeded_tensor
from meshlang.testing.ranks import RankPool


def llama_weights(flavor: str = "tiny") -> dict[str, torch.Tensor]:
    """The weights of a Llama by its own names, in float32."""
    with torch.device("meta"):
        model = llama_config(LLAMAS[flavor]).build()
    return {name: seeded_tensor(name, tuple(p.shape)).to(torch.float32) for name, p in model.named_parameters()}


@pytest.mark.gloo
def test_tiny_trains_and_writes(tmp_path: Path, pool: RankPool, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight steps of the unchanged Trainer lower the loss by one; from the checkpoint a prompt is continued."""
    recipe, saved = "meshlang_models.block_diffusion:tiny", {"checkpoint.enable": True}
    (losses,) = pool.run("trained_alone:rank_losses", recipe, str(tmp_path), 8, saved, ranks=1)
    assert len(losses) == 8
    assert max(losses[-3:]) < losses[0] - 1, losses
    assert read(tmp_path / "checkpoint").facts == {"block_size": 16, "objective": "masked"}
    assert generate([str(tmp_path / "checkpoint"), "--prompt", "def ", "--length", "20", "--steps", "2"]) == 0
    assert capsys.readouterr().out.startswith("def ")


def test_llama_becomes_block_diffusion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The converted checkpoint holds the Llama's weights, bit for bit, and nothing else, as a flavor's."""
    weights = llama_weights()
    (tmp_path / "step-3").mkdir()
    write(weights | {"optimizer.moment": torch.zeros(3)}, tmp_path / "step-7")
    assert convert([str(tmp_path), str(tmp_path / "new")]) == 0
    assert "step-7" in capsys.readouterr().out
    saved = read(tmp_path / "new")
    assert saved.weights.keys() == weights.keys()
    assert all(torch.equal(saved.weights[name], weight) for name, weight in weights.items())
    with torch.device("meta"):
        model = block_diffusion_config(FLAVORS[flavor_of(saved.weights)]).build()
    assert {name: p.shape for name, p in model.named_parameters()} == {n: w.shape for n, w in weights.items()}


def test_weights_alone_need_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint that does not say how it was trained is decoded only when the command says it."""
    write(llama_weights(), tmp_path)
    assert generate([str(tmp_path)]) == 2
    assert "say --block-size and --objective" in capsys.readouterr().err
    words = ["--block-size", "8", "--objective", "complementary", "--length", "9", "--steps", "1"]
    assert generate([str(tmp_path), *words]) == 0


def test_foreign_weights_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights of no flavor are an error with the nearest one and the first tensor that differs."""
    weights = llama_weights() | {"norm.weight": torch.ones(7)}
    write(weights, tmp_path / "old")
    assert convert([str(tmp_path / "old"), str(tmp_path / "new")]) == 2
    assert "tiny, differs in 1 names: norm.weight is (7,) here and (128,) there" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_missing_checkpoint_is_told(tmp_path: Path) -> None:
    """A folder without a whole checkpoint is an error that names it."""
    (tmp_path / "step-5").mkdir()
    with pytest.raises(ValueError, match="there is no whole checkpoint at"):
        find(tmp_path)
