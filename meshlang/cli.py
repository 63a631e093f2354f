"""The command line. Exit code 0: fine; 1: findings; 2: wrong usage.

Nothing here knows torch but `card init`, `card check` and `launch`, which load it inside. What one
command needs and others do not is imported inside it: a check is over in the time that imports take.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .card.find import Cards
from .compiler import Request, check, compile, load
from .diagnostics import Diagnostic, SpecError
from .near import near
from .plan.ir import Plan
from .registry import PluginError, Plugins, Registry
from .source import Source

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SPEC = click.argument("spec", type=click.Path(dir_okay=False))
RANKS = click.option("--ranks", type=click.IntRange(min=1), help="Ranks of the whole mesh.")
SETS = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Lay one key over the spec: mesh.tp=8.")
ON = click.option("--on", metavar="NAME", help="Lay the machine [topology.on.NAME] over the spec.")
FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "short", "json"]), default="text", help="Of findings."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="meshlang")
def main() -> None:
    """Say how a model is spread over machines, and have it checked before it runs."""


def laid_over(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command on a spec shares."""
    for option in (FORMAT, ON, SETS):
        command = option(command)
    return command


def request(spec: str, **options: Any) -> Request:
    """What the command line asks for; a file that cannot be read is wrong usage."""
    try:
        return Request.of(spec, **options)
    except OSError as error:
        raise click.UsageError(f"cannot read {spec}: {error.strerror}") from error


def findings(asked: Request, form: str) -> NoReturn:
    """Print the findings of a spec that has some, with fixes that were tried, and stop."""
    show(check(asked), form)
    sys.exit(1)


def show(found: Sequence[Diagnostic], form: str) -> None:
    """Print findings in one of the three forms."""
    from .render import render

    color = form == "text" and sys.stdout.isatty()
    click.echo(render(found, form, color), nl=False)  # pyright: ignore[reportArgumentType]


def planned(asked: Request, form: str, rank: int | None = None) -> Plan:
    """The plan, or the findings and the end."""
    try:
        plan = compile(asked)
    except SpecError:
        findings(asked, form)
    if rank is not None and not 0 <= rank < plan.ranks:
        raise click.UsageError(f"--rank {rank}: the mesh has ranks 0 to {plan.ranks - 1}")
    return plan


def _numbers(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int | None, ...]:
    if value is None:
        return (None,)
    words = value.split(",")
    numbers = [int(word) for word in words if re.fullmatch(r"\s*[0-9]{1,18}\s*", word)]
    if len(numbers) < len(words) or 0 in numbers:
        raise click.BadParameter("a number of ranks, or several with commas between: 8,64")
    return tuple(numbers)


@main.command("check")
@click.argument("specs", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("--ranks", callback=_numbers, metavar="N,N", help="Ranks to check for; several with commas.")
@laid_over
def check_command(
    specs: tuple[str, ...], ranks: tuple[int | None, ...], sets: tuple[str, ...], on: str | None, form: str
) -> None:
    """All errors of each SPEC, or silence."""
    found: list[Diagnostic] = []
    for spec in specs:
        for count in ranks:
            found += [each for each in check(request(spec, ranks=count, sets=sets, on=on)) if each not in found]
    if found or form == "json":
        show(found, form)
    sys.exit(1 if found else 0)


@main.command("plan")
@SPEC
@RANKS
@click.option("--rank", type=int, help="Whose local shapes to show.")
@click.option("--json", "as_json", is_flag=True, help="The whole plan as one JSON document.")
@click.option(
    "--lock", type=click.Path(dir_okay=False), help="Hold the plan against a golden file; make it if missing."
)
@click.option("--update", is_flag=True, help="With --lock: write the golden file anew.")
@laid_over
def plan_command(
    spec: str,
    ranks: int | None,
    rank: int | None,
    as_json: bool,
    lock: str | None,
    update: bool,
    sets: tuple[str, ...],
    on: str | None,
    form: str,
) -> None:
    """Every tensor's layout, every redistribution and collective with its bytes, state per rank."""
    if update and lock is None:
        raise click.UsageError("--update goes with --lock FILE")
    if as_json and lock is not None:
        raise click.UsageError("--json prints the plan, and --lock FILE holds it against a file: one of them")
    plan = planned(request(spec, ranks=ranks, sets=sets, on=on), form, rank)
    if lock is not None:
        sys.exit(_lock(plan, Path(lock), update))
    if as_json:
        from .plan.data import to_json

        click.echo(to_json(plan, rank=rank or 0, indent=1))
        return
    from .report.plan import plan_text

    click.echo(plan_text(plan, rank=rank or 0), nl=False)


def _lock(plan: Plan, path: Path, update: bool) -> int:
    from difflib import unified_diff

    from .report.lock import lock_text

    text = lock_text(plan)
    try:
        old = None if update or not path.exists() else path.read_text(encoding="utf-8", errors="replace")
        if old is None:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot use {path}: {error.strerror}") from error
    if old is None:
        click.echo(f"wrote {path}")
        return 0
    if old == text:
        return 0
    click.echo("".join(unified_diff(old.splitlines(True), text.splitlines(True), str(path), "the plan")), nl=False)
    click.echo(f"the plan differs from {path}; `--update` writes it anew")
    return 1


@main.command("explain")
@click.argument("subject")
@click.argument("fqn", required=False)
@RANKS
@laid_over
def explain_command(
    subject: str, fqn: str | None, ranks: int | None, sets: tuple[str, ...], on: str | None, form: str
) -> None:
    """`explain CODE`: the page of a finding. `explain SPEC FQN`: who decided each dimension of a tensor."""
    if fqn is None:
        click.echo(_page(subject), nl=False)
        return
    from .report.tensor import tensor_text

    plan = planned(request(subject, ranks=ranks, sets=sets, on=on), form)
    text = tensor_text(plan, fqn)
    if text is None:
        known = [*plan.by_fqn, *(edge.module for edge in plan.edges)]
        guess = near(fqn, known)
        raise click.UsageError(f"the model has no `{fqn}`" + (f"; did you mean `{guess}`?" if guess else ""))
    click.echo(text, nl=False)


def codes() -> tuple[str, ...]:
    """Every code that a finding may have, sorted: those that have a page."""
    names = (page.name for page in _pages().iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


def _pages() -> Traversable:
    from importlib.resources import files

    return files("meshlang").joinpath("explain")


def _page(code: str) -> str:
    known = codes()
    if code not in known:
        guess = near(code, known)
        hint = f"; did you mean `{guess}`?" if guess else "."
        raise click.UsageError(f"no finding has the code `{code}`{hint} Codes: {', '.join(known)}")
    return _pages().joinpath(f"{code}.md").read_text(encoding="utf-8")


@main.command("diff")
@click.argument("before", type=click.Path(dir_okay=False))
@click.argument("after", type=click.Path(dir_okay=False))
@RANKS
@laid_over
def diff_command(before: str, after: str, ranks: int | None, sets: tuple[str, ...], on: str | None, form: str) -> None:
    """What changes from one spec to another, with the bytes of state that move."""
    from .plan.diff import diff
    from .report.diff import diff_text

    one, other = (planned(request(spec, ranks=ranks, sets=sets, on=on), form) for spec in (before, after))
    click.echo(diff_text(diff(one, other), (*one.by_fqn, *other.by_fqn)), nl=False)


@main.command("mesh")
@SPEC
@RANKS
@click.option("--rank", type=int, help="Show one rank only.")
@laid_over
def mesh_command(
    spec: str, ranks: int | None, rank: int | None, sets: tuple[str, ...], on: str | None, form: str
) -> None:
    """Where each rank lies on the mesh, and who talks to whom."""
    from .report.mesh import mesh_text

    asked = request(spec, ranks=ranks, sets=sets, on=on)
    plan = planned(asked, form, rank)
    per_node = load(asked).topology.ranks_per_node
    node = per_node.value if per_node is not None else None
    click.echo(mesh_text(plan, rank=rank, ranks_per_node=node), nl=False)


@main.command("schema")
def schema_command() -> None:
    """The JSON Schema of the language, for editors."""
    import json

    from .language.schema import schema

    click.echo(json.dumps(schema(Plugins()), indent=2))


@main.command("strategies")
def strategies_command() -> None:
    """Strategies and schedules that are installed, and who brings them."""
    plugins = Plugins()
    for title, registry in (("strategies", plugins.strategies), ("schedules", plugins.schedules)):
        click.echo(title)
        for line in _installed(registry):
            click.echo(f"  {line}")


def _installed(registry: Registry) -> Iterable[str]:
    if not registry.names():
        yield "none"
    for name in registry.names():
        try:
            first = (registry.load(name).__doc__ or "").strip().partition("\n")[0]
            yield f"{name} ({registry.distribution(name)}): {first}"
        except PluginError as error:
            yield f"{name}: cannot be used: {error}"


@main.group("card")
def card_group() -> None:
    """Model cards: the dimension names of every tensor of an architecture."""


@card_group.command("init")
@click.argument("target")
@click.option("--name", help="The card's model name; default: the last part of TARGET's module.")
@click.option("--flavor", default="default", show_default=True, help="Name of the flavor that its sizes make.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here, a new file; default: print.")
def card_init_command(target: str, name: str | None, flavor: str, output: str | None) -> None:
    """A first card for any nn.Module, each guess marked for review.

    TARGET is package.module:factory, a function that returns an nn.Module or a torchtitan recipe.
    """
    from .runtime.cards import init_card

    text = init_card(_built(target, flavor), name or target.partition(":")[0].rpartition(".")[2], flavor)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with Path(output).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"wrote {output}; review each line marked `guess`")


@card_group.command("check")
@click.argument("card")
@click.argument("target")
@FORMAT
def card_check_command(card: str, target: str, form: str) -> None:
    """Hold a card against the model that it describes.

    CARD is NAME/FLAVOR of an installed card or FILE#FLAVOR, TARGET package.module:factory.
    """
    from .runtime.cards import check_card

    source, flavor = _card(card)
    found = check_card(source, flavor, _built(target, flavor))
    if found or form == "json":
        show(found, form)
    sys.exit(1 if found else 0)


def _card(name: str) -> tuple[Source, str]:
    head, mark, flavor = name.partition("#" if "#" in name else "/")
    path = Path(head) if mark == "#" else Cards().path(head)
    if path is None or not flavor:
        raise click.UsageError(f"{name}: no such card; NAME/FLAVOR of {', '.join(Cards().names())}, or FILE#FLAVOR")
    try:
        return Source.read(path), flavor
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from error


def _built(target: str, flavor: str) -> Any:
    from .runtime.cards import TargetError, build_module

    try:
        return build_module(target, flavor)
    except TargetError as error:
        raise click.UsageError(str(error)) from error


def _torchruns(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of torchrun that a launch hands on."""
    count = click.IntRange(min=0)
    options = (
        click.option("--max-restarts", type=count, default=0, help="After a failure, resume so often."),
        click.option("--nnodes", type=click.IntRange(min=1), default=1, help="Nodes; run the same command on each."),
        click.option("--node-rank", type=count, help="This node's, where torchrun does not number them itself."),
        click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Where nodes meet; with it alone, over c10d."),
        click.option("--rdzv-backend", metavar="NAME", help="How nodes meet: c10d, static."),
        click.option("--rdzv-id", metavar="NAME", help="Which launch this is, for nodes that meet."),
        click.option("--master-addr", metavar="HOST", help="Of node 0, where they do not meet by --rdzv-endpoint."),
        click.option("--master-port", type=click.IntRange(min=0, max=65535), help="On node 0."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@main.command("launch", context_settings={"ignore_unknown_options": True})
@SPEC
@RANKS
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is one, else cpu.")
@_torchruns
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@laid_over
def launch_command(
    spec: str,
    ranks: int | None,
    device: str | None,
    flags: tuple[str, ...],
    sets: tuple[str, ...],
    on: str | None,
    form: str,
    **nodes: Any,
) -> None:
    """Check SPEC, then train on torchtitan: meshlang launch SPEC [-- torchtitan's own flags]."""
    asked = request(spec, ranks=ranks, sets=sets, on=on, launch=True)
    planned(asked, form)
    from .runtime.launch import launch
    from .runtime.torchrun import Torchrun, TorchrunError

    try:
        sys.exit(launch(asked, flags=flags, device=device, torchrun=Torchrun(**nodes)))
    except TorchrunError as error:
        raise click.UsageError(str(error)) from error
    except SpecError as error:
        show(error.diagnostics, form)
        sys.exit(1)
