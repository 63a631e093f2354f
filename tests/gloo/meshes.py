"""The meshes that parity is held on, and the specs that ask for them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from meshlang.card.find import Cards
from meshlang.compiler import Request, compile, load, resolved_of
from meshlang.placement import Layout
from meshlang.plan.collectives import finish
from meshlang.plan.derive import start
from meshlang.plan.ir import Edge, Plan
from meshlang.source import Source

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "models"
CARDS = Cards(extra={name: MODELS / name / "card.toml" for name in ("block_diffusion", "llama", "llama3", "qwen3")})

#: Modules in which the sequence is gathered under sequence parallelism, by the card's name.
GATHERED = {
    "llama": "{tok_embeddings,lm_head,layers.*.{attention,feed_forward}}",
    "decoder": "{tokens,places,head,layers.*.{attention,feed_forward}}",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mesh and what is done with it.

    Attributes:
        mesh: axis -> size, outermost first; "dp" and "copies" carry the batch.
        store: axes over which parameters are stored in parts.
        sequence: whether tp also cuts the sequence between modules.
        extra: more of the table `store`.
        at: exceptions.
    """

    mesh: dict[str, int]
    store: tuple[str, ...] = ()
    sequence: bool = False
    batch: int = 8
    seq: int = 64
    extra: dict[str, str] = field(default_factory=dict)
    at: dict[str, dict[str, str]] = field(default_factory=dict)


CASES = {
    "ddp 2": Case(mesh={"dp": 2}),
    "fsdp 2": Case(mesh={"dp": 2}, store=("dp",)),
    "fsdp 3": Case(mesh={"dp": 3}, store=("dp",), batch=6),
    "fsdp 4": Case(mesh={"dp": 4}, store=("dp",)),
    "hsdp 2x2": Case(mesh={"copies": 2, "dp": 2}, store=("dp",)),
    "tp 2": Case(mesh={"tp": 2}),
    "tp 2, sequence": Case(mesh={"tp": 2}, sequence=True),
    "tp 4, sequence": Case(mesh={"tp": 4}, sequence=True),
    "ddp 2, tp 2": Case(mesh={"dp": 2, "tp": 2}),
    "ddp 2, tp 2, sequence": Case(mesh={"dp": 2, "tp": 2}, sequence=True),
    "fsdp 2, tp 2": Case(mesh={"dp": 2, "tp": 2}, store=("dp",)),
    "fsdp 2, tp 2, sequence": Case(mesh={"dp": 2, "tp": 2}, store=("dp",), sequence=True),
    "fsdp 2, tp 4": Case(mesh={"dp": 2, "tp": 4}, store=("dp",)),
    "fsdp 4, tp 2, sequence": Case(mesh={"dp": 4, "tp": 2}, store=("dp",), sequence=True),
    "hsdp 2x2, tp 2": Case(mesh={"copies": 2, "dp": 2, "tp": 2}, store=("dp",)),
    "hsdp 2x2, tp 2, sequence": Case(mesh={"copies": 2, "dp": 2, "tp": 2}, store=("dp",), sequence=True),
    "one rank": Case(mesh={"dp": 1}),
}


#: Meshes with an axis for the sequence alone.
CONTEXT_CASES = {
    "cp 2": Case(mesh={"cp": 2}),
    "cp 2, stored": Case(mesh={"cp": 2}, store=("cp",)),
    "fsdp 2, cp 2": Case(mesh={"dp": 2, "cp": 2}, store=("dp", "cp")),
    "fsdp 2, cp 2 whole": Case(mesh={"dp": 2, "cp": 2}, store=("dp",)),
    "fsdp 2, cp 2, tp 2, sequence": Case(mesh={"dp": 2, "cp": 2, "tp": 2}, store=("dp", "cp"), sequence=True),
}


def plan_of(case: Case, model: str, dtype: str, **precision: str) -> Plan:
    """The plan of a case for a model, `CARD/FLAVOR` or the plain decoder's `FILE#FLAVOR`."""
    request = request_of(case, model, dtype, **precision)
    if "cp" not in case.mesh:
        return compile(request)
    return finish(gathered(start(resolved_of(load(request), request))))


def request_of(case: Case, model: str, dtype: str, **precision: str) -> Request:
    """What the compiler is asked for."""
    text = spec(case, model, dtype, **precision)
    return Request(source=Source(name=str(HERE / "spec.toml"), text=text), cards=CARDS)


def with_ties(folder: Path, card: str, *, tied: bool) -> str:
    """A card with one more flavor, its debug model with embedding and head tied or not; the model's name in a spec."""
    text = (MODELS / card / "card.toml").read_text()
    start = text.index("[flavor.debugmodel]")
    old = text[start : text.index("[flavor.", start + 1)].replace("debugmodel", "other").replace("tied = true\n", "")
    path = folder / "card.toml"
    path.write_text(text[:start] + old + "tied = true\n" * tied + text[start:])
    return f"{path}#other"


def gathered(plan: Plan) -> Plan:
    """The plan with the keys and values of every attention gathered over cp, as a strategy would have it."""
    return replace(plan, edges=tuple(_gathered(edge) for edge in plan.edges))


def _gathered(edge: Edge) -> Edge:
    if edge.port not in ("input.k", "input.v", "input.k_BLNH", "input.v_BLNH"):
        return edge
    dims = tuple(tuple(axis for axis in cuts if axis != "cp") for cuts in edge.dst.dims)
    return replace(edge, dst=Layout(dims=dims, grad=(*edge.dst.grad, "cp")))


def spec(case: Case, model: str, dtype: str, **precision: str) -> str:
    """The case as a spec."""
    card = "decoder" if "decoder" in model else "llama"
    data = [axis for axis in ("copies", "dp") if axis in case.mesh]
    weights = '"tp"' if "tp" in case.mesh else '"whole"'
    place: dict[str, str] = dict.fromkeys(("heads", "kv_heads", "mlp", "vocab"), weights)
    place["batch"] = _words(data) if data else '"whole"'
    outer = ["cp"] if "cp" in case.mesh else []
    sequence = [*outer, "tp"] if case.sequence else outer
    types = {"state": dtype, "compute": dtype, "reduce": dtype} | precision
    tables = {
        "mesh": {axis: str(size) for axis, size in case.mesh.items()},
        "topology": {"order": _words(case.mesh)},
        "sizes": {"batch": str(case.batch), "seq": str(case.seq)},
        "precision": {name: f'"{word}"' for name, word in types.items()},
        "place": place | ({"seq": _words(sequence)} if sequence else {}),
        f'within."{GATHERED[card]}"': {"seq": '"cp"' if outer else '"whole"'} if case.sequence else {},
        "store": ({"over": _words(case.store)} if case.store else {}) | case.extra,
        **{f'at."{pattern}"': table for pattern, table in case.at.items()},
    }
    return f'meshlang = 1\nmodel = "{model}"\n' + "".join(_table(*each) for each in tables.items() if each[1])


def _words(names: Iterable[str]) -> str:
    return str(list(names)).replace("'", '"')


def _table(name: str, entries: dict[str, str]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
