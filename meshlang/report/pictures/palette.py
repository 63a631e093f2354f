"""Colours by the name of a class, light and dark; series are told apart by people who see no red or green."""

from __future__ import annotations

#: Class -> (light, dark). Series s0 ... s7, heat h0 ... h8, operations of each kind and replica.
FILLS = {
    "s0": ("#4269d0", "#7f9df5"),
    "s1": ("#e8971e", "#f2b04c"),
    "s2": ("#3a9c5f", "#5fc587"),
    "s3": ("#d0518c", "#ee86b7"),
    "s4": ("#2f9fb3", "#5cc9db"),
    "s5": ("#8a5fc4", "#b795ea"),
    "s6": ("#a2742f", "#d0a561"),
    "s7": ("#6f7b8a", "#a3afbe"),
    "h0": ("#f4f6fb", "#1b2230"),
    "h1": ("#dfe7f8", "#202c47"),
    "h2": ("#c3d2f2", "#27385f"),
    "h3": ("#a2b9ea", "#2f4779"),
    "h4": ("#7f9de0", "#3a5896"),
    "h5": ("#5d80d4", "#4a6db4"),
    "h6": ("#4269c6", "#6287d0"),
    "h7": ("#2f51a8", "#86a6e6"),
    "h8": ("#1e3a85", "#b3c8f7"),
    "opF0": ("#8fb4ea", "#5f8fd6"),
    "opF1": ("#3f74c4", "#8db6f0"),
    "opB0": ("#9bd3a5", "#4f9d63"),
    "opB1": ("#3f9a56", "#8ad09a"),
    "opI0": ("#bfe3c4", "#6cae7b"),
    "opI1": ("#6bb67c", "#a7dbb2"),
    "opW0": ("#f5c68a", "#c98a3c"),
    "opW1": ("#e08a2c", "#f0b978"),
    "cell": ("#eef1f6", "#232b38"),
    "soft": ("#f6f7fa", "#1a202b"),
    "warn": ("#c8362b", "#ff7b6e"),
}
#: Names of plain colours: text, quiet text, lines, paper, text upon deep fills.
PLAIN = {
    "ink": ("#1b2330", "#e6eaf1"),
    "mute": ("#5b6675", "#9aa6b6"),
    "line": ("#c9d0da", "#3b4655"),
    "paper": ("#ffffff", "#12161d"),
    "deep": ("#ffffff", "#0d1117"),
}

SERIES = 8
HEATS = 9

#: What classes do beside filling; `{name}` is a colour.
_RULES = """\
text{{fill:{ink};font:11px ui-sans-serif,system-ui,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}}
.mono{{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}}
.small{{font-size:9.5px}}.strong{{font-weight:600}}.mid{{text-anchor:middle}}.end{{text-anchor:end}}
text.quiet{{fill:{mute}}}text.upon{{fill:{deep}}}text.bad{{fill:{warn}}}text.on-op{{fill:#14202f}}
.axis{{stroke:{line};fill:none}}.edge{{stroke:{line}}}.frame{{fill:none;stroke:{mute}}}
.thin{{stroke:{paper};stroke-width:.8}}
.limit{{stroke:{warn};stroke-width:1.5;stroke-dasharray:5 3}}
.clear{{fill:none}}.faint{{fill-opacity:.32}}.half{{fill-opacity:.62}}
.dense .thin{{stroke:none}}
.curve{{fill:none;stroke:{line};stroke-width:1}}.curve.top{{stroke:{s0};stroke-width:2}}
.cut{{stroke:{ink};stroke-width:1.6;fill:none}}
"""


def colours(dark: bool = False) -> dict[str, str]:
    """Every colour of a theme by its name."""
    return {name: pair[dark] for name, pair in {**FILLS, **PLAIN}.items()}


def alone() -> str:
    """The style of a picture alone: colours written out, since few programs that read SVG know variables."""
    return _rules(colours())


def variables(dark: bool) -> str:
    """Declarations of a theme's variables, for the page."""
    return "".join(f"--{name}:{value};" for name, value in colours(dark).items())


def shared() -> str:
    """The same style by variables, for pictures in the page."""
    return _rules({name: f"var(--{name})" for name in colours()})


def _rules(names: dict[str, str]) -> str:
    fills = "".join(f".{name}{{fill:{names[name]}}}" for name in FILLS)
    strokes = "".join(f".on{i} rect{{stroke:{names[f's{i}']};stroke-width:3}}" for i in range(SERIES))
    return f"{fills}\n{_RULES.format(**names)}{strokes}.here rect{{stroke:{names['ink']};stroke-width:3.5}}\n"
