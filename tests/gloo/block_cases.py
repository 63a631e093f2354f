"""The meshes that block parallelism is held on, as specs of the block-diffusion model."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from meshlang.card.find import Cards
from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.testing import parity, titan

CARD = Path(__file__).parents[2] / "models" / "block_diffusion" / "card.toml"
CARDS = Cards(extra={"block_diffusion": CARD})

#: Tokens that a window sees back.
WINDOW = 40

#: Modules in which the sequence is gathered over tp under sequence parallelism.
GATHERED = "{tok_embeddings,lm_head,layers.*.{attention,feed_forward}}"


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A mesh, outermost axis first, with `block` among them, and what runs over that.

    Attributes:
        seq: tokens, in blocks of 16.
        options: of the strategy.
        store: axes over which parameters are stored in parts.
        split: of the layers over stages; even without it.
        sequence: whether tp also cuts the sequence between modules.
    """

    mesh: dict[str, int]
    seq: int = 128
    flavor: str = "tiny"
    strategy: str = "csbp"
    options: dict[str, Any] = field(default_factory=dict)
    store: tuple[str, ...] = ("block",)
    sequence: bool = False
    recompute: bool = False
    schedule: str | None = None
    split: str = ""

    @property
    def recipe(self) -> str:
        """That of the flavor."""
        return f"meshlang_models.block_diffusion.config_registry:{self.flavor}"


def plan_of(case: Blocks, dtype: str) -> Plan:
    """The plan of a case."""
    source = Source(name=str(Path(__file__).parent / "spec.toml"), text=spec(case, dtype))
    return compile(Request(source=source, cards=CARDS, launch=True))


def spec(case: Blocks, dtype: str) -> str:
    """The case as a spec."""
    tp = '"tp"' if "tp" in case.mesh else '"whole"'
    lines = [f'meshlang = 1\nmodel = "block_diffusion/{case.flavor}"']
    lines += ["[mesh]", *(f"{axis} = {size}" for axis, size in case.mesh.items())]
    lines += ["[sizes]", "batch = 4", f"seq = {case.seq}"]
    kept = "float32" if dtype == "bfloat16" else dtype
    lines += ["[precision]", f'state = "{kept}"', f'compute = "{dtype}"', f'reduce = "{kept}"']
    lines += ["[place]", *(f"{name} = {tp}" for name in ("heads", "kv_heads", "mlp", "vocab"))]
    lines += ['batch = "dp"'] if "dp" in case.mesh else []
    lines += ['seq = ["block", "tp"]', f'[within."{GATHERED}"]', 'seq = "block"'] if case.sequence else []
    lines += ["[store]", f"over = {list(case.store)}".replace("'", '"')] if case.store else []
    lines += ['[recompute]\nmodules = ["layers.*"]'] if case.recompute else []
    lines += [f'[pipeline]\nschedule = "{case.schedule}"\nmicrobatches = 2'] if case.schedule else []
    lines += [f'split = "{case.split}"'] if case.split else []
    lines += [f"[strategy.{case.strategy}]", 'axis = "block"', "block_size = 16"]
    lines += [f"{key} = {_toml(value)}" for key, value in case.options.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def rank_reference(recipe: str, mask: str, weights: str, plan: Plan, path: str) -> None:
    """Loss and gradients of one rank with a dense mask, in the plan's type.

    Args:
        mask: "window" for one by the table of the objective and a window besides.
        weights: the type that a run computes with, to which they are rounded first: what is rounded before the
            step is another model, and none of the step's error.
    """
    with parity.precision(plan):
        config = titan.config_of(recipe, plan)
        model: Any = titan.build(config, plan)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.to(getattr(torch, weights)))
        if mask == "window":
            model.get_attention_masks = _windowed
        batch = titan.own_batch(config, plan)
        loss = titan.forward_backward(config, model, batch, titan.counted(batch))
    torch.save({"loss": loss.detach(), "gradients": parity.gradients_of(model)}, path)


def _windowed(positions: torch.Tensor) -> Any:
    from meshlang_models.block_diffusion import masks
    from torch.nn.attention.flex_attention import create_block_mask

    rows = masks.rows_of(masks.documents(positions))
    seen, place = masks.mask_mod(rows, rows, 16), rows.place

    def near(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return seen(b, h, q, k) & (place[q] - place[k] < WINDOW)

    return create_block_mask(near, len(positions), None, len(place), len(place), device="cpu")


def rank_batches(recipe: str, plan: Plan, steps: int, first: int) -> list[Any]:
    """(token ids, labels, which tokens of whole sequences) of each step that a rank trains on, after `first` steps."""
    from meshlang_strategies import csbp_ops
    from torch import distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    config = titan.config_of(recipe, plan)
    loader = config.dataloader.build(
        dp_world_size=1,
        dp_rank=0,
        tokenizer=config.tokenizer.build(tokenizer_path=config.hf_assets_path),
        seq_len=plan.sizes.seq,
        local_batch_size=plan.sizes.batch,
    )
    for _ in range(first):  # what a resumed run skips: its state is loaded, not its batches
        loader.load_state_dict(next_state(loader))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if dist.get_world_size() > 1 else None
    found, batches = [], iter(loader)
    for _ in range(steps):
        inputs, labels = next(batches)
        mine = csbp_ops.prepare_batch(plan, plan.strategies[0], {**inputs, "labels": labels}, mesh)
        rows = mine["attention_masks"]
        found.append((mine["input"], mine["labels"], mine["clean"], rows.corrupted, rows.clean))
    return found


def next_state(loader: Any) -> dict[str, Any]:
    """The state after one more batch."""
    next(iter(loader))
    return loader.state_dict()
