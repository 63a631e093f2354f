"""A spec and a card whose names try to be markup, and to run a script."""

from __future__ import annotations

from pathlib import Path

RUN = "window.hacked=1"
AXIS = f"<img src=x onerror={RUN}>"
MODULE = f"a</title></svg></code><script>{RUN}</script>"
PORT = f"x'/onload='{RUN}"
FLAVOR = f"</script><script>{RUN}</script>"

CARD = f"""card = 1
model = "m"
whole = ["batch", "embed"]

[flavor."{FLAVOR}"]
embed = 8
mlp = 16

[param]
"{MODULE}" = "mlp embed"

[activation]
"" = {{ input.x = "batch embed", output = "batch mlp" }}
"{MODULE}" = {{ input = {{ "{PORT}" = "batch embed" }}, output = "batch mlp" }}

[flow]
"input.x" = "{MODULE} input.{PORT}"
"{MODULE} output" = "output"
"""

SPEC = f"""# </code></script><script>{RUN}</script><img src=x onerror="{RUN}">
meshlang = 1
model = "./m.card.toml#{FLAVOR}"

[mesh]
"{AXIS}" = 2

[topology]
order = ["{AXIS}"]

[place]
mlp = "{AXIS}"
"""


def hostile_spec(folder: Path) -> Path:
    """The spec in a folder, in a file with a name like it."""
    (folder / "m.card.toml").write_text(CARD)
    path = folder / f"<svg onload={RUN}>&amp;.toml"
    path.write_text(SPEC)
    return path
