"""torchtitan's flags -> the spec that they come to.

Meanings are those of torchtitan 0.3.0: `torchtitan.config.ParallelismConfig`, and for stages
`torchtitan.distributed.pipeline_parallel._generate_llm_fqn_per_model_part`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ..card.model import Model
from ..diagnostics import Bag
from .titan_flags import DEFAULTS, LOCAL, MOST_DIGITS, NO_WORD, PRECISION, SEVERAL, SINGLE, SIZES, Asked
from .written import Imported, Tables, text_of


def imported(flags: Sequence[str], *, name: str, model: Model, ranks: int | None, bag: Bag) -> Imported | None:
    """The spec of a command line of torchtitan's, or None with a finding for each flag that has no word here.

    Args:
        name: what the spec calls the model.
        ranks: how many there are, where the flags leave it open.
    """
    before = len(bag)
    asked = Asked(flags=flags, bag=bag)
    asked.refuse()
    if len(bag) > before:
        return None
    tables = _tables(asked, name, model, ranks)
    if len(bag) > before:
        return None
    return Imported(text=text_of(tables), ranks=ranks if asked.shard < 0 else asked.ranks)


def _tables(asked: Asked, name: str, model: Model, ranks: int | None) -> Tables:
    """Every table of the spec, by its header; "" for the keys before the first."""
    axes = _axes(asked)
    over = [axis for axis in ("dp", "cp") if axis in axes and (axis != "dp" or asked.shard != 1)]
    place = _place(asked, axes)
    tables: Tables = {"": {"meshlang": 1, "model": name}, "mesh": dict(axes)}
    tables["sizes"] = _sizes(asked, ranks)
    tables["precision"] = {key: asked.given[flag].value for flag, key in PRECISION.items() if flag in asked.given}
    if "copies" in axes:
        tables["topology"] = {"order": [axis for axis in ("pp", "copies", "dp", "cp", "tp") if axis in axes]}
    tables["place"] = place
    if isinstance(place.get("seq"), list) or place.get("seq") == "tp":
        inside = '"{tok_embeddings,lm_head,layers.*.attention,layers.*.feed_forward}"'
        tables[f"within.{inside}"] = {"seq": "cp" if "cp" in axes else "whole"}
    if over:
        tables["store"] = {"over": over, **_after_forward(asked)}
    if asked.pp > 1:
        tables["pipeline"] = _pipeline(asked, model, ranks)
    if "cp" in axes:
        balanced = asked.value("parallelism.context_parallel_load_balancer") == "headtail"
        tables["strategy.ring_attention"] = {"axis": "cp", "balance": "head_tail" if balanced else "none"}
    tables["launch"] = _launch(asked)
    return {header: table for header, table in tables.items() if table}


def _axes(asked: Asked) -> dict[str, int | str]:
    """Mesh axis -> size, without those that torchtitan would make of size 1."""
    found: dict[str, int | str] = {}
    if asked.pp > 1:
        found["pp"] = asked.pp
    if asked.replicate > 1 and asked.shard == 1:
        found["dp"] = asked.replicate
    elif asked.replicate > 1:
        found["copies"] = asked.replicate
    if asked.shard != 1:
        found["dp"] = "rest" if asked.shard < 0 else asked.shard
    found |= {axis: size for axis, size in (("cp", asked.cp), ("tp", asked.tp)) if size > 1}
    return found or {"dp": 1}


def _place(asked: Asked, axes: Mapping[str, object]) -> dict[str, object]:
    """Which dimension each axis cuts, as torchtitan's own sharding of a decoder does."""
    data = [axis for axis in ("copies", "dp") if axis in axes]
    found: dict[str, object] = {"batch": data if len(data) > 1 else data[0] if data else "whole"}
    scattered = asked.tp > 1 and asked.true("parallelism.enable_sequence_parallel")
    seq = [axis for axis in ("cp", "tp") if axis in axes and (axis == "cp" or scattered)]
    if seq:
        found["seq"] = seq if len(seq) > 1 else seq[0]
    return found | dict.fromkeys(("heads", "kv_heads", "mlp", "vocab"), "tp" if asked.tp > 1 else "whole")


def _after_forward(asked: Asked) -> dict[str, str]:
    word = asked.value("parallelism.fsdp_reshard_after_forward")
    return {} if word == "default" else {"after_forward": "free" if word == "always" else "keep"}


def _sizes(asked: Asked, ranks: int | None) -> dict[str, object]:
    """The batch over all ranks, and tokens a sequence; what no flag says is left out."""
    found: dict[str, object] = {key: asked.count(flag) for flag, key in SIZES.items() if flag in asked.given}
    local, parts = _local(asked), _data_ranks(asked, ranks)
    if local is None:
        return found
    if parts is None:
        asked.find(LOCAL, f"`{LOCAL}` = {local} is of each rank, and how many there are is left open", "say `--ranks`")
    elif "batch" in found and int(str(found["batch"])) % (local * parts):
        asked.find(LOCAL, f"`batch` = {found['batch']} does not divide over {parts} data ranks of {local} sequences")
    else:
        passes = int(str(found.get("batch", local * parts))) // (local * parts)
        found = {"batch": local * parts * passes, **found, **({"accumulation": passes} if passes > 1 else {})}
    return found


def _local(asked: Asked) -> int | None:
    return asked.count(LOCAL) if LOCAL in asked.given else None


def _data_ranks(asked: Asked, ranks: int | None) -> int | None:
    if asked.shard > 0:
        return asked.replicate * asked.shard
    return None if ranks is None else ranks // (asked.tp * asked.cp * asked.pp)


def _pipeline(asked: Asked, model: Model, ranks: int | None) -> dict[str, object]:
    """The schedule, its microbatches and the layers of each stage."""
    key = "parallelism.pipeline_parallel_schedule"
    known = {name.lower(): ours for name, ours in (SINGLE | SEVERAL).items()}
    schedule = known.get(asked.value(key).lower())
    if schedule is None:
        asked.find(key, f"`{key}` = {asked.value(key)} is not planned", f"planned: {', '.join(SINGLE | SEVERAL)}")
        return {}
    local, size = _local(asked), asked.count("parallelism.pipeline_parallel_microbatch_size")
    if local is None or local % size:
        asked.find(
            "parallelism.pipeline_parallel_microbatch_size",
            f"`pipeline_parallel_degree` = {asked.pp}: a pipeline has to be told `{LOCAL}`, in microbatches of {size}",
        )
        return {}
    single = schedule in SINGLE.values()
    stages = _stages(asked, model, single)
    split = _split(asked, model, stages) if stages else None
    if split is None:
        return {}
    chunks = {} if single or stages == 2 * asked.pp else {"chunks": stages // asked.pp}
    return {"schedule": schedule, "microbatches": local // size, **chunks, "split": split}


def _stages(asked: Asked, model: Model, single: bool) -> int:
    """How many stages torchtitan makes; 0 with a finding where it would refuse."""
    key = "parallelism.pipeline_parallel_layers_per_stage"
    if asked.value(key) == "None":
        return asked.pp if single else 2 * asked.pp
    stages = -(-_effective(asked, model) // asked.count(key))
    each = stages // asked.pp
    if stages % asked.pp or (single and each != 1) or (not single and each < 2):
        asked.find(key, f"`{key}` makes {stages} stages over {asked.pp} ranks: torchtitan refuses it, too")
        return 0
    return stages


def _effective(asked: Asked, model: Model) -> int:
    return sum(_ends(asked)) + max((len(word.modules) for word in model.split if word.counted), default=0)


def _ends(asked: Asked) -> tuple[int, int]:
    before, after = (f"parallelism.pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
    return asked.count(before), asked.count(after)


def _split(asked: Asked, model: Model, stages: int) -> str | None:
    """The layers of each stage, as torchtitan deals them out; embeddings and head weigh as layers do."""
    words = [word.name for word in model.split]
    counted = next((i for i, word in enumerate(model.split) if word.counted), None)
    key = "parallelism.pipeline_parallel_degree"
    if counted is None:
        asked.find(key, f"`{key}`: the card of `{model.name}` has no `[split]`, so its layers are not known")
        return None
    each, more = divmod(_effective(asked, model), stages)
    counts = [each + (stage < more) for stage in range(stages)]
    counts[0], counts[-1] = counts[0] - _ends(asked)[0], counts[-1] - _ends(asked)[1]
    if each < max(_ends(asked)):
        asked.find(key, f"`{key}`: {stages} stages are more than the layers are enough for, for torchtitan too")
        return None
    parts = [[str(count)] if count else [] for count in counts]
    parts[0], parts[-1] = words[:counted] + parts[0], parts[-1] + words[counted + 1 :]
    return " | ".join(" + ".join(part) for part in parts)


def _launch(asked: Asked) -> dict[str, object]:
    """torchtitan's recipe, and what its flags say beside parallelism."""
    taken = {*DEFAULTS, *SIZES, *PRECISION, *NO_WORD, LOCAL, "module", "config"}
    rest = {name: _typed(flag.value) for name, flag in asked.given.items() if name not in taken}
    found: dict[str, object] = {}
    if "module" in asked.given and "config" in asked.given:
        found["recipe"] = f"torchtitan.models.{asked.value('module')}:{asked.value('config')}"
    return found | ({"set": rest} if rest else {})


def _typed(value: str) -> object:
    """A flag's text as the TOML value that it spells."""
    readers: tuple[Callable[[str], float], ...] = (int, float)
    if value in ("True", "False"):
        return value == "True"
    for read in readers if len(value) < MOST_DIGITS and "_" not in value else ():
        try:
            number = read(value)
        except ValueError:
            continue
        return number if math.isfinite(number) else value
    return value
