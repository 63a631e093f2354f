"""tp_plans of Hugging Face transformers as cards and specs: each parameter lies as transformers itself lays it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner, Result
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from meshlang.cli import main
from meshlang.compiler import Request, compile
from meshlang.foreign.tp_plan import KNOWN, REFUSED, cut
from meshlang.format import formatted
from meshlang.placement import Replicate
from meshlang.placement import Shard as Cut
from meshlang.runtime.cards import check_card
from meshlang.runtime.hugging_face import built
from meshlang.source import Source

os.environ.setdefault("HF_HUB_OFFLINE", "1")

EXAMPLES = Path(__file__).parents[2] / "examples"

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "llama, tied": {"model_type": "llama", "tie_word_embeddings": True},
    "llama, biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
    "gemma": {"model_type": "gemma", "architectures": ["GemmaForCausalLM"]},
}


def config(folder: Path, values: Mapping[str, Any]) -> Path:
    """A folder with a config.json."""
    (folder / "config.json").write_text(json.dumps({**SMALL, **values}, indent=2))
    return folder


def bring(*words: object) -> Result:
    """`meshlang import --hf`."""
    return CliRunner().invoke(main, ["import", "--hf", *map(str, words)], prog_name="meshlang", catch_exceptions=False)


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    """A mesh of two ranks, of which this process is one; nothing is sent."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def laid(module: Any, mesh: DeviceMesh) -> dict[str, int | None]:
    """Parameter -> the dim that transformers itself cuts on the mesh, None for whole."""
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    apply_tensor_parallelism(module, mesh, module._expand_parallel_plan(module.tp_plan))
    return {fqn: _dim(each) for fqn, each in module.named_parameters(remove_duplicate=False)}


def _dim(parameter: nn.Parameter) -> int | None:
    if not isinstance(parameter.data, DTensor) and not isinstance(parameter, DTensor):
        return None
    (placement,) = parameter.placements  # pyright: ignore[reportAttributeAccessIssue]
    assert type(placement) is Shard or placement.is_replicate()
    return placement.dim % parameter.ndim if isinstance(placement, Shard) else None


def planned(folder: Path, stem: str) -> dict[str, int | None]:
    """Parameter -> the dim that the plan of the written spec cuts."""
    plan = compile(Request.of(folder / f"{stem}.toml", ranks=2))
    found: dict[str, int | None] = {}
    for tensor in plan.tensors:
        placement = tensor.layout.placement("tp")
        assert isinstance(placement, Cut | Replicate)
        for name in (tensor.fqn, *tensor.tied) if tensor.kind == "parameter" else ():
            found[name] = placement.dim if isinstance(placement, Cut) else None
    return found


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS)
def test_every_parameter_lies_as_the_tp_plan_asks(values: dict[str, Any], tmp_path: Path, mesh: DeviceMesh) -> None:
    """The plan cuts each parameter in the dim in which transformers cuts it, and leaves the same ones whole."""
    result = bring(config(tmp_path, values), "-o", tmp_path)
    assert result.exit_code == 0, result.output
    stem = f"{values['model_type']}_hf"
    assert result.output == f"wrote {tmp_path}/{stem}.card.toml\nwrote {tmp_path}/{stem}.toml\n"
    theirs = laid(built({**SMALL, **values, "tie_word_embeddings": False}), mesh)  # they tie what is laid out already
    assert planned(tmp_path, stem) == theirs
    assert len(set(theirs.values())) == 3  # rows, columns, whole


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_card_and_spec_are_right(name: str, tmp_path: Path) -> None:
    """The card agrees with the model, and the spec is as `fmt` writes it; both say where they are from."""
    bring(config(tmp_path, CONFIGS[name]), "-o", tmp_path, "--ranks", 2)
    card = Source.read(tmp_path / f"{name}_hf.card.toml")
    assert check_card(card, "default", built({**SMALL, **CONFIGS[name]})) == ()
    text = (tmp_path / f"{name}_hf.toml").read_text()
    assert formatted(text) == text
    assert "tp = 2\n" in text
    assert "Its pp_plan is not read" in text
    assert "`lm_head` gathers its output there. Here the loss takes its parts." in text
    again = bring(tmp_path, "-o", tmp_path)
    assert again.exit_code == 2
    assert "cannot write" in again.output


def test_plan_sends_what_the_example_s_plan_sends(tmp_path: Path) -> None:
    """Qwen3's collectives are those of the example's card under the same rules, of which values are tested."""
    bring(config(tmp_path, CONFIGS["qwen3"]), "-o", tmp_path, "--ranks", 2)
    text = (tmp_path / "qwen3_hf.toml").read_text() + "\n[sizes]\nbatch = 4\nseq = 16\n"
    example = re.sub(r'"\./.*#default"', f'"{EXAMPLES}/cards/qwen3_hf.card.toml#tiny"', text)
    assert example != text
    plans = [compile(Request(source=Source(name=f"{tmp_path}/s", text=each))) for each in (text, example)]
    ours, theirs = (Counter((c.kind, c.axis, c.pass_, c.bytes, c.count) for c in plan.collectives) for plan in plans)
    assert ours == theirs
    assert len(ours) > 3


def test_models_without_a_plan_are_refused(tmp_path: Path) -> None:
    """GPT-2 has no tp_plan: that is the finding, with a way on."""
    result = bring(config(tmp_path, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    assert result.exit_code == 1
    assert "error[not-expressible]: GPT2LMHeadModel has no tp_plan" in result.output
    assert "`meshlang card init` writes its card" in result.output
    assert '"model_type": "gpt2"' in result.output


MIXTRAL = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4}


def test_experts_are_refused_by_name(tmp_path: Path) -> None:
    """Of Mixtral's plan the rules of its experts are findings that name the pattern and the modules."""
    result = bring(config(tmp_path, MIXTRAL), "--format", "json")
    assert result.exit_code == 1
    found = {re.findall("`(.*?)`", each["message"])[0]: each for each in json.loads(result.output)}
    assert {each["code"] for each in found.values()} == {"not-expressible"}
    experts = "model.layers.*.mlp.experts"
    assert found.keys() == {experts, f"{experts}.gate_up_proj"}
    assert found[experts]["notes"] == ["experts are not planned", f"on {experts} (2 in all)"]
    assert "two weights lie in one" in found[f"{experts}.gate_up_proj"]["notes"][0]


PLAN = {
    "layers.*.attention.qkv_linear.wq": "colwise",
    "layers.*.attention.qkv_linear.wk": "colwise",
    "layers.*.attention.qkv_linear.wv": "colwise",
    "layers.*.attention.wo": "rowwise",
    "layers.*.feed_forward.w1": "colwise",
    "layers.*.feed_forward.w3": "colwise",
    "layers.*.feed_forward.w2": "rowwise",
    "lm_head": "colwise_rep",
}


def test_plan_of_the_config_needs_no_torch(tmp_path: Path) -> None:
    """With a card and a tp_plan in the config neither torch nor transformers is loaded; exceptions say why."""
    config(tmp_path, {"tp_plan": PLAN})
    code = "import sys\nfrom meshlang.cli import main\n"
    code += f"main(['import', '--hf', {str(tmp_path)!r}, '--model', 'llama/tiny'], standalone_mode=False)\n"
    code += "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '[at."tok_embeddings"]\n' in done.stdout
    assert 'vocab = "whole"\nwhy = "so in the tp_plan"\n' in done.stdout
    plan = compile(Request(source=Source(name="s", text=done.stdout), ranks=2))
    cuts = {fqn: str(tensor.layout.placement("tp")) for fqn, tensor in plan.by_fqn.items()}
    assert cuts["tok_embeddings.weight"] == "R"
    assert cuts["lm_head.weight"] == "S(0)"
    assert cuts["layers.1.attention.wo.weight"] == "S(1)"


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"layers.*.feed_forward.w2": "rowise"}, "`rowwise` is near"),
        ({"norm": "sequence_parallel"}, "`norm` = sequence_parallel has no word in a spec"),
        ({"layers.*.feed_forward.w2": "local_rowwise"}, "layers.*.feed_forward.w2 (4 in all)"),
        ({"layers.*.feed_forward.w1": "colwise_rep"}, "it gathers its output"),
        ({"layers.*.feed_forward.w2": "rowwise_rep"}, "it takes a whole input"),
        ({"layers.*.moe": "moe_tp_experts"}, "it names nothing here"),
        ({}, "the config has no tp_plan"),
    ],
)
def test_what_no_spec_says_is_named(rules: dict[str, str], told: str, tmp_path: Path) -> None:
    """A style without a word in a spec is a finding at its place in the config."""
    result = bring(config(tmp_path, {"tp_plan": rules}) / "config.json", "--model", "llama/tiny")
    assert result.exit_code == 1
    assert "error[not-expressible]" in result.output
    assert told in result.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[1]", "holds no config"),
        ('{"tp_plan": {"a": ["colwise"]}}', "`tp_plan` is no table of patterns and styles"),
        ('{"a": 1}', "knows no model_type `None`"),
        ('{"model_type": "llma"}', "knows no model_type `llma`"),
        ('{"model_type": "llama", "architectures": ["Nothing"]}', "has no class `Nothing`"),
        ('{"model_type": "llama", "hidden_size": "x"}', "transformers cannot build it"),
    ],
)
def test_what_is_no_config_is_wrong_usage(text: str, told: str, tmp_path: Path) -> None:
    """A file that no model can be built of ends with the reason."""
    (tmp_path / "config.json").write_text(text)
    result = bring(tmp_path)
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize(
    "words", [["no/such/file"], [".", "--titan"], [".", "--tensor_parallel", "2"]], ids=["file", "both", "flags"]
)
def test_what_to_read_is_one_thing(words: list[str]) -> None:
    """No file, two systems at once, or further words are wrong usage."""
    assert bring(*words).exit_code == 2


def test_without_transformers_there_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where transformers is not installed the command says that it is needed."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = bring(config(tmp_path, CONFIGS["llama"]))
    assert result.exit_code == 2
    assert "the model is built by transformers" in result.output


def test_folder_s_code_does_not_run(tmp_path: Path) -> None:
    """What `auto_map` names beside a config is not imported."""
    (tmp_path / "own.py").write_text("raise SystemExit(77)")
    values = {**CONFIGS["llama"], "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    assert bring(config(tmp_path, values)).exit_code == 0


@cache
def styles() -> dict[str, Any]:
    """transformers' styles by name."""
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    return {name: ALL_PARALLEL_STYLES[name] for name in ALL_PARALLEL_STYLES.keys()}  # noqa: SIM118


def test_every_style_is_known_or_refused() -> None:
    """Each style of transformers that lays parameters out is one or the other, never both."""
    assert styles().keys() <= {*KNOWN, *REFUSED}
    assert not {*KNOWN} & REFUSED.keys()


@pytest.mark.parametrize("style", KNOWN)
@pytest.mark.parametrize(("name", "shape"), [("weight", (8, 4)), ("bias", (8,))])
def test_styles_cut_as_transformers_cuts(style: str, name: str, shape: tuple[int, ...], mesh: DeviceMesh) -> None:
    """A style cuts a weight, and a bias, in the dim in which transformers' own class does."""
    if style.startswith("embedding") and name == "bias":
        return
    module = nn.Module()
    module.register_parameter(name, nn.Parameter(torch.empty(shape, device="meta")))
    styles()[style].shard_param(module, name, mesh)
    assert cut(style, f"a.{name}", len(shape)) == _dim(getattr(module, name))
