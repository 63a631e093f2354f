"""A tp_plan of Hugging Face transformers -> the spec whose plan places every parameter as it asks.

Meanings are those of transformers 5.24, `transformers.distributed.tensor_parallel`: a rule names modules
or parameters, with `*` for numbers; a parameter follows the rule of its own name, else that of its module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..card.model import Model, parent
from ..diagnostics import Bag, Diagnostic, Label
from ..fold import fold, template
from ..near import near
from ..source import Source, Span
from .written import Imported, Tables, text_of

_GATHERED = ("colwise_gather_output", "colwise_rep")
_OUT = ("colwise", *_GATHERED)
_IN = ("rowwise",)
_WHOLE = ("replicate", "replicated_with_grad_allreduce")
_TABLE = {"embedding_rowwise": 0, "embedding_colwise": 1}
#: Styles that say which dim of a parameter is cut; what is sent follows from that.
KNOWN = (*_OUT, *_IN, *_WHOLE, *_TABLE)

_EXPERTS = "experts are not planned"
_PACKED = "two weights lie in one and each is cut by itself: of a dim's factors only the outermost is cut"
_LOCAL = "the module computes on local parts, and the rule does not say what sums or gathers them"
_SPLIT = "it takes a whole input: a dimension that is cut in a weight is cut in what the module takes, too"
#: Styles that a spec has no word for -> why.
REFUSED: Mapping[str, str] = {
    "packed_colwise": _PACKED,
    "packed_rowwise": _PACKED,
    "local_packed_rowwise": _PACKED,
    "moe_tp_experts": _EXPERTS,
    "moe_identity_expert": _EXPERTS,
    "grouped_gemm": _EXPERTS,
    "ep_dispatch_experts": _EXPERTS,
    "ep_router": _EXPERTS,
    "local": _LOCAL,
    "local_colwise": _LOCAL,
    "local_rowwise": _LOCAL,
    "local_params": _LOCAL,
    "gather": _LOCAL,
    "all_reduce": _LOCAL,
    "rowwise_split_input": _SPLIT,
    "rowwise_rep": _SPLIT,
    "mla_kv_a_proj": "a part of its output goes on by another way, with a gradient of its own",
    "sequence_parallel": 'it speaks of values between modules: `seq = "tp"` in [place], [within] where it is whole',
}


@dataclass(frozen=True, kw_only=True)
class TpPlan:
    """What is asked for.

    Attributes:
        of: whose plan it is, in words.
        rules: pattern -> style.
        source: the config.
        remarks: what else to say above the spec.
    """

    of: str
    rules: Mapping[str, str]
    source: Source
    remarks: tuple[str, ...] = ()

    def span(self, pattern: str = "") -> Span:
        """Where the config has a rule, or says which model it is of."""
        for key in (pattern, pattern.partition(".")[2], "model_type"):
            if key and (found := re.search(re.escape(json.dumps(key)), self.source.text)):
                return self.source.span(*found.span())
        return self.source.span(0, 0)


def refused(plan: TpPlan, names: Sequence[str], bag: Bag) -> bool:
    """A finding for each rule that a spec has no word for, and one for a model without rules.

    Args:
        names: of modules and parameters.
    """
    before = len(bag)
    if not plan.rules:
        note = "`meshlang card init` writes its card; what `tp` cuts is then said in [place]"
        bag.add(_finding(f"{plan.of} has no tp_plan", plan.span(), note))
    for pattern, style in plan.rules.items():
        if style in KNOWN:
            continue
        why = REFUSED.get(style, "transformers 5.24 has no such style")
        meant = None if style in REFUSED else near(style, (*KNOWN, *REFUSED))
        named = [name for name in names if template(name) == pattern]
        notes = [why, f"on {', '.join(fold(named, names))} ({len(named)} in all)" if named else "it names nothing here"]
        text = f"`{meant}` is near" if meant else ""
        bag.add(_finding(f"`{pattern}` = {style} has no word in a spec", plan.span(pattern), *notes, text=text))
    return len(bag) > before


def imported(plan: TpPlan, model: Model, *, name: str, ranks: int | None, bag: Bag) -> Imported | None:
    """The spec of a plan that is not refused; None with a finding for each tensor that is asked for in two ways.

    Args:
        model: the card's, of which the spec places every dimension.
        name: what the spec calls it.
        ranks: of the axis `tp`; None leaves it open.
    """
    before = len(bag)
    wanted = asked(plan, model, bag)
    _gathered(plan, model, bag)
    if len(bag) > before:
        return None
    votes = _votes(model, wanted)
    often = {word: "tp" if 2 * sum(votes[word].values()) >= len(votes[word]) else "whole" for word in votes}
    place: dict[str, object] = {"batch": "dp"} if "batch" in model.names else {}
    place |= {word: often[word] for word in often if word not in model.whole or often[word] == "tp"}
    tables: Tables = {
        "": {"meshlang": 1, "model": name},
        "mesh": {"dp": 1, "tp": ranks if ranks is not None else "rest"},
        "place": place,
    }
    for pattern, words in _exceptions(model, votes, often).items():
        tables[f"at.{json.dumps(pattern)}"] = {**words, "why": "so in the tp_plan"}
    remarks = "".join(f"# {line}\n" for line in (*_head(plan, model), *plan.remarks))
    return Imported(text=remarks + text_of(tables), ranks=ranks)


def _gathered(plan: TpPlan, model: Model, bag: Bag) -> None:
    """Only scores of the whole model may stay cut where a rule gathers them: the loss takes parts of them."""
    ends = [model.loss.logits] if model.loss is not None else []
    ends += [model.by_module[""].output] if "" in model.by_module else []
    for pattern, style in plan.rules.items():
        named = [b.module for b in model.boundaries if template(b.module) == pattern and b.output not in ends]
        if style in _GATHERED and named:
            why = "it gathers its output: a dimension that is cut in a weight is cut in what the module gives, too"
            on = f"on {', '.join(fold(named, model.modules))} ({len(named)} in all)"
            bag.add(_finding(f"`{pattern}` = {style} has no word in a spec", plan.span(pattern), why, on))


def asked(plan: TpPlan, model: Model, bag: Bag) -> dict[str, int | None]:
    """Parameter -> the dim that the plan cuts, None for whole; tied names of one tensor have to agree."""
    found: dict[str, int | None] = {}
    for tensor in model.tensors:
        if tensor.kind == "parameter":
            rules = {each: style_of(plan.rules, each) for each in (tensor.fqn, *tensor.tied)}
            dims = {each: cut(style, each, len(tensor.dims)) for each, style in rules.items()}
            found[tensor.fqn] = dims[tensor.fqn]
            if len(set(dims.values())) > 1:
                told = " and ".join(f"`{each}` = {style or 'whole'}" for each, style in rules.items())
                bag.add(_finding(f"{told} are one tensor, and are asked for in two ways", plan.span(tensor.fqn)))
    return found


def style_of(rules: Mapping[str, str], fqn: str) -> str | None:
    """The style of a parameter: by its own name, else by its module's; None where no rule names it."""
    return next((rules[each] for each in (template(fqn), template(parent(fqn))) if each in rules), None)


def cut(style: str | None, fqn: str, dims: int) -> int | None:
    """The dim of a parameter that a style cuts, as its `shard_param` does; None for none."""
    if style in _TABLE:
        return _TABLE[style]
    if style in _OUT:
        return max(dims - 2, 0)
    return dims - 1 if style in _IN and fqn.rpartition(".")[2] != "bias" else None


Votes = dict[str, dict[str, bool]]
"""Dimension name -> parameter in which it is outermost in a dim -> whether that is cut."""


def _votes(model: Model, wanted: Mapping[str, int | None]) -> Votes:
    votes: Votes = {}
    for tensor in model.tensors:
        for dim, factors in enumerate(tensor.dims if tensor.kind == "parameter" else ()):
            votes.setdefault(factors[0], {})[tensor.fqn] = wanted[tensor.fqn] == dim
    return votes


def _exceptions(model: Model, votes: Votes, often: Mapping[str, str]) -> dict[str, dict[str, object]]:
    """Pattern of modules -> names that lie otherwise there than elsewhere."""
    found: dict[str, dict[str, object]] = {}
    holders = [parent(tensor.fqn) for tensor in model.tensors]
    for word, each in votes.items():
        others = [parent(fqn) for fqn, is_cut in each.items() if is_cut != (often[word] == "tp")]
        for pattern in fold(others, holders):
            found.setdefault(pattern, {})[word] = "whole" if often[word] == "tp" else "tp"
    return found


def _head(plan: TpPlan, model: Model) -> Iterator[str]:
    """What the spec is, and what of the plan is not said in it."""
    yield f"The tp_plan of {plan.of}: every parameter lies as it asks. What is sent follows from that."
    names = {template(each) for tensor in model.tensors for fqn in (tensor.fqn, *tensor.tied) for each in _names(fqn)}
    for pattern, style in plan.rules.items():
        if pattern not in names:
            yield f"Its rule `{pattern}` = {style} names no parameter."
        elif style in _GATHERED:
            yield f"`{pattern}` gathers its output there. Here the loss takes its parts."


def _names(fqn: str) -> Iterable[str]:
    return (fqn, parent(fqn))


def _finding(message: str, span: Span, *notes: str, text: str = "") -> Diagnostic:
    return Diagnostic(code="not-expressible", message=message, label=Label(span=span, text=text), notes=notes)
