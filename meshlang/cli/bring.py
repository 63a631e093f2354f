"""`meshlang import`: what another system says of parallelism, as a spec."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..card.find import Cards
from ..card.model import Model
from ..card.read import read_card
from ..compiler import Request, check, find_model, load
from ..diagnostics import Bag
from ..source import Source
from .progress import progress
from .request import FORMAT, RANKS, show

if TYPE_CHECKING:
    from ..foreign.written import Imported

#: Where a spec leaves the number of ranks open, it is held against the language for so many.
_FEW = 2
#: The flavor of a card that is made here, as `card init` names it.
_FLAVOR = "default"


@click.command(
    "import",
    short_help="The spec that equals another system's, or a card.",
    context_settings={"ignore_unknown_options": True},
)
@click.option("--titan", is_flag=True, help="The rest of the line is torchtitan's flags.")
@click.option(
    "--hf", "config", metavar="CONFIG", help="A config.json of Hugging Face transformers, or a folder with one."
)
@click.option("--model", metavar="CARD/FLAVOR", help="What the spec calls the model; with --hf no card is made then.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False), help="With --hf: write card and spec here, new files."
)
@RANKS
@FORMAT
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def import_command(
    titan: bool,
    config: str | None,
    model: str | None,
    output: str | None,
    ranks: int | None,
    form: str,
    flags: tuple[str, ...],
) -> None:
    """Print the spec that equals what another system says, or name what no spec can express.

    --titan reads torchtitan's flags, --hf the tp_plan of a Hugging Face model, for which it also makes a card.

    \b
    meshlang import --titan --model llama3/8B --parallelism.tensor_parallel_degree 8
    meshlang import --hf path/to/config.json --ranks 8 -o specs
    """
    if titan and config is not None:
        raise click.UsageError("--titan and --hf are one of two: each is read into a spec of its own")
    if not titan and config is None:
        raise click.UsageError("say what to read: --titan FLAGS..., or --hf CONFIG")
    if config is not None:
        if flags:
            raise click.UsageError(f"--hf takes no further words: {' '.join(flags)}")
        _give(_hugging_face(config, model, ranks, form), output)
        return
    if output is not None:
        raise click.UsageError("-o is of --hf; what --titan prints can be sent to a file")
    if model is None:
        raise click.UsageError(
            f"--model CARD/FLAVOR says whose dimensions are cut; cards: {', '.join(Cards().names())}"
        )
    _give(_titan(flags, model, ranks, form), None)


def _titan(flags: tuple[str, ...], name: str, ranks: int | None, form: str) -> Imported:
    from ..foreign.titan import imported

    bag = Bag()
    model = _named(name, bag)
    found = imported(flags, name=name, model=model, ranks=ranks, bag=bag) if model is not None else None
    if found is None:
        _stop(bag, form)
    ranks = ranks or found.ranks
    if ranks is not None:
        _held(Request(source=Source(name="the spec of these flags", text=found.text), ranks=ranks), form)
    return found


def _hugging_face(config: str, name: str | None, ranks: int | None, form: str) -> Imported:
    """Card and spec of a config. Where a card is named and the config has a tp_plan, torch is not loaded."""
    from ..foreign.tp_plan import TpPlan, imported, refused

    bag, (source, values) = Bag(), _config(config)
    model = _named(name, bag) if name is not None else None
    if len(bag):
        _stop(bag, form)
    with progress("import", 3, "the model of the config") as tick:
        module = None if model is not None and isinstance(values.get("tp_plan"), dict) else _built(values)
        plan = TpPlan(source=source, **_rules(module, values))
        names = _names(module) if model is None else [each for each in model.modules if each]
        tick("its card")
        if refused(plan, names, bag):
            _stop(bag, form)
        stem, card = f"{values.get('model_type', 'model')}_hf", None
        if model is None:
            card = _card(module, stem)
            model = read_card(Source(name=f"{stem}.card.toml", text=card), _FLAVOR, bag)
        tick("its plan")
        called = name or f"./{stem}.card.toml#{_FLAVOR}"
        found = imported(plan, model, name=called, ranks=ranks, bag=bag) if model is not None else None
        if found is None:
            _stop(bag, form)
        overlay = {} if card is None else {f"{stem}.card.toml": card}
        spec = Source(name=f"{stem}.toml", text=found.text)
        _held(Request(source=spec, ranks=ranks or _FEW, overlay=overlay), form)
    return replace(found, card=card, stem=stem)


def _config(config: str) -> tuple[Source, Mapping[str, Any]]:
    path = Path(config) / "config.json" if Path(config).is_dir() else Path(config)
    try:
        source = Source.read(path)
        values = json.loads(source.text)
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise click.UsageError(f"{path} holds no config: an object with `model_type` is one")
    for key in ("tp_plan", "base_model_tp_plan"):
        rules = values.get(key)
        if rules not in (None, "auto") and not (
            isinstance(rules, dict) and all(isinstance(style, str) for style in rules.values())
        ):
            raise click.UsageError(f"{path}: `{key}` is no table of patterns and styles")
    return source, values


def _built(values: Mapping[str, Any]) -> Any:
    from ..runtime.hugging_face import ConfigError, built

    try:
        return built(values)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _rules(module: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Whose plan it is, its rules, and what else transformers has for the model."""
    if module is None:
        return {"of": "the config", "rules": values["tp_plan"]}
    from ..runtime.hugging_face import remarks, rules_of

    return {"of": type(module).__name__, "rules": rules_of(module, values), "remarks": remarks(module)}


def _names(module: Any) -> list[str]:
    return [name for name, _ in (*module.named_modules(), *module.named_parameters()) if name]


def _card(module: Any, name: str) -> str:
    from ..runtime.cards import TargetError, init_card

    try:
        return init_card(module, name, _FLAVOR)
    except TargetError as error:
        raise click.UsageError(str(error)) from error


def _named(name: str, bag: Bag) -> Model | None:
    """The model that a spec with this name would have."""
    text = f"meshlang = 1\nmodel = {json.dumps(name)}\n[mesh]\ndp = 1\n"
    request = Request(source=Source(name="--model", text=text))
    return find_model(load(request), request, bag)


def _held(request: Request, form: str) -> None:
    """What is printed is a spec that `check` accepts; else its findings are printed, and it is not."""
    if wrong := check(request):
        show(wrong, form)
        sys.exit(1)


def _stop(bag: Bag, form: str) -> NoReturn:
    show(list(bag), form)
    sys.exit(1)


def _give(found: Imported, output: str | None) -> None:
    """Print it, or write its files, none of which may be there."""
    files = {f"{found.stem}.card.toml": found.card} if found.card is not None else {}
    files[f"{found.stem}.toml"] = found.text
    if output is None:
        for name, text in files.items():
            click.echo((f"# {name}\n" if len(files) > 1 else "") + text, nl=len(files) > 1)
        return
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (Path(output) / name).open("x", encoding="utf-8") as file:
                file.write(text)
            click.echo(f"wrote {Path(output) / name}")
    except OSError as error:
        raise click.UsageError(f"cannot write {error.filename}: {error.strerror}") from error
